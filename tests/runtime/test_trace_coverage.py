"""A trace of which a file is gone says so: it accuses nobody of what the missing rows would explain."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.checks import Status, check_run, verdicts
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.cluster.processes import write_run_facts
from antiphon.trace import Row, RunFacts, read_facts
from antiphon.trace.coverage import last_rows, torn
from antiphon.trace.parquet import forgetful_processes, to_table, write_events, write_run
from forgeries import honest_run


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    return cluster.create(tmp_path / "c", {"a": 2})


def write(folder: ClusterFolder, *names: str) -> None:
    events = folder.trace / "events" / f"run={folder.config.run}"
    events.mkdir(parents=True, exist_ok=True)
    for name in names:
        process, first, last = name.split()
        (events / f"{process}-{int(first):012}-{int(last):012}.parquet").touch()


def remove(folder: ClusterFolder, process: str, first: int) -> None:
    (found,) = folder.trace.rglob(f"{process}-{first:012}-*.parquet")
    found.unlink()


def incomplete(folder: ClusterFolder) -> list[str]:
    (facts,) = read_facts(folder.trace)
    return facts.incomplete


@pytest.mark.parametrize(
    ("files", "gone"),
    [
        ((), []),
        (("a.1 1 4", "a.1 5 9", "a.2 1 7"), []),
        (("a.1 5 9", "a.2 1 7"), ["a.1"]),
        (("a.1 1 4", "a.1 6 9", "a.2 2 7"), ["a.1", "a.2"]),
        (("a.1 1 9", "a.1 3 5", "a.1 10 12"), []),  # a recovery has written some again
        (("a.1 1 9", "a.1 3 12", "a.1 14 15"), ["a.1"]),
    ],
)
def test_a_hole_between_the_files_of_a_process_is_seen(
    folder: ClusterFolder, files: tuple[str, ...], gone: list[str]
) -> None:
    write(folder, *files)
    (folder.trace / "part-00000.parquet").touch()  # no file of a process
    assert torn(folder.trace, folder.config.run, {}) == gone
    write_run_facts(folder, drained=True, faulty=[], incomplete=[])
    assert incomplete(folder) == gone, "whoever reads the facts is told"
    assert cluster.untraced(folder) == gone
    ending = cluster.end(folder)
    assert (ending.drained, list(ending.untraced)) == (not gone, gone)


def test_the_last_file_is_missed_by_what_the_facts_once_said(folder: ClusterFolder) -> None:
    write(folder, "a.1 1 4", "a.1 5 9", "a.2 1 7")
    write_run_facts(folder, drained=True, faulty=[])
    assert last_rows(folder.trace, folder.config.run, {}) == {"a.1": 9, "a.2": 7}
    assert incomplete(folder) == []
    remove(folder, "a.1", 5)
    assert incomplete(folder) == ["a.1"]
    write_run_facts(folder, drained=True, faulty=[], incomplete=[])  # at the next start
    assert incomplete(folder) == ["a.1"], "it is not forgotten"
    remove(folder, "a.2", 1)
    assert incomplete(folder) == ["a.1", "a.2"]
    write(folder, "a.1 5 9", "a.2 1 7")
    assert incomplete(folder) == [], "it was found again"


# What was foretold and forgotten --------------------------------------------------------------------------------------


def honest() -> tuple[RunFacts, list[Row]]:
    return honest_run(1, run="honest", messages=8)


def without(rows: list[Row], message: str) -> list[Row]:
    """Nobody says any more that it was multicast."""
    return [row for row in rows if not (row.kind == "multicast" and row.message == message)]


def test_whose_message_was_delivered_and_never_multicast_has_forgotten_it(tmp_path: Path) -> None:
    facts, rows = honest()
    message = next(row.message for row in rows if row.kind == "deliver" and row.message)
    origin = message.rpartition(":")[0]
    others = sorted({row.process for row in rows} - {origin})
    write_run(tmp_path / "whole", facts, rows)
    write_run(tmp_path / "less", facts, without(rows, message), rows_per_file=20)
    assert forgetful_processes(tmp_path / "whole", facts.run, [origin, *others]) == []
    assert forgetful_processes(tmp_path / "less", facts.run, [origin, *others]) == [origin]
    assert forgetful_processes(tmp_path / "less", facts.run, others) == [], "whoever was not killed is accused"


@pytest.mark.parametrize("is_known", [True, False])
def test_what_somebody_forgot_for_good_is_missing_and_not_broken(tmp_path: Path, is_known: bool) -> None:
    facts, rows = honest()
    message = next(row.message for row in rows if row.kind == "deliver" and row.message)
    origin = message.rpartition(":")[0]
    facts = msgspec.structs.replace(facts, incomplete=[origin] if is_known else [])
    status = {*verdicts(facts, check_run(facts, without(rows, message))).values()}
    assert (Status.BROKEN in status) is not is_known
    assert (Status.INCOMPLETE in status) is is_known


@pytest.mark.parametrize("ended", ["salvaged", "stopped"])
def test_a_killed_process_that_forgot_what_others_delivered_has_no_whole_trace(tmp_path: Path, ended: str) -> None:
    folder = cluster.create(tmp_path / "c", {"a": 3})
    _, rows = honest()
    message = next(row.message for row in rows if row.kind == "deliver" and row.message)
    ours = [
        row._replace(message="a.1:7") if row.message == message else row
        for row in without(rows, message)
        if row.kind == "deliver"
    ]
    write_events(folder.trace, folder.config.run, "part-0", to_table(ours))
    for process in folder.config.processes:
        own = folder.process(process)
        own.path.mkdir(exist_ok=True)
        (own.salvaged if ended == "salvaged" else own._stopped).touch()
    assert cluster.untraced(folder) == (["a.1"] if ended == "salvaged" else [])


def test_a_start_does_not_look_through_all_of_the_trace(folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long run that takes many seconds, and a member that was killed is to come back at once."""
    cluster.start(folder)
    try:
        cluster.kill(folder, "a.1")
        cluster.end(folder, drain_seconds=0.2)
        with monkeypatch.context() as patched:
            for name in ("forgetful_processes", "heard_processes"):
                patched.setattr(f"antiphon.trace.parquet.{name}", lambda *_: pytest.fail("that takes long"))
            assert cluster.start(folder) == ["a.1", "a.2"]
        assert incomplete(folder) == ["a.1", "a.2"], "until the run ends"
    finally:
        cluster.end(folder)
    assert incomplete(folder) == []
