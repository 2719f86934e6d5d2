"""How long to wait before the next try, wherever something is tried again: the one place with these numbers."""

from __future__ import annotations

import asyncio
import random

SHORTEST_SECONDS = 0.05
LONGEST_SECONDS = 1.0


class Backoff:
    """Waits that double from try to try; each is a random part shorter, so that many who wait do not march in step."""

    def __init__(self, shortest: float = SHORTEST_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._shortest = shortest
        self._longest = longest
        self._next = shortest

    def reset(self) -> None:
        """It worked: begin again with the shortest."""
        self._next = self._shortest

    def seconds(self) -> float:
        """How long to wait this time."""
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._longest, self._next * 2)
        return wait

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds())
