"""The same properties as in `antiphon.checks`, found by Spark in one job over many runs; figures."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from antiphon import checks
from antiphon.checks import Status, check_run
from antiphon.core.errors import TraceError, UsageError
from antiphon.pipeline import kernel, schema, session
from antiphon.pipeline.clocks import SET_BACK, set_back
from antiphon.pipeline.cycles import merge, shortest_cycle
from antiphon.pipeline.diagram import diagram
from antiphon.pipeline.latency_index import OF_PAIRS, OF_RUNS
from antiphon.pipeline.metrics import COLUMNS, journeys, latency_histogram, loads, mean_latencies, metrics, timeline
from antiphon.pipeline.moments import BLOCK_NS, untimely
from antiphon.pipeline.proofs import proved
from antiphon.pipeline.read import open_trace, read_events, read_runs
from antiphon.pipeline.receipts import compare
from antiphon.pipeline.verify import SHOWN, verdicts, verify, verify_and_measure
from antiphon.pipeline.work import loads_by_process
from antiphon.simulation import simulate
from antiphon.trace import RequestCell, Row, RunFacts, write_facts
from antiphon.trace.parquet import EVENTS, deduplicate, to_table, write_events, write_run
from forgeries import FORGERIES, HARMLESS, PROPERTIES, Forgery, Tape, honest_run
from forging.mutations import MUTATIONS, begin_in_a_view
from mutants import host
from mutants.record import first_seeds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow


Run = tuple[RunFacts, list[Row]]
Broken = set[tuple[str, str]]


def named(run: Run, name: str) -> Run:
    return msgspec.structs.replace(run[0], run=name), run[1]


def opened(spark: SparkSession, folder: Path, runs: Iterable[Run]) -> tuple[DataFrame, DataFrame]:
    for facts, rows in runs:
        write_run(folder, facts, rows)
    # Each file is opened once, and not once for each check: there is a file for each run.
    return read_events(spark, folder).coalesce(1).localCheckpoint(), read_runs(spark, folder)


def broken(violations: DataFrame) -> Broken:
    return {(row.run, row.property) for row in violations.select("run", "property").distinct().collect()}


def forgery(name: str) -> Forgery:
    return next(f for f in FORGERIES if f.name == name)


def broken_here(runs: Iterable[Run]) -> Broken:
    return {(facts.run, v.property) for facts, rows in runs for v in check_run(facts, deduplicate(rows))}


# ---- the schema


def test_the_spark_schema_is_the_arrow_schema() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    assert from_arrow_schema(EVENTS) == schema.EVENT_COLUMNS
    assert schema.RUNS.names == [field.name for field in msgspec.structs.fields(RunFacts)]


# ---- verification: all runs are judged in one job, then each test looks at its own


# There is a short way for these: what bits and keys prove is not looked at again.
NOT_PROVED = {"gaps", "graph_delivery", "locality", "receipts", "view_client_order", "view_order", "virtual_synchrony"}
PROVED_BY_KEYS = {*PROPERTIES} - NOT_PROVED


@dataclass
class Judged:
    """A trace of many runs, with what Spark found the fast way and the long way."""

    runs: dict[str, Run]
    found: list[SparkRow]
    broken: Broken
    broken_the_long_way: Broken
    broken_in_pieces: Broken
    verdicts: dict[tuple[str, str], str]
    events: DataFrame
    figures: tuple[list[SparkRow], list[SparkRow]]  # measured beside the judgement, and alone

    def of(self, names: Iterable[str]) -> Broken:
        chosen = set(names)
        return {(run, name) for run, name in self.broken if run in chosen}


def mutated(seed: int) -> Run:
    """An honest run of any shape after a few random damages."""
    choose = random.Random(seed)
    shape = {"messages": choose.choice([3, 8, 15, 30]), "groups": choose.randint(1, 4), "members": choose.randint(1, 3)}
    tape = Tape(*honest_run(seed, **shape))
    if seed % 4:
        begin_in_a_view(tape, choose)
    for _ in range(choose.choice([1, 1, 2, 3, 5])):
        choose.choice(MUTATIONS)(tape, choose)
    return named(tape.result(), f"mutant-{seed}")


def wide_run(lie: str, name: str) -> Run:
    """More members than a long has bits."""
    return named(forgery(lie).forge(*honest_run(3, members=25, messages=10)), name)


def unpromising_run() -> Run:
    facts, rows = forgery("cycle_of_two").forge(*honest_run(7))
    facts.promises = ["integrity", "linearizability"]
    return named((facts, rows), "unpromising")


def rewritten_run() -> Run:
    """A run whose name looks like a number, with many rows written twice: recovery writes again, later, what it had."""
    facts, rows = honest_run(5, run="007")
    return facts, [*rows, *(r._replace(time_ns=r.time_ns + 10**9) for r in rows if r.process in ("g1.1", "g3.3"))]


LARGEST = 2**63 - 1


def run_at_the_end_of_numbers(name: str, *, lost: bool = False, twice: bool = False, beyond: bool = False) -> Run:
    """Rows, positions and requests with the largest numbers that a long can hold."""
    promises = ["integrity", "fifo", "causal", "client_order"]
    facts = RunFacts(
        run=name, driver="simulation", protocol="by hand", groups={"g": ["p"]}, promises=promises, drained=True
    )
    cells = (RequestCell("dora", 0, LARGEST, 7), RequestCell("dora", LARGEST, 1, 8))
    rows = [
        Row("q", 1, 1, "multicast", "q:1", ("g",), cells[:1]),
        Row("q", 2, 2, "multicast", "q:2", ("g",), cells[1:]),
        Row("p", LARGEST - 2, 3, "deliver", "q:1", ("g",), cells[:1], position=0),
        Row("p", LARGEST - 1, 4, "deliver", "q:2", ("g",), cells[1:], position=LARGEST),
    ]
    if lost:
        rows[2:] = [Row("p", LARGEST, 4, "deliver", "q:2", ("g",), cells[1:], position=0)]
    if twice:
        rows += [Row("q", 3, 3, "multicast", "q:3", ("g",), cells[1:])]
        rows += [Row("p", LARGEST, 5, "deliver", "q:3", ("g",), cells[1:])]
    if beyond:
        rows += [Row("q", 3, 3, "multicast", "q:3", ("g",)), Row("p", LARGEST, 5, "deliver", "q:3", ("g",), position=0)]
    return facts, rows


# What each of these breaks.
AT_THE_END = {
    "last-numbers": (run_at_the_end_of_numbers("last-numbers"), set[str]()),
    "last-lost": (run_at_the_end_of_numbers("last-lost", lost=True), {"fifo", "causal", "client_order"}),
    "last-twice": (run_at_the_end_of_numbers("last-twice", twice=True), {"integrity"}),
    "last-beyond": (run_at_the_end_of_numbers("last-beyond", beyond=True), {"integrity"}),
}


# What clients and subscribers rely on, each broken by a mutant of the host, with the property that says so.
BY_THE_HOST = {
    "AnswersBeforeTheSync": "receipts",
    "LosesARequestAtARetry": "receipts",
    "CorruptsAPayload": "integrity",
    "SwapsTwoPayloads": "integrity",
    "SwapsTheBytesOfTwoRequests": "integrity",
    "AdmitsHalfARequest": "integrity",
    "DeliversARepeatedRequestAgain": "integrity",
    "PositionsCountRequests": "integrity",
    "SwapsTwoRequests": "client_order",
    "IgnoresThePredecessor": "client_order",
}


def run_of_mutant(name: str) -> Run:
    """A trace that the mutant itself made, at the first seed at which it shows."""
    slip = next(slip for slip in host.MUTANTS if slip.name == name)
    with slip.made():
        for scenario in chain(islice(host.runs_from(first_seeds()["host", name]), 1), islice(host.runs_from(0), 150)):
            outcome = simulate(scenario)
            if BY_THE_HOST[name] in {violation.property for violation in outcome.violations}:
                return named((outcome.facts, outcome.rows), name)
    raise AssertionError(f"{name} does not show")


@pytest.fixture(scope="session")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    runs = [named(odd.forge(*honest_run(7)), odd.name) for odd in (*FORGERIES, *HARMLESS)]
    runs += [mutated(seed) for seed in range(60)]
    runs += [wide_run("lost_at_one", "wide-lost"), wide_run("neighbours_swapped_at_one_member", "wide-swapped")]
    runs += [unpromising_run(), rewritten_run()]
    runs += [run_of_mutant(name) for name in BY_THE_HOST]
    runs += [run for run, _ in AT_THE_END.values()]
    with suited(spark, sum(len(rows) for _, rows in runs)):
        return judged_by(spark, tmp_path_factory.mktemp("judged"), runs)


@contextmanager
def suited(spark: SparkSession, rows: int) -> Iterator[None]:
    """With the settings for a trace of so many rows; but workers share the cores, so there is one task at a time."""
    settings = session.settings_by_size(rows) | {"spark.sql.shuffle.partitions": "1"}
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


def judged_by(spark: SparkSession, folder: Path, runs: list[Run]) -> Judged:
    events, facts = opened(spark, folder, runs)
    with pytest.MonkeyPatch.context() as patch:  # what one task sees must be as good as what another sees
        patch.setattr("antiphon.pipeline.scan.Scan.buckets", lambda _: 5)
        violations, measured = verify_and_measure(events, facts, scan=open_trace(spark, folder).scan)
        figures = measured.runs.collect()
    proved = F.array(*(F.lit(name) for name in PROVED_BY_KEYS))
    return Judged(
        {run[0].run: run for run in runs},
        violations.collect(),
        broken(violations),
        broken(verify(events, facts.withColumn("promises", F.array_intersect("promises", proved)), fast=False)),
        broken_in_pieces(events, facts),
        {(row.run, row.property): row.status for row in verdicts(violations, facts).collect()},
        events,
        (figures, metrics(events, facts).runs.collect()),
    )


ORDERS = {"total_order", "acyclic_order", "real_time_order", "fifo", "causal", "causal_extension"}


def broken_in_pieces(events: DataFrame, facts: DataFrame) -> Broken:
    """The orders, none of them proved by keys, where a task holds two messages and a block four."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("spans.PIECE", 2), ("spans.NUMBERS", 4), ("spans.BLOCK_NS", 10**6)):
            patch.setattr(f"antiphon.pipeline.{name}", size)
        for module in ("spans", "order", "precedence"):
            patch.setattr(f"antiphon.pipeline.{module}.EVENTS_IN_BLOCK", 4)
        orders = F.array(*(F.lit(name) for name in ORDERS))
        return broken(verify(events, facts.withColumn("promises", F.array_intersect("promises", orders)), fast=False))


