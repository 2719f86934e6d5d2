"""A trace of which a file is gone says so: it accuses nobody of what the missing rows would explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.cluster.processes import write_run_facts
from antiphon.trace import read_facts
from antiphon.trace.coverage import last_rows, torn


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
