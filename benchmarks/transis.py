"""Transis on real processes: eight machines on the loopback interface, all of them sending, all receiving all.

    python benchmarks/transis.py [PROTOCOL[:OPTION=VALUE,...] ...] [--seconds 5] [--drop 10] [--journal]

1,000-byte payloads by single calls of many clients, gathered by the members; no journals, no traces. A payload counts
when the slowest machine has delivered it. The paper's eight machines made 250 messages a second.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import uvloop

import antiphon
from antiphon.bench.cluster import cpu_seconds
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

MACHINES = 8
CLIENTS = 32  # each chooses a machine: all have some to serve
SIZE = 1_000
PAPER = 250  # messages a second
WARM_UP_SECONDS = 1.5
DRAIN_SECONDS = 10.0


class Made(NamedTuple):
    protocol: str
    per_second: float
    latency_ms: float  # to a reader, the median
    cpu: float  # cores, of all machines together
    datagrams: Counter[str]
    drained: bool


def send(path: str, outstanding: int, stop: Event) -> None:
    """In a process of its own: so many calls under way all the time."""

    async def keep_sending(client: antiphon.Client) -> None:
        while not stop.is_set():
            await client.multicast("g", time.monotonic_ns().to_bytes(8, "little") + bytes(SIZE - 8))

    async def run() -> None:
        clients = [antiphon.connect(path) for _ in range(CLIENTS)]
        for client in clients:
            await client.__aenter__()
        await asyncio.gather(*(keep_sending(clients[i % CLIENTS]) for i in range(outstanding)))
        for client in clients:
            await client.__aexit__(None, None, None)

    uvloop.run(run())


def observe(path: str, start: int, stop: Event, found: multiprocessing.Queue[float]) -> None:
    """How long it takes until a reader has a payload."""

    async def run() -> None:
        times = []
        async with antiphon.connect(path) as client:
            async for batch in client.subscribe("g", start=start).batches():
                now = time.monotonic_ns()
                for request in batch.requests:
                    times.append(now - int.from_bytes(next(request.payloads())[:8], "little"))
                if stop.is_set():
                    break
        times.sort()
        found.put(times[len(times) // 2] / 1e6)

    uvloop.run(run())


def delivered(folder: ClusterFolder) -> int:
    """By the slowest machine."""
    while True:
        answers = [answer for answer in cluster.statuses(folder).values() if answer is not None]
        if len(answers) == MACHINES:  # else one did not answer in time
            return min(answer.delivered for answer in answers)


def spent_by(folder: ClusterFolder) -> float:
    return sum(cpu_seconds(pid) for pid in cluster.alive(folder).values() if pid is not None)


def measure(folder: ClusterFolder, seconds: float, outstanding: int) -> Made:
    stop = multiprocessing.Event()
    times: multiprocessing.Queue[float] = multiprocessing.Queue()
    path = str(folder.path)
    load = multiprocessing.Process(target=send, args=(path, outstanding, stop))
    load.start()
    time.sleep(WARM_UP_SECONDS)
    begun, before, cpu = time.monotonic(), delivered(folder), spent_by(folder)
    reader = multiprocessing.Process(target=observe, args=(path, before, stop, times))
    reader.start()
    time.sleep(seconds)
    after, cpu, ended = delivered(folder), spent_by(folder) - cpu, time.monotonic()
    stop.set()
    latency = times.get(timeout=30)
    load.join()
    reader.join()
    counts: Counter[str] = Counter()
    for answer in cluster.statuses(folder).values():
        counts.update(answer.datagrams if answer is not None else {})
    drained = cluster.stop(folder, drain_seconds=DRAIN_SECONDS)
    spent = ended - begun
    return Made(folder.config.protocol, (after - before) / spent, latency, cpu / spent, counts, drained)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocols", nargs="*", default=["transis", "allack", "toto"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--outstanding", type=int, default=1_000, help="calls under way")
    parser.add_argument("--drop", type=int, default=0, help="per cent of the datagrams that are lost on purpose")
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--no-multicast", action="store_true")
    arguments = parser.parse_args()
    is_good = True
    for text in arguments.protocols:
        name, _, listed = text.partition(":")
        options = dict(pair.split("=", 1) for pair in listed.split(",") if pair)
        with tempfile.TemporaryDirectory(prefix="antiphon-transis-") as temporary:
            folder = cluster.create(
                Path(temporary) / "cluster",
                {"g": MACHINES},
                protocol=name,
                options=options,
                journal=arguments.journal,
                trace=False,
                drop=arguments.drop,
                multicast=not arguments.no_multicast,
            )
            try:
                cluster.start(folder)
                made = measure(folder, arguments.seconds, arguments.outstanding)
            finally:
                for process in folder.config.processes:
                    cluster.kill(folder, process)
        is_good &= made.drained
        print(
            f"{text:16} {made.per_second:9,.0f} payloads a second at all {MACHINES}, "
            f"{made.per_second / PAPER:.0f} times the paper's; {made.latency_ms:.0f} ms to a reader; "
            f"{made.cpu:.2f} cores; {'all' if made.drained else 'NOT ALL'} delivered"
        )
        print("    " + ", ".join(f"{reason} {count}" for reason, count in sorted(made.datagrams.items())), flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