def test_every_forgery_breaks_exactly_what_it_says(judged: Judged) -> None:
    declared = {(f.name, name) for f in FORGERIES for name in (f.property, *f.also)}
    assert judged.of(odd.name for odd in (*FORGERIES, *HARMLESS)) == declared


def test_all_runs_are_judged_as_by_the_checks_in_process(judged: Judged) -> None:
    expected = broken_here(judged.runs.values())
    mutants = {name for run, name in expected if run.startswith("mutant")}
    assert mutants >= set(PROPERTIES)
    assert judged.broken == expected


def test_numbers_may_be_as_large_as_a_long_holds(judged: Judged) -> None:
    assert judged.of(AT_THE_END) == {(run, name) for run, (_, broken) in AT_THE_END.items() for name in broken}


def test_every_mutant_of_the_host_is_caught_from_its_own_trace(judged: Judged) -> None:
    assert set(BY_THE_HOST.items()) <= judged.of(BY_THE_HOST)


def test_the_long_way_finds_the_same(judged: Judged) -> None:
    assert judged.broken_the_long_way == {(run, name) for run, name in judged.broken if name in PROVED_BY_KEYS}


def test_pieces_of_a_run_break_what_the_run_breaks(judged: Judged) -> None:
    assert judged.broken_in_pieces == {(run, name) for run, name in judged.broken if name in ORDERS}


