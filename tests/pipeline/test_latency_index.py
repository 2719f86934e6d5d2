"""The index of latency by Spark, against the definitions: walked machine by machine, on plain graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec
import pytest

from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.latency_index import OF_PAIRS, OF_RUNS, acknowledged, waits
from antiphon.pipeline.metrics import metrics
from antiphon.pipeline.read import read_events, read_runs
from antiphon.reproduce.toto import Case
from antiphon.services import toto as paper
from antiphon.services.toto import Graph, Name
from antiphon.simulation import MILLISECOND, Crash, Outcome, Partition, Plan, Scenario, simulate
from antiphon.trace import Row
from antiphon.trace.parquet import deduplicate, write_run

if TYPE_CHECKING:
    from pyspark.sql import Row as SparkRow
    from pyspark.sql import SparkSession

Wait = tuple[str, str, int, int]  # message, process, τ, ω


def turbulent(protocol: str, **options: str) -> Outcome:
    """A machine crashes and says everything twice; with a membership service, the others go on without it."""
    faults = (Crash("g.2", at=4 * MILLISECOND, down_ns=40 * MILLISECOND),)
    cut = Partition(("g.1", "g.4"), at=300 * MILLISECOND, for_ns=400 * MILLISECOND)
    plans = tuple(Plan(f"g.{1 + i % 4}", i * 700_000 + i // 24 * 500 * MILLISECOND, ("g",)) for i in range(48))
    return simulate(
        Scenario(
            protocol=protocol,
            options=options,
            groups={"g": 4},
            plans=plans,
            loss=0.1,
            duplication=0.1,
            faults=(*faults, cut) if options else faults,
            journal=True,
        )
    )


SLICE = Case("toto", "poisson", 100, messages=240)  # of R6
RUNS = {
    "toto": lambda: turbulent("toto"),
    "transis": lambda: turbulent("transis"),
    "views": lambda: turbulent("toto", membership="true"),
    "R6-toto": lambda: simulate(SLICE.scenario(1)),
    "R6-allack": lambda: simulate(msgspec.structs.replace(SLICE, protocol="allack").scenario(1)),
    "skeen": lambda: simulate(Scenario(protocol="skeen", groups={"g": 2}, plans=(Plan("c1", 0, ("g",)),))),
}


WITH_KEYS = ("R6-toto", "R6-allack", "skeen")  # from the others, keys are taken: the index does not look at them


class Measured(msgspec.Struct):
    rows: dict[str, list[Row]]
    unproven: dict[str, set[str]]  # by order: the runs that the kernel must judge
    waits: dict[str, set[Wait]]
    means: dict[str, SparkRow]
    pairs: dict[str, Counter[tuple[int, int]]]
    acknowledged: list[SparkRow]  # of R6-toto


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    from pyspark.sql import functions as F

    folder = tmp_path_factory.mktemp("index")
    rows = {}
    for name, make in RUNS.items():
        outcome = make()
        assert outcome.violations == []
        rows[name] = outcome.rows if name in WITH_KEYS else [row._replace(order_key=None) for row in outcome.rows]
        write_run(folder, msgspec.structs.replace(outcome.facts, run=name), rows[name])
        rows[name] = deduplicate(rows[name])
    events, runs = read_events(spark, folder).coalesce(1).localCheckpoint(), read_runs(spark, folder)
    figures = metrics(events, runs)
    found = figures.index
    assert found is not None
    figures.tables()["latency_index"].write.parquet(str(folder / "index"))
    assert spark.read.parquet(str(folder / "index")).schema == OF_RUNS
    figures.tables()["tau_omega"].write.parquet(str(folder / "pairs"))
    assert spark.read.parquet(str(folder / "pairs")).schema == OF_PAIRS
    open_ = {name: {row.run for row in some.collect()} for name, some in Evidence(events, runs).unproven.items()}
    in_r6 = F.col("run") == "R6-toto"
    known = acknowledged(events.filter(in_r6), runs.filter(in_r6)).collect()
    made = Measured(rows, open_, {name: set() for name in RUNS}, {}, {name: Counter() for name in RUNS}, known)
    for row in waits(events, runs).filter(~F.col("run").startswith("R6")).collect():
        made.waits[row.run].add((row.message, row.process, row.tau, row.omega))
    made.means = {row.run: row for row in found.runs.collect()}
    for row in found.pairs.collect():
        made.pairs[row.run][row.tau, row.omega] += row.deliveries
    return made


def by_definition(rows: list[Row]) -> Iterator[tuple[Wait, int]]:
    """And when it was delivered. What was there before a view is not in the graph of the next."""
    machines = tuple(dict.fromkeys(row.process for row in rows if row.kind == "enter"))
    follows = {name_of(row): row.about or () for row in rows if row.kind == "enter" and row.about is not None}
    widths, names = {}, {}
    plain = Graph(machines, {}, {})
    for before, row in zip((None, *rows), rows, strict=False):
        if row.kind == "view" or before is None or before.process != row.process:
            plain = Graph(machines, {}, {})
        if row.kind == "enter":
            name = name_of(row)
            plain.arcs[name] = tuple(Name(*_split(text)) for text in follows[name])
            if row.message is not None:
                names[row.message] = name
                widths[row.process, row.message] = paper.width(plain, name)
        elif row.kind == "deliver" and row.message is not None:
            tau = paper.index_of_latency(plain, names[row.message])
            yield (row.message, row.process, tau, widths[row.process, row.message]), row.time_ns


def name_of(row: Row) -> Name:
    return Name((row.peers or ("",))[0], row.position or 0)


def _split(text: str) -> tuple[str, int]:
    sender, _, number = text.rpartition(":")
    return sender, int(number)


@pytest.mark.parametrize("name", ["toto", "transis", "views"])
def test_each_delivery_waits_for_as_many_as_the_definitions_say(measured: Measured, name: str) -> None:
    expected = {wait for wait, _ in by_definition(measured.rows[name])}
    assert measured.waits[name] == expected
    assert len({(tau, omega) for _, _, tau, omega in expected}) > 3
    views = [row for row in measured.rows[name] if row.kind == "view"]
    assert len(views) > 8 if name == "views" else not views


def test_without_keys_an_order_is_proved_by_places(measured: Measured) -> None:
    """Who delivers the same in a view proves all its orders at once; causal order alone is for the kernel."""
    assert {name for name in RUNS if any(row.order_key for row in measured.rows[name])} == {*WITH_KEYS}
    assert {run for runs in measured.unproven.values() for run in runs} == {"transis"}


def test_without_a_graph_there_is_no_index(measured: Measured) -> None:
    assert "skeen" not in measured.means
    assert not measured.waits["skeen"]


@pytest.mark.parametrize("protocol", ["toto", "allack"])
def test_r6_and_r7_a_slice_of_the_tables(measured: Measured, protocol: str) -> None:
    """The joint distribution, the means, the model and ρ, worked out from the rows. All of it: `antiphon reproduce`."""
    rows, row = measured.rows[f"R6-{protocol}"], measured.means[f"R6-{protocol}"]
    sent: dict[str, list[int]] = {}
    at: dict[str | None, int] = {}
    for multicast in (r for r in rows if r.kind == "multicast"):
        sent.setdefault(multicast.process, []).append(multicast.time_ns)
        at[multicast.message] = multicast.time_ns
    end = min(times[-1] for times in sent.values())
    counted = [(wait, when) for wait, when in by_definition(rows) if when <= end]
    pairs = Counter((tau, omega) for (_, _, tau, omega), _ in counted)
    assert measured.pairs[f"R6-{protocol}"] == pairs
    latency = fmean(when - at[m] for (m, p, _, _), when in counted if m.startswith(f"{p}:")) / 1e6
    gaps = [later - earlier for times in sent.values() for earlier, later in pairwise(times)]
    poisson = {p: sum(Fraction(1, 8 - k) for k in range(p[1], p[0])) for p in pairs}
    model = fmean(gaps) / 1e6 * float(sum(poisson[p] * count for p, count in pairs.items()) / pairs.total())
    assert row.deliveries == pairs.total()
    assert row.latency_ms == pytest.approx(latency)
    assert row.poisson_ms == pytest.approx(model)
    assert row.rho_poisson == pytest.approx(abs(model - latency) / latency)
    periodic = sum(Fraction(t - w, 8 - w + 1) * count for (t, w), count in pairs.items()) / pairs.total()
    assert row.periodic_ms == pytest.approx(fmean(gaps) / 1e6 * float(periodic))
    assert abs(row.tau - {"toto": 5.31, "allack": 8}[protocol]) < 0.4
    assert abs(row.poisson_ms / row.interval_ms * 80 / latency - 1) < 0.2, "with the interval that was meant"


def test_toto_is_faster_than_all_ack(measured: Measured) -> None:
    assert 2 < measured.means["R6-allack"].latency_ms / measured.means["R6-toto"].latency_ms < 4


def test_r6_when_a_message_is_acknowledged_by_all(measured: Measured) -> None:
    """By the definition: every machine has a message in this graph that follows it. Nothing is delivered later."""
    expected = {}
    past: dict[Name, set[Name]] = {}
    heard: dict[Name, set[str]] = {}
    names: dict[Name, str | None] = {}
    rows = measured.rows["R6-toto"]
    follows = {name_of(row): row.about or () for row in rows if row.kind == "enter" and row.about is not None}
    for before, row in zip((None, *rows), rows, strict=False):
        if before is None or before.process != row.process:
            past, heard = {}, {}
        if row.kind == "enter":
            name = name_of(row)
            names[name] = row.message
            direct = [Name(*_split(text)) for text in follows[name]]
            past[name], heard[name] = set(direct).union(*(past[f] for f in direct)), set()
            for m in past[name]:
                heard[m].add(name.sender)
                if len(heard[m]) == 8 and names[m] is not None:
                    expected.setdefault((names[m], row.process), row.time_ns)
    found = {(row.message, row.process): row.acknowledged_ns for row in measured.acknowledged}
    assert found == expected
    assert len(found) > 1000
    assert all(
        row.delivered_ns is not None and row.delivered_ns <= row.acknowledged_ns for row in measured.acknowledged
    )
