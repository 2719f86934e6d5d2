"""How long nothing is delivered when a member of a group dies, stops for a while, or has a slow disk.

    python benchmarks/failover.py [--protocol primcast] [--rounds 3] [--rate 2000]

One group of three. A client multicasts at a steady rate through the member that leads, or any other where nobody does,
and a reader at a member that stays up notes when each payload comes. What is measured is the longest time without a
delivery around the fault, and how often members suspected one another and began an epoch, where the protocol has any:

- kill: the member that leads is killed with `kill -9`, and comes back after three seconds;
- pause: a member that does not lead is stopped for two seconds (SIGSTOP);
- slow disks: every sync of every member takes 200 ms, for five seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

import antiphon
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

GROUP = "g"
MEMBERS = 3
SETTLE_SECONDS = 3.0  # before a fault, and after what it leads to
AWAY_SECONDS = 3.0
PAUSE_SECONDS = 2.0
SLOW_SECONDS = 5.0

SLOW_SYNC = """
import os, time
sync = os.fdatasync
def fdatasync(fd):
    time.sleep(0.2)
    sync(fd)
os.fdatasync = fdatasync
"""


class Found(msgspec.Struct):
    """What one fault led to."""

    fault: str
    longest: float  # seconds without a delivery, from the fault on
    before: float  # the same before it
    epochs: int | None  # begun, where the protocol has any
    suspicions: int


Fault = Callable[[ClusterFolder, str], Awaitable[None]]


async def kill(folder: ClusterFolder, leader: str) -> None:
    cluster.kill(folder, leader)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(cluster.start, folder, [leader])


async def pause(folder: ClusterFolder, leader: str) -> None:
    other = next(p for p in folder.config.processes if p != leader)
    pid = cluster.alive(folder)[other]
    assert pid is not None, "it was up"
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(PAUSE_SECONDS)
    os.kill(pid, signal.SIGCONT)


async def nothing(folder: ClusterFolder, leader: str) -> None:
    """The disks are slow all the time."""
    await asyncio.sleep(SLOW_SECONDS)


def epochs(folder: ClusterFolder) -> int | None:
    answers = [status for status in cluster.statuses(folder).values() if status is not None]
    return max((answer.counters.get("epoch", -1) for answer in answers), default=-1) if answers else None


async def measure(folder: ClusterFolder, name: str, fault: Fault, rate: int) -> Found:
    """The reader stays with a member that no fault concerns."""
    loop = asyncio.get_running_loop()
    leader, reader = f"{GROUP}.1", f"{GROUP}.3"
    came: list[float] = []

    async def read(client: antiphon.Client) -> None:
        async for _ in client.subscribe(GROUP, member=reader):
            came.append(loop.time())

    sending: set[asyncio.Task[antiphon.Receipt]] = set()

    def done(task: asyncio.Task[antiphon.Receipt]) -> None:
        """Those of the last moments hear no answer: the client is closed before."""
        sending.discard(task)
        if not task.cancelled():
            task.exception()

    async def send(client: antiphon.Client) -> None:
        due = loop.time()
        while True:
            due += 0.01
            payloads = [b"%d" % number for number in range(max(rate // 100, 1))]
            task = asyncio.create_task(client.multicast_many({GROUP}, payloads, timeout=60))
            sending.add(task)
            task.add_done_callback(done)
            await asyncio.sleep(max(due - loop.time(), 0))

    async with antiphon.connect(folder.path, name="failover") as client:
        tasks = [asyncio.create_task(read(client)), asyncio.create_task(send(client))]
        await asyncio.sleep(SETTLE_SECONDS)
        first, begun = await asyncio.to_thread(epochs, folder), loop.time()
        await fault(folder, leader)
        await asyncio.sleep(SETTLE_SECONDS)
        ended, last = loop.time(), await asyncio.to_thread(epochs, folder)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    edges = [begun, *(at for at in came if begun < at < ended), ended]
    calm = [at for at in came if at < begun]
    return Found(
        name,
        max(after - before for before, after in pairwise(edges)),
        max((after - before for before, after in pairwise(calm[len(calm) // 3 :])), default=0.0),
        None if first is None or last is None or last < 0 else last - first,
        0,
    )


def suspicions(folder: ClusterFolder) -> int:
    from antiphon.trace.facts import read_facts
    from antiphon.trace.parquet import read_rows

    return sum(
        row.kind == "suspect" for facts in read_facts(folder.trace) for row in read_rows(folder.trace, facts.run)
    )


def run(protocol: str, name: str, fault: Fault, rate: int) -> Found:
    with tempfile.TemporaryDirectory(prefix="antiphon-failover-", dir=Path.cwd()) as temporary:
        folder = cluster.create(Path(temporary) / "cluster", {GROUP: MEMBERS}, protocol=protocol, trace=True)
        if fault is nothing:
            (Path(temporary) / "sitecustomize.py").write_text(SLOW_SYNC)
            os.environ["PYTHONPATH"] = os.pathsep.join([temporary, *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            cluster.start(folder)
            found = uvloop.run(measure(folder, name, fault, rate))
        finally:
            cluster.stop(folder, drain_seconds=20)
        found.suspicions = suspicions(folder)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="primcast")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=2000, help="payloads a second")
    arguments = parser.parse_args()
    table = Table("fault", "longest s without a delivery", "before it", "epochs begun", "suspicions")
    faults: list[tuple[str, Fault]] = [("kill", kill), ("pause", pause), ("slow disks", nothing)]
    for name, fault in faults:
        for _ in range(arguments.rounds):
            found = run(arguments.protocol, name, fault, arguments.rate)
            epochs_begun = "" if found.epochs is None else str(found.epochs)
            table.add_row(name, f"{found.longest:.2f}", f"{found.before:.2f}", epochs_begun, str(found.suspicions))
    Console().print(table)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s in all")