def test_a_run_of_more_members_than_a_long_has_bits(judged: Judged) -> None:
    assert judged.of(["wide-lost"]) == {("wide-lost", "agreement"), ("wide-lost", "uniform_agreement")}
    assert ("wide-swapped", "total_order") in judged.broken


def test_what_is_judged_beside_changes_no_figure(judged: Judged) -> None:
    """Though what newcomers took over is judged as if it were their own, and of some only the multicasts are."""
    beside_judgement, alone = judged.figures
    assert len(alone) == len(judged.runs)
    assert beside_judgement == alone


def test_only_promised_properties_are_judged(judged: Judged) -> None:
    assert judged.of(["unpromising"]) == set()
    statuses = {name: status for (run, name), status in judged.verdicts.items() if run == "unpromising"}
    assert statuses.pop("integrity") == "holds"
    assert statuses.pop("linearizability") == "unchecked"
    assert set(statuses.values()) == {"not promised"}


def test_every_verdict_is_that_of_the_checks_in_process(judged: Judged) -> None:
    expected = {
        (facts.run, name): str(status)
        for facts, rows in judged.runs.values()
        for name, status in checks.verdicts(facts, check_run(facts, deduplicate(rows))).items()
    }
    others = {key: status for key, status in judged.verdicts.items() if key not in expected}
    assert {name for _, name in others} == {"linearizability"}
    assert set(others.values()) == {"not promised"}
    assert {**judged.verdicts, **expected} == judged.verdicts
    assert set(expected.values()) == {str(status) for status in Status}


def test_a_verdict_for_each_run_and_property(judged: Judged) -> None:
    assert len(judged.verdicts) == len(judged.runs) * (len(PROPERTIES) + 1)
    assert {key for key, status in judged.verdicts.items() if status == "broken"} == judged.broken
    assert judged.verdicts["nothing_changed", "causal"] == "holds"
    assert judged.verdicts["undrained_with_missing_deliveries", "agreement"] == "unchecked"
    assert judged.verdicts["undrained_with_missing_deliveries", "view_order"] == "unchecked"
    assert judged.verdicts["unknown_promise", "linearizability"] == "unchecked"
    assert judged.verdicts["by_clocks_of_which_nobody_knows_anything", "real_time_order"] == "unchecked"
    assert judged.verdicts["within_the_error_of_the_clocks", "real_time_order"] == "holds"
    assert judged.verdicts["incomplete_rows_of_one_member", "integrity"] == "incomplete"
    assert judged.verdicts["lost_at_one_in_an_incomplete_run", "agreement"] == "broken"


def test_few_violations_are_shown_of_each(judged: Judged) -> None:
    assert max(Counter((row.run, row.property) for row in judged.found).values()) == SHOWN
    shown = [row for row in judged.found if row.run == "cycle_of_three"]
    assert sorted(row.property for row in shown) == ["acyclic_order", "real_time_order"]
    for row in shown:
        assert sorted(row.messages) == ["f1:1", "f2:1", "f3:1"]
        assert sorted(row.processes) == ["g1.1", "g2.1", "g3.1"]


