"""What R3 and R4 share: TOM on real processes, three groups of three.

A client sends at a given rate; the delivery rate is what one group delivers per second, up to the last message. The
delivery time is measured with one message outstanding, from the client's call to the client's own subscription.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from antiphon.client import Client, connect
from antiphon.reproduce.lab import Lab
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

GROUPS = {"g1": 3, "g2": 3, "g3": 3}
SIZES = (10, 500, 1000)
CRASHED_SIZE = 500  # of the messages, where coordinators are killed
OUTSTANDING = 2000
HR = {"consensus": "hr"}
FASTEST = 0  # as a rate
WARM_UP_MESSAGES = 10  # messages of each size that are not measured: the first have connections to open


class Amounts(NamedTuple):
    """How much is measured. Rates are messages a second; one by one it saturates at a few hundred."""

    rates: tuple[int, ...]
    single_rates: tuple[int, ...]
    messages: int  # of a point, but no more than `seconds` take to send
    single_messages: int  # of a point one by one, as fast as possible
    seconds: float
    samples: int  # of a mean delivery time


FULL = Amounts((100, 200, 400, 800, 1600, 3200, FASTEST), (100, 200, 400, 800, FASTEST), 10_000, 10_000, 100.0, 500)
QUICK = Amounts((200, 1600, FASTEST), (200, FASTEST), 3_000, 300, 1.0, 60)


class MeasuredPoint(msgspec.Struct, frozen=True, kw_only=True):
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


class Reproduction(msgspec.Struct, kw_only=True):
    """All that was measured; the full one is kept in docs/pictures/tom.json."""

    points: list[MeasuredPoint] = []
    delivery_times: list[DeliveryTime] = []

    def curve(self, *, sets: bool, size: int, crashed: int = 0, journal: bool = False) -> list[MeasuredPoint]:
        wanted = (sets, size, crashed, journal)
        return [p for p in self.points if (p.sets, p.size, p.crashed, p.journal) == wanted]

    def best(self, *, sets: bool, size: int, crashed: int = 0, journal: bool = False) -> float:
        points = self.curve(sets=sets, size=size, crashed=crashed, journal=journal)
        return max((point.delivered_per_s for point in points), default=0.0)


def measured(lab: Lab) -> Reproduction:
    """What R3 asks for, without crashes."""

    def make() -> Reproduction:
        amounts = QUICK if lab.quick else FULL
        lab.say("r3: one message per consensus")
        with running({**HR, "sets": "false"}) as made:
            points = asyncio.run(curve(made, SIZES, amounts.single_rates, amounts, sets=False, say=lab.say))
        lab.say("r3: delivery times")
        with running(HR) as made:
            times, done = asyncio.run(delivery_times(made, amounts.samples))
            points += asyncio.run(curve(made, SIZES, amounts.rates, amounts, sets=True, done=done, say=lab.say))
        lab.say("r3: with the journal on")
        with running(HR, journal=True) as made:
            rates = (FASTEST,) if lab.quick else amounts.rates
            points += asyncio.run(curve(made, SIZES[:1], rates, amounts, sets=True, say=lab.say))
        return Reproduction(points=points, delivery_times=times)

    found: Reproduction = lab.once("tom", make)
    return found


def measured_after_crashes(lab: Lab) -> Reproduction:
    """The same sets of messages of 500 bytes, with one coordinator killed in each group."""

    def make() -> Reproduction:
        amounts = QUICK if lab.quick else FULL
        lab.say("r4: with crashed coordinators")
        with running(HR) as made:
            kill_coordinators(made)
            crashed = len(GROUPS)
            points = curve(made, [CRASHED_SIZE], amounts.rates, amounts, sets=True, crashed=crashed, say=lab.say)
            return Reproduction(points=asyncio.run(points))

    found: Reproduction = lab.once("tom-crashed", make)
    return found


@contextmanager
def running(options: dict[str, str], *, journal: bool = False) -> Iterator[ClusterFolder]:
    """A cluster, for as long as it is measured."""
    with tempfile.TemporaryDirectory(prefix="antiphon-tom-") as temporary:
        folder = Path(temporary) / "cluster"
        made = cluster.create(folder, GROUPS, protocol="tom", options=options, journal=journal, trace=False, gather=1)
        cluster.start(made)
        try:
            yield made
        finally:
            cluster.stop(made, drain_seconds=1.0)
            shutil.rmtree(folder, ignore_errors=True)


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
    rates: Sequence[int],
    amounts: Amounts,
    *,
    sets: bool,
    crashed: int = 0,
    done: int = 0,
    say: Callable[[str], None],
) -> list[MeasuredPoint]:
    """Delivery rate against sending rate, on one running cluster, whose groups have delivered so many already."""
    points = []
    for size in sizes:
        for rate in rates:
            count = _messages(amounts, rate, sets=sets)
            before = consensus_executions(made)
            async with connect(made.path, batch_bytes=1) as client:  # a message of the paper is one payload
                sent, delivered = await stream(client, list(GROUPS), size, rate, count, done)
            done += count
            point = MeasuredPoint(
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
            asked = f"{rate}/s" if rate else "as fast as possible"
            say(f"{size} bytes, sent {asked}: delivered {point.delivered_per_s}/s")
            points.append(point)
    return points


def _messages(amounts: Amounts, rate: int, *, sets: bool) -> int:
    if not rate:
        return amounts.messages if sets else amounts.single_messages
    return max(100, min(amounts.messages, int(rate * amounts.seconds)))


async def delivery_times(made: ClusterFolder, samples: int) -> tuple[list[DeliveryTime], int]:
    """Table 2: one message at a time, to one, two and three groups; and how many messages that took.

    Sizes take turns, so that whatever else the machine does meets all of them alike. Numbers of groups do not: what a
    message to three groups leaves to be done would delay the next one to one group.
    """
    times: dict[tuple[int, int], list[float]] = {(size, count): [] for size in SIZES for count in (1, 2, 3)}
    sent = 0
    async with connect(made.path) as client:
        deliveries = client.subscribe("g1")
        for count in (1, 2, 3):
            for number in range(WARM_UP_MESSAGES + samples):
                for size in SIZES:
                    begun = time.perf_counter()
                    receipt = asyncio.create_task(client.multicast(list(GROUPS)[:count], bytes(size)))
                    await anext(deliveries)
                    took = (time.perf_counter() - begun) * 1e3
                    await receipt
                    sent += 1
                    if number >= WARM_UP_MESSAGES:
                        times[size, count].append(took)
    means = []
    for (size, count), found in times.items():
        found.sort()
        mean, p99 = round(statistics.fmean(found), 2), round(found[int(len(found) * 0.99)], 2)
        means.append(DeliveryTime(size=size, groups=count, mean_ms=mean, p99_ms=p99))
    return means, sent


def kill_coordinators(made: ClusterFolder) -> None:
    """The first member of each group coordinates the first round of every consensus."""
    for group in GROUPS:
        cluster.kill(made, f"{group}.1")
