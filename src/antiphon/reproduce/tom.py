"""tom.txt, Figures 2 and 3 and Table 2 (R3, R4): TOM on real processes, three groups of three.

A client sends at a given rate; the delivery rate is what one group delivers per second, up to the last message. The
delivery time is measured with one message outstanding, from the client's call to the client's own subscription.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from antiphon.client import Client, connect
from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

GROUPS = {"g1": 3, "g2": 3, "g3": 3}
SIZES = (10, 500, 1000)
RATES = (100, 200, 400, 800, 1600, 3200)
OUTSTANDING = 2000
PAPER_DELIVERY_MS = {10: (2.4, 4.5, 5.2), 500: (2.4, 8.6, 10.4), 1000: (3.0, 13.9, 16.0)}
PAPER_SPEEDUP = {10: 5.6, 1000: 2.7}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One run: so many messages, sent at a rate."""

    sets: bool
    size: int
    sent_per_s: float  # asked for; 0: as fast as possible
    reached_per_s: float  # what the client reached
    delivered_per_s: float
    messages: int
    consensus: int  # executions of one group
    crashed: int = 0  # coordinators killed, one per group
    journal: bool = False


class DeliveryTime(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    groups: int
    mean_ms: float
    p99_ms: float
    paper_ms: float


class Reproduction(msgspec.Struct, kw_only=True):
    points: list[Point] = []
    delivery_times: list[DeliveryTime] = []

    def best(self, *, sets: bool, size: int) -> float:
        rates = [
            p.delivered_per_s for p in self.points if (p.sets, p.size, p.crashed, p.journal) == (sets, size, 0, False)
        ]
        return max(rates, default=0.0)


def run_cluster(folder: Path, options: dict[str, str], *, journal: bool) -> ClusterFolder:
    shutil.rmtree(folder, ignore_errors=True)
    made = cluster.create(folder, GROUPS, protocol="tom", options=options, journal=journal, trace=False, gather=1)
    cluster.start(made)
    return made


def stop_cluster(made: ClusterFolder) -> None:
    cluster.stop(made, drain_seconds=1.0)
    shutil.rmtree(made.path, ignore_errors=True)


def consensus_executions(made: ClusterFolder) -> int:
    counts = [
        s.counters.get("consensus executions", 0)
        for p, s in cluster.statuses(made).items()
        if s and p.startswith("g1.")
    ]
    return max(counts, default=0)


async def stream(
    client: Client, groups: Sequence[str], size: int, rate: float, messages: int, done: int
) -> tuple[float, float]:
    """Send at a rate; returns the seconds until all was sent, and until a group had delivered it all."""
    payload = bytes(size)
    window = asyncio.Semaphore(OUTSTANDING)

    async def send() -> None:
        try:
            await client.multicast(groups, payload, timeout=None)
        finally:
            window.release()

    async def watch() -> float:
        seen = 0
        async for _ in client.subscribe(groups[0], start=done):
            seen += 1
            if seen == messages:
                break
        return time.perf_counter()

    watcher = asyncio.create_task(watch())
    begun = time.perf_counter()
    async with asyncio.TaskGroup() as sending:
        for number in range(messages):
            if rate:
                ahead = begun + number / rate - time.perf_counter()
                if ahead > 0.001:
                    await asyncio.sleep(ahead)
            await window.acquire()
            sending.create_task(send())
    sent = time.perf_counter() - begun
    return sent, await watcher - begun


async def curve(
    made: ClusterFolder,
    sizes: Sequence[int],
    rates: Sequence[float],
    messages: Callable[[float], int],
    *,
    sets: bool,
    crashed: int = 0,
    say: Callable[[Point], None],
) -> list[Point]:
    """Delivery rate against sending rate, on one running cluster."""
    points = []
    done = 0
    for size in sizes:
        for rate in rates:
            count = messages(rate)
            before = consensus_executions(made)
            async with connect(made.path) as client:
                sent, delivered = await stream(client, list(GROUPS), size, rate, count, done)
            done += count
            point = Point(
                sets=sets,
                size=size,
                sent_per_s=rate,
                reached_per_s=round(count / sent, 1),
                delivered_per_s=round(count / delivered, 1),
                messages=count,
                consensus=consensus_executions(made) - before,
                crashed=crashed,
                journal=made.config.journal,
            )
            say(point)
            points.append(point)
    return points


async def delivery_times(made: ClusterFolder, samples: int) -> list[DeliveryTime]:
    """Table 2: one message at a time, to one, two and three groups."""
    found = []
    async with connect(made.path) as client:
        deliveries = client.subscribe("g1")
        for size in SIZES:
            for count in (1, 2, 3):
                groups, times = list(GROUPS)[:count], []
                for _ in range(samples):
                    begun = time.perf_counter()
                    receipt = asyncio.create_task(client.multicast(groups, bytes(size)))
                    await anext(deliveries)
                    times.append((time.perf_counter() - begun) * 1e3)
                    await receipt
                times.sort()
                found.append(
                    DeliveryTime(
                        size=size,
                        groups=count,
                        mean_ms=round(statistics.fmean(times), 2),
                        p99_ms=round(times[int(len(times) * 0.99)], 2),
                        paper_ms=PAPER_DELIVERY_MS[size][count - 1],
                    )
                )
    return found


def kill_coordinators(made: ClusterFolder) -> None:
    """The first member of each group coordinates the first round of every consensus."""
    for group in GROUPS:
        cluster.kill(made, f"{group}.1")


def reproduce(
    folder: Path,
    *,
    messages: int,
    seconds: float,
    samples: int,
    sizes: Sequence[int] = SIZES,
    rates: Sequence[float] = (*RATES, 0),
    say: Callable[[Point], None] = lambda point: None,
) -> Reproduction:
    """All six curves, the table, the run with crashed coordinators, and the journal's price.

    A point has ``messages`` messages, but fewer where they would take longer than ``seconds`` to send.
    """
    result = Reproduction()

    def count(rate: float) -> int:
        return messages if not rate else max(100, min(messages, int(rate * seconds)))

    stacks = {"consensus": "hr"}
    for sets in (False, True):
        made = run_cluster(folder, {**stacks, "sets": str(sets).lower()}, journal=False)
        limited = [rate for rate in rates if sets or rate <= 800]
        result.points += asyncio.run(curve(made, sizes, limited, count, sets=sets, say=say))
        stop_cluster(made)
    made = run_cluster(folder, stacks, journal=False)
    result.delivery_times = asyncio.run(delivery_times(made, samples))
    stop_cluster(made)
    made = run_cluster(folder, stacks, journal=False)
    kill_coordinators(made)
    result.points += asyncio.run(curve(made, [500], rates, count, sets=True, crashed=len(GROUPS), say=say))
    stop_cluster(made)
    made = run_cluster(folder, stacks, journal=True)
    result.points += asyncio.run(curve(made, [10], [0], count, sets=True, say=say))
    stop_cluster(made)
    return result


def check(result: Reproduction) -> list[str]:
    """What the reproduction must reach and did not, as sentences. What was not measured is not judged."""
    if not result.points:
        raise AntiphonError("Nothing was measured.")
    missed = []
    single, together = result.best(sets=False, size=10), result.best(sets=True, size=10)
    if together < PAPER_SPEEDUP[10] * single:
        missed.append(f"Sets deliver {together / single:.1f} times the rate of single messages at 10 bytes, not 5.6.")
    missed += [
        f"{t.size} bytes to {t.groups} groups take {t.mean_ms} ms, in the paper {t.paper_ms} ms."
        for t in result.delivery_times
        if t.mean_ms >= t.paper_ms
    ]
    for size in {point.size for point in result.points}:
        curve = [p for p in result.points if (p.sets, p.size, p.crashed, p.journal) == (True, size, 0, False)]
        if curve and curve[-1].consensus / curve[-1].messages >= curve[0].consensus / curve[0].messages:
            missed.append(f"Consensus executions do not fall as the rate of {size}-byte messages rises.")
    after_crash = max((p.delivered_per_s for p in result.points if p.crashed), default=0.0)
    before_crash = result.best(sets=True, size=500)
    if 0 < after_crash < before_crash:
        missed.append(
            f"With crashed coordinators the groups keep up with {after_crash}/s, without crashes with {before_crash}/s."
        )
    return missed
