"""Antiphon itself, by its public client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from antiphon.bench.cluster import running
from antiphon.bench.peers.contract import MEMBERS, AppendBatch, Reads, Served, Work
from antiphon.bench.task import WorkerTask
from antiphon.client import Subscription, connect
from antiphon.core import Promise
from antiphon.core.errors import Unavailable
from antiphon.protocols import protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

COMPARED_GROUPS_MAX = 1000


class Antiphon(Served):
    name = "antiphon"
    groups_max = COMPARED_GROUPS_MAX

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        kind = protocol_named(protocol)
        is_durable = Promise.DURABLE_RECEIPTS in kind.promises(kind.Options())
        self.keeps = "a majority, synced" if is_durable else "one member, synced"  # a receipt's kind: docs/clients.md
        self.title = f"Antiphon, {protocol}"

    def missing(self) -> str | None:
        return None

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        groups = {f"g{index}": MEMBERS for index in range(1, work.groups + 1)}
        with running(folder / "cluster", groups, protocol=self.protocol) as started:
            yield str(started.path.resolve())

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        groups = tuple(task.groups)
        async with connect(task.target, name="bench") as client:
            if task.batch == 1:  # single calls, which the client gathers
                yield lambda payloads: client.multicast(groups, payloads[0])
            else:
                yield lambda payloads: client.multicast_many(groups, payloads)

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        group = task.groups[0]
        start = await asyncio.to_thread(_end, ClusterFolder.load(Path(task.target)), group)
        async with connect(task.target, name="reader") as client, client.subscribe(group, start=start) as subscription:
            yield _reads(task, subscription, start)


async def _reads(task: WorkerTask, subscription: Subscription, start: int) -> Reads:
    expected = start
    async for batch in subscription.batches():
        if batch.position != expected:
            raise RuntimeError(f"position {batch.position} came instead of {expected}")
        expected = batch.position + len(batch)
        yield len(batch), [head for request in batch.requests for head in task.heads(bytes(request.data))]


def _end(folder: ClusterFolder, group: str) -> int:
    """The position behind all that the group has delivered."""
    found = cluster.statuses(folder)
    answers = [found[folder.config.known(member)] for member in folder.config.groups[group]]
    known = [answer.delivered for answer in answers if answer is not None]
    if not known:
        raise Unavailable(f"No member of {group} answers.")
    return max(known)
