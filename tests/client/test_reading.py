"""Subscriptions: positions, batches and parts of them, other members, bounded read-ahead."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import MagicMock

import pytest

import antiphon
from antiphon.cli.clients import _tail
from antiphon.client import subscription
from antiphon.core.buffers import Buffers
from antiphon.core.errors import Unavailable, UsageError
from antiphon.runtime.net import stream
from antiphon.runtime.net.frames import encode_events
from client.fake_cluster import FakeCluster, run


async def sixty(client: antiphon.Client) -> list[bytes]:
    """Sixty payloads, in batches of ten."""
    payloads = [b"%d" % i for i in range(60)]
    for i in range(0, 60, 10):
        await client.multicast_many("a", payloads[i : i + 10])
    return payloads


def test_deliveries_are_what_was_sent() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await client.multicast("a", b"other set")
        payloads = [b"", b"two", b"3" * 5000]
        receipt = await client.multicast_many({"a", "b"}, payloads)
        found = [delivery async for delivery in client.subscribe("a", start=1, follow=False)]
        assert [delivery.payload for delivery in found] == payloads
        assert [delivery.position for delivery in found] == [1, 2, 3]
        assert [(delivery.client, delivery.number) for delivery in found] == [(client.name, i) for i in range(3)]
        assert {delivery.destinations for delivery in found} == {("a", "b")}
        assert found[0].name == receipt.name == f"{client.name}:0"

    run({"a": 1, "b": 1}, story)


def test_batches_are_what_was_delivered_together() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = await sixty(client)
        found = [batch async for batch in client.subscribe("a", follow=False).batches()]
        assert [len(batch) for batch in found] == [10] * 6
        assert [batch.position for batch in found] == list(range(0, 60, 10))
        assert [payload for batch in found for payload in batch.payloads] == payloads
        assert sorted(found, key=lambda batch: batch.key or b"") == found
        assert {(batch.at, batch.destinations, len(batch.requests)) for batch in found} == {(7, ("a",), 1)}
        deliveries = [delivery for batch in found for delivery in batch]
        assert deliveries == [delivery async for delivery in client.subscribe("a", follow=False)]

    run({"a": 1}, story)


@pytest.mark.parametrize("start", [0, 1, 9, 10, 25, 59, 60])
def test_a_subscription_may_start_inside_a_batch(start: int) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = await sixty(client)
        ones = [(d.position, d.payload) async for d in client.subscribe("a", start=start, follow=False)]
        assert ones == list(enumerate(payloads))[start:]
        batches = [batch async for batch in client.subscribe("a", start=start, follow=False).batches()]
        assert [payload for batch in batches for payload in batch.payloads] == payloads[start:]
        assert [d.position for batch in batches for d in batch] == list(range(start, 60))
        assert sum(map(len, batches)) == len(payloads[start:])

    run({"a": 1}, story)


@pytest.mark.parametrize("start", [61, 1000, 2**62])
@pytest.mark.parametrize("follow", [True, False])
def test_a_position_that_is_not_there_yet_is_refused(monkeypatch: pytest.MonkeyPatch, start: int, follow: bool) -> None:
    monkeypatch.setattr(subscription, "AHEAD_SECONDS", 0.3)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        with pytest.raises(UsageError, match=f"Position {start} of a is not there yet: 60 is the next"):
            await anext(client.subscribe("a", start=start, follow=follow))

    run({"a": 2}, story)


@pytest.mark.parametrize("follow", [True, False])
def test_a_position_that_only_one_member_has_come_to_is_read_there(follow: bool) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        for name in ("a.1", "a.2", "a.4"):
            cluster.members[name].knows = 2
        assert (await anext(client.subscribe("a", start=55, follow=follow))).position == 55

    run({"a": 4}, story)


def test_a_reader_waits_a_moment_for_members_that_lag_behind_what_it_has_read() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        reading = asyncio.ensure_future(anext(client.subscribe("a", start=61)))
        await asyncio.sleep(0.5)
        assert not reading.done()
        await client.multicast_many("a", [b"x", b"y", b"z"])
        assert (await reading).payload == b"y"

    run({"a": 2}, story)


def test_what_is_gone_is_read_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "SEARCH_SECONDS", 0.3)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = await sixty(client)
        for name, keeps in {"a.1": 40, "a.2": 20, "a.3": 50, "a.4": 30}.items():
            cluster.members[name].keeps = keeps
        for _ in range(4):
            assert [d.payload async for d in client.subscribe("a", start=25, follow=False)] == payloads[25:]
        with pytest.raises(antiphon.PositionGone, match=r"Position 19 of a is no longer kept.* position 20") as gone:
            await anext(client.subscribe("a", start=19))
        assert gone.value.first == 20
        with pytest.raises(antiphon.PositionGone, match=r"of a\.3 .* position 50"):
            await anext(client.subscribe("a", start=30, member="a.3"))
        await cluster.members["a.2"].stop()
        with pytest.raises(antiphon.PositionGone, match="position 30"):
            await anext(client.subscribe("a", start=25, follow=False))

    run({"a": 4}, story)


@pytest.mark.parametrize("start", [0, "earliest"])
@pytest.mark.parametrize("follow", [True, False])
def test_a_member_that_is_being_restarted_may_have_what_the_others_let_go(start: Any, follow: bool) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        cluster.members["a.1"].keeps, cluster.members["a.2"].keeps = 30, 40
        await cluster.members["a.3"].stop()
        reader = client.subscribe("a", start=start, follow=follow)
        reading = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0.5)
        assert not reading.done()
        await cluster.members["a.3"].start()
        assert (await reading).position == 0
        assert [(await anext(reader)).position for _ in range(9)] == list(range(1, 10))
        await reader.aclose()

    run({"a": 3}, story)


@pytest.mark.parametrize("follow", [True, False])
def test_a_member_that_does_not_come_back_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, follow: bool) -> None:
    monkeypatch.setattr(subscription, "SEARCH_SECONDS", 0.5)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = await sixty(client)
        cluster.members["a.1"].keeps = 30
        await cluster.members["a.2"].stop()
        reading = asyncio.ensure_future(anext(client.subscribe("a", start=0, follow=follow)))
        await asyncio.sleep(0.2)
        cluster.members["a.1"].keeps = 40
        with pytest.raises(antiphon.PositionGone, match="position 40"):  # as it is when it is said
            await reading
        reader = client.subscribe("a", start="earliest", follow=follow)
        assert [(await anext(reader)).payload for _ in range(20)] == payloads[40:]
        await reader.aclose()

    run({"a": 2}, story)


def test_a_reader_waits_for_the_member_that_it_read_from_when_the_others_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription, "SEARCH_SECONDS", 0.5)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        cluster.members["a.1"].keeps = 100
        reader = client.subscribe("a")
        assert [(await anext(reader)).position for _ in range(60)] == list(range(60))
        await cluster.members["a.2"].stop()
        with pytest.raises(antiphon.PositionGone, match="position 100"):
            await asyncio.wait_for(anext(reader), 5)
        await cluster.members["a.2"].start()
        await client.multicast("a", b"more")
        assert (await anext(reader)).payload == b"more"

    run({"a": 2}, story)


def test_the_earliest_is_the_oldest_that_any_member_keeps() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = await sixty(client)
        earliest = [d.payload async for d in client.subscribe("a", start="earliest", follow=False)]
        assert earliest == payloads
        for name, keeps in {"a.1": 40, "a.2": 20, "a.3": 50}.items():
            cluster.members[name].keeps = keeps
        found = [d async for d in client.subscribe("a", start="earliest", follow=False)]
        assert (found[0].position, [d.payload for d in found]) == (20, payloads[20:])
        cluster.alike = False
        one = client.subscribe("a", start="earliest", follow=False)
        assert (await anext(one)).position == cluster.members[str(one.member)].keeps

    run({"a": 3}, story)


async def read_on(reader: antiphon.Subscription, found: list[int]) -> None:
    async for delivery in reader:
        found.append(delivery.position)


@pytest.mark.parametrize("start", [0, "earliest"])
def test_a_reader_that_falls_behind_what_is_kept_is_told_and_has_no_hole(start: Any) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        cluster.members["a.2"].keeps = 5
        reader = client.subscribe("a", start=start)
        assert [(await anext(reader)).position for _ in range(60)] == list(range(60))
        cluster.members["a.1"].cut()
        for _ in range(3):
            await client.multicast_many("a", [b"more"] * 10)
        cluster.members["a.1"].keeps = cluster.members["a.2"].keeps = 70
        cluster.members["a.1"].cut()
        found: list[int] = []
        with pytest.raises(antiphon.PositionGone) as gone:
            await read_on(reader, found)
        assert found == list(range(60, 60 + len(found)))
        assert gone.value.first == 70 > 60 + len(found)

    run({"a": 2}, story)


def test_positions_of_another_cluster_are_refused() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        assert client.cluster == "fake"
        assert (await anext(client.subscribe("a", start=7, cluster=client.cluster))).position == 7
        with pytest.raises(UsageError, match="This is cluster 'fake': positions of cluster 'other' mean nothing here"):
            client.subscribe("a", start=7, cluster="other")

    run({"a": 1}, story)


def test_one_by_one_and_then_in_batches() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = await sixty(client)
        async with client.subscribe("a") as deliveries:
            for i in range(13):
                assert (await anext(deliveries)).payload == payloads[i]
            batches = deliveries.batches()
            assert (await anext(batches)).payloads == payloads[13:20]
            assert (await anext(batches)).payloads == payloads[20:30]
            assert (await anext(deliveries)).payload == payloads[30]

    run({"a": 1}, story)


def test_a_reader_without_follow_stops_where_the_log_ended() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        async with client.subscribe("a", follow=False) as deliveries:
            found = [(await anext(deliveries)).position]
            await sixty(client)
            found += [delivery.position async for delivery in deliveries]
        assert found == list(range(60))

    run({"a": 1}, story)


def test_a_subscription_goes_on_at_another_member() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        async with client.subscribe("a") as deliveries:
            positions = []
            for i in range(6):
                await sixty(client)
                for _ in range(55):
                    positions.append((await anext(deliveries)).position)
                for member in cluster.members.values():
                    member.cut()
                if i == 2:
                    await cluster.members["a.1"].stop()
            assert positions == list(range(330))

    run({"a": 3}, story)


def test_where_each_member_has_its_own_order_a_subscription_stays_with_one() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.alike = False
        await sixty(client)
        async with client.subscribe("a") as deliveries:
            assert deliveries.member is None
            assert (await anext(deliveries)).position == 0
            member = deliveries.member
            assert member is not None
            positions = [(await anext(deliveries)).position for _ in range(59)]
            await cluster.members[member].stop()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(deliveries), 0.3)  # the other member is up, and not asked
            await cluster.members[member].start()
            await sixty(client)
            positions += [(await anext(deliveries)).position for _ in range(60)]
            assert positions == list(range(1, 120))

    run({"a": 2}, story)


def test_the_log_of_one_member_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "SEARCH_SECONDS", 0.2)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        for member in ("a.1", "a.2") * 3:
            async with client.subscribe("a", member=member, follow=False) as deliveries:
                assert len([each async for each in deliveries]) == 60
                assert deliveries.member == member
        await cluster.members["a.2"].stop()
        with pytest.raises(Unavailable, match=r"^a\.2, whose log this is, cannot be reached\.$"):
            await anext(client.subscribe("a", member="a.2", follow=False))
        with pytest.raises(UsageError, match=r"'b\.1' is not a member of a: its members are a\.1, a\.2\."):
            client.subscribe("a", member="b.1")

    run({"a": 2, "b": 1}, story)


def test_a_silent_member_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MEMBER_SILENCE_SECONDS", 0.1)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.members["a.1"].is_silent = True
        await client.multicast("b", b"x")
        cluster.groups["a"].log.extend(cluster.groups["b"].log)
        cluster.groups["a"].end = 1
        for _ in range(5):
            assert (await anext(client.subscribe("a"))).payload == b"x"

    run({"a": 2, "b": 1}, story)


@pytest.mark.parametrize("follow", [False, True])
def test_the_log_of_a_member_that_was_left_behind_is_not_the_groups(
    follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its end, and not all that there is to follow; wherever the reader begins, and also if two are behind."""
    monkeypatch.setattr(subscription, "MEMBER_SILENCE_SECONDS", 0.1)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        cluster.members["a.1"].knows, cluster.members["a.2"].knows = 0, 3
        for _ in range(6):
            deliveries = client.subscribe("a", follow=follow)
            found = [(await anext(deliveries)).position for _ in range(60)]
            assert found == list(range(60))
            await deliveries.aclose()

    run({"a": 3}, story)


