"""The merged table agrees with every group's log, whatever the steps in which it was made."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from msgspec.structs import replace

from antiphon.core.buffers import Buffers, Origin
from antiphon.core.errors import UsageError
from antiphon.core.events import Adopted, Delivered, encode_event
from antiphon.core.keys import encode_key
from antiphon.core.model import GroupId, MessageId, ProcessId
from antiphon.core.requests import encode_request, parse_request
from antiphon.merge import Merged, MergedTable, MergeError, find_logs, floors_of, merge
from antiphon.merge.increment import COLUMNS
from antiphon.merge.logs import reach_of
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.disk import JournalIdentity, SegmentedLog
from antiphon.runtime.disk.stored import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = ["orders", "billing", "shipping"]
SEGMENT_BYTES = 2048  # so that a log has several


def delivery(rng: random.Random, number: int, numbers: dict[tuple[str, ...], int]) -> Delivered:
    """A message to some groups, with one or two requests, at its place in the order."""
    chosen = rng.sample(GROUPS, rng.randint(1, 3))
    groups = tuple(GroupId(group) for group in GROUPS if group in chosen)
    requests = []
    for _ in range(rng.randint(1, 2)):
        payloads = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randint(1, 4))]
        first = numbers.get(groups, 0)
        numbers[groups] = first + len(payloads)
        requests.append(parse_request(encode_request("c", first, 0, payloads)))
    id = MessageId(ProcessId("orders.1"), number)
    key = encode_key((3 * number, *id))
    count = sum(request.count for request in requests)
    return Delivered(id, groups, 0, count, tuple(requests), key, 1_700_000_000_000_000_000 + number)


def history(messages: int, seed: int) -> list[Delivered]:
    rng, numbers = random.Random(seed), dict[tuple[str, ...], int]()
    return [delivery(rng, number, numbers) for number in range(1, messages + 1)]


def placed(events: Sequence[Delivered]) -> list[Delivered]:
    """At the positions that they have where they are all that is delivered."""
    ends = accumulate(event.count for event in events)
    return [replace(event, position=end - event.count) for event, end in zip(events, ends, strict=True)]


class Shop:
    """A cluster's folder whose logs are written by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        members = {group: [f"{group}.{i}" for i in (1, 2)] for group in GROUPS}
        addresses = {p: "127.0.0.1:1" for group in members.values() for p in group}
        self.config = ClusterConfig(
            cluster="shop", protocol="skeen", options={}, groups=members, addresses=addresses, run="shop"
        )
        ClusterFolder(path, self.config).save()

    def write(self, process: str, events: Sequence[Adopted | Delivered]) -> None:
        """Add what it is that the process delivers next."""
        folder = self.path / process / "delivered"
        folder.mkdir(parents=True, exist_ok=True)
        log = SegmentedLog.open(folder, JournalIdentity("shop", process, ""), segment_bytes=SEGMENT_BYTES)
        for event in events:
            log.append(store(event, encode_event(event)))
            log.commit()
        log.abandon()

    def refer(self, process: str, events: Sequence[Delivered]) -> list[Path]:
        """The same, of requests that the process's journal has; the journal's files."""
        folder = self.path / process
        identity = JournalIdentity("shop", process, "")
        journal = SegmentedLog.open(folder / "journal", replace(identity, code="1"), segment_bytes=1 << 16, lends=True)
        log = SegmentedLog.open(folder / "delivered", identity, segment_bytes=SEGMENT_BYTES)
        journal.lend(0, log.next_index)
        for event in events:
            requests = []
            for request in event.requests:
                origin = Origin()
                origin.index = journal.next_index
                journal.append(Buffers(request.data))
                requests.append(replace(request, origin=origin))
            journal.commit()
            told = replace(event, requests=tuple(requests))
            by = log.next_index
            log.append(store(told, encode_event(told), lambda index, by=by: journal.refer(index, by)))  # type: ignore[misc]
            log.commit()
        for state in (b"", b"again"):  # of which each leaves only what is referred to
            journal.write_snapshot(journal.next_index, state)
        journal.abandon()
        log.abandon()
        return sorted((folder / "journal").glob("*.log"))

    def write_behind(self, process: str, events: Sequence[Delivered], records: int) -> None:
        """So many records were let go before these."""
        folder = self.path / process / "delivered"
        log = SegmentedLog.open(folder, JournalIdentity("shop", process, ""), segment_bytes=SEGMENT_BYTES)
        for _ in range(records):
            log.append(store(events[0], encode_event(events[0])))
        log.commit()
        log._roll(log._files.reserve_segment())
        log.abandon()
        self.write(process, events)
        log = SegmentedLog.open(folder, JournalIdentity("shop", process, ""))
        log.cut(records)
        assert log.first_index == records
        log.abandon()

    def let_go(self, process: str, segments: int) -> None:
        """Of the oldest segments, leaving so many."""
        log = SegmentedLog.open(self.path / process / "delivered", JournalIdentity("shop", process, ""))
        log.cut(log.written.extents()[-segments][0])
        log.abandon()

    def replace(
        self, process: str, newcomer: str, events: Sequence[Delivered], begin: int, until: int | None = None
    ) -> None:
        """A newcomer goes on behind the first of these events."""
        group = process.partition(".")[0]
        members = [newcomer if each == process else each for each in self.config.groups[group]]
        addresses = {**self.config.addresses, newcomer: "127.0.0.1:1"}
        del addresses[process]
        changes = {"groups": {**self.config.groups, group: members}, "addresses": addresses}
        self.config = replace(self.config, **changes)
        ClusterFolder(self.path, self.config).save()
        last = events[begin - 1].id if begin else None
        adopted = Adopted(ProcessId(members[0]), last, events[begin].position, 1)
        self.write(newcomer, [adopted, *events[begin:until]])

    def deliver(self, events: Sequence[Delivered], done: dict[str, int], until: dict[str, int]) -> None:
        """The log of each process goes on from ``done`` to ``until``, counted in the messages of its group."""
        for process, end in until.items():
            own = placed([event for event in events if process.partition(".")[0] in event.destinations])
            self.write(process, own[done.get(process, 0) : end])
            done[process] = max(done.get(process, 0), end)


