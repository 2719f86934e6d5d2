"""Every protocol that the simulator knows also runs on real processes, through a kill -9, with nothing to add."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

import antiphon
from antiphon.checks import check_run
from antiphon.core.errors import UsageError
from antiphon.protocols import protocols
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.trace import read_facts, read_rows

MakeCluster = Callable[..., ClusterFolder]
MESSAGES = 60


def destination_sets(protocol: str) -> list[list[str]]:
    assumes = protocols()[protocol].declaration.assumes
    if assumes.one_group:
        return [["a"], ["b"]]
    return [["a", "b"]] if assumes.all_groups else [["a"], ["b"], ["a", "b"]]


@pytest.mark.parametrize("protocol", sorted(protocols()))
def test_a_protocol_keeps_its_promises_on_real_processes(make_cluster: MakeCluster, protocol: str) -> None:
    try:
        folder = make_cluster({"a": 3, "b": 2}, protocol=protocol, trace=True, snapshot_bytes=50_000)
    except UsageError as error:
        pytest.skip(str(error))
    sets = destination_sets(protocol)

    async def run() -> None:
        rng = random.Random(1)
        async with antiphon.connect(folder.path) as client:

            async def send(count: int) -> None:
                await asyncio.gather(*(client.multicast(rng.choice(sets), b"x" * 50) for _ in range(count)))

            await send(MESSAGES)
            await asyncio.to_thread(cluster.kill, folder, "a.2")
            await send(MESSAGES // 4)
            await asyncio.to_thread(cluster.start, folder)
            await send(MESSAGES)

    asyncio.run(run())
    drained = cluster.stop(folder, drain_seconds=15)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert check_run(facts, rows) == []
    assert drained
    delivered = {
        (cell.client, row.destinations, number)
        for row in rows
        if row.kind == "deliver"
        for cell in row.requests or ()
        for number in range(cell.first, cell.first + cell.payloads)
    }
    assert len(delivered) == 2 * MESSAGES + MESSAGES // 4
