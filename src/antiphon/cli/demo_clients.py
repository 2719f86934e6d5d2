"""The demo's clients: two that multicast to overlapping sets of groups, and a reader of each group."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from antiphon.client import Client, connect

CLIENTS = 2
MESSAGES_PER_SECOND = 2000  # of all clients together, if the machine can
STRETCH = 16  # so many messages of a client go to one set of groups before it takes another
UNDER_WAY_MAX = 256  # multicasts that a client has under way at most
READ_SECONDS = 20.0  # without any message, after which the readers are not waited for


PayloadName = tuple[str, tuple[str, ...], int]  # of a payload: the client, its destination groups, its number


class DemoTally(msgspec.Struct):
    """What the members accepted, and what the readers saw of it."""

    accepted: list[PayloadName] = []
    read: dict[str, list[PayloadName]] = {}  # group: the payloads that it delivered, in its order

    def expected(self, group: str) -> int:
        return sum(group in destinations for _, destinations, _ in self.accepted)

    @property
    def all_read(self) -> bool:
        """Whether each reader saw each message of its group once, and no other."""
        return all(len(names) == len(set(names)) == self.expected(group) for group, names in self.read.items())


class DemoClients:
    """Runs the clients and tells ``on_accepted`` how many messages were accepted so far."""

    def __init__(self, folder: Path, groups: list[str], messages: int, on_accepted: Callable[[int], None]) -> None:
        self.tally = DemoTally(read={group: [] for group in groups})
        self._folder = folder
        self._groups = groups
        self._messages = messages
        self._on_accepted = on_accepted

    async def run(self) -> DemoTally:
        async with connect(self._folder, name="reader") as reader:
            reading = [asyncio.create_task(self._read(reader, group)) for group in self._groups]
            async with asyncio.TaskGroup() as clients:
                for index in range(CLIENTS):
                    clients.create_task(self._client(index))
            await self._wait_for_readers()
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return self.tally

    async def _client(self, index: int) -> None:
        plan = iter(range(index, self._messages, CLIENTS))
        begun = asyncio.get_running_loop().time()
        async with connect(self._folder, name=f"client{index + 1}") as client, asyncio.TaskGroup() as senders:
            for _ in range(min(UNDER_WAY_MAX, self._messages)):
                senders.create_task(self._sender(client, index, plan, begun))

    async def _sender(self, client: Client, index: int, plan: Iterator[int], begun: float) -> None:
        """Take the next message of the plan, wait for its moment, send it; and again."""
        loop = asyncio.get_running_loop()
        for number in plan:
            await asyncio.sleep(begun + number / MESSAGES_PER_SECOND - loop.time())
            chance = random.Random(f"{index}/{number // (CLIENTS * STRETCH)}")
            wanted = tuple(chance.sample(self._groups, chance.randint(1, len(self._groups))))
            receipt = await client.multicast(wanted, f"message {number}".encode())
            self.tally.accepted.append((receipt.client, receipt.destinations, receipt.number))
            self._on_accepted(len(self.tally.accepted))

    async def _read(self, reader: Client, group: str) -> None:
        async for delivery in reader.subscribe(group):
            self.tally.read[group].append((delivery.client, delivery.destinations, delivery.number))

    async def _wait_for_readers(self) -> None:
        loop = asyncio.get_running_loop()
        seen, since = 0, loop.time()
        while loop.time() < since + READ_SECONDS:
            if all(len(self.tally.read[group]) >= self.tally.expected(group) for group in self._groups):
                return
            before, seen = seen, sum(map(len, self.tally.read.values()))
            since = loop.time() if seen > before else since
            await asyncio.sleep(0.05)
