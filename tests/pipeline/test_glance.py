"""The first look: histories without keys merged as a stream, and what numbers can and cannot prove."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.pipeline.cycles import merge as merge_whole
from antiphon.pipeline.glance import merge as merging
from antiphon.pipeline.glance.arrays import hashed, pieces, put_together, top_before
from antiphon.pipeline.glance.doubled import _doubled, _words
from antiphon.pipeline.glance.history import judge_history
from antiphon.pipeline.glance.merge import Merge
from antiphon.pipeline.glance.run_index import RunIndex
from antiphon.pipeline.read import open_trace
from antiphon.pipeline.verify import verify
from antiphon.trace import Row, RunFacts, write_facts
from antiphon.trace.parquet import EVENTS, to_table
from forgeries import Tape, honest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Histories = dict[str, list[str]]  # of each process: "a" delivers a, "a!" multicasts it


def merged(histories: Histories, addressed: dict[str, str] | None = None, *, at_once: int = 1) -> Merge:
    """Messages come one after the other, by where they stand on average."""
    bits = {process: 1 << place for place, process in enumerate(histories)}
    found = Merge(RunIndex(), "r")
    sizes = [(process, 0, len(history)) for process, history in histories.items()]
    found.sizes(pa.table(dict(zip(("process", "block", "size"), zip(*sizes, strict=True), strict=True))))
    rows: dict[str, list[tuple[str, str, int, int, bool, int, int]]] = {}
    for process, history in histories.items():
        for place, event in enumerate(history):
            name, sent = event.rstrip("!"), event.endswith("!")
            to = sum(bits[p] for p in (addressed or {}).get(name, "")) if sent else 0
            rows.setdefault(name, []).append((name, process, 0, place, sent, bits[process], to))
    in_order = sorted(rows.values(), key=lambda own: sum(row[3] for row in own) / len(own))
    names = ("message", "process", "block", "place", "sent", "bit", "addressed")
    for start in range(0, len(in_order), at_once):
        some = [row for own in in_order[start : start + at_once] for row in own]
        found.add(pa.table(dict(zip(names, zip(*some, strict=True), strict=True))))
    found.end()
    return found


def test_histories_that_can_be_merged_prove_all_orders() -> None:
    found = merged(
        {"p": ["a!", "a", "b", "c"], "q": ["a", "b!", "b"], "s": ["c!", "c"]}, {"a": "pq", "b": "pq", "c": "ps"}
    )
    assert (found.stuck, found.odd, found.holes, found.fifo, found.causal) == (False, False, False, True, True)
    assert (found.waiting, found.held) == ({}, 0)


def test_a_cycle_cannot_be_merged() -> None:
    found = merged({"p": ["a", "b"], "q": ["b", "c"], "s": ["c", "a"]})
    assert found.stuck
    assert not merged({"p": ["a", "b"], "q": ["b", "c"], "s": ["a", "c"]}).stuck


def test_what_is_given_up_is_not_proved() -> None:
    # s multicasts a before b, and nobody who could tell delivers both: to merge, b must come first.
    found = merged({"s": ["a!", "b!"], "p": ["c", "a"], "q": ["b", "c"]})
    assert (found.stuck, found.fifo) == (False, False)
    # b is delivered by p before it is multicast by one who had delivered what p delivers later.
    found = merged({"p": ["b", "a"], "s": ["a", "b!"]})
    assert (found.stuck, found.causal) == (False, False)
    # a has no key, as nobody delivers it.
    assert not merged({"s": ["a!", "b!"], "p": ["b"]}).fifo


def test_a_hole_below_a_delivery_is_seen() -> None:
    to_both = {"a": "pq", "b": "pq"}
    assert merged({"p": ["a!", "b!", "a", "b"], "q": ["b"]}, to_both).holes
    assert not merged({"p": ["a!", "b!", "a", "b"], "q": ["a"]}, to_both).holes  # it stopped before


def test_what_is_twice_there_is_odd() -> None:
    assert merged({"p": ["a", "a"]}).odd
    assert merged({"p": ["a!", "a"], "q": ["a!"]}).odd


def test_what_comes_in_parts_is_odd() -> None:
    """Each part could be merged as a message of its own, though the whole is a cycle."""
    found = Merge(RunIndex(), "r")
    found.sizes(pa.table({"process": ["p", "q"], "block": [0, 0], "size": [2, 2]}))
    for process, history in {"p": ["a", "b"], "q": ["b", "a"]}.items():
        cells = {"process": [process] * 2, "block": [0, 0], "place": [0, 1], "sent": [False] * 2}
        found.add(pa.table({"message": history, **cells, "bit": [1] * 2, "addressed": [0] * 2}))
    found.end()
    assert (found.stuck, found.odd) == (False, True)
    (told,) = merging._proved(found).to_pylist()
    assert told == {"run": "r", "stuck": True, "holes": True, "fifo": False, "causal": False}


def test_a_message_comes_together_in_whatever_order_a_task_sees_the_runs() -> None:
    buckets: dict[tuple[str, str], set[int]] = {}
    for runs in (["a", "b"], ["b", "a"], ["b"]):
        rows = [(run, message) for run in runs for message in "xyz"]
        cells = {"process": ["p"] * len(rows), "seq": range(len(rows)), "time": [0] * len(rows)}
        names = {name: [row[i] for row in rows] for i, name in enumerate(("run", "message"))}
        events = pieces(merging.EVENTS, pa.table({**names, **cells}), np.zeros(len(rows), dtype=np.int64))
        for batch in merging._placed(64, events):
            for i in range(len(batch)):
                for row in put_together([batch.slice(i, 1)]).get(merging.PLACED, pa.table({})).to_pylist():
                    buckets.setdefault((row["run"], row["message"]), set()).add(batch["bucket"][i].as_py())
    assert len(buckets) == 6
    assert all(len(found) == 1 for found in buckets.values())


def cyclic(name: str) -> tuple[RunFacts, list[Row]]:
    """Without keys, in groups of one, of which the second delivers the last two the other way round than the first."""
    t = Tape(*honest_run(1, run=name, groups=3, members=1, messages=6))
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"), t.multicast("f2", "f2:1", "g1", "g2"))
    t.swap("g2.1", "f1:1", "f2:1")
    return t.result()


def test_a_cycle_is_seen_among_many_runs_without_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files hold one process of all runs, in this order and in that; and as many tasks look as on a large machine."""
    monkeypatch.setattr("antiphon.pipeline.scan.Scan.buckets", lambda _: 8)
    honest = [honest_run(i, run=f"honest-{i}", groups=3, members=1, messages=6) for i in range(2)]
    runs = [honest[0], *(cyclic(f"cyclic-{i}") for i in range(6)), honest[1]]
    asked = ["acyclic_order", "view_order", "causal_extension"]
    by_process: dict[str, list[pa.Table]] = {}
    for facts, rows in runs:
        write_facts(tmp_path, msgspec.structs.replace(facts, promises=asked))
        for process in sorted({row.process for row in rows}):
            own = to_table(row._replace(order_key=None) for row in rows if row.process == process)
            table = own.append_column("run", pa.array([facts.run] * len(own)))
            by_process.setdefault(process, []).append(table)
    (tmp_path / "events").mkdir()
    for i, (process, tables) in enumerate(by_process.items()):
        pq.write_table(pa.concat_tables(tables[:: -1 if i % 2 else 1]), tmp_path / "events" / f"{process}.parquet")
    trace = open_trace(spark, tmp_path)
    ways = verify(trace.events, trace.runs, scan=trace.scan), verify(trace.events, trace.runs, fast=False)
    fast, long = ({(row.run, row.property) for row in found.collect()} for found in ways)
    assert {run for run, name in fast if name == "acyclic_order"} == {f"cyclic-{i}" for i in range(6)}
    assert fast == long