def test_a_violation_is_proved_by_a_few_rows(judged: Judged) -> None:
    """The shortest cycle, the pair, the delivery that is missing, the frame, the receipt; each with its place."""
    wanted = [
        ("cycle_of_three", "acyclic_order"),
        ("lost_at_one", "agreement"),
        ("fifo_inverted_everywhere", "fifo"),
        ("fifo_inverted_everywhere", "causal"),
        ("neighbours_swapped_at_one_member", "total_order"),
        ("consensus_with_another_group", "locality"),
        ("receipt_broken_in_an_incomplete_run", "receipts"),
        ("bystander_in_an_incomplete_run", "genuineness"),
        ("real_time_broken_by_way_of_a_third_group", "real_time_order"),
        ("delivered_twice_through_two_messages", "integrity"),
        ("turns_inverted_everywhere", "client_turn_order"),
    ]
    first = {(row.run, row.property): row.asDict(recursive=True) for row in reversed(judged.found)}
    told = {(v["run"], v["property"]): v for v in proved([first[key] for key in wanted], judged.events)}
    places = {run: {(row.process, row.seq): row for row in rows} for run, (_, rows) in judged.runs.items()}
    for (run, _), violation in told.items():
        for event in violation["events"]:
            row = places[run][event["process"], event["seq"]]
            assert (row.kind, row.time_ns, row.message, row.position) == tuple(
                event[name] for name in ("kind", "time_ns", "message", "position")
            )
        assert "<svg" in diagram(violation)

    def kinds(run: str, name: str) -> list[tuple[str, str | None]]:
        return sorted((event["kind"], event["message"]) for event in told[run, name]["events"])

    # g1 delivers f1:1 before f2:1 is multicast; f2:1 comes before f3:1 in g3, and that before f1:1 in g2.
    late = [("deliver", f"f{n}:1") for n in (1, 1, 2, 3, 3)] + [("multicast", "f2:1")]
    assert kinds("real_time_broken_by_way_of_a_third_group", "real_time_order") == late
    cycle = [("deliver", f"f{n}:1") for n in (1, 1, 2, 2, 3, 3)]
    assert kinds("cycle_of_three", "acyclic_order") == cycle
    lost = told["lost_at_one", "agreement"]
    (message,) = lost["messages"]
    assert kinds("lost_at_one", "agreement") == [("deliver", message), ("multicast", message)]
    assert lost["missing"] == [{"process": process, "message": message} for process in lost["processes"]]
    inverted = [(kind, f"f1:{n}") for kind in ("deliver", "multicast") for n in (1, 2)]
    assert kinds("fifo_inverted_everywhere", "fifo") == inverted
    assert kinds("fifo_inverted_everywhere", "causal") == inverted
    assert len(kinds("neighbours_swapped_at_one_member", "total_order")) == 2
    assert kinds("consensus_with_another_group", "locality") in ([("send", None)], [("receive", None)])
    assert kinds("receipt_broken_in_an_incomplete_run", "receipts") == [("receipt", None)]
    unkept = told["receipt_broken_in_an_incomplete_run", "receipts"]
    assert unkept["missing"]
    assert {row["process"] for row in unkept["missing"]} <= set(unkept["processes"])
    assert {row["message"] for row in unkept["missing"]} == {None}
    assert "the request is missing" in diagram(unkept)
    assert ("send", None) in kinds("bystander_in_an_incomplete_run", "genuineness")
    twice = kinds("delivered_twice_through_two_messages", "integrity")
    assert [kind for kind, _ in twice] == ["deliver", "deliver"]
    # Both deliveries, and what told of the turns.
    turned = kinds("turns_inverted_everywhere", "client_turn_order")
    assert [kind for kind, _ in turned] == ["deliver", "deliver", "receipt", "receipt"]


def test_of_what_nobody_delivers_every_delivery_is_missing(judged: Judged) -> None:
    violations = [row.asDict(recursive=True) for row in judged.found if row.property == "validity"]
    for told in proved(violations, judged.events):
        (message,) = told["messages"]
        assert [event["kind"] for event in told["events"]] == ["multicast"]
        assert told["missing"] == [{"process": process, "message": message} for process in told["processes"]]
        assert told["missing"]


def test_only_who_delivers_to_other_destinations_is_named_for_that(judged: Judged) -> None:
    wanted = {
        "delivered_with_a_destination_more": {"g1.1"},
        "delivered_with_each_destination_twice": {"g1.1", "g2.1"},
        "delivered_with_a_destination_less": {"g2.3"},
    }
    for name, processes in wanted.items():
        of_run = [row for row in judged.found if (row.run, row.property) == (name, "integrity")]
        told = [row for row in of_run if "with other destinations than it was multicast to" in row.detail]
        assert [set(row.processes) for row in told] == [processes]
        assert told[0].detail.startswith(", ".join(sorted(processes)))
        here = {process for v in check_run(*judged.runs[name]) if v.property == "integrity" for process in v.processes}
        assert here == processes


