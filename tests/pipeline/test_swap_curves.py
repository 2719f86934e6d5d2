"""A slice of benchmarks/swap_curves.py, whose result is on the page of the reduction."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.pipeline.read import read_events, read_runs
from benchmarked import benchmark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

N, MOVING_IN = 16, (8, 16)


@pytest.fixture(scope="module")
def curves() -> ModuleType:
    return benchmark("swap_curves")


@pytest.fixture(scope="module")
def found(curves: ModuleType, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("curves")
    curves.record_all(folder, [N])
    for n in MOVING_IN:
        for protocol in curves.MOVED:
            for mover in curves.MOVERS:
                curves.record_moves(folder, protocol, mover, n)
    measured: dict[str, Any] = curves.measure(read_events(spark, folder), read_runs(spark, folder))
    return measured


def test_the_curves_show_what_the_paper_says(curves: ModuleType, found: dict[str, Any]) -> None:
    for when in curves.WHEN:
        points = {kind.name: found[curves.named("latency", kind.name, N, when)] for kind in curves.KINDS}
        for way in ("arrow", "combining"):
            swap, counting = points[f"{way}, swap"], points[f"{way}, counting"]
            assert swap.multicast < counting.multicast or (way, when) == ("arrow", "sequential")
            assert swap.delivery <= counting.delivery
            assert 0 < swap.hops <= curves.diameter(N)
        if when == "sequential":
            assert points["arrow, swap"][:2] == points["arrow, counting"][:2], "one by one they are the same"


def test_who_bears_the_load(curves: ModuleType, found: dict[str, Any]) -> None:
    """Section 6.1: one sender alone costs arrows nothing, but the combining tree its whole way up each time."""
    arrow, combining, hybrid = curves.LOADED
    one, by_node, at_once, _ = curves.PATTERNS
    for tree in curves.TREES:
        assert curves.load(found, arrow, N, tree, one)[0] <= 1 / curves.LOAD
        assert curves.load(found, combining, N, tree, one)[0] == 1
        assert curves.load(found, arrow, N, tree, by_node)[0] > 0.95, "all goes through the node between the halves"
        assert curves.load(found, combining, N, tree, by_node)[0] == 1
    shares = [curves.load(found, kind, N, "star", at_once)[0] for kind in (arrow, combining, hybrid)]
    assert shares[0] == shares[1] == 1
    assert shares[2] < 0.7, "a virtual root has many children between its processes"


def test_the_cost_of_leaving_depends_on_the_degree_of_the_node_and_not_on_the_size_of_the_group(
    curves: ModuleType, found: dict[str, Any]
) -> None:
    for mover, degree in zip(curves.MOVERS, (1, 2, 3, None), strict=True):
        for n in MOVING_IN:
            for protocol in curves.MOVED:
                point = found[curves.named("moves", protocol, n, mover.name)]
                assert (point.leaving, point.entering) == (3 * (degree or n - 1), 2)
