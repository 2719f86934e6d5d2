"""From calls to requests: what leaves together, which numbers it gets, and what is refused before it leaves."""

from __future__ import annotations

import asyncio

import pytest

import antiphon
from antiphon.client import sender
from antiphon.client.outgoing import Outgoing
from antiphon.core.errors import Unavailable, UsageError
from antiphon.core.requests import PAYLOAD_BYTES_MAX, join_payloads, parse_request
from client.fake_cluster import FakeCluster, run

LINGER = 1.0  # much longer than a busy machine keeps a process from going on


def test_what_is_called_in_one_turn_is_one_request() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        receipts = await asyncio.gather(*(client.multicast("a", b"%d" % i) for i in range(100)))
        assert [receipt.number for receipt in receipts] == list(range(100))
        assert receipts[7].name == f"{client.name}:7"
        assert (receipts[7].count, receipts[7].destinations, receipts[7].member) == (1, ("a",), "a.1")
        assert [request.count for request in cluster.requests()] == [100]
        assert cluster.payloads("a") == [b"%d" % i for i in range(100)]
        await client.multicast("a", b"next")
        assert [request.first for request in cluster.requests()] == [0, 100]

    run({"a": 1}, story)


def test_a_request_holds_up_to_the_bytes_of_a_batch() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        payloads = [bytes([i]) * 296 for i in range(10)] + [b"z" * 5000, b"last"]
        await asyncio.gather(*(client.multicast("a", payload) for payload in payloads))
        assert [request.count for request in cluster.requests()] == [3, 3, 3, 1, 1, 1]
        assert cluster.payloads("a") == payloads

    run({"a": 1}, story, batch_bytes=1000)


def test_linger_gathers_the_calls_of_several_turns() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await client.multicast_many("a", [b"first"])
        calls = []
        for i in range(5):
            calls.append(asyncio.create_task(client.multicast("a", b"%d" % i)))
            await asyncio.sleep(0.005)
        assert len(cluster.requests()) == 1
        await asyncio.gather(*calls)
        assert [request.count for request in cluster.requests()] == [1, 5]

    run({"a": 1}, story, linger=LINGER)


def test_nothing_leaves_after_the_client_was_closed() -> None:
    """A timer that another flush came before must not go off later, over what the caller was told did not happen."""

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await client.multicast_many("a", [b"first"])
        lingering = asyncio.create_task(client.multicast("a", b"second"))
        await asyncio.sleep(0.01)
        client._check_open().route("a").flush()  # as when a connection takes more again
        await lingering
        late = asyncio.create_task(client.multicast("a", b"late"))
        await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(Unavailable):
            await late
        await asyncio.sleep(2 * LINGER)
        assert cluster.payloads("a") == [b"first", b"second"]

    run({"a": 1}, story, linger=LINGER)


def test_a_full_batch_does_not_linger() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(client.multicast("a", b"x" * 600) for _ in range(4)))

    run({"a": 1}, story, linger=60, batch_bytes=1000)


def test_empty_payloads_stay_under_the_limit_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "PAYLOADS_MAX", 50)

    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await asyncio.gather(*(client.multicast("a", b"") for _ in range(120)))
        assert [request.count for request in cluster.requests()] == [49, 49, 22]

    run({"a": 1}, story, batch_bytes=4 << 20)


def test_single_payloads_and_batches_leave_together_in_the_order_of_the_calls() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        one, many, two = await asyncio.gather(
            client.multicast(["b", "a"], b"1"),
            client.multicast_many({"a", "b"}, [b"2", bytearray(b"3"), memoryview(b"4")]),  # type: ignore[list-item]
            client.multicast(("a", "b"), b"5"),
        )
        assert (one.number, many.number, many.count, two.number) == (0, 1, 3, 4)
        assert [request.count for request in cluster.requests()] == [5]
        assert cluster.payloads("a") == cluster.payloads("b") == [b"1", b"2", b"3", b"4", b"5"]

    run({"a": 1, "b": 1}, story)


def test_a_batch_is_never_divided() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        batches = [[b"%d" % i * 60] * count for i, count in enumerate((5, 5, 7, 30, 1, 9))]
        receipts = await asyncio.gather(*(client.multicast_many("a", batch) for batch in batches))
        assert [(receipt.number, receipt.count) for receipt in receipts] == [
            (0, 5), (5, 5), (10, 7), (17, 30), (47, 1), (48, 9),
        ]  # fmt: skip
        assert [request.count for request in cluster.requests()] == [10, 7, 30, 10], "the third has no room for two"
        assert cluster.payloads("a") == [payload for batch in batches for payload in batch]

    run({"a": 1}, story, batch_bytes=1000)


