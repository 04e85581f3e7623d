"""A worker's life: its end with the manager's, and its sign of life, a small shared file that says what is running and
until when it may.

The file is written before every step, without a system call, so that it costs nothing next to a batch; read by the
manager, which ends a worker whose deadline has passed. CLOCK_MONOTONIC is one clock for all processes of a machine.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = struct.Struct("<dqq480s")
SIZE = _LAYOUT.size

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """End when the manager ends, however it ends: a killed run must not leave a worker on the device."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


@dataclass(frozen=True)
class Beat:
    """Attributes:
    deadline: monotonic seconds, 0 for none. done, total: batches. label: what is running.
    """

    deadline: float
    done: int
    total: int
    label: str

    @property
    def overdue(self) -> bool:
        return 0 < self.deadline < time.monotonic()


class Heartbeat:
    """The file, opened by either side."""

    def __init__(self, path: Path, create: bool = False) -> None:
        if create:
            path.write_bytes(_LAYOUT.pack(0.0, 0, 0, b""))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)
        self.done, self.total = 0, 0

    def expect(self, seconds: float, label: str) -> None:
        """What runs now ends within `seconds`."""
        text = label.encode()[:480]
        self._map[:] = _LAYOUT.pack(time.monotonic() + seconds, self.done, self.total, text)

    def read(self) -> Beat:
        deadline, done, total, label = _LAYOUT.unpack(self._map[:])
        return Beat(deadline, done, total, label.rstrip(b"\0").decode("utf-8", "replace"))

    def close(self) -> None:
        self._map.close()