def merged(spark: SparkSession, shop: Shop, out: Path, bucket_bytes: int = 1 << 20) -> Merged:
    config, logs = find_logs([shop.path])
    table = MergedTable.prepare(out, config)
    return merge(spark, floors_of(config, logs, before=table.newest()), table, bucket_bytes=bucket_bytes)


def rows_of(out: Path) -> list[dict[str, object]]:
    """In the order in which they stand in the files."""
    files = sorted(out.glob("increment=*/part-*.parquet"))
    return [row for file in files for row in ds.dataset(file).to_table(columns=COLUMNS).to_pylist()]


def expected(events: Sequence[Delivered]) -> list[tuple[object, ...]]:
    """Message by message, as whoever knows the order writes them down."""
    paid = [
        (str(event.id), list(event.destinations), request.client, request.first + k, event.key, payload)
        for event in events
        for request in event.requests
        for k, payload in enumerate(request.payloads())
    ]
    return [(position, *row) for position, row in enumerate(paid)]


def facts(rows: Sequence[dict[str, object]]) -> list[tuple[object, ...]]:
    names = ("position", "message", "groups", "client", "number", "key", "payload")
    return [tuple(row[name] for name in names) for row in rows]


def test_steps_make_the_same_table_as_one_merge(spark: SparkSession, tmp_path: Path) -> None:
    events = history(80, seed=7)
    shop, rng, done = Shop(tmp_path / "shop"), random.Random(7), dict[str, int]()
    out = tmp_path / "in steps"
    ends: list[int] = []
    for step in range(3):
        # Members of a group are not equally far, and the groups are not either: one has delivered nothing at first.
        processes = [p for group in GROUPS[: 2 + step] for p in shop.config.groups[group]]
        shop.deliver(events, done, {p: min(done.get(p, 0) + rng.randint(0, 25), 80) for p in processes})
        found = merged(spark, shop, out)
        ends.append(found.rows)
        assert facts(rows_of(out)) == expected(events)[: found.rows]
    assert ends[0] == 0 < ends[1] < ends[2], "nothing is closed while a group has delivered nothing"
    shop.deliver(events, done, dict.fromkeys(shop.config.processes, 80))
    last = merged(spark, shop, out)
    assert last.increment is not None
    assert merged(spark, shop, out).increment is None, "there is nothing new"
    # What is behind the lowest floor waits. Everything before it is there, in many buckets as in one.
    keys = [max(e.key or b"" for e in events if group in e.destinations) for group in GROUPS]
    closed = [event for event in events if (event.key or b"") <= min(keys)]
    assert facts(rows_of(out)) == expected(closed)
    assert last.waiting == sum(event.count for event in events[len(closed) :])
    once = tmp_path / "at once"
    merged(spark, shop, once, bucket_bytes=2_000)
    assert len(list(once.glob("increment=*/part-*.parquet"))) > 3
    assert rows_of(once) == rows_of(out)