@pytest.mark.parametrize("size", [1, 10_000])  # in one piece, and in those in which it was called
def test_what_is_withdrawn_is_what_was_called_and_who_has_left_is_left_out(size: int) -> None:
    async def story() -> None:
        calls = [[b"one" * size], [b"", b"two" * size, b"three"], [b"four" * size], [b"five" * size, b"six"]]
        draft = Outgoing(1000)
        for call in calls:
            lengths, joined = join_payloads(call)
            if len(call) > 1:
                draft.batches[len(draft.futures)] = lengths
            draft.payloads.append(joined)
            draft.futures.append(asyncio.get_running_loop().create_future())
            draft.deadlines.append(10.0 + len(draft.futures))
        draft.number("me", 0, 0)
        assert len(draft.packed.pieces) == (1 if size == 1 else 1 + len(calls))
        first = parse_request(draft.head + bytes(draft.packed))
        assert list(first.payloads()) == [payload for call in calls for payload in call]
        draft.withdraw()
        draft.fail(lambda number: Unavailable("too late"), now=11.0)
        draft.drop_done()
        draft.number("me", 7, 0)
        again = parse_request(draft.head + bytes(draft.packed))
        assert (again.first, list(again.payloads())) == (7, [payload for call in calls[1:] for payload in call])
        futures = draft.futures
        draft.fail(lambda number: Unavailable(str(number)), now=13.0)
        assert [str(future.exception()) for future in futures[:2]] == ["7", "10"]
        draft.answer("me", ("a",), "a.1", 0)
        assert (futures[2].result().number, futures[2].result().count) == (11, 2)

    asyncio.run(story())


def test_numbers_are_dense_for_each_set_of_groups() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        sets = [("a",), ("b",), ("a", "b")]
        receipts = await asyncio.gather(*(client.multicast(sets[i % 3], b"x") for i in range(30)))
        for index, wanted in enumerate(sets):
            assert [receipt.number for receipt in receipts[index::3]] == list(range(10))
            assert {receipt.destinations for receipt in receipts[index::3]} == {wanted}

    run({"a": 2, "b": 2}, story)


@pytest.mark.parametrize(
    "payloads",
    [[], ["text"], b"bytes", "text", [b"x", 3], [bytes(PAYLOAD_BYTES_MAX + 1)], [bytes(1 << 20)] * 5, [b""] * 70_000],
    ids=["none", "str", "one payload", "a text", "a number", "a large one", "too many bytes", "too many"],
)
def test_bad_batches_are_refused(payloads: list[bytes]) -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        with pytest.raises(UsageError):
            await client.multicast_many("a", payloads)
        assert (await client.multicast("a", b"x")).number == 0, "nothing of it got a number"

    run({"a": 1}, story)


def test_bad_calls_are_refused_at_once() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        for groups in ([], ["nowhere"], ["a", "nowhere"], 5, [["a"]]):
            with pytest.raises(UsageError):
                await client.multicast(groups, b"x")  # type: ignore[arg-type]
        for payload in ("text", None, 5, bytes(PAYLOAD_BYTES_MAX + 1)):
            with pytest.raises(UsageError):
                await client.multicast("a", payload)  # type: ignore[arg-type]
        for timeout in ("x", "5", b"5", [5], float("nan"), 1j, 10**400, -(10**5000), -1, -0.5):
            with pytest.raises(UsageError, match="timeout must be a number of seconds"):
                await client.multicast("a", b"x", timeout=timeout)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="timeout must be a number of seconds"):
                await client.multicast_many("a", [b"x"], timeout=timeout)  # type: ignore[arg-type]
        assert cluster.requests() == []

    run({"a": 1}, story)


def test_a_client_is_used_only_while_it_is_open() -> None:
    async def story() -> None:
        async with FakeCluster({"a": 1}) as cluster:
            client = antiphon.connect(cluster.target)
            with pytest.raises(UsageError, match="not open"):
                await client.multicast("a", b"x")
            with pytest.raises(UsageError, match="not open"):
                _ = client.groups
            async with client:
                await client.multicast("a", b"x")
            assert client.groups == {"a": ["a.1"]}, "this it knows for good"
            for call in (client.multicast("a", b"x"), client.multicast_many("a", [b"x"])):
                with pytest.raises(UsageError, match="not open"):
                    await call
            with pytest.raises(UsageError, match="not open"):
                client.subscribe("a")
            with pytest.raises(UsageError, match="connect again"):
                await client.__aenter__()

    asyncio.run(story())


@pytest.mark.parametrize("target", [None, 5, b"shop", ["shop"]])
def test_what_is_neither_a_folder_nor_an_address_is_refused(target: object) -> None:
    with pytest.raises(UsageError, match="a cluster's folder or to its addresses, not to"):
        antiphon.connect(target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"name": 5}, {"linger": -1}, {"linger": float("nan")}, {"batch_bytes": 0}, {"name": "a b"}]
)
def test_bad_options_of_a_client_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        antiphon.connect("127.0.0.1:1", **options)  # type: ignore[arg-type]


def test_numbers_without_end_are_refused_in_one_short_sentence() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        for number in (10**400, 10**5000):
            for call in (
                lambda number=number: antiphon.connect("127.0.0.1:1", linger=number),
                lambda number=number: antiphon.connect("127.0.0.1:1", batch_bytes=number),
                lambda number=number: client.subscribe("a", start=number),
            ):
                with pytest.raises(UsageError) as refused:
                    call()
                assert len(str(refused.value)) < 200

    run({"a": 1}, story)
