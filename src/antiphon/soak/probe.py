"""Looks at the cluster from outside: a reader of each group all the time, and a new client after each episode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from antiphon.client import Client, connect
from antiphon.core.errors import Unavailable
from antiphon.soak.judge import Digest, LoggedPayload
from antiphon.soak.records import payload_of

TAG = "probe"
PayloadName = tuple[str, tuple[str, ...], int]


class Reader:
    """Follows one group from its first message, through everything."""

    def __init__(self, client: Client, group: str) -> None:
        self.digest = Digest()
        self._group = group
        self._client = client
        self._awaited: dict[PayloadName, asyncio.Event] = {}

    async def run(self) -> None:
        async for delivery in self._client.subscribe(self._group):
            assert delivery.position == self.digest.count, "A subscription leaves no holes."
            each = LoggedPayload(delivery.client, delivery.destinations, delivery.number, delivery.payload)
            self.digest.add(each)
            if delivery.client.startswith(TAG):
                self._event(each.name).set()

    def _event(self, name: PayloadName) -> asyncio.Event:
        return self._awaited.setdefault(name, asyncio.Event())

    async def see(self, name: PayloadName) -> None:
        await self._event(name).wait()


class Probe:
    def __init__(self, target: Path, routes: Sequence[tuple[str, ...]], readers: dict[str, Reader]) -> None:
        self._target = target
        self._routes = routes
        self._readers = readers
        self._serials = count()

    async def seconds_until_delivery(self, since: float, patience: float) -> float | None:
        """From ``since`` until what a new client sends is read in each of its groups; None: not in time."""
        try:
            async with asyncio.timeout(patience), connect(self._target, name=TAG) as client:
                await asyncio.gather(*(self._round(client, route, patience) for route in self._routes))
        except (TimeoutError, Unavailable):
            return None
        return time.monotonic() - since

    async def _round(self, client: Client, route: tuple[str, ...], patience: float) -> None:
        payload = payload_of(TAG, next(self._serials))
        receipt = await client.multicast(route, payload, timeout=patience)
        name = (receipt.client, receipt.destinations, receipt.number)
        await asyncio.gather(*(self._readers[group].see(name) for group in receipt.destinations))