def large(messages: int, seed: int) -> list[Delivered]:
    """Deliveries of which nearly all are so large that a log refers to what they brought."""
    rng, numbers = random.Random(seed), dict[tuple[str, ...], int]()
    events = []
    for event in history(messages, seed):
        groups = tuple(event.destinations)
        payloads = [rng.randbytes(rng.choice([20, 3000])) for _ in range(3)]
        first = numbers.get(groups, 0)
        numbers[groups] = first + 3
        request = parse_request(encode_request("c", first, 0, payloads))
        events.append(replace(event, requests=(request,), count=3))
    return events


def test_what_a_log_refers_to_is_merged_and_is_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    events = large(60, seed=9)
    shop, out = Shop(tmp_path / "shop"), tmp_path / "out"
    journals: dict[str, list[Path]] = {}
    for group in GROUPS:
        own = placed([event for event in events if group in event.destinations])
        journals[group] = shop.refer(f"{group}.1", own)
    assert any(path.name.startswith("kept-") for paths in journals.values() for path in paths)
    copies = [tmp_path / f"{group}.1" for group in GROUPS]
    shutil.copy(shop.path / "cluster.json", tmp_path)
    for copy in copies:
        shutil.copytree(shop.path / copy.name, copy)
    first = merged(spark, shop, out, bucket_bytes=50_000)
    assert first.rows > 100
    assert facts(rows_of(out)) == expected(events)[: first.rows]
    config, logs = find_logs(copies)
    table = MergedTable.prepare(tmp_path / "of copies", config)
    assert merge(spark, floors_of(config, logs), table).rows == first.rows
    assert facts(rows_of(tmp_path / "of copies")) == expected(events)[: first.rows]

    path = next(path for path in journals["billing"] if path.name.startswith("kept-"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match=rf"billing.1/delivered/.* refers to what cannot be read: .*{path.name}"):
        merged(spark, shop, tmp_path / "damaged")
    shutil.rmtree(shop.path / "billing.1" / "journal")
    with pytest.raises(UsageError, match=r"cannot be read without the journal beside it: .* is not there"):
        merged(spark, shop, tmp_path / "alone")
    assert not list((tmp_path / "damaged").glob("increment=*"))


def test_logs_that_were_cut_are_merged_as_long_as_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    events = history(90, seed=3)
    shop, done, out = Shop(tmp_path / "shop"), dict[str, int](), tmp_path / "out"
    shop.deliver(events, done, dict.fromkeys(shop.config.processes, 15))
    first = merged(spark, shop, out)
    assert first.increment is not None
    shop.deliver(events, done, dict.fromkeys(shop.config.processes, 90))
    shop.let_go("orders.1", 1)  # too much, but the other one has it
    everything = expected(events)
    again = merged(spark, shop, out)
    assert again.rows > first.rows
    assert facts(rows_of(out)) == everything[: again.rows]
    shop.let_go("orders.2", 1)  # this is in the table by now
    assert merged(spark, shop, out).increment is None
    fresh = tmp_path / "fresh"
    with pytest.raises(UsageError, match=r"orders keeps what it delivered from position \d+ on, .*: nothing was added"):
        merged(spark, shop, fresh)
    assert not list(fresh.glob("increment=*"))


def test_a_log_that_was_cut_just_where_the_table_ends_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    events = history(90, seed=3)
    shop, done, out = Shop(tmp_path / "shop"), dict[str, int](), tmp_path / "out"
    shop.deliver(events, done, dict.fromkeys(shop.config.processes, 30))
    first = merged(spark, shop, out)
    assert first.increment is not None
    # Of each group, one is left, and it has what is not in the table, from the beginning of a segment on.
    for group in GROUPS:
        own = placed([event for event in events if group in event.destinations])
        rest = [event for event in own if (event.key or b"") > first.increment.until]
        assert rest[0].position == first.increment.ends[group] > 0
        for process in shop.config.groups[group]:
            shutil.rmtree(shop.path / process / "delivered")
        shop.write_behind(f"{group}.1", rest, records=len(own) - len(rest))
    again = merged(spark, shop, out)
    assert again.rows > first.rows
    assert facts(rows_of(out)) == expected(events)[: again.rows]
    assert again.increment is not None
    for group in GROUPS:
        own = placed([event for event in events if group in event.destinations])
        rest = [event for event in own if (event.key or b"") > again.increment.until]
        assert again.increment.ends[group] == (rest[0].position if rest else own[-1].position + own[-1].count)
    shutil.rmtree(out / "increment=00000002")
    shutil.rmtree(shop.path / "orders.1" / "delivered")
    own = placed([event for event in events if "orders" in event.destinations])
    rest = [event for event in own if (event.key or b"") > first.increment.until][1:]
    shop.write_behind("orders.1", rest, records=len(own) - len(rest))
    with pytest.raises(UsageError, match="orders keeps what it delivered from position"):
        merged(spark, shop, out)


def test_a_newcomer_goes_on_where_its_log_and_the_table_meet(spark: SparkSession, tmp_path: Path) -> None:
    events = history(90, seed=5)
    shop, done, out = Shop(tmp_path / "shop"), dict[str, int](), tmp_path / "out"
    shop.deliver(events, done, dict.fromkeys(shop.config.processes, 20))
    first = merged(spark, shop, out)
    assert first.increment is not None
    own = placed([event for event in events if "orders" in event.destinations])
    end = first.increment.ends["orders"]
    shop.replace("orders.2", "orders.3", own, next(k for k, event in enumerate(own) if event.position == end))
    shop.deliver(events, done, {p: 90 for p in shop.config.processes if not p.startswith("orders")})
    shutil.move(shop.path / "orders.1" / "delivered", tmp_path / "aside")  # the newcomer's log is all there is
    again = merged(spark, shop, out)
    assert again.rows > first.rows
    assert facts(rows_of(out)) == expected(events)[: again.rows]
    with pytest.raises(UsageError, match=rf"orders keeps what it delivered from position {end} on, "):
        merged(spark, shop, tmp_path / "fresh")
    shutil.move(tmp_path / "aside", shop.path / "orders.1" / "delivered")
    shop.write("orders.1", own[20:])
    fresh = merged(spark, shop, tmp_path / "fresh")  # an older member has all
    assert facts(rows_of(tmp_path / "fresh")) == expected(events)[: fresh.rows]
    assert fresh.rows == again.rows
    with pytest.raises(UsageError, match=r"orders.2 was replaced: what it delivered is in the logs of those who"):
        find_logs([shop.path / "orders.2"])


def test_a_newcomer_that_took_over_nothing_has_all(spark: SparkSession, tmp_path: Path) -> None:
    events = history(20, seed=5)
    shop, out = Shop(tmp_path / "shop"), tmp_path / "out"
    shop.deliver(events, {}, {p: 90 for p in shop.config.processes if not p.startswith("orders")})
    shop.replace("orders.2", "orders.3", placed([event for event in events if "orders" in event.destinations]), 0)
    rows = merged(spark, shop, out).rows
    assert rows > 0
    assert facts(rows_of(out)) == expected(events)[:rows]


def test_a_log_that_only_says_where_it_goes_on_ends_there(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop")
    own = placed([event for event in history(20, seed=5) if "orders" in event.destinations])
    shop.replace("orders.2", "orders.3", own, 5, until=5)
    _, logs = find_logs([shop.path])
    (log,) = [log for log in logs if log.process == "orders.3"]
    reach = reach_of(log)
    assert (reach.floor, reach.payload, reach.end) == (None, None, own[5].position)


def test_what_the_logs_contradict_is_not_merged(spark: SparkSession, tmp_path: Path) -> None:
    events = history(12, seed=3)
    whole = dict.fromkeys(Shop(tmp_path / "any").config.processes, 99)

    def forged(name: str, group: str, change: slice | None = None, events: Sequence[Delivered] = events) -> Shop:
        """A cluster in which both members of a group leave something out, or exchange it."""
        shop = Shop(tmp_path / name)
        shop.deliver(events, {}, {p: end for p, end in whole.items() if not p.startswith(group)})
        own = [event for event in events if group in event.destinations]
        if change is not None:
            own[change] = own[change][::-1] if len(own[change]) > 1 else []
        for process in shop.config.groups[group]:
            shop.write(process, own)
        return shop

    shared = next(k for k, e in enumerate(e for e in events if "billing" in e.destinations) if len(e.destinations) > 1)
    with pytest.raises(MergeError, match=r"is missing in the log of billing, which has gone beyond it"):
        merged(spark, forged("lost", "billing", slice(shared, shared + 1)), tmp_path / "t1")
    with pytest.raises(MergeError, match=r"does not come after the one before it|goes back in the order"):
        merged(spark, forged("swapped", "billing", slice(0, 2)), tmp_path / "t2")
    assert not list(tmp_path.glob("t*/increment=*"))


def test_a_merge_that_was_killed_leaves_the_table_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    events = history(10, seed=5)
    shop = Shop(tmp_path / "shop")
    shop.deliver(events, {}, dict.fromkeys(shop.config.processes, 99))
    out = tmp_path / "table"
    MergedTable.prepare(out, shop.config)
    (out / "_unfinished").mkdir()
    shutil.copy(__file__, out / "_unfinished" / "part-00000.parquet")
    found = merged(spark, shop, out)
    assert found.increment is not None
    assert not (out / "_unfinished").exists()
    assert [row.position for row in spark.read.parquet(str(out)).orderBy("position").collect()] == list(
        range(found.rows)
    )
