"""What one batch gives back, whichever device ran it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """What a batch left in its volumes: fewest blocks and greatest losses, so that no average hides a loss."""

    blocks: int
    failed_inserts: int
    dropped_points: int


@dataclass(frozen=True)
class Reading:
    """One batch.

    Attributes:
        us: microseconds per launch. mhz: SM clock while it ran, None where it could not be read.
        counters: None where the kernel builds nothing. late: the start event fired before the whole batch was enqueued,
            so that host latency may stand between the events.
    """

    us: float
    mhz: float | None
    counters: Counters | None
    late: bool = False

    @property
    def cycles(self) -> float | None:
        """SM cycles per launch."""
        return None if self.mhz is None else self.us * self.mhz