def test_the_end_is_found_though_some_members_do_not_tell_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MEMBER_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(subscription, "END_SECONDS", 0.1)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        await cluster.members["a.1"].stop()
        cluster.members["a.2"].is_busy = cluster.members["a.3"].is_silent = True
        cluster.members["a.4"].refuses = "unavailable"
        assert len([each async for each in client.subscribe("a", follow=False)]) == 60

    run({"a": 5}, story)


def test_what_cannot_be_served_is_an_error() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        for start in (-1, 2**62 + 1, 1.0, "0", True, None):
            with pytest.raises(UsageError, match="position"):
                client.subscribe("a", start=start)  # type: ignore[arg-type]
        for group in ("nowhere", "", 5):
            with pytest.raises(UsageError):
                client.subscribe(group)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="one group"):
            client.subscribe(["a", "b"])  # type: ignore[arg-type]
        for member in cluster.members.values():
            member.refuses = "usage"
        with pytest.raises(UsageError, match="It says no"):
            await anext(client.subscribe("a"))
        for member in cluster.members.values():
            member.rejects = "You are not of this cluster."
        with pytest.raises(UsageError, match="not of this cluster"):
            await anext(client.subscribe("a"))

    run({"a": 2, "b": 1}, story)


def test_a_reader_that_does_not_follow_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "SEARCH_SECONDS", 0.2)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await cluster.members["a.1"].stop()
        with pytest.raises(Unavailable, match="No member of a"):
            await anext(client.subscribe("a", follow=False))

    run({"a": 1}, story)