def test_what_comes_between_neighbours_is_shown(judged: Judged) -> None:
    violations = [row.asDict(recursive=True) for row in judged.found if row.property == "gaps"]
    told_of = proved(violations, judged.events)
    plain = [told for told in told_of if all(event["kind"] != "adopt" for event in told["events"])]  # nobody's donor
    assert len(plain) > 2
    for told in plain:
        one, other = told["processes"]
        *first, between, message = told["messages"]
        rows = [(event["process"], event["message"]) for event in told["events"]]
        assert all(event["kind"] == "deliver" for event in told["events"])
        of_other = [(other, name) for name in (*first, between, message)]
        assert sorted(rows) == sorted([*((one, name) for name in (*first, message)), *of_other])
        assert rows.index((other, between)) < rows.index((other, message))


def test_what_a_newcomer_took_over_is_proved_by_the_rows_of_its_donor(judged: Judged) -> None:
    """These are in the trace, and beside them the row that says so."""
    wanted = [
        ("newcomer_delivers_again_what_it_took_over", "integrity"),
        ("newcomer_begins_one_position_too_late", "integrity"),
        ("log_that_begins_twice", "integrity"),
    ]
    chosen = [row.asDict(recursive=True) for row in judged.found if (row.run, row.property) in wanted]
    told = {(v["run"], v["property"]): v for v in proved(chosen, judged.events)}
    assert set(told) == set(wanted)
    for (run, _), violation in told.items():
        rows = {(row.process, row.seq): row.kind for row in judged.runs[run][1]}
        kinds = [rows[event["process"], event["seq"]] for event in violation["events"]]
        assert kinds == [event["kind"] for event in violation["events"]]
        assert "adopt" in kinds, run
        assert violation["missing"] == []
        assert "<svg" in diagram(violation)
    again = told["newcomer_delivers_again_what_it_took_over", "integrity"]["events"]
    assert {event["process"] for event in again if event["kind"] == "deliver"} == {"g1.1", "g1.4"}


def test_figures_count_no_delivery_that_was_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    facts, rows = small_run()
    facts.groups["b"].append("b2")
    rows.append(Row("b2", 1, 41_000_000, "adopt", "m2", peers=("b1",), position=2))
    events, runs = opened(spark, tmp_path, [(facts, rows)])
    measured = metrics(events, runs)
    (row,) = measured.runs.collect()
    assert (row.deliveries, row.latency_ms_max) == (3, 15.0)
    assert {row.process: row.deliveries for row in loads_by_process(events).collect()} == {"a1": 1, "b1": 2}
    assert ("b2", "adopt", 1) in {(row.process, row.kind, row["count"]) for row in timeline(events).collect()}


