"""Receipts that come later than the member's own, turns that wait for them, and the member that leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import antiphon
from antiphon.client import sender
from antiphon.core.errors import Unavailable
from client.fake_cluster import FakeCluster

Story = Callable[[FakeCluster, antiphon.Client], Awaitable[None]]
SOON = 0.05


def run(sizes: dict[str, int], story: Story, leaders: dict[str, str] | None = None, **options: Any) -> None:
    """Against a cluster that gives every receipt, and keeps a client's order across sets."""

    async def all_of_it() -> None:
        async with FakeCluster(sizes) as cluster:
            cluster.receipt, cluster.order, cluster.leaders = "majority", "client", leaders or {}
            for group in cluster.groups.values():
                group.is_held = True  # a delivery would say as much as a receipt
            async with antiphon.connect(cluster.target, **options) as client:
                await asyncio.wait_for(story(cluster, client), 20)

    asyncio.run(all_of_it())


def call(client: antiphon.Client, groups: object, payload: bytes, **options: Any) -> asyncio.Task[antiphon.Receipt]:
    return asyncio.create_task(client.multicast(groups, payload, **options))  # type: ignore[arg-type]


# Two marks --------------------------------------------------------------------------------------------------------


def test_what_is_taken_is_not_yet_assured() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        slow, quick = call(client, "a", b"0"), call(client, "a", b"1", receipt="member")
        last = call(client, "a", b"2")
        receipt = await quick
        assert (receipt.kind, receipt.number, receipt.timestamp) == ("member", 1, 0)
        await asyncio.sleep(SOON)
        assert not slow.done()
        assert not last.done()
        cluster.assure(77)
        found = await asyncio.gather(slow, last)
        assert [(each.kind, each.number, each.timestamp) for each in found] == [
            ("majority", 0, 77),
            ("majority", 2, 77),
        ]

    run({"a": 1}, story)


@pytest.mark.parametrize(
    ("default", "asked", "prompt"), [(None, None, False), (None, "member", True), ("member", None, True)]
)
def test_a_member_hears_whether_anybody_waits_for_its_own_word(default: Any, asked: Any, prompt: bool) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        first, second = call(client, "a", b"0"), call(client, "a", b"1", receipt=asked)
        await asyncio.sleep(SOON)
        (connection,) = cluster.members["a.1"].connections
        assert connection.prompt == {0: prompt}
        cluster.assure(1)
        await asyncio.gather(first, second)

    run({"a": 1}, story, receipt=default)


def test_a_member_that_takes_and_assures_nothing_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be cut off from the others; these may already have what it took."""
    monkeypatch.setattr(sender, "MEMBER_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(sender, "BUSY_SECONDS", 0.1)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        waiting = call(client, "a", b"0")
        while len({member.name for member in cluster.members.values() if member.requests}) < 2:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        cluster.assure(5)
        assert (await waiting).timestamp == 5

    run({"a": 2}, story)


# Turns ------------------------------------------------------------------------------------------------------------


def test_another_set_waits_for_the_receipts_and_carries_their_timestamp() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        one = [call(client, "a", b"0", receipt="member"), call(client, "a", b"1")]
        two, three = call(client, ["a", "b"], b"2"), call(client, "a", b"3")
        await one[0]  # says only what the member has
        await asyncio.sleep(SOON)
        assert [request.end for request in cluster.requests()] == [1, 2]
        cluster.assure(40)
        await one[1]
        await asyncio.sleep(SOON)
        assert not three.done()
        cluster.assure(50)
        await two
        await asyncio.sleep(SOON)
        cluster.assure(60)
        await three
        turns = {(bytes(next(r.payloads())), r.turn, r.floor) for r in cluster.requests()}
        assert turns == {(b"0", 0, 0), (b"1", 0, 0), (b"2", 1, 41), (b"3", 2, 51)}

    run({"a": 1, "b": 1}, story)


def test_a_turn_whose_callers_have_left_keeps_nobody_waiting() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        first, given_up, last = call(client, "a", b"0"), call(client, "b", b"1", timeout=0.1), call(client, "a", b"2")
        with pytest.raises(Unavailable, match="what was sent before to other groups has no receipt yet"):
            await given_up
        cluster.assure(9)
        await first
        await asyncio.sleep(SOON)
        cluster.assure(12)
        await last
        assert [(r.turn, r.floor) for r in cluster.requests()] == [(0, 0), (2, 10)]

    run({"a": 1, "b": 1}, story)


def test_a_request_keeps_its_floor_at_another_member() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        first, second = call(client, "b", b"0"), call(client, "a", b"1")
        await asyncio.sleep(SOON)
        cluster.assure(20)
        await first
        await asyncio.sleep(SOON)
        (holder,) = [member for member in cluster.members.values() if member.group == "a" and member.requests]
        await holder.stop()
        await asyncio.sleep(SOON)
        cluster.assure(30)
        await second
        copies = [request for _, request in holder.requests], [r for r in cluster.requests() if r.turn]
        assert {(r.floor, r.digest) for r in copies[1]} == {(21, copies[0][0].digest)}
        assert len(copies[1]) == 2

    run({"a": 2, "b": 1}, story)


def test_who_switches_it_off_sends_to_all_sets_at_once() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        calls = [call(client, groups, b"x") for groups in ("a", "b", ["a", "b"], "a")]
        await asyncio.sleep(SOON)
        assert {request.turn for request in cluster.requests()} == {0}
        assert sum(request.count for request in cluster.requests()) == 4
        cluster.assure(3)
        await asyncio.gather(*calls)

    run({"a": 1, "b": 1}, story, order="set")


# Who leads ----------------------------------------------------------------------------------------------------------


def test_the_member_that_leads_is_asked_first_and_others_when_it_is_gone() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.assures = True
        assert (await client.multicast("a", b"0")).member == "a.2"
        await cluster.members["a.2"].stop()
        assert (await client.multicast("a", b"1")).member in ("a.1", "a.3"), "whoever they say leads"

    run({"a": 3}, story, {f"a.{i}": "a.2" for i in (1, 2, 3)})


@pytest.mark.parametrize("leaders", [{"a.1": "a.2", "a.2": "a.3", "a.3": "a.1"}, {f"a.{i}": "b.1" for i in (1, 2, 3)}])
def test_what_members_say_of_one_another_leads_nobody_around_in_a_circle(leaders: dict[str, str]) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.assures = True
        await client.multicast("a", b"0")

    run({"a": 3, "b": 1}, story, leaders)