def test_read_ahead_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "AHEAD_BYTES_MAX", 1 << 20)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payload = bytes(100_000)
        for _ in range(200):
            await client.multicast_many("a", [payload] * 2)
        async with client.subscribe("a") as deliveries:
            await anext(deliveries)
            connection = deliveries._connection
            assert connection is not None
            while not connection._is_paused:
                await asyncio.sleep(0.01)
            assert sum(map(len, connection.records)) < 3_000_000
            count = 1
            async for delivery in deliveries:
                assert delivery.payload == payload
                count += 1
                if count == 400:
                    break
            assert not connection._is_paused

    run({"a": 1}, story)


def test_what_waits_as_bytes_while_a_reader_is_ahead_comes_when_it_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "AHEAD_BYTES_MAX", 100)
    monkeypatch.setattr(stream, "FRAMES_AT_ONCE", 10)

    async def story() -> None:
        connection = subscription.SubscriptionConnection()
        connection.connection_made(MagicMock())
        connection.handler = connection.on_answers  # it was welcomed
        data = b"".join(b"".join(encode_events([Buffers(b"record %3d" % i)])) for i in range(100))
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        found: list[bytes] = []
        for _ in range(100):
            while connection.records:
                found.append(bytes(connection.next_record()))
            await asyncio.sleep(0)
        assert found == [b"record %3d" % i for i in range(100)]

    asyncio.run(story())


