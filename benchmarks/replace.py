"""How long it takes until a member that lost its disk has been replaced, under load, and what clients feel of it.

    python benchmarks/replace.py [--payloads 200000] [--rounds 3] [--senders 8]

One group of three. So many payloads are sent first; then clients send on, one call at a time each, and a member is
killed with `kill -9`, its folder removed, and `antiphon replace` called. Seconds are those of the command, from its
first look to when the newcomer counts; beside them the payloads a second in the two seconds before the kill, while the
command ran, and in the two seconds after it, and the longest time without a receipt in all that.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import uvloop

from antiphon.client import Client, connect
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, Succession

CALM_SECONDS = 2.0
BATCH = 100


async def fill(client: Client, payloads: int) -> None:
    request = [bytes(100)] * BATCH
    left = payloads // BATCH

    async def keep_sending() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.multicast_many(("g1",), request, timeout=120)

    await asyncio.gather(*(keep_sending() for _ in range(200)))


class Senders:
    """When each call had its receipt."""

    def __init__(self, client: Client, count: int) -> None:
        self.at: list[float] = []
        self._client = client
        self._count = count

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._send()) for _ in range(self._count)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            await self._client.multicast("g1", bytes(100), timeout=120)
            self.at.append(time.monotonic())

    def rate(self, begin: float, end: float) -> float:
        return sum(begin <= at < end for at in self.at) / (end - begin)

    def longest_pause(self, begin: float, end: float) -> float:
        within = [begin, *sorted(at for at in self.at if begin <= at < end), end]
        return max(later - earlier for earlier, later in pairwise(within))


async def lose(folder: ClusterFolder, senders: Senders, lost: str) -> None:
    async with senders.running():
        await asyncio.sleep(CALM_SECONDS)
        killed = time.monotonic()
        await asyncio.to_thread(cluster.kill, folder, lost)
        shutil.rmtree(folder.process(lost).path)
        begun = time.monotonic()
        done: Succession = await asyncio.to_thread(cluster.replace_lost, folder, lost)
        ended = time.monotonic()
        await asyncio.sleep(CALM_SECONDS)
    before, during = senders.rate(killed - CALM_SECONDS, killed), senders.rate(begun, ended)
    after = senders.rate(ended, ended + CALM_SECONDS)
    pause = senders.longest_pause(killed - CALM_SECONDS, ended + CALM_SECONDS)
    print(
        f"{done.newcomer} counts {done.seconds:.2f} s after the command began, at position {done.position}; payloads a "
        f"second before, while, after: {before:.0f}, {during:.0f}, {after:.0f} ({during / before:.2f} and "
        f"{after / before:.2f} of before); longest pause {pause:.2f} s"
    )


async def measure(folder: ClusterFolder, payloads: int, rounds: int, senders: int) -> None:
    async with connect(folder.path, name="replace") as client:
        await fill(client, payloads)
        for _ in range(rounds):
            await lose(folder, Senders(client, senders), folder.config.groups["g1"][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payloads", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--senders", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="antiphon-replace-", dir=Path.cwd()) as temporary:
        folder = cluster.create(Path(temporary) / "cluster", {"g1": 3}, trace=False)
        cluster.start(folder)
        try:
            uvloop.run(measure(folder, arguments.payloads, arguments.rounds, arguments.senders))
        finally:
            cluster.stop(folder)


if __name__ == "__main__":
    main()
