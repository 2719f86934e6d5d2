"""Receipts on real processes: what a majority of each group holds outlives the member that said so, and its disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from itertools import pairwise

import pytest

import antiphon
from antiphon.checks import check_run
from antiphon.core.errors import UsageError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.trace import MAJORITY, read_facts
from antiphon.trace.parquet import read_rows

MakeCluster = Callable[..., ClusterFolder]


def test_what_was_acknowledged_outlives_the_members_that_said_so_and_their_disks(make_cluster: MakeCluster) -> None:
    """Primaries, under load, one of each group; and nobody sends anything again, for the client is gone as well."""
    folder = make_cluster({"a": 3, "b": 3}, protocol="primcast")
    groups = ("a", "b")

    async def run() -> None:
        gone: set[str] = set()
        accepted: list[str] = []
        for victim in ("a.1", "b.1"):
            async with antiphon.connect(folder.path) as client:
                load = [asyncio.create_task(client.multicast(groups, b"%d" % i)) for i in range(400)]
                while sum(task.done() for task in load) < 150:
                    await asyncio.sleep(0.002)
                cluster.kill(folder, victim)
                gone.add(victim)
                shutil.rmtree(folder.process(victim).journal)
                # What has a receipt now is all that is asked for: the client closes with the rest under way.
                receipts = [task.result() for task in load if task.done()]
                assert {receipt.kind for receipt in receipts} == {"majority"}
                assert all(receipt.timestamp > 0 for receipt in receipts)
                accepted += [receipt.name for receipt in receipts]
                for task in load:
                    task.cancel()
                await asyncio.gather(*load, return_exceptions=True)
        async with antiphon.connect(folder.path) as client:
            last = await client.multicast(groups, b"the last", timeout=60)
            seen = {member: [] for member in ("a.2", "a.3", "b.2", "b.3")}  # type: dict[str, list[str]]
            for member, names in seen.items():
                async with asyncio.timeout(30):
                    async for delivery in client.subscribe(member.partition(".")[0], member=member):
                        names.append(delivery.name)
                        if delivery.name == last.name:
                            break
        assert len({tuple(names) for names in seen.values()}) == 1, "one order"
        delivered = next(iter(seen.values()))
        assert len(set(delivered)) == len(delivered), "nothing twice"
        assert set(accepted) <= set(delivered), "nothing that was acknowledged is lost"
        assert len(accepted) >= 300

    asyncio.run(run())


def test_quick_receipts_stay_and_the_trace_tells_the_two_kinds(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2, "b": 1}, protocol="primcast", trace=True)

    async def run() -> None:
        async with antiphon.connect(folder.path, receipt="member") as client:
            kinds = ["member", "majority", None] * 20
            sent = [client.multicast({"a", "b"}, b"x", receipt=kind) for kind in kinds]  # type: ignore[arg-type]
            receipts = await asyncio.gather(*sent)
            assert [receipt.kind for receipt in receipts] == [kind or "member" for kind in kinds]
            assert [receipt.number for receipt in receipts] == list(range(60))
        async with antiphon.connect(folder.config.addresses["b.1"]) as client:
            assert (await client.multicast_many({"b"}, [b"x", b"y"])).kind == "majority"

    asyncio.run(run())
    assert cluster.stop(folder)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert check_run(facts, rows) == []
    told = {kind: set[object]() for kind in (None, MAJORITY)}
    for row in rows:
        if row.kind == "receipt":
            told[row.layer].update((row.destinations, cell) for cell in row.requests or ())
    assert told[None] == told[MAJORITY] != set()


def test_who_asks_for_more_than_the_protocol_can_tell_or_keep_is_refused(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1}, protocol="skeen")
    sentence = "This cluster's protocol cannot tell when a majority of each group holds something."

    async def run() -> None:
        for target in (folder.path, folder.config.addresses["a.1"]):
            with pytest.raises(UsageError, match=sentence):
                async with antiphon.connect(target, receipt="majority"):
                    pass
            async with antiphon.connect(target) as client:
                with pytest.raises(UsageError, match=sentence):
                    await client.multicast("a", b"x", receipt="majority")
                assert (await client.multicast("a", b"x")).kind == "member"
                with pytest.raises(UsageError, match=r"must be .member. or .majority., not 'all'"):
                    await client.multicast("a", b"x", receipt="all")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="cannot keep a client's order across different sets of groups"):
                async with antiphon.connect(target, order="client"):
                    pass
            async with antiphon.connect(target, order="set") as client:
                await client.multicast("a", b"x")
        with pytest.raises(UsageError, match=r"must be .client. or .set., not 'all'"):
            antiphon.connect(folder.path, order="all")  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_clients_order_holds_across_sets_of_groups_and_through_the_loss_of_a_primary(
    make_cluster: MakeCluster,
) -> None:
    folder = make_cluster({"a": 3, "b": 1}, protocol="primcast", trace=True)
    sets = [("a",), ("a", "b"), ("b",), ("a", "b"), ("a",)]
    calls = [(sets[k // 2 % 5], b"%03d" % k) for k in range(80)]

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            sent = [asyncio.create_task(client.multicast(groups, payload)) for groups, payload in calls]
            while sum(task.done() for task in sent) < 30:
                await asyncio.sleep(0.002)
            cluster.kill(folder, "a.1")
            receipts = await asyncio.gather(*sent)
            for group in ("a", "b"):
                expected = [payload for groups, payload in calls if group in groups]
                seen: list[bytes] = []
                async with asyncio.timeout(30):
                    async for delivery in client.subscribe(group):
                        seen.append(delivery.payload)
                        if len(seen) == len(expected):
                            break
                assert seen == expected
            later = [b.timestamp > a.timestamp for a, b in pairwise(receipts) if a.destinations != b.destinations]
            assert len(later) == 32
            assert all(later)

    asyncio.run(run())
    cluster.start(folder)
    assert cluster.stop(folder)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert "client_turn_order" in facts.promises
    assert check_run(facts, rows) == []
    assert max(row.position or 0 for row in rows if row.kind == "receipt") == 32