def test_closing_the_client_ends_its_subscriptions() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        found: list[bytes] = []

        async def read() -> None:
            async for delivery in client.subscribe("a"):
                found.append(delivery.payload)

        reading = asyncio.create_task(read())
        await client.multicast("a", b"x")
        while not found:
            await asyncio.sleep(0.01)
        await client.close()
        await reading
        assert found == [b"x"]

    run({"a": 1}, story)


def with_views(cluster: FakeCluster) -> None:
    """What follows is delivered in a smaller view, after a gap."""
    cluster.groups["a"].announce(gap=True)
    cluster.groups["a"].announce("a.1", "a.3")


@pytest.mark.parametrize("start", range(6))
def test_views_and_gaps_are_among_the_events_and_have_their_positions(start: int) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        cluster.groups["a"].announce("a.1", "a.2", "a.3")
        await client.multicast("a", b"one")
        with_views(cluster)
        await client.multicast_many("a", [b"two", b"three"])
        told = []
        async for event in client.subscribe("a", start=start, follow=False).events():
            if isinstance(event, antiphon.View):
                told.append((event.position, f"{event.id} {' '.join(event.members)}"))
            else:
                is_gap = isinstance(event, antiphon.Gap)
                told += [(event.position, "gap")] if is_gap else [(d.position, d.payload.decode()) for d in event]
        whole = ["0@fake a.1 a.2 a.3", "one", "gap", "3@fake a.1 a.3", "two", "three"]
        assert told == list(enumerate(whole))[start:]
        payloads = [d.payload async for d in client.subscribe("a", start=start, follow=False)]
        assert payloads == [b"one", b"two", b"three"][(start > 1) + (start > 4) :]

    run({"a": 1}, story)