@pytest.mark.parametrize("seed", range(40))
def test_it_is_stuck_exactly_where_the_whole_is(seed: int) -> None:
    choose = random.Random(seed)
    messages = list(range(choose.choice([4, 8, 40])))
    orders = [sorted(choose.sample(messages, choose.randint(1, len(messages)))) for _ in range(choose.randint(2, 5))]
    for _ in range(choose.choice([0, 1, 1, 3])):
        order = choose.choice(orders)
        i, j = choose.randrange(len(order)), choose.randrange(len(order))
        order[i], order[j] = order[j], order[i]
    counts = [sum(m in order for order in orders) for m in messages]
    found = merged({f"p{i}": [str(m) for m in order] for i, order in enumerate(orders)})
    assert found.stuck == bool(merge_whole(orders, counts))


def test_only_what_is_in_flight_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 messages of which each is delivered up to 50 places earlier here than there; then a cycle, and as many
    more: where nothing can be taken any more, nothing more is held."""
    monkeypatch.setattr(merging, "UNMERGED_MAX", 200)
    names = [str(n) for n in range(20_000)]
    groups = [names[i::2] for i in range(2)]  # p and q each deliver one half, s delivers both, shifted
    shifted = sorted(names, key=lambda n: int(n) // 2 + (25 if int(n) % 2 else 0))
    held = 0
    add = Merge.add

    def watched(self: Merge, table: pa.Table) -> None:
        nonlocal held
        add(self, table)
        held = max(held, self.held)

    monkeypatch.setattr(Merge, "add", watched)
    found = merged({"p": groups[0], "q": groups[1], "s": shifted}, at_once=16)
    assert (found.stuck, found.limit) == (False, 200)
    assert 0 < held < 200
    early = [*names[:100], "x", "y", *names[100:]]
    found = merged({"p": early, "q": [*names[:100], "y", "x", *names[100:]]}, at_once=16)
    assert found.stuck
    assert held < 500


def test_a_name_has_one_number_wherever_it_stands() -> None:
    names = ["", "a", "g1.1:7", "", "g1.1:70", "ü" * 40, "g1.1:7", ""]
    one = hashed(pa.array(names)).tolist()
    assert [hashed(pa.array(["x", name])[1:]).tolist() for name in names] == [[number] for number in one]
    assert len(set(one)) == len(set(names))
    many = hashed(pa.array([f"g{i % 3}.1:{i}" for i in range(30_000)]))
    assert len(set(many.tolist())) > 29_990
    assert np.bincount(many % 20).max() < 1_800


def test_the_top_before_a_row_is_of_its_own_group() -> None:
    at, rank = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 1, 3, 0, 2, 4])
    starts = np.array([True, False, False, True, False, True])
    chosen = np.array([True, True, False, False, True, True])
    assert top_before(at, starts, rank, chosen, 6).tolist() == [-1, 5, 5, -1, -1, -1]


def test_a_task_may_see_only_processes_that_multicast() -> None:
    keys = pa.array([b"1", b"3", b"2"], pa.binary())
    sent = pa.table({"run": ["r"] * 3, "process": ["p", "p", "q"], "seq": [1, 2, 1], "key": keys})
    found = judge_history(None, sent)
    assert found is not None
    names = ["process", "fifo_keys", "first_key", "first_sent", "last_sent"]
    assert [tuple(row.values()) for row in found.select(names).to_pylist()] == [
        ("p", True, None, b"1", b"3"),
        ("q", True, None, b"2", b"2"),
    ]


@pytest.mark.parametrize("far", [1, 10**6, 10**17])
def test_events_that_are_there_several_times_are_found(far: int) -> None:
    """Twice in one part, twice in two parts, three times; whether numbers are close together or far apart."""
    seqs = [0, 1, 1, 63 * far, 64 * far], [64 * far, 65 * far, 9, 9, 9]
    parts = [
        pa.table({"run": ["r"] * 5, "process": ["p"] * 5, "seq": pa.array(seq, EVENTS.field("seq").type)})
        for seq in seqs
    ]
    words = [batch for part in parts for batch in _words(1, [part])]
    found = {row["seq"] for batch in _doubled(iter(words)) for row in batch.to_pylist()}
    assert found >= {1, 64 * far, 9}
    assert not found & {65 * far} or far == 1
