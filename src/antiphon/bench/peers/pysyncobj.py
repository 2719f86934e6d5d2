"""PySyncObj: a library in three processes. Client and reader are two of the three, as it is meant to be used.

It batches what comes within a period, 0.1 s by default. Here that is 5 ms under load, and with one message at a time it
does not batch at all: that is the best that was found for each.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from antiphon.bench.peers.contract import MEMBERS, AppendBatch, Reads, Served, Work
from antiphon.bench.peers.processes import servers
from antiphon.bench.task import WorkerTask
from antiphon.core.errors import Unavailable
from antiphon.runtime.cluster.ports import HOST, free_ports

READY_SECONDS = 20.0
PERIOD = 0.005
_THIRD = "from antiphon.bench.peers.pysyncobj import third; third()"


class ReplicaSite(msgspec.Struct):
    """Where the processes are."""

    addresses: list[str]
    folder: str


class PySyncObj(Served):
    name = "pysyncobj"
    title = "PySyncObj, with its journal"
    keeps = "a majority, written, never synced"

    def missing(self) -> str | None:
        return None if _is_installed() else "the module pysyncobj is not installed (pip install pysyncobj)"

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        site = ReplicaSite([f"{HOST}:{port}" for port in free_ports(MEMBERS, None)], str(folder))
        target = msgspec.json.encode(site).decode()
        batching = "1" if work.batch > 1 else ""
        with servers(folder, {"pysyncobj": [sys.executable, "-c", _THIRD, target, batching]}, lambda: True):
            yield target

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        loop = asyncio.get_running_loop()
        log = _join(task, 0)
        try:
            await _ready(log)

            async def append(payloads: list[bytes]) -> None:
                done = loop.create_future()
                left = len(payloads)

                def called(_: object, error: int) -> None:  # in a thread of the library
                    nonlocal left
                    left -= 1
                    if left == 0 or error:
                        loop.call_soon_threadsafe(_settle, done, error)

                for payload in payloads:
                    log.append(payload, callback=called)
                await done

            yield append
        finally:
            log.destroy()

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[bytes] = asyncio.Queue()
        taken: list[bytes] = []

        def hand_over() -> None:
            count = len(taken)
            arrived.put_nowait(b"".join(taken[:count]))
            del taken[:count]

        def applied(payload: bytes) -> None:
            taken.append(payload)
            if len(taken) == 1:
                loop.call_soon_threadsafe(hand_over)

        log = _join(task, 1, applied)
        try:
            await _ready(log)
            yield _reads(task, arrived)
        finally:
            log.destroy()


def _is_installed() -> bool:
    return importlib.util.find_spec("pysyncobj") is not None


def _settle(done: asyncio.Future[None], error: int) -> None:
    if done.done():  # another one of the batch has failed
        return
    if error:
        done.set_exception(RuntimeError(f"PySyncObj did not append: reason {error}"))
    else:
        done.set_result(None)


async def _reads(task: WorkerTask, arrived: asyncio.Queue[bytes]) -> Reads:
    while True:
        data = await arrived.get()
        yield len(data) // task.size, task.heads(data)


def _join(task: WorkerTask, index: int, applied: Any = None) -> Any:
    return _member(msgspec.json.decode(task.target, type=ReplicaSite), index, task.batch > 1, applied)


def _member(site: ReplicaSite, index: int, batching: bool, applied: Any = None) -> Any:
    """One of the three processes. The state is how many were appended; a reader is told each of them."""
    import pysyncobj

    class Log(pysyncobj.SyncObj):  # type: ignore[misc]
        def __init__(self) -> None:
            self.count = 0
            others = [address for address in site.addresses if address != site.addresses[index]]
            conf = pysyncobj.SyncObjConf(
                appendEntriesUseBatch=batching,
                appendEntriesPeriod=PERIOD if batching else 0.1,
                journalFile=str(Path(site.folder) / f"journal-{index}"),
            )
            super().__init__(site.addresses[index], others, conf)

        @pysyncobj.replicated  # type: ignore[untyped-decorator]
        def append(self, payload: bytes) -> None:
            self.count += 1
            if applied is not None:
                applied(payload)

    return Log()


async def _ready(log: Any) -> None:
    """Wait until it has a leader: then all three are there, or will be."""
    for _ in range(int(READY_SECONDS / 0.05)):
        if log.isReady():
            return
        await asyncio.sleep(0.05)
    raise Unavailable("PySyncObj was not ready in time.")


def third() -> None:
    """The process that is neither client nor reader."""
    import threading

    log = _member(msgspec.json.decode(sys.argv[1], type=ReplicaSite), 2, bool(sys.argv[2]))
    threading.Event().wait()
    log.destroy()
