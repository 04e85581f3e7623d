"""What several gates of one volume need, worked out once: gates run side by side, and each asks for itself."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass
class _Place(Generic[Value]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    values: list[Value] = field(default_factory=list)


class Once(Generic[Key, Value]):
    """A value for each object, told apart by identity, kept as long as the object is; safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: weakref.WeakKeyDictionary[Key, _Place[Value]] = weakref.WeakKeyDictionary()

    def __call__(self, key: Key, make: Callable[[], Value]) -> Value:
        """What `make` returned for this object, now or before; a failure is raised and not kept."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
        with place.lock:
            if not place.values:
                place.values.append(make())
            return place.values[0]
