"""One end of a load, in a process of its own: ``python -m antiphon.bench.worker '{"role": "client", ...}'``.

A worker prints a line when it is ready, and is told on its standard input when what is measured begins: so all begin
together, however long they took to start. It prints one line of JSON when it is done. All share the machine's monotonic
clock: the client stamps the first payload of each call with it, and a reader tells from the first of each request how
long that took.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import msgspec
import uvloop

from antiphon.client import Client, connect

STAMP = struct.Struct("<Q")
BIN_SECONDS = 0.1
SAMPLES_MAX = 200_000
QUANTILES_REPORTED = 1000


class Task(msgspec.Struct, kw_only=True):
    """What a worker is to do. Times are of the monotonic clock."""

    role: Literal["client", "reader"]
    target: str  # the cluster's folder
    groups: list[str]  # the client's destinations; the reader's one group
    batch: int
    size: int
    outstanding: int
    seconds: float  # that are measured
    start: int = 0  # the reader's first position
    begin: float = 0.0  # of what is measured, once that is known

    @property
    def end(self) -> float:
        return self.begin + self.seconds


class Report(msgspec.Struct, kw_only=True):
    """What came of it, in the time that was measured."""

    payloads: int
    cpu_seconds: float
    latencies_ms: list[float]  # client: to the receipt; reader: to the delivery: a thousand quantiles of them
    rates: list[float] = []  # reader: payloads a second, in bins


class Window:
    """The processor time that this process spends between two moments."""

    def __init__(self, task: Task) -> None:
        loop = asyncio.get_running_loop()
        self.cpu = [0.0, 0.0]
        for index, moment in enumerate((task.begin, task.end)):
            loop.call_later(max(0.0, moment - time.monotonic()), self._note, index)

    def _note(self, index: int) -> None:
        self.cpu[index] = time.process_time()

    @property
    def seconds(self) -> float:
        return (self.cpu[1] or time.process_time()) - self.cpu[0]


async def run_client(task: Task) -> Report:
    """Keep so many requests outstanding until the end."""
    window = Window(task)
    latencies = array("d")
    sent = 0
    rest = [bytes(task.size)] * (task.batch - 1)
    padding = bytes(task.size - STAMP.size)
    groups = tuple(task.groups)
    begin, end = int(task.begin * 1e9), int(task.end * 1e9)

    async def keep_sending(send: Callable[[bytes], Awaitable[object]]) -> None:
        nonlocal sent
        while (begun := time.monotonic_ns()) < end:
            await send(STAMP.pack(begun) + padding)
            if begun >= begin:
                sent += task.batch
                if len(latencies) < SAMPLES_MAX:
                    latencies.append((time.monotonic_ns() - begun) / 1e6)

    async with connect(task.target, name="bench") as client:
        send = _sender(client, groups, rest)
        await asyncio.gather(*(keep_sending(send) for _ in range(task.outstanding)))
    return Report(payloads=sent, cpu_seconds=window.seconds, latencies_ms=_quantiles(latencies))


def _sender(client: Client, groups: tuple[str, ...], rest: list[bytes]) -> Callable[[bytes], Awaitable[object]]:
    if not rest:
        return partial(client.multicast, groups)
    return lambda payload: client.multicast_many(groups, [payload, *rest])


async def run_reader(task: Task) -> Report:
    """Read the group's log in order, and count."""
    window = Window(task)
    latencies = array("d")
    bins = [0] * (int((task.end - task.begin) / BIN_SECONDS) + 1)
    counted, expected = 0, task.start
    async with connect(task.target, name="reader") as client:
        subscription = client.subscribe(task.groups[0], start=task.start)
        asyncio.get_running_loop().call_later(
            max(0.0, task.end + 0.2 - time.monotonic()), lambda: asyncio.ensure_future(subscription.aclose())
        )
        async for batch in subscription.batches():
            now = time.monotonic()
            if batch.position != expected:
                raise RuntimeError(f"position {batch.position} came instead of {expected}")
            expected = batch.position + len(batch)
            if task.begin <= now < task.end:
                counted += len(batch)
                bins[int((now - task.begin) / BIN_SECONDS)] += len(batch)
                if len(latencies) < SAMPLES_MAX:
                    now_ns = time.monotonic_ns()
                    for request in batch.requests:
                        stamp = STAMP.unpack(next(request.payloads())[: STAMP.size])[0]
                        latencies.append((now_ns - stamp) / 1e6)
    rates = [count / BIN_SECONDS for count in bins[:-1]]
    return Report(payloads=counted, cpu_seconds=window.seconds, latencies_ms=_quantiles(latencies), rates=rates)


def _quantiles(values: array[float]) -> list[float]:
    """Few enough to be told in a line, and as many as percentiles need."""
    ordered = sorted(values)
    step = max(1, len(ordered) // QUANTILES_REPORTED)
    return [round(value, 4) for value in ordered[step // 2 :: step]]


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    print("ready", flush=True)
    task.begin = float(sys.stdin.readline())
    report = uvloop.run(run_client(task) if task.role == "client" else run_reader(task))
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
