"""Sweeps: each run once, whatever is tried twice, fails or is interrupted; and the figures are the pipeline's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.checks import check_run
from antiphon.core.errors import UsageError
from antiphon.core.model import ProcessId
from antiphon.pipeline.metrics import metrics
from antiphon.pipeline.read import read_events, read_runs
from antiphon.protocols.skeen import Final, Skeen
from antiphon.simulation import Outcome, Scenario, simulate
from antiphon.simulation.settings import Settings
from antiphon.sweep import task
from antiphon.sweep.folder import SweepFolder
from antiphon.sweep.rounds import METRICS, run_sweep
from antiphon.sweep.spec import Sweep, parse_spec
from antiphon.sweep.summary import summary
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = """
seeds = "1-3"
[[grid]]
protocol = ["skeen", "tom"]
groups = "2x2"
fanout = [1, 2]
messages = 6
[[grid]]
protocol = "skeen"
faults = "random"
"""


def prepared(path: Path, spec: str = SPEC) -> tuple[Sweep, SweepFolder]:
    sweep = parse_spec(spec, "spec")
    return sweep, SweepFolder.prepare(path, sweep, spec)


def rows_of(folder: SweepFolder) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = folder.figures(METRICS.names).to_pylist()
    return found


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, SweepFolder]:
    sweep, folder = prepared(tmp_path_factory.mktemp("sweep") / "out")
    run_sweep(spark, sweep, folder)
    return sweep, folder


def test_every_point_is_run_with_every_seed_once(done: tuple[Sweep, SweepFolder]) -> None:
    sweep, folder = done
    rows = rows_of(folder)
    assert [(row["point"], row["seed"]) for row in rows] == [(p, seed) for seed in (1, 2, 3) for p in range(5)]
    assert not any(row["error"] for row in rows)
    assert not list((folder.path / "rounds").iterdir()), "nothing is under way any more"
    for row in rows:
        outcome = simulate(sweep.points[row["point"]].scenario(row["seed"]))
        assert (row["events"], row["multicasts"], row["sends"]) == (
            outcome.events,
            outcome.multicasts,
            outcome.messages_sent,
        )
    of_random = rows[4]
    assert (of_random["protocol"], of_random["faults"], of_random["groups"]) == ("skeen", "random", None)


def test_the_trace_is_one_and_gives_the_same_figures(spark: SparkSession, done: tuple[Sweep, SweepFolder]) -> None:
    _, folder = done
    facts = read_facts(folder.trace)
    assert len(facts) == 15
    assert not any(check_run(run, read_rows(folder.trace, run.run)) for run in facts[:5])
    measured = metrics(read_events(spark, folder.trace), read_runs(spark, folder.trace)).runs.collect()
    rows = {row["run"]: row for row in rows_of(folder)}
    for run in measured:
        row = rows[run.run]
        assert row["payloads_delivered"] == run.payloads
        names = set(run.asDict()) - {"payloads"}
        assert {name: row[name] for name in names} == {name: run[name] for name in names}


def test_the_summary_and_a_sweep_that_is_done(done: tuple[Sweep, SweepFolder]) -> None:
    sweep, folder = done
    found = summary(folder, sweep)
    assert (found.runs, found.points, found.failed) == (15, 5, 0)
    one, two = (point.sends_per_multicast for point in found.by_point[:2])
    assert one is not None
    assert two == pytest.approx(2 * one), "skeen sends to each member of each group"
    run_sweep(None, sweep, folder)  # type: ignore[arg-type]  # there is nothing to do for Spark


def test_another_sweep_in_the_same_folder_is_refused(done: tuple[Sweep, SweepFolder], tmp_path: Path) -> None:
    sweep, folder = done
    SweepFolder.prepare(folder.path, sweep, "# the same, with a comment" + SPEC)
    with pytest.raises(UsageError, match="holds another sweep"):
        prepared(folder.path, SPEC.replace("1-3", "1-4"))
    (tmp_path / "letter").touch()
    with pytest.raises(UsageError, match="holds something else than a sweep"):
        prepared(tmp_path)
    with folder.locked(), pytest.raises(UsageError, match="Another process is running"), folder.locked():
        pass


# Interrupted ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def half_way(folder: SweepFolder, sweep: Sweep) -> None:
    """One of two chunks is committed, and an attempt at the other has left something. The seconds are a mark."""
    round = folder.begin([(0, 1), (2, 3)])
    task.run_chunk(sweep, (0, 1), round.folder)
    (round.folder / "outcomes" / ".00000002-00000003.parquet.77.tmp").write_bytes(b"half")
    if sweep.trace:
        shutil.copy(next(round.folder.glob("trace/events/*")), round.folder / "trace/events/.00000002.77.tmp")
    committed = round.folder / "outcomes" / "00000000-00000001.parquet"
    table = pq.read_table(committed)
    task.write_table(committed, table.set_column(8, METRICS.field("cpu_seconds"), pa.array([77.0, 77.0])))


@pytest.mark.parametrize("keep", [True, False], ids=["trace", "no trace"])
def test_a_killed_sweep_goes_on_where_it_was(spark: SparkSession, tmp_path: Path, keep: bool) -> None:
    spec = 'seeds = "1-2"\n' + ("" if keep else "trace = false\n") + '[[grid]]\nmessages = 2\ngroups = ["2x1", "1x2"]'
    sweep, folder = prepared(tmp_path / "out", spec)
    half_way(folder, sweep)
    folder.end, end = stop, folder.end  # type: ignore[method-assign]
    with pytest.raises(Killed):
        run_sweep(spark, sweep, folder)
    assert [row["cpu_seconds"] == 77.0 for row in rows_of(folder)] == [True, True, False, False], "done only once"
    folder.end = end  # type: ignore[method-assign]
    (round,) = (folder.path / "rounds").iterdir()
    if keep:  # and killed again, while the trace is moved
        (folder.trace / "events").mkdir(parents=True)
        moved = round / "trace" / "events" / "00000000-00000001.parquet"
        moved.rename(folder.trace / "events" / moved.name)
    run_sweep(None, sweep, folder)  # type: ignore[arg-type]  # it was measured already
    assert [(row["point"], row["seed"]) for row in rows_of(folder)] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert folder.trace.exists() == keep
    if keep:
        assert sorted(run.run for run in read_facts(folder.trace)) == ["p0-s1", "p0-s2", "p1-s1", "p1-s2"]
        assert all(read_rows(folder.trace, run.run) for run in read_facts(folder.trace))
    assert not round.exists()


def stop(*_: object, **__: object) -> None:
    raise Killed


def test_two_attempts_at_a_chunk_commit_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, folder = prepared(tmp_path / "out")
    round = folder.begin([(0, 1)])
    write_tables, attempts = task.write_tables, []

    def overtaken(*arguments: Any) -> None:
        attempts.append(None)
        if len(attempts) == 1:  # before the first attempt has written anything, another one does it all
            task.run_chunk(sweep, (0, 1), round.folder)
        write_tables(*arguments)

    monkeypatch.setattr(task, "write_tables", overtaken)
    task.run_chunk(sweep, (0, 1), round.folder)
    assert len(attempts) == 2
    files = sorted(path.relative_to(round.folder).as_posix() for path in round.folder.rglob("*") if path.is_file())
    names = ("outcomes/00000000-00000001.parquet", "trace/events/00000000-00000001.parquet")
    assert files == ["chunks.json", *names, "trace/runs/00000000-00000001.jsonl"]
    assert [row["run"] for row in round.outcomes()] == ["p0-s1", "p1-s1"]
    task.run_chunk(sweep, (0, 1), round.folder)
    assert len(attempts) == 2, "what is there is not done again"


# Failing ----------------------------------------------------------------------------------------------------------


class Raises(Skeen):
    def on_final(self, sender: ProcessId, final: Final) -> None:
        raise RuntimeError("a forged failure")


def test_a_protocol_that_raises_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, folder = prepared(tmp_path / "out")
    round = folder.begin([(0, 2)])

    def forged(scenario: Scenario) -> Outcome:
        return simulate(scenario, Raises if scenario.protocol == "skeen" else None)

    monkeypatch.setattr(task, "simulate", forged)
    task.run_chunk(sweep, (0, 2), round.folder)
    first, second, third = round.outcomes()
    assert first["error"].startswith("error: RuntimeError in on_final: a forged failure")
    assert "error" in first["violations"]
    assert (second["run"], second["seed"], second["error"] == first["error"]) == ("p1-s1", 1, True)
    assert (third["error"], third["violations"]) == (None, [])


def test_a_run_whose_trace_cannot_be_made_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a broken protocol gives a position that is no number."""
    sweep, folder = prepared(tmp_path / "out")
    round = folder.begin([(0, 2)])

    def forged(scenario: Scenario) -> Outcome:
        made = simulate(scenario)
        if scenario.protocol == "skeen":
            made.rows[:] = [row._replace(position="x" * 5_000) for row in made.rows]  # type: ignore[arg-type]
        return made

    monkeypatch.setattr(task, "simulate", forged)
    task.run_chunk(sweep, (0, 2), round.folder)
    first, second, third = round.outcomes()
    assert "xxx" in first["error"]
    assert len(first["error"]) == task.ERROR_CHARACTERS_MAX
    assert (second["run"], second["error"]) == ("p1-s1", first["error"])
    assert (third["error"], third["violations"]) == (None, [])
    assert third["deliveries"] > 0


def test_a_run_that_cannot_be_made_is_a_row_and_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    spec = "seeds = [4]\n[[grid]]\nmessages = 2\ngroups = '2x1'"
    _, folder = prepared(tmp_path / "out", spec)
    sweep = Sweep((Settings(protocol="nobody"), Settings(messages=2, groups="2x1")), (4,))
    run_sweep(spark, sweep, folder)
    bad, good = rows_of(folder)
    assert (bad["run"], bad["seed"], bad["protocol"]) == ("p0-s4", 4, "nobody")
    assert bad["error"].startswith("There is no protocol 'nobody'")
    assert bad["multicasts"] is None
    assert (good["error"], good["multicasts"]) == (None, 2)
    found = summary(folder, sweep)
    assert (found.failed, found.failures[0].seed) == (1, 4)
