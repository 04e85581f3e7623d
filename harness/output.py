"""What a task says: its result on stdout, and nothing else there; progress and warnings on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(line: str) -> None:
    """Progress or a warning, at once."""
    print(line, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """One strict JSON document on stdout: no NaN, which most readers reject."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
