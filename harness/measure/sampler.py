"""One timed batch: the order of its steps and nothing else. Knows a batch, never a device, a schedule or a file."""

from __future__ import annotations

from typing import Protocol

from harness.device.reading import Reading


class Batch(Protocol):
    """One kernel in one regime on a cell, ready to be repeated."""

    launches: int
    flushed: bool

    def reset(self) -> None:
        """Enqueue the start state."""

    def flush(self) -> None:
        """Enqueue a write larger than L2."""

    def stamp(self) -> None:
        """Enqueue the clock stamp that holds the device until the batch is enqueued."""

    def start(self) -> None:
        """Enqueue the start event."""

    def launch(self) -> None:
        """Enqueue the batch."""

    def stop(self) -> None:
        """Enqueue the stop event."""

    def stamp_again(self) -> None:
        """Enqueue the closing clock stamp."""

    def collect(self) -> Reading:
        """Wait for the end and read."""
        ...


def measure(batch: Batch) -> Reading:
    """Run a batch once. The state is restored outside the events, and the events stand inside the clock stamps."""
    batch.reset()
    if batch.flushed:
        batch.flush()
    batch.stamp()
    batch.start()
    batch.launch()
    batch.stop()
    batch.stamp_again()
    return batch.collect()
