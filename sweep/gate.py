"""The measuring gate: nothing else of the sweep runs while anyone's timed runs do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class MeasuringGate:
    """Background work shares the gate; timed runs have it alone, and go first.

    Work that has begun is let end, so background work should come in pieces: one download, one
    inspection, one desktop run.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._working = 0
        self._waiting = 0
        self._timing = False

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Holds the gate for one piece of background work."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._timing and not self._waiting)
            self._working += 1
        try:
            yield
        finally:
            await self._leave(working=True)

    @contextlib.asynccontextmanager
    async def timing(self) -> AsyncIterator[None]:
        """Holds the gate alone, for timed runs."""
        async with self._changed:
            self._waiting += 1
            try:
                await self._changed.wait_for(lambda: not self._timing and not self._working)
                self._timing = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            await self._leave(working=False)

    async def _leave(self, *, working: bool) -> None:
        async with self._changed:
            if working:
                self._working -= 1
            else:
                self._timing = False
            self._changed.notify_all()
