"""Long runs are judged in pieces: how small these are, and that what is far apart is found too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import functions as F

from antiphon.pipeline import session, spans
from antiphon.pipeline.blocks import placed, running_max
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.read import open_trace
from antiphon.pipeline.verify import verify
from antiphon.trace import Row, RunFacts
from antiphon.trace.parquet import write_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = {"g": ["p", "q"], "h": ["r", "s"]}
MESSAGES = 300
Deliveries = dict[str, list[int]]  # of each process: the messages in its order


def long_run(name: str, deliveries: Deliveries, *promises: str, keys: bool = False) -> tuple[RunFacts, list[Row]]:
    """One sender multicasts each message to both groups, before anybody delivers it."""
    facts = RunFacts(
        run=name, driver="simulation", protocol="by hand", groups=GROUPS, promises=list(promises), drained=True
    )
    rows = [Row("c", n, 10 * n, "multicast", f"c:{n}", ("g", "h")) for n in range(MESSAGES)]
    for process, order in deliveries.items():
        for place, n in enumerate(order):
            key = f"{n:04d}".encode() if keys else None
            row = Row(process, place, 10 * place + 5, "deliver", f"c:{n}", ("g", "h"), order_key=key, position=place)
            rows.append(row)
    return facts, rows


def everybody(**other: Iterable[int]) -> Deliveries:
    return {process: list(other.get(process, range(MESSAGES))) for process in ("p", "q", "r", "s")}


SWAPPED = everybody(q=[*range(150), 151, 150, *range(152, MESSAGES)])
LOST = everybody(q=[n for n in range(MESSAGES) if n != 150])
# Each two of them agree on all that both deliver, of which there is one message; and these three are far apart.
FAR_APART = {"p": [0, *range(1, 100), 299], "q": [299, *range(100, 149), 150], "r": [150, *range(200, 250), 0]}
RUNS = [
    long_run("swapped-by-keys", SWAPPED, "acyclic_order", "causal", keys=True),
    long_run("swapped", SWAPPED, "acyclic_order", "causal"),
    long_run("lost", LOST, "causal", keys=True),
    long_run("far-apart", FAR_APART, "acyclic_order"),
]


class Judged(NamedTuple):
    broken: set[tuple[str, str]]
    spans: set[tuple[str, int, int]]  # with the numbers as they are in each run


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    folder = tmp_path_factory.mktemp("long")
    for facts, rows in RUNS:
        write_run(folder, facts, rows)
    trace = open_trace(spark, folder)
    with small_settings(spark), pytest.MonkeyPatch.context() as patch:
        for name, size in (("PIECE", 20), ("NUMBERS", 16), ("EVENTS_IN_BLOCK", 32)):
            patch.setattr(spans, name, size)
        broken = {(row.run, row.property) for row in verify(trace.events, trace.runs, scan=trace.scan).collect()}
        unordered = Evidence(trace.events, trace.runs, scan=trace.scan).unordered
        assert unordered is not None
        rows = spans.numbered(spans.of_kernel(unordered))
        least = {row.run: row.least for row in rows.groupBy("run").agg(F.min("number").alias("least")).collect()}
        found = spans.united(spans.backward(rows)).collect()
        return Judged(broken, {(row.run, row.low - least[row.run], row.high - least[row.run]) for row in found})


@contextmanager
def small_settings(spark: SparkSession) -> Iterator[None]:
    """Spark interprets such small queries, as it does for the command."""
    settings = session.settings_by_size(session.TINY_ROWS)
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


def test_what_is_broken_in_a_piece_is_broken(judged: Judged) -> None:
    both = {(run, name) for run in ("swapped", "swapped-by-keys") for name in ("acyclic_order", "causal")}
    assert judged.broken == {*both, ("lost", "causal"), ("far-apart", "acyclic_order")}


def test_two_messages_in_another_order_are_all_that_is_looked_at(judged: Judged) -> None:
    assert {found for found in judged.spans if found[0].startswith("swapped")} == {
        ("swapped-by-keys", 150, 151),
        ("swapped", 150, 151),
    }


def test_a_span_may_be_longer_than_a_piece(judged: Judged) -> None:
    """What q never delivers comes after all that it delivers; what is broken is near, and seen through a window."""
    assert ("lost", 150, 299) in judged.spans
    lengths = [high - low for run, low, high in judged.spans if run == "far-apart"]
    assert max(lengths) > 2 * 20, "no window has all of the cycle"


def test_running_values_are_those_of_all_rows_before(spark: SparkSession) -> None:
    values = [(place * 7) % 11 for place in range(30)]
    rows = spark.createDataFrame([(1, *row) for row in enumerate(values)], "run int, place long, value int")
    tops = running_max(rows, ["run"], "place", {"top": F.col("value")}, size=4)
    found = placed(tops, ["run"], "place", "number", size=4).orderBy("place").collect()
    assert [row.top for row in found] == [max(values[:n], default=None) for n in range(30)]
    assert [row.number for row in found] == list(range(1, 31))
