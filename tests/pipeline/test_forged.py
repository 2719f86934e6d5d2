"""Forgeries and definitions that share nothing with those in `forging`: benchmarks/forged.py, at more seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antiphon import checks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = range(1, 301)


@pytest.fixture(scope="module")
def program() -> Any:
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import forged
    finally:
        sys.path.remove(folder)
    return forged


@pytest.fixture(scope="module")
def runs(program: Any) -> Any:
    return [program.forged(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def expected(program: Any, runs: Any) -> set[tuple[str, str]]:
    return {(facts.run, name) for facts, rows in runs for name in program.Definitions(facts, rows).broken()}


def test_every_property_is_broken_here_and_kept_there(program: Any, runs: Any, expected: set[tuple[str, str]]) -> None:
    """So a judge that never finds one broken, or always, is told from a right one."""
    for promise in program.PROMISES:
        judged = {facts.run for facts, _ in runs if promise in checks.judged(facts)}
        broken = {run for run, name in expected if name == promise}
        assert broken, promise
        assert judged - broken, promise


def test_the_checks_in_process_agree(runs: Any, expected: set[tuple[str, str]]) -> None:
    found = {(facts.run, v.property) for facts, rows in runs for v in checks.check_run(facts, rows)}
    assert found == expected


def test_spark_agrees(
    program: Any, runs: Any, expected: set[tuple[str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    assert program.on_spark(tmp_path, runs, spark) == expected