def test_rows_written_twice_are_one_event(spark: SparkSession, tmp_path: Path, judged: Judged) -> None:
    """The first copy counts. Whether some events are doubled, or too many to pick them."""
    assert judged.of(["007"]) == set()
    facts, rows = rewritten_run()
    once = sorted((row.process, row.seq, row.time_ns) for row in honest_run(5)[1])
    for most in (10_000, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("antiphon.pipeline.read.DOUBLED_MAX", most)
            events, _ = opened(spark, tmp_path, [(facts, rows)])
        kept = events.collect()
        assert {row.run for row in kept} == {"007"}
        assert sorted((row.process, row.seq, row.time_ns) for row in kept) == once


# ---- the kernel's corners


def kernel_table(judged: str, rows: list[tuple[str, str | None, int, list[str], dict[str, int]]]) -> pa.Table:
    columns = {
        "run": ["r"] * len(rows),
        "judged": [[judged]] * len(rows),
        "message": [row[0] for row in rows],
        "causal": [False] * len(rows),
        "sender": pa.array([row[1] for row in rows], pa.string()),
        "sender_seq": [row[2] for row in rows],
        "addressed": pa.array([row[3] for row in rows], pa.list_(pa.string())),
        "delivered_at": pa.array([list(row[4]) for row in rows], pa.list_(pa.string())),
        "delivered_seq": pa.array([list(row[4].values()) for row in rows], pa.list_(pa.int64())),
    }
    return pa.table(columns)


def test_keys_are_compared_with_all_that_was_delivered_before_over_blocks_of_time(spark: SparkSession) -> None:
    """By run: a message, its key, and the numbers of the blocks in which it was multicast and delivered."""
    runs: dict[str, list[tuple[str, int, float, float]]] = {
        "in order": [("a", 1, 0.1, 0.2), ("b", 2, 0.3, 3.0), ("c", 3, 9.5, 9.6)],
        "far": [("a", 5, 0.1, 0.2), ("b", 6, 0.1, 7.5), ("c", 3, 7.0, 9.0)],
        "near": [("a", 2, 4.1, 4.2), ("b", 1, 4.3, 4.4)],
        "at once": [("a", 2, 4.1, 4.2), ("b", 1, 4.2, 4.4)],
        "within the error": [("a", 2, 4.1, 4.25), ("b", 1, 5.25, 5.4)],
        "beyond the error": [("a", 2, 4.1, 4.25), ("b", 1, 5.26, 5.4)],
        "before itself": [("a", 2, 8.1, 4.2)],
    }
    rows, names = [], []
    for run, messages in runs.items():
        for message, key, sent, came in messages:
            rows.append(Row("p", len(rows), int(sent * BLOCK_NS), "multicast", message))
            rows.append(Row("p", len(rows), int(came * BLOCK_NS), "deliver", message, order_key=bytes([key])))
            names += [run, run]
    table = to_table(rows).append_column("run", pa.array(names))
    errors = pa.table({"run": [*runs], "clock_error_ns": [BLOCK_NS if "error" in run else 0 for run in runs]})
    found = untimely(spark.createDataFrame(table), spark.createDataFrame(errors))
    assert {row.run for row in found.collect()} == {"far", "near", "beyond the error", "before itself"}


def test_messages_that_precede_one_another_are_judged_at_common_addressees_only() -> None:
    """p multicasts a after delivering b, q multicasts b after delivering a: no run does this, a forger may."""
    apart = [("a", "p", 2, ["q"], {"q": 1}), ("b", "q", 2, ["p"], {"p": 1})]
    for judged in ("causal", "causal_extension", "acyclic_order"):
        assert kernel.disorder(kernel_table(judged, apart)).num_rows == 0
    together = [("a", "p", 2, ["q", "x"], {"q": 1, "x": 1}), ("b", "q", 2, ["p", "x"], {"p": 1, "x": 2})]
    assert kernel.disorder(kernel_table("causal", together))["messages"].to_pylist() == [["b", "a"]]
    assert kernel.disorder(kernel_table("acyclic_order", together)).num_rows == 0


def test_the_shortest_cycle_is_shown() -> None:
    rows = [
        ("a", None, 0, ["p", "q", "r"], {"p": 1, "q": 3, "r": 1}),
        ("b", None, 0, ["p", "q", "r"], {"p": 2, "q": 1, "r": 2}),
        ("c", None, 0, ["p", "q", "r"], {"p": 3, "q": 2, "r": 3}),
    ]
    (cycle,) = kernel.disorder(kernel_table("acyclic_order", rows)).to_pylist()
    assert cycle["property"] == "acyclic_order"
    assert sorted(cycle["messages"]) == ["a", "b"]


def test_the_shortest_cycle_may_be_far_behind_the_first_one() -> None:
    """Three processes get stuck at once in a cycle of three; long after that two of them swap two messages."""
    orders = [[0, 1, *range(3, 50), 50, 51], [1, 2, *range(3, 50), 51, 50], [2, 0]]
    stuck = merge(orders, [2] * 52)
    assert set(stuck) == {0, 1, 2}
    assert sorted(shortest_cycle(orders, stuck)) == [(50, 0), (51, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("antiphon.pipeline.cycles.CELLS_MAX", 1)
        assert len(shortest_cycle(orders, stuck)) == 3


@pytest.mark.parametrize("seed", range(40))
def test_no_cycle_is_shorter(seed: int) -> None:
    choose = random.Random(seed)
    orders = [choose.sample(range(7), choose.randint(1, 3)) for _ in range(6)]
    pairs = {(m, n): p for p, order in enumerate(orders) for i, m in enumerate(order) for n in order[i + 1 :]}
    stuck = merge(orders, [sum(m in order for order in orders) for m in range(7)])
    closed, length = set(pairs), 1
    while length < 8 and not any(m == n for m, n in closed):
        closed, length = {(m, n) for m, via in closed for start, n in pairs if start == via}, length + 1
    assert bool(stuck) == (length < 8)
    if stuck:
        cycle = shortest_cycle(orders, stuck)
        assert len(cycle) == length
        for (m, p), (n, _) in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert orders[p].index(m) < orders[p].index(n)


# ---- what is refused


def test_what_is_no_trace_is_refused_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"is not a trace: it has no runs/\*\.json or runs/\*\.jsonl\.$"):
        read_events(spark, tmp_path)
    facts, rows = honest_run(1)
    write_facts(tmp_path, facts)
    with pytest.raises(TraceError, match=r"is not a trace: it has no events/"):
        read_events(spark, tmp_path)
    write_run(tmp_path, facts, rows)
    write_events(tmp_path, "stranger", "part-00000", to_table(rows))
    with pytest.raises(TraceError, match=r"has events of run 'stranger' but no facts of it are in runs/\.$"):
        read_events(spark, tmp_path)


@pytest.mark.parametrize("many", [False, True], ids=["few files", "many files"])
def test_a_file_that_does_not_fit_is_refused_by_its_footer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    if many:
        monkeypatch.setattr("antiphon.pipeline.read.FOOTERS_READ_HERE", 1)
    write_run(tmp_path, *honest_run(1, run="r"))
    path = tmp_path / "events" / "run=r" / "part-00001.parquet"
    good = pq.read_table(path.with_name("part-00000.parquet"))
    other_type = good.set_column(good.schema.get_field_index("seq"), "seq", good["seq"].cast(pa.int32()))
    other_version = good.replace_schema_metadata({"antiphon.trace.version": "1"})
    cases = [
        (good.drop_columns(["peers"]), "has no column 'peers'."),
        (other_type, "has column 'seq' as int32, not int64."),
        (other_version, "has trace version '1'; this program reads version 2."),
    ]
    for table, words in cases:
        pq.write_table(table, path)
        with pytest.raises(TraceError, match=re.escape(f"part-00001.parquet {words}") + "$"):
            read_events(spark, tmp_path)
    path.write_bytes(b"PAR?")
    with pytest.raises(TraceError, match=r"part-00001\.parquet is not a Parquet file, or is damaged\.$"):
        read_events(spark, tmp_path)


def test_other_versions_of_the_facts_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_run(tmp_path, *honest_run(1, run="r"))
    path = tmp_path / "runs" / "r.json"
    path.write_text(path.read_text().replace('"version":2', '"version":1'))
    with pytest.raises(TraceError, match="has trace version 1; this program reads version 2"):
        read_runs(spark, tmp_path)


def test_without_spark_or_java_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(UsageError, match=r"^Spark needs Java 17 or later: .* or set JAVA_HOME\.$"):
        session._need_java()
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^This needs Spark's Python packages: .*pip install"):
        session.spark_session()


# ---- figures


def small_run() -> Run:
    """Two groups; m1 to both, with three payloads of two clients; m2 to one, with nothing new; one lost frame."""
    facts = RunFacts(
        run="small", driver="runtime", protocol="by hand", groups={"a": ["a1"], "b": ["b1"]}, promises=[], drained=True
    )
    ms = 1_000_000
    cells = (RequestCell("alice", 0, 2, 1), RequestCell("bob", 0, 1, 2))
    rows = [
        Row("a1", 1, 10 * ms, "multicast", "m1", ("a", "b"), cells),
        Row("a1", 2, 10 * ms, "send", peers=("b1", "b2"), about=("m1",), layer="x", bytes=100),
        Row("b1", 1, 11 * ms, "receive", peers=("a1",), about=("m1",), layer="x", bytes=100),
        Row("b1", 2, 11 * ms, "send", peers=("a1",), about=("m1",), layer="x/y", bytes=50),
        Row("a1", 3, 12 * ms, "deliver", "m1", ("a", "b"), cells, step=2),
        Row("b1", 3, 14 * ms, "deliver", "m1", ("a", "b"), cells, step=4),
        Row("b1", 4, 15 * ms, "multicast", "m2", ("b",), ()),
        Row("b1", 5, 16 * ms, "send", peers=("a1",), about=(), layer="x", bytes=10),
        Row("b1", 6, 30 * ms, "deliver", "m2", ("b",), (), step=3),
        Row("b1", 7, 31 * ms, "crash"),
        Row("b1", 8, 40 * ms, "recover"),
    ]
    return facts, rows


def test_figures_counted_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    events, runs = opened(spark, tmp_path, [small_run(), named(honest_run(1, messages=0), "empty")])
    measured = metrics(events, runs)
    assert measured.index is None, "there is no causal graph"
    tables = measured.tables()
    for name, columns in (COLUMNS | {"latency_index": OF_RUNS, "tau_omega": OF_PAIRS}).items():
        assert [(f.name, f.dataType) for f in tables[name].schema] == [(f.name, f.dataType) for f in columns], name
    assert tables["latency_index"].isEmpty()
    by_run = {row.run: row.asDict() for row in measured.runs.collect()}
    assert by_run["small"] == {
        "run": "small", "protocol": "by hand", "multicasts": 2, "deliveries": 3, "payloads": 6, "sends": 4,
        "bytes": 260, "steps_max": 4, "steps_mean": 3.0, "seconds": 0.02,
        "sends_per_multicast": 2.0, "bytes_per_multicast": 130.0,
        "deliveries_per_second": 150.0, "payloads_per_second": 300.0,
        "latency_ms_p50": 4.0, "latency_ms_p90": 15.0, "latency_ms_p99": 15.0, "latency_ms_max": 15.0,
        "first_ms_p50": 2.0, "first_ms_p90": 15.0, "first_ms_p99": 15.0, "first_ms_max": 15.0,
        "last_ms_p50": 4.0, "last_ms_p90": 15.0, "last_ms_p99": 15.0, "last_ms_max": 15.0, "backwards": 0,
    }  # fmt: skip
    assert by_run["empty"]["deliveries"] in (None, 0)
    by_groups = {row.groups: row for row in measured.by_groups.collect()}
    assert (by_groups[1].messages, by_groups[1].deliveries, by_groups[1].latency_ms_p50) == (1, 1, 15.0)
    assert (by_groups[2].messages, by_groups[2].deliveries, by_groups[2].latency_ms_max) == (1, 2, 4.0)
    by_size = {(row.groups, row.processes): (row.messages, row.latency_ms_max) for row in measured.by_size.collect()}
    assert by_size == {(1, 1): (1, 15.0), (2, 2): (1, 4.0)}
    by_layer = {row.layer: (row.sends, row.bytes, row.sends_per_multicast) for row in measured.by_layer.collect()}
    assert by_layer == {"x": (3, 210, 1.5), "x/y": (1, 50, 0.5)}
    means = {row.run: (row.latency_ms_mean, row.last_ms_mean) for row in mean_latencies(measured.latencies).collect()}
    assert means == {"small": (7.0, 9.5)}
    ways = {(row.message, row.layer): (row.after_ms, row.frames) for row in journeys(events).collect()}
    assert ways == {("m1", "x"): (0.0, 2), ("m1", "x/y"): (1.0, 1)}
    taken = {(row.process, row.layer): (row.frames, row.upkeep) for row in loads(events).collect()}
    assert taken == {("b1", "x"): (1, 0), ("b2", "x"): (1, 0), ("a1", "x/y"): (1, 0), ("a1", "x"): (1, 1)}


def test_what_clients_were_told_is_compared_with_what_was_delivered(spark: SparkSession, tmp_path: Path) -> None:
    events, runs = opened(spark, tmp_path, [small_run()])
    columns = "run string, client string, destinations array<string>, first long, payloads long"
    told = [("small", "alice", ["b", "a"], 0, 1), ("small", "alice", ["a", "b"], 1, 2), ("small", "carol", ["a"], 0, 1)]
    (row,) = compare(spark.createDataFrame(told, columns), events, runs).collect()
    # Number 2 of alice is missing twice and carol's once; bob was told nothing.
    assert row.asDict() == {"expected": 7, "missing": 3, "doubled": 0, "unexpected": 2}


def test_percentiles_are_latencies_that_occurred(spark: SparkSession, tmp_path: Path) -> None:
    facts, _ = small_run()
    rows = []
    for i in range(1, 101):
        rows.append(Row("a1", 2 * i, i * 10**9, "multicast", f"m{i}", ("a",)))
        rows.append(Row("a1", 2 * i + 1, i * 10**9 + i * 10**6, "deliver", f"m{i}", ("a",)))
    events, runs = opened(spark, tmp_path, [(facts, rows)])
    (row,) = metrics(events, runs).runs.collect()
    assert (row.latency_ms_p50, row.latency_ms_p90, row.latency_ms_p99, row.latency_ms_max) == (50, 90, 99, 100)
    assert latency_histogram(events, runs).filter("measure = 'latency_ms'").count() == 100


def test_latencies_below_nothing_are_counted_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    facts, _ = small_run()
    ms = 10**6
    rows = [
        Row("a1", 1, 10 * ms, "multicast", "m1", ("a", "b")),
        Row("a1", 2, 13 * ms, "deliver", "m1", ("a", "b")),
        Row("b1", 1, 7 * ms, "deliver", "m1", ("a", "b")),  # its clock is behind
        Row("a1", 3, 20 * ms, "multicast", "m2", ("b",)),
        Row("b1", 2, 19 * ms, "deliver", "m2", ("b",)),
    ]
    events, runs = opened(spark, tmp_path, [(facts, rows)])
    measured = metrics(events, runs)
    (row,) = measured.runs.collect()
    assert (row.deliveries, row.backwards, row.latency_ms_p50, row.latency_ms_max) == (3, 2, 3.0, 3.0)
    assert (row.first_ms_max, row.last_ms_max) == (3.0, 3.0)
    by_groups = {row.groups: (row.messages, row.deliveries, row.latency_ms_p50) for row in measured.by_groups.collect()}
    assert by_groups == {1: (1, 1, None), 2: (1, 2, 3.0)}
    assert {row.latency_ms_mean for row in mean_latencies(measured.latencies).collect()} == {3.0}


@pytest.mark.parametrize(
    ("times", "back"),
    [
        ([5, 6, 6, 9], None),
        ([5, 4, 6, 7], 1),  # within a block, from its beginning
        ([5, 8, 6, 7], 1),  # and before its end: by 2, of which 1 can be seen there
        ([5, 6, 7, 8, 3, 9, 10, 11], 5),  # behind an earlier block
    ],
)
def test_clocks_that_were_set_back_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[int], back: int | None
) -> None:
    monkeypatch.setattr("antiphon.pipeline.clocks.BLOCK_ROWS", 4)
    facts, _ = small_run()
    rows = [Row("a1", seq, time, "suspect", peers=("b1",)) for seq, time in enumerate(times)]
    rows += [Row("b1", seq, seq, "suspect", peers=("a1",)) for seq in range(8)]
    events, _ = opened(spark, tmp_path, [(facts, rows)])
    found = set_back(events)
    assert found.schema == SET_BACK
    assert {row.process: row.back_ns for row in found.collect()} == ({} if back is None else {"a1": back})


def test_the_timeline_has_deliveries_and_marks(spark: SparkSession, tmp_path: Path) -> None:
    events, _ = opened(spark, tmp_path, [small_run()])
    rows = timeline(events, buckets=3).collect()
    counts = {(row.process, row.kind, row.bucket): row["count"] for row in rows}
    assert counts == {
        ("a1", "deliver", 0): 1,
        ("b1", "deliver", 0): 1,
        ("b1", "deliver", 1): 1,
        ("b1", "crash", 2): 1,
        ("b1", "recover", 2): 1,
    }
    assert {row.kind: row.first_ns for row in rows if row.kind != "deliver"} == {"crash": 21e6, "recover": 30e6}
