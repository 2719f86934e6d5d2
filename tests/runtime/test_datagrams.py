"""Protocols that run on datagrams do so on real processes: what is lost, on the way or with a peer, is sent again."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import antiphon
from antiphon.checks import check_run
from antiphon.core import Process, ProcessId, Topology
from antiphon.core.buffers import Buffers
from antiphon.core.errors import UsageError
from antiphon.pipeline.read import read_events, read_runs
from antiphon.pipeline.verify import verdicts, verify
from antiphon.protocols import protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, ask
from antiphon.runtime.net.packets import Identity, pack
from antiphon.services.causal_graph import CausalGraph
from antiphon.services.dag import Ack, Name
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows
from waiting import becomes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    assert judged(folder) == dict.fromkeys(("a.1", "a.2", "a.3", "b.1", "b.2"), 80)


def judged(folder: ClusterFolder) -> dict[str, int]:
    """The payloads that each process delivered, in a run that is drained and breaks nothing."""
    assert cluster.stop(folder, drain_seconds=60)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert check_run(facts, rows) == []
    delivered: Counter[str] = Counter()
    for row in rows:
        if row.kind == "deliver":
            delivered[row.process] += sum(cell.payloads for cell in row.requests or ())
    return dict(delivered)


def test_a_tenth_is_lost_and_all_is_delivered(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 4}, protocol="toto", trace=True, drop=10, gather=1)

    def dropped() -> int:
        answers = cluster.statuses(folder).values()
        return sum(answer.datagrams.get("dropped on purpose", 0) for answer in answers if answer is not None)

    async def run() -> int:
        """A thousand messages and more, until enough was lost: how many share a datagram depends on the machine."""
        at = 0
        alone = partial(antiphon.connect, folder.path, batch_bytes=1)  # every payload is a message of its own
        async with alone() as one, alone() as two, alone() as three:
            large = b"x" * 200_000  # takes several datagrams
            while at < 1_000 or await asyncio.to_thread(dropped) <= 50:
                payloads = [large if i == 0 and at % 200 == 0 else b"x" * 50 for i in range(50)]
                sent = [(one, two, three)[i % 3].multicast("g", payload) for i, payload in enumerate(payloads)]
                await asyncio.gather(*sent)
                at += 50
        return at

    count = asyncio.run(asyncio.wait_for(run(), 300))
    assert judged(folder) == dict.fromkeys(("g.1", "g.2", "g.3", "g.4"), count)


def test_machines_are_killed_return_and_join_in_mid_stream(make_cluster: MakeCluster, spark: SparkSession) -> None:
    """g.4 has never run, and joins; g.3 is killed, and comes back with its journal; then the leader is killed."""
    options = {"membership": "true"}
    folder = make_cluster({"g": 4}, spares=["g.4"], protocol="toto", options=options, trace=True)

    async def together(*numbers: int) -> None:
        """Until these, and nobody else, are in one view: all of them say so. That is soon where they get processor
        time; whoever gets none for 2 s is suspected, and costs two views more each time."""
        names = [f"g.{i}" for i in numbers]
        while True:
            answers = await asyncio.to_thread(cluster.statuses, folder)
            views = [answer.view if answer is not None else None for p, answer in answers.items() if p in names]
            if views[0] is not None and views[0][1] == names and all(view == views[0] for view in views):
                return
            await asyncio.sleep(0.05)

    async def run() -> int:
        sent, is_over = 0, False
        async with antiphon.connect(folder.path) as client:

            async def stream() -> None:
                nonlocal sent
                while not is_over:
                    await asyncio.gather(*(client.multicast("g", b"x" * 50, timeout=None) for _ in range(10)))
                    sent += 10
                    await asyncio.sleep(0.02)

            streaming = asyncio.create_task(stream())
            await together(1, 2, 3)
            await asyncio.to_thread(cluster.kill, folder, "g.3")
            await together(1, 2)
            await asyncio.to_thread(cluster.start, folder, ["g.3", "g.4"])
            await together(1, 2, 3, 4)
            await asyncio.to_thread(cluster.kill, folder, "g.1")
            await together(2, 3, 4)
            is_over = True
            await streaming
            await asyncio.to_thread(cluster.start, folder)
            await together(1, 2, 3, 4)
            await asyncio.gather(*(client.multicast("g", b"y", timeout=None) for _ in range(20)))
        return sent + 20

    count = asyncio.run(asyncio.wait_for(run(), 300))  # it takes 6 s; where there is next to no processor, minutes
    delivered = judged(folder)  # which also judges who was with whom
    assert 0 < delivered["g.4"] < count, "it was not there from the beginning"
    (facts,) = read_facts(folder.trace)
    rows = [row for row in read_rows(folder.trace, facts.run) if row.kind == "deliver"]
    numbers = {cell.first + k for row in rows for cell in row.requests or () for k in range(cell.payloads)}
    assert numbers == set(range(count)), "everything was delivered by somebody"
    events, runs = read_events(spark, folder.trace), read_runs(spark, folder.trace)
    statuses = {row.property: row.status for row in verdicts(verify(events, runs), runs).collect()}
    assert statuses["virtual_synchrony"] == "holds"
    assert {name for name, status in statuses.items() if status != "not promised"} == set(facts.promises)
    assert set(statuses.values()) == {"holds", "not promised"}


def test_hostile_datagrams_are_dropped_and_counted(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3}, protocol="toto", trace=True, multicast=False)
    config = folder.config
    cluster.kill(folder, "g.2")  # somebody else sits at its address, and knows the cluster's description
    target = config.address("g.1")
    true = Identity(config.digest(), 3, 1, 1)
    process = Process(ProcessId("g.2"), Topology(config.groups), protocol_named("toto"))
    graph = next(part for part in process.parts if isinstance(part, CausalGraph))
    bad = Ack(Name(ProcessId("nobody"), 1), ())
    with socket.socket(type=socket.SOCK_DGRAM) as forger:
        forger.bind(config.address("g.2"))
        for identity, frame in (
            (true, Buffers(b"\0")),
            (true, Buffers(b"\xff" * 100)),
            (true, process.encode(graph, bad)),
            (true, Buffers(bytes(process.encode(graph, bad)).replace(b"nobody", b"\x80" * 6))),  # no text
            (true, Buffers(bytes([process.protocol.index]))),
            (true._replace(incarnation=0), Buffers(b"x")),
            (true._replace(incarnation=9), Buffers(b"x")),
            (true._replace(cluster=bytes(8)), Buffers(b"x")),
            (true._replace(place=2), Buffers(b"x")),
        ):
            forger.sendto(pack(identity, 1, [frame]), target)
        forger.sendto(b"nonsense", target)
        forger.sendto(pack(true, 1, [Buffers(b"x")])[:-1], target)
    expected = {
        "bad frame": 5,
        "old incarnation": 1,
        "not met yet": 1,
        "wrong cluster": 1,
        "stranger": 1,
        "malformed": 1,
        "damaged": 1,
    }

    def found() -> dict[str, int]:
        status = ask(config, "g.1")
        return {reason: status.datagrams.get(reason, 0) for reason in expected} if status is not None else {}

    assert becomes(lambda: found() == expected), found()
    cluster.start(folder)

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast("g", b"x") for _ in range(20)))

    asyncio.run(run())
    assert judged(folder) == dict.fromkeys(("g.1", "g.2", "g.3"), 20)


def test_what_cannot_be_dropped_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^skeen with these options sends no datagrams; .*toto.* do, and with -o "):
        cluster.create(tmp_path / "a", {"g": 2}, protocol="skeen", drop=10)
    with pytest.raises(UsageError, match="0 to 90 per cent"):
        cluster.create(tmp_path / "b", {"g": 2}, protocol="toto", drop=100)
