"""How far a run is and how long it still takes, on stderr. A terminal gets bars, anything else lines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from harness.measure.heartbeat import Beat

LINE_S = 15.0
"""Seconds between two lines about a pass that goes on, where stderr is no terminal."""


def time_left(seconds: float) -> str:
    """In words, as exact as an estimate is."""
    return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


class Steps:
    """Steps of a job, numbered, with the time left from how long those before took.

    Args:
        shares: name -> how much of the job it is, in any unit.
        say: told one line at a time.
    """

    def __init__(self, shares: Mapping[str, float], say: Callable[[str], None]) -> None:
        self.shares, self.say = shares, say
        self.began = time.monotonic()

    def begin(self, name: str, text: str) -> None:
        """Say that a step begins."""
        names = list(self.shares)
        at = names.index(name)
        done, rest = (sum(self.shares[n] for n in part) for part in (names[:at], names[at:]))
        left = f", about {time_left((time.monotonic() - self.began) * rest / done)}" if done else ""
        self.say(f"step {at + 1} of {len(names)}{left}: {name}: {text}")


class Progress:
    """Bars of the workers in flight, fed from their heartbeats.

    Args:
        passes: passes to do, all devices together.
        say: told one line at a time where stderr is no terminal.
    """

    def __init__(self, passes: int, say: Callable[[str], None]) -> None:
        self.passes, self.say = passes, say
        self.done = 0
        self.lock = threading.Lock()
        self.began = self.said = 0.0
        self.bars: dict[tuple[int, str], Any] = {}
        self.share: dict[tuple[int, str], float] = {}
        self.rich: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Rich

            self.rich = Rich(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self.rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.rich is not None:
            self.rich.stop()

    def left(self) -> str:
        """Time left for all passes, from the share of them that is done; nothing where that says too little."""
        share = (self.done + sum(self.share.values())) / max(self.passes, 1)
        if not 0.01 < share < 1:
            return ""
        return time_left((time.monotonic() - self.began) * (1 - share) / share)

    def update(self, number: int, uuid: str, beat: Beat, after: str = "") -> None:
        """A worker's newest sign of life.

        Args:
            after: what runs after the passes (`controls`) and is no part of them.
        """
        key = (number, uuid)
        with self.lock:
            self.began = self.began or time.monotonic()  # what ran before the passes says nothing about them
            if not after:
                self.share[key] = beat.done / beat.total if beat.total else 0.0
            label = json.loads(beat.label) if beat.label.startswith("[") else [""]
            if self.rich is None:
                how_far = f"{beat.done} of {beat.total} batches" if beat.total else " ".join(filter(None, label[:2]))
                self._line(f"{after or f'pass {number + 1}'} on {uuid}: {how_far}")
                return
            if key not in self.bars:
                self.bars[key] = self.rich.add_task("", total=max(beat.total, 1), left="")
            self.rich.update(
                self.bars[key],
                total=max(beat.total, 1),
                completed=beat.done,
                description=f"{after or f'pass {number + 1}'} {uuid[:12]} {label[0]}",
                left=self.left(),
            )

    def _line(self, text: str) -> None:
        """Where no bar is: a line every LINE_S, whatever pass it is about; the first one after that time."""
        now = time.monotonic()
        self.said = self.said or now
        if now - self.said >= LINE_S:
            self.said = now
            left = self.left()
            self.say(f"{text}, {left}" if left else text)

    def finished(self, number: int, uuid: str) -> None:
        """A pass is whole."""
        with self.lock:
            self.done += 1
            self.share.pop((number, uuid), None)
            if self.rich is not None and (number, uuid) in self.bars:
                self.rich.remove_task(self.bars.pop((number, uuid)))
            line = f"pass {number + 1} on {uuid} is done ({self.done} of {self.passes})"
            left = self.left() if self.done < self.passes else ""
        self.say(f"{line}, {left}" if left else line)
