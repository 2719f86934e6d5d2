"""A trace whose files hold many runs is the same trace as one whose files hold one each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.core.errors import TraceError
from antiphon.pipeline.read import read_events, read_runs
from antiphon.trace import Row, RunFacts, read_facts
from antiphon.trace.parquet import (
    deduplicate,
    heard_processes,
    read_rows,
    to_table,
    write_events,
    write_run,
    write_runs,
)
from antiphon.trace.survey import examined
from forgeries import honest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = tuple[RunFacts, list[Row]]


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Three runs; the second is written in part twice, and the third has a name that looks like a number."""
    facts, rows = honest_run(2, run="b", messages=8)
    return [honest_run(1, run="a", messages=8), (facts, [*rows, *rows[::3]]), honest_run(3, run="007", messages=8)]


def found(spark: SparkSession, folder: Path) -> tuple[list[object], list[object]]:
    """All that the judges and the figures get to see."""
    events, facts = read_events(spark, folder), read_runs(spark, folder)
    return sorted(events.collect(), key=lambda row: (row.run, row.process, row.seq)), sorted(
        facts.collect(), key=lambda row: row.run
    )


def test_files_of_many_runs_and_of_one_give_the_same(spark: SparkSession, tmp_path: Path, runs: list[Run]) -> None:
    for facts, rows in runs:
        write_run(tmp_path / "one each", facts, rows)
    write_runs(tmp_path / "mixed", "some", runs[:2])
    write_run(tmp_path / "mixed", *runs[2])
    events, facts = found(spark, tmp_path / "one each")
    assert len(events) == sum(len(deduplicate(rows)) for _, rows in runs)
    assert found(spark, tmp_path / "mixed") == (events, facts)
    for run, _ in runs:
        assert read_rows(tmp_path / "mixed", run.run) == read_rows(tmp_path / "one each", run.run)
        assert heard_processes(tmp_path / "mixed", run.run) == heard_processes(tmp_path / "one each", run.run)
        assert run in read_facts(tmp_path / "mixed")


def test_many_small_files_of_either_kind(
    spark: SparkSession, tmp_path: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.pipeline.read.SMALL_FILES", 1)
    monkeypatch.setattr("antiphon.pipeline.read.FOOTERS_READ_HERE", 1)
    write_runs(tmp_path, "some", runs[:2])
    write_run(tmp_path, *runs[2])
    counted = {row.run: row["count"] for row in read_events(spark, tmp_path).groupBy("run").count().collect()}
    assert counted == {facts.run: len(read_rows(tmp_path, facts.run)) for facts, _ in runs}
    strange = to_table(runs[0][1][:1]).append_column("run", [["c"]])
    pq.write_table(strange, tmp_path / "events" / "more.parquet")
    with pytest.raises(TraceError, match=r"more\.parquet has events of run 'c' but no facts of it are in runs/\.$"):
        read_events(spark, tmp_path)


def test_a_run_has_its_facts_once(tmp_path: Path, runs: list[Run]) -> None:
    write_runs(tmp_path, "some", runs[:2])
    write_runs(tmp_path, "more", runs[1:])
    lines = f"Line 1 of {tmp_path}/runs/more.jsonl; Line 2 of {tmp_path}/runs/some.jsonl."
    with pytest.raises(TraceError, match=f"^Run 'b' is defined twice: {re.escape(lines)}$"):
        read_facts(tmp_path)
    (tmp_path / "runs" / "more.jsonl").write_text('{"version":2}\n')
    with pytest.raises(TraceError, match=r"^Line 1 of .*more\.jsonl does not hold the facts of a run: "):
        read_facts(tmp_path)
    (tmp_path / "runs" / "more.jsonl").write_text("\n{\n")
    with pytest.raises(TraceError, match=r"^Line 2 of .*more\.jsonl is not JSON: "):
        read_facts(tmp_path)


def test_rows_of_many_runs_say_of_which(tmp_path: Path, runs: list[Run]) -> None:
    facts, rows = runs[0]
    write_events(tmp_path, facts.run, "part", to_table(rows))
    moved = (tmp_path / "events" / "run=a" / "part.parquet").rename(tmp_path / "events" / "part.parquet")
    assert examined(moved, ["a"]).complaint == f"{moved} has no column 'run'."
    whose = pa.array(["a"] * (len(rows) - 1) + [None], pa.string())
    pq.write_table(to_table(rows).append_column("run", whose), moved)
    assert examined(moved, ["a"]).complaint == f"{moved} has rows whose run is null."
