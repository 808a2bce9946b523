"""A time budget that is passed down: each step asks before it begins, none is cut short."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """Seconds from its making; what was begun is finished, so a little more may be used."""

    seconds: float
    _started: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.seconds - self.spent)

    def part(self, share: float) -> Budget:
        """A budget of a share of what is left."""
        return Budget(self.left * share)