def test_a_view_and_a_gap_are_lines_of_tail(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        with_views(cluster)
        await client.multicast("a", b"one")
        await _tail(cluster.target, "a", 0, False, False)
        assert capsys.readouterr().out.splitlines() == [
            "0\tmessages may be missing here",
            "1\tview 1@fake: together with a.1, a.3 from here on",
            f"2\t{client.name}:0\ta\tone",
        ]
        await _tail(cluster.target, "a", 0, False, True)
        printed = capsys.readouterr()
        gap, view, _ = printed.out.splitlines()
        assert printed.err == ""
        assert gap == '{"position":0,"gap":true}'
        assert view == '{"position":1,"view":"1@fake","members":["a.1","a.3"]}'
        cluster.alike = False
        await _tail(cluster.target, "a", 0, False, True)
        assert capsys.readouterr().err == "This is the log of a.1: each member has one of its own.\n"

    run({"a": 1}, story)


def test_tail_begins_at_the_oldest_that_is_kept_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await sixty(client)
        cluster.members["a.1"].keeps = 50
        await _tail(cluster.target, "a", None, False, False)
        printed = capsys.readouterr()
        assert printed.err == "What was before position 50 is no longer kept.\n"
        assert [line.split("\t")[0] for line in printed.out.splitlines()] == [str(n) for n in range(50, 60)]
        with pytest.raises(antiphon.PositionGone):
            await _tail(cluster.target, "a", 49, False, False)
        assert capsys.readouterr() == ("", "")

    run({"a": 1}, story)


def test_tail_says_whose_log_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await _tail(cluster.target, "a", 0, False, False)
        assert capsys.readouterr() == ("", "")
        cluster.alike = False
        await _tail(cluster.target, "a", 0, False, False)
        assert capsys.readouterr() == ("", "This is the log of a.1: each member has one of its own.\n")

    run({"a": 1}, story)
