"""Slices of the reproductions that need Spark, small, and with forged results that must be found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from antiphon.reproduce import r2, r6, r8, swap_runs
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.results import prepare, reproduce
from antiphon.reproduce.swap_runs import Compared, Moves, SwapCase, SwapFigures, SwapLatency, SwapLoad
from antiphon.reproduce.table import PaperResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

N, MOVING_IN = 16, (8, 16)


@pytest.fixture(scope="module")
def lab(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("reproduce")
    prepare(folder, quick=True)
    return Lab(folder, lambda: spark, quick=True, say=lambda _: None)


def test_r2_is_counted_in_the_trace_and_a_wrong_number_is_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r2, "TEN", 3)  # groups, where the paper's sentences speak of ten: so they do not hold
    monkeypatch.setitem(r2.PAPER_STEPS, ("scalatom", "ct"), 6)
    (result,) = reproduce(lab, ["r2"])
    messages, steps, _, sentences = result.tables
    assert len(messages.rows) == 18
    assert all(row.holds for row in messages.rows)
    wrong = [row.missed() for row in steps.rows if not row.holds]
    sizes = ("2, 2, 3", "2, 3, 3", "3, 3, 5")
    assert wrong == [f"SCALATOM, CT, {size}, steps: 7 (the paper: 6) is not the same." for size in sizes]
    assert not any(row.holds for row in sentences.rows)
    assert f"r2, Steps: {wrong[0]}" in result.missed
    assert (lab.folder / "r2" / "messages.svg").exists()


@pytest.fixture(scope="module")
def swaps(lab: Lab) -> r8.Simulated:
    cases = [case for case in r8._cases((N,)) if not isinstance(case, Moves)]
    cases += [Moves(protocol, n, mover.name) for protocol in r8.MOVED for mover in r8.MOVERS for n in MOVING_IN]
    swept = lab.sweep("swap-slice", cases)
    return r8.Simulated(swap_runs.measured(swept), swap_runs.compared(swept))


def test_r8_the_curves_show_what_the_paper_says(swaps: r8.Simulated) -> None:
    for rows in (r8._hops(swaps, (N,)), r8._latencies(swaps, (N,)), r8._alone(swaps, (N,)), r8._halves(swaps, (N,))):
        found = list(rows)
        assert any(row.holds for row in found)
        assert [row.missed() for row in found if row.holds is False] == []


def test_the_cost_of_leaving_depends_on_the_degree_of_the_node_and_not_on_the_size_of_the_group(
    swaps: r8.Simulated,
) -> None:
    for mover in r8.MOVERS:
        for n in MOVING_IN:
            for protocol in r8.MOVED:
                point, degree = swaps.cases[Moves(protocol, n, mover.name)], mover.degree or n - 1
                assert (point.leaving, point.entering) == (3 * degree, 2)
                assert 1 < point.concerned <= degree + 1


def test_r8_forged_measurements_are_found(swaps: r8.Simulated) -> None:
    def missed(cases: dict[SwapCase, SwapFigures], pair: Compared | None = None) -> str:
        pairs = {key: pair or value for key, value in swaps.pairs.items()}
        forged = r8.Simulated({**swaps.cases, **cases}, pairs)
        parts = (r8._hops, r8._latencies, r8._alone, r8._halves, r8._moves)
        rows = [row for part in parts for row in part(forged, (N,))]
        return " ".join(row.missed() for row in rows if row.holds is False)

    assert missed({}) == ""
    hops = SwapLatency("arrow, swap", N, "concurrent")
    assert "hops: 99 (the paper: ≤ diameter)" in missed({hops: swaps.cases[hops]._replace(hops=99)})
    alone = SwapLoad("arrow", N, "star", r8.ONE_SENDER)
    assert "after the first message: 1" in missed({alone: swaps.cases[alone]._replace(after_first=1)})
    root = SwapLoad("combining", N, "star", r8.ONE_SENDER)
    assert "pass the root: 3" in missed({root: swaps.cases[root]._replace(at_root=3)})
    hybrid = SwapLoad("hybrid, root=4", N, "star", r8.AT_ONCE)
    assert "frames at the busiest node: 1.00" in missed({hybrid: swaps.cases[hybrid]._replace(busiest=r8.LOAD)})
    moving = Moves("arrow", N, "a leaf")
    assert "processes concerned: 3" in missed({moving: swaps.cases[moving]._replace(concerned=3)})
    assert "longer with swap, to the delivery: 1" in missed({}, Compared(0.0, 1.0))
    slower = swaps.cases[hops]._replace(multicast=99.0)
    assert "to the multicast, counting and swap: 99.00" in missed({hops: slower})


def test_r6_late_deliveries_are_found(spark: SparkSession) -> None:
    known = spark.createDataFrame([(5, 5), (5, 6), (5, None)], "acknowledged_ns long, delivered_ns long")
    assert tuple(r6.late(known).collect()[0]) == (3, 2)


def test_r8_the_figures() -> None:
    stages = {"arrow": r8.arrow_figures(), "combining": r8.combining_figures()}
    rows = list(r8._figure_rows(stages))
    assert len(rows) == 9 + 2
    assert all(row.holds for row in rows)


def test_a_result_that_is_read_back_is_the_same(lab: Lab) -> None:
    from antiphon.reproduce.write import as_json, read_result

    (result,) = reproduce(lab, ["r9"])
    assert isinstance(result, PaperResult)
    assert as_json(read_result(lab.folder / "r9")) == as_json(result)
