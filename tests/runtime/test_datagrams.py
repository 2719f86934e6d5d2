"""Protocols that run on datagrams do so on real processes: what a peer did not get while it was dead is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import antiphon
from antiphon.checks import check_run
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.trace import read_facts, read_rows

MakeCluster = Callable[..., ClusterFolder]
SETS = (["a"], ["b"], ["a", "b"])


@pytest.mark.parametrize("protocol", ["fifo", "causal"])
def test_what_is_lost_with_a_connection_is_fetched(make_cluster: MakeCluster, protocol: str) -> None:
    options = {"transport": "datagram"}
    folder = make_cluster({"a": 3, "b": 2}, protocol=protocol, options=options, trace=True, snapshot_bytes=50_000)

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:

            async def send(count: int) -> None:
                await asyncio.gather(*(client.multicast(SETS[i % 3], b"x" * 50) for i in range(count)))

            await send(30)
            await asyncio.to_thread(cluster.kill, folder, "a.2")
            await send(60)  # nobody keeps these for a.2 but their senders
            await asyncio.to_thread(cluster.start, folder)
            await send(30)

    asyncio.run(run())
    assert cluster.stop(folder, drain_seconds=15)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert check_run(facts, rows) == []
    delivered = dict.fromkeys(("a.1", "a.2", "a.3"), 0)
    for row in rows:
        if row.kind == "deliver" and row.process in delivered:
            delivered[row.process] += sum(cell.payloads for cell in row.requests or ())
    assert set(delivered.values()) == {80}
