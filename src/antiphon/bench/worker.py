"""One end of a load, in a process of its own: ``python -m antiphon.bench.worker '{"role": "client", ...}'``.

A worker prints a line when it is connected, and is told on its standard input when what is measured begins: so all
begin together, however long they took to start. It prints one line of JSON when it is done. All share the machine's
monotonic clock: the client numbers its requests, and writes number and time into the first payload of each; a reader
tells from these how long they took, and that none is missing or doubled.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from array import array
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
import uvloop

from antiphon.bench.peers import with_ends
from antiphon.bench.task import HEAD, WorkerReport, WorkerTask

BIN_SECONDS = 0.1
SAMPLES_MAX = 200_000
QUANTILES_REPORTED = 1000
AFTER_SECONDS = 0.2  # that a reader goes on for, beyond what is measured


class ProcessorTime:
    """The processor time that this process spends between two moments."""

    def __init__(self, task: WorkerTask) -> None:
        loop = asyncio.get_running_loop()
        self.cpu = [0.0, 0.0]
        for index, moment in enumerate((task.begin, task.end)):
            loop.call_later(max(0.0, moment - time.monotonic()), self._note, index)

    def _note(self, index: int) -> None:
        self.cpu[index] = time.process_time()

    @property
    def seconds(self) -> float:
        return (self.cpu[1] or time.process_time()) - self.cpu[0]


class Metronome:
    """When the next request may leave."""

    def __init__(self, task: WorkerTask) -> None:
        self._apart = 0.0 if task.rate is None else task.batch / task.rate
        self._due = time.monotonic()

    async def next(self) -> int:
        """Wait for the moment, and say which it is. Who is late does not send more at once later."""
        if self._apart:
            now = time.monotonic()
            due = self._due = max(self._due + self._apart, now)
            if due > now:
                await asyncio.sleep(due - now)
        return time.monotonic_ns()


class Sequence:
    """Which requests were read. Those under way at once may pass each other where a peer takes them side by side."""

    def __init__(self, outstanding: int) -> None:
        self._next = 1
        self._ahead: set[int] = set()
        self._outstanding = outstanding

    def note(self, number: int) -> None:
        if number == self._next:
            self._next += 1
            while self._ahead and self._next in self._ahead:
                self._ahead.remove(self._next)
                self._next += 1
        elif number < self._next or number in self._ahead:
            raise RuntimeError(f"request {number} was read twice")
        elif number >= self._next + self._outstanding:
            raise RuntimeError(f"request {number} was read, and request {self._next} was not")
        else:
            self._ahead.add(number)


async def run_client(task: WorkerTask) -> WorkerReport:
    """Keep so many requests outstanding until the end."""
    latencies = array("d")
    sent = 0
    padding, rest = task.payloads()
    numbers = count(1)

    async with with_ends(task.peer).write(task) as send:
        await _begun(task)
        processor = ProcessorTime(task)
        begin, end = int(task.begin * 1e9), int(task.end * 1e9)
        metronome = Metronome(task)

        async def keep_sending() -> None:
            nonlocal sent
            while (begun := await metronome.next()) < end:
                await send([HEAD.pack(task.mark, next(numbers), begun) + padding, *rest])
                if begun >= begin:
                    sent += task.batch
                    if len(latencies) < SAMPLES_MAX:
                        latencies.append((time.monotonic_ns() - begun) / 1e6)

        await asyncio.gather(*(keep_sending() for _ in range(task.outstanding)))
    return WorkerReport(payloads=sent, cpu_seconds=processor.seconds, latencies_ms=_quantiles(latencies))


async def run_reader(task: WorkerTask) -> WorkerReport:
    """Read in order, and count."""
    latencies = array("d")
    counted, sequence = 0, Sequence(task.outstanding)
    async with with_ends(task.peer).read(task) as reads:
        await _begun(task)
        processor = ProcessorTime(task)
        bins = [0] * (int((task.end - task.begin) / BIN_SECONDS) + 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(task.end + AFTER_SECONDS - time.monotonic()):
                async for payloads, heads in reads:
                    now_ns = time.monotonic_ns()
                    now = now_ns / 1e9
                    is_measured = task.begin <= now < task.end
                    if is_measured:
                        counted += payloads
                        bins[int((now - task.begin) / BIN_SECONDS)] += payloads
                    for number, sent in heads:
                        sequence.note(number)
                        if is_measured and len(latencies) < SAMPLES_MAX:
                            latencies.append((now_ns - sent) / 1e6)
    rates = [payloads / BIN_SECONDS for payloads in bins[:-1]]
    return WorkerReport(
        payloads=counted, cpu_seconds=processor.seconds, latencies_ms=_quantiles(latencies), rates=rates
    )


async def _begun(task: WorkerTask) -> None:
    asyncio.get_running_loop().set_exception_handler(_fail)
    print("ready", flush=True)
    task.begin = float(await asyncio.to_thread(sys.stdin.readline))


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What fails in a callback would otherwise be waited for until the end."""
    loop.default_exception_handler(context)
    os._exit(1)


def _quantiles(values: array[float]) -> list[float]:
    """Few enough to be told in a line, and as many as percentiles need."""
    ordered = sorted(values)
    step = max(1, len(ordered) // QUANTILES_REPORTED)
    return [round(value, 4) for value in ordered[step // 2 :: step]]


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=WorkerTask)
    try:
        report = uvloop.run(run_client(task) if task.role == "client" else run_reader(task))
    except RuntimeError as error:  # what the other side did wrong
        report = WorkerReport(failure=f"The {task.role} failed: {error}.")
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
