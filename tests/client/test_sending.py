"""From a call to a receipt: retries, refusals, limits, deadlines. Against members that misbehave at will."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from itertools import combinations, count
from types import SimpleNamespace
from typing import Any

import pytest

import antiphon
from antiphon.client import progress, sender
from antiphon.client.lane import Lane
from antiphon.core.errors import OutcomeUnknown, Unavailable, UsageError
from antiphon.core.requests import Request
from antiphon.runtime.net.frames import PROGRESS_MAX
from client.fake_cluster import FakeCluster, run


def dense(requests: list[Request]) -> bool:
    """Whether the requests, without those sent again, number all payloads from 0 on."""
    next_number = 0
    for request in sorted(requests, key=lambda request: request.first):
        if request.first == next_number:
            next_number = request.end
        elif request.end > next_number:
            return False
    return True


# Retries ----------------------------------------------------------------------------------------------------------


def test_lost_connections_double_nothing_and_keep_the_order() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        rng = random.Random(5)

        async def cut() -> None:
            while True:
                await asyncio.sleep(rng.uniform(0, 0.02))
                rng.choice(list(cluster.members.values())).cut()

        cutting = asyncio.create_task(cut())
        calls = []
        for i in range(3000):
            calls.append(asyncio.create_task(client.multicast({"a", "b"}, b"%d" % i)))
            if i % 5 == 0:
                await asyncio.sleep(0.001)
        receipts = await asyncio.gather(*calls)
        cutting.cancel()
        assert [receipt.number for receipt in receipts] == list(range(3000))
        for group in ("a", "b"):
            assert cluster.payloads(group) == [b"%d" % i for i in range(3000)]
        assert sum(member.welcomed for member in cluster.members.values()) > 10
        assert dense(cluster.requests())

    run({"a": 2, "b": 2}, story)


def test_a_member_that_welcomes_and_closes_at_once_does_not_wedge_a_route() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        for member in cluster.members.values():
            member.closes_at_once = True
        call = asyncio.create_task(client.multicast("a", b"x"))
        loop = asyncio.get_running_loop()
        tries, begun = 0, loop.time()
        while tries <= 4 or loop.time() < begun + 0.5:  # it goes on trying ...
            await asyncio.sleep(0.05)
            tries = sum(member.welcomed for member in cluster.members.values())
        assert tries < 80 * (loop.time() - begun), "... and not in a tight loop"
        cluster.members["a.2"].closes_at_once = False
        assert (await call).member == "a.2"

    run({"a": 2}, story)


def test_a_receipt_whose_holder_is_gone_is_repaired_while_the_client_lives() -> None:
    """What has a receipt and is not known to be delivered is sent again too, and before all that follows it."""

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        lost: list[Request] = []
        deliver = cluster.deliver
        cluster.deliver = lambda session, request: lost.append(request)  # type: ignore[method-assign,assignment]
        receipt = await client.multicast("a", b"taken and forgotten")
        assert len(lost) == 1
        cluster.deliver = deliver  # type: ignore[method-assign]
        other = next(member for name, member in cluster.members.items() if name != receipt.member)
        await cluster.members[receipt.member].stop()
        second = await client.multicast("a", b"second")
        assert second.member == other.name
        assert cluster.payloads("a") == [b"taken and forgotten", b"second"]
        assert other.numbers() == [0, 1]

    run({"a": 2}, story)


def test_a_silent_member_is_given_up_and_a_busy_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MEMBER_SILENCE_SECONDS", 0.3)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        first = await client.multicast("a", b"1")
        cluster.members[first.member].is_silent = True
        second = await client.multicast("a", b"2")
        assert second.member != first.member
        slow = cluster.members[second.member]
        slow.is_busy = True
        call = asyncio.create_task(client.multicast("a", b"3"))
        for _ in range(10):
            await asyncio.sleep(0.1)
            for connection in slow.connections:
                connection.write(b"\0\0\0\0\x0b")
        assert not call.done()
        slow.cut()
        cluster.members[first.member].is_silent = False
        assert (await call).member == first.member
        assert cluster.payloads("a") == [b"1", b"2", b"3"]

    run({"a": 2}, story)


def test_a_member_that_refuses_is_left_for_another() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        first = await client.multicast("a", b"1")
        cluster.members[first.member].refuses = "unavailable"
        receipts = await asyncio.gather(*(client.multicast("a", b"%d" % i) for i in range(2, 9)))
        assert {receipt.member for receipt in receipts} == {name for name in cluster.members if name != first.member}
        assert cluster.payloads("a") == [b"%d" % i for i in range(1, 9)]

    run({"a": 2}, story)


def test_what_all_members_refuse_surely_did_not_happen() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        for member in cluster.members.values():
            member.refuses = "unavailable"
        with pytest.raises(Unavailable, match="It says no"):
            await client.multicast("a", b"no", timeout=1)
        for member in cluster.members.values():
            member.refuses = ""
        assert (await client.multicast("a", b"yes")).number == 0, "its number was free again"
        assert cluster.payloads("a") == [b"yes"]

    run({"a": 2}, story)


def test_late_refusals_do_not_touch_what_was_sent_since() -> None:
    """Refusals of a first try arrive while the second is under way; the member has taken that one."""

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        (member,) = cluster.members.values()
        member.lag, member.refuses = 0.15, "unavailable"
        calls = []
        for i in range(5):
            timeout = 0.175 if i == 2 else 10
            calls.append(asyncio.create_task(client.multicast("a", b"%d" % i, timeout=timeout)))
            await asyncio.sleep(0.03)
        member.refuses = ""
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[2], OutcomeUnknown) == (b"2" in cluster.payloads("a"))
        assert [i for i, answer in enumerate(answers) if isinstance(answer, antiphon.Receipt)] == [0, 1, 3, 4]
        assert [payload for payload in cluster.payloads("a") if payload != b"2"] == [b"0", b"1", b"3", b"4"]

    run({"a": 1}, story)


def test_a_refused_usage_fails_that_call_only() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        member = cluster.members["a.1"]
        member.refuses = "usage"
        bad = asyncio.create_task(client.multicast("a", b"bad"))
        with pytest.raises(UsageError, match="It says no"):
            await bad
        member.refuses = ""
        assert (await client.multicast("a", b"good")).number == 0

    run({"a": 1}, story)


def test_a_member_that_lacks_a_predecessor_gets_it_again() -> None:
    """The only member forgets what it took and refuses what follows."""

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        (member,) = cluster.members.values()
        cluster.groups["a"].is_held = True
        await client.multicast("a", b"0")
        await client.multicast("a", b"1")
        member.taken.taken.clear()
        calls = [asyncio.create_task(client.multicast("a", b"%d" % i)) for i in range(2, 6)]
        await asyncio.sleep(0.1)
        cluster.let_go("a")
        await asyncio.gather(*calls)
        assert cluster.payloads("a") == [b"%d" % i for i in range(6)]

    run({"a": 1}, story)


# Limits and deadlines -----------------------------------------------------------------------------------------------


def test_nobody_there_means_that_it_did_not_happen() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await cluster.members["b.1"].stop()
        with pytest.raises(Unavailable, match=r"Nobody answers at [\d.]+:\d+: Connection refused\."):
            await client.multicast("b", b"lost", timeout=0.2)
        await client.multicast("a", b"x")
        await cluster.members["b.1"].start()
        assert (await client.multicast("b", b"found")).number == 0
        assert cluster.payloads("b") == [b"found"]

    run({"a": 1, "b": 1}, story)


def test_sent_and_not_answered_is_unknown_and_is_pursued() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        member = cluster.members["a.1"]
        await client.multicast("a", b"0")
        member.takes = lambda request: False
        with pytest.raises(OutcomeUnknown, match=f"{client.name}:1"):
            await client.multicast("a", b"1", timeout=0.1)
        member.takes = lambda request: True
        member.cut()
        assert (await client.multicast("a", b"2")).number == 2
        assert cluster.payloads("a") == [b"0", b"1", b"2"]

    run({"a": 1}, story)


def test_each_call_has_its_own_deadline() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await cluster.members["a.1"].stop()
        loop = asyncio.get_running_loop()

        async def timed(timeout: float) -> None:
            begun = loop.time()
            with pytest.raises(Unavailable):
                await client.multicast("a", b"%r" % timeout, timeout=timeout)
            assert loop.time() - begun >= timeout - 0.01

        patient = [asyncio.create_task(client.multicast("a", b"%r" % each, timeout=each)) for each in (None, 50)]
        await asyncio.gather(*(timed(timeout) for timeout in (0.05, 0.4, 0.2, 0.1)))
        assert not any(call.done() for call in patient)
        await cluster.members["a.1"].start()
        await asyncio.gather(*patient)
        assert cluster.payloads("a") == [b"None", b"50"], "what has expired is not sent"

    run({"a": 1}, story)


def test_a_cancelled_call_that_was_not_sent_is_not_sent() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await cluster.members["a.1"].stop()
        calls = [asyncio.create_task(client.multicast("a", b"%d" % i)) for i in range(5)]
        batch = asyncio.create_task(client.multicast_many("a", [b"x", b"y"]))
        await asyncio.sleep(0.05)
        for call in (calls[1], calls[3], batch):
            call.cancel()
        await asyncio.sleep(0.05)
        await cluster.members["a.1"].start()
        receipts = await asyncio.gather(calls[0], calls[2], calls[4])
        assert [receipt.number for receipt in receipts] == [0, 1, 2]
        assert cluster.payloads("a") == [b"0", b"2", b"4"]

    run({"a": 1}, story)


def test_closing_answers_everybody() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.members["a.1"].takes = lambda request: False
        await cluster.members["b.1"].stop()
        sent = asyncio.create_task(client.multicast("a", b"x"))
        waiting = asyncio.create_task(client.multicast("b", b"x"))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(OutcomeUnknown):
            await sent
        with pytest.raises(Unavailable):
            await waiting

    run({"a": 1, "b": 1}, story)


def test_a_route_at_its_limit_waits_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "ROUTE_BYTES_MAX", 20_000)
    monkeypatch.setattr(sender, "BYTES_MAX", 28_000)
    monkeypatch.setattr(sender, "SHARE_BYTES", 5_000)
    monkeypatch.setattr(progress, "SETTLE_SECONDS", 0.03)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.groups["b"].is_held = True
        for i in range(20):
            await client.multicast({"a", "b"}, b"%1000d" % i)
        with pytest.raises(Unavailable, match="not delivered yet"):
            await client.multicast({"a", "b"}, b"no room", timeout=0.2)
        for i in range(7):
            await client.multicast({"c", "b"}, b"%1000d" % i)
        for i in range(50):
            await client.multicast("a", b"%1000d" % i)
        blocked = asyncio.create_task(client.multicast({"a", "b"}, b"after"))
        await asyncio.sleep(0.1)
        assert not blocked.done()
        cluster.let_go("b")
        assert (await blocked).number == 20
        assert len(cluster.payloads("b")) == 28

    run({"a": 1, "b": 1, "c": 1}, story)


def test_requests_are_let_go_when_they_are_delivered_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SETTLE_SECONDS", 0.03)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        sets = [{"a"}, {"b"}, {"a", "b"}, {"a", "b", "c"}]
        for i in range(40):
            await client.multicast(sets[i % 4], b"x")
        while any(route.ledger.requests for route in client._sender._routes.values()):
            await asyncio.sleep(0.01)
        for route in client._sender._routes.values():
            assert route.ledger.settled == route.ledger.next_number == 10
            assert not route.ledger.requests
            assert route.bytes == 0
        await client.multicast({"a", "b"}, b"x")
        assert max(request.settled for request in cluster.requests()) == 10

    run({"a": 2, "b": 1, "c": 1}, story)


@pytest.mark.parametrize("pace", [0, 1])
def test_a_member_that_is_behind_its_group_is_not_the_only_one_asked(
    pace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still, or is slow; and it is the only one of its group that the client is connected to."""
    monkeypatch.setattr(progress, "SETTLE_SECONDS", 0.03)
    monkeypatch.setattr(progress, "DOUBT_SECONDS", 0.4)
    told = count(step=pace)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.members["b.1"].tells = lambda delivered: min(delivered, next(told))
        await client._sender.members.connection("b.1")
        client._sender.route(["a", "b"])._members = deque(["a.1"])
        for _ in range(2):
            await client.multicast_many({"a", "b"}, [b"x"] * 1000)
            (route,) = client._sender._routes.values()
            while route.ledger.settled < route.ledger.next_number:
                await asyncio.sleep(0.01)
        assert next(told) < 1000

    run({"a": 1, "b": 3}, story)


def test_any_number_of_sets_can_be_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of which something is not known, in as many questions as it takes."""
    monkeypatch.setattr(progress, "SETTLE_SECONDS", 0.03)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        sets = [("a", *others) for size in (1, 2, 3) for others in combinations("bcdefghi", size)]
        assert len(sets) > PROGRESS_MAX
        for each in sets:
            client._sender.route(each).candidates.set_members([f"{each[1]}.1"])  # so that a has to be asked
        await asyncio.gather(*(client.multicast(each, b"x") for each in sets))
        while any(route.ledger.settled < 1 for route in client._sender._routes.values()):
            await asyncio.sleep(0.01)

    run(dict.fromkeys("abcdefghi", 1), story)


def test_a_member_that_only_says_that_it_is_busy_is_left_after_a_while() -> None:
    lane: Any = SimpleNamespace(asked_at=0.0, connection=SimpleNamespace(heard_at=0.0))
    assert not Lane.is_stuck(lane, 4.0)
    assert Lane.is_stuck(lane, 6.0), "silence"
    lane.connection.heard_at = 14.0
    assert not Lane.is_stuck(lane, 14.5)
    lane.connection.heard_at = 16.0
    assert Lane.is_stuck(lane, 16.0), "busy for long"
