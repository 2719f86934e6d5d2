"""What every system does that is measured beside the others.

A peer is measured as a whole: it is started in a folder, put under a load, and ended. Most are servers between two
ends, a client process and reader processes, which are the same program for all of them (``antiphon.bench.worker``);
such a peer says how it is started, how a batch is appended, and how what was appended is read. All peers are three
processes for each group, on one machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import ClassVar

import msgspec

from antiphon.bench import ends
from antiphon.bench.cluster import Percentiles, percentiles
from antiphon.bench.task import WorkerTask, new_mark

MEMBERS = 3  # of each group

AppendBatch = Callable[[list[bytes]], Awaitable[object]]  # is over when the batch is acknowledged
Reads = AsyncIterator[tuple[int, list[tuple[int, int]]]]  # how many payloads, and their heads (`WorkerTask.heads`)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A load that all get alike."""

    name: str
    groups: int = 1
    batch: int
    size: int
    outstanding: int
    seconds: float


class Figures(msgspec.Struct, kw_only=True):
    """What a peer reached."""

    messages_per_second: float  # read in order; with several groups, at the slowest reader
    receipt_ms: Percentiles  # from the call to the acknowledgement
    latency_ms: Percentiles  # from the call to the reader


class Peer(ABC):
    """Something that takes payloads, puts them into one order, and lets them be read in that order."""

    name: str  # on the command line
    title: str  # in tables
    keeps: str  # where a message is when it is acknowledged
    groups_max: ClassVar[int] = 1
    batch_max: ClassVar[int | None] = None

    @abstractmethod
    def missing(self) -> str | None:
        """What it needs and this machine lacks, and how to get it: the end of a sentence. None: it can run."""

    @abstractmethod
    def measure(self, folder: Path, work: Work) -> Figures:
        """Start it in an empty folder, let it work, and end it."""

    def batch(self, work: Work) -> int:
        """How many payloads it takes at once."""
        return min(work.batch, self.batch_max or work.batch)

    def processes(self, work: Work) -> int:
        """Of the peer itself; client and readers come on top."""
        return MEMBERS * work.groups


class Served(Peer):
    """A peer between a client and readers."""

    @abstractmethod
    def running(self, folder: Path, work: Work) -> AbstractContextManager[str]:
        """Start it, say what its ends need to know to find it, and end it whatever happens."""

    @abstractmethod
    def write(self, task: WorkerTask) -> AbstractAsyncContextManager[AppendBatch]:
        """A client that is connected."""

    @abstractmethod
    def read(self, task: WorkerTask) -> AbstractAsyncContextManager[Reads]:
        """A reader that is connected, and gets what is appended from now on."""

    def measure(self, folder: Path, work: Work) -> Figures:
        with self.running(folder, work) as target:
            groups = [f"g{index}" for index in range(1, work.groups + 1)]
            client = WorkerTask(
                role="client",
                peer=self.name,
                target=target,
                groups=groups,
                batch=self.batch(work),
                size=work.size,
                outstanding=work.outstanding,
                seconds=work.seconds,
                mark=new_mark(),
            )
            readers = [
                msgspec.structs.replace(client, role="reader", groups=[group], place=place)
                for place, group in enumerate(groups)
            ]
            seen, _ = ends.load(client, readers, lambda begin: None)
        return Figures(
            messages_per_second=round(seen.slowest.payloads / work.seconds, 1),
            receipt_ms=percentiles(seen.client.latencies_ms),
            latency_ms=percentiles([value for report in seen.readers for value in report.latencies_ms]),
        )
