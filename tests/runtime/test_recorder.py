"""A trace that finds no room: what waits is bounded; what is given up is written down before anything follows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.core import Process, ProcessId, Topology
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import Begin, Multicast
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster.folder import ProcessFolder
from antiphon.runtime.node import recorder as recorder_module
from antiphon.runtime.node.recorder import Recorder
from antiphon.trace.parquet import write_events


class Room:
    """A disk with room for the trace, or without."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        monkeypatch.setattr(recorder_module, "write_events", self._write)
        monkeypatch.setattr(recorder_module, "WAITING_ROWS_MAX", 10)

    def _write(self, *arguments: Any) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        write_events(*arguments)


class Seen:
    """A process that multicasts to itself; each gives some rows."""

    def __init__(self) -> None:
        self.process = Process(ProcessId("a.1"), Topology.sized({"a": 1}), protocol_named("skeen"))
        self.process.traced = True
        self._turns: list[Turn] = []
        self._host = Host(self.process, None, self)  # type: ignore[arg-type]
        self._host.take_at_once(Begin(0))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def on_turns(self, turns: list[Turn], *, replayed: bool) -> None:
        self._turns += turns

    def some(self) -> list[Turn]:
        self._host.take_at_once(Multicast(1, self.process.topology.destinations("a"), (b"x",)))
        turns, self._turns = self._turns, []
        return turns


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


def test_rows_wait_for_room_and_are_all_written(tmp_path: Path, room: Room) -> None:
    seen, own = Seen(), ProcessFolder(tmp_path)
    recorder = Recorder(tmp_path / "trace", "run", seen.process, own)
    room.is_full = True
    recorder.add(seen.some(), 1)
    assert not recorder.write(recorder.take()), "no snapshot counts meanwhile"
    assert recorder.state == "no room"
    room.is_full = False
    recorder.add(seen.some(), 2)
    assert recorder.write(recorder.take())
    assert recorder.state == ""
    assert recorder.written == seen.process.state.seq
    (file,) = (tmp_path / "trace" / "events" / "run=run").glob("*.parquet")
    assert file.name.startswith("a.1-000000000001-"), "from the first row on"


def test_what_waits_is_bounded_and_what_is_given_up_is_said(tmp_path: Path, room: Room) -> None:
    seen, own = Seen(), ProcessFolder(tmp_path)
    recorder = Recorder(tmp_path / "trace", "run", seen.process, own)
    assert own.is_traced
    room.is_full = True
    given_up = []
    for time in range(50):
        recorder.add(seen.some(), time)
        given_up.append(recorder.write(recorder.take()))
        assert recorder._rows <= 10
    assert any(given_up)
    assert recorder.state == "not whole"
    assert not own.is_traced, "for good ..."
    again = Recorder(tmp_path / "trace", "run", seen.process, own)
    assert again.state == "not whole", "... and also after a restart"


def test_a_gap_that_cannot_be_marked_keeps_the_journal(tmp_path: Path, room: Room) -> None:
    class Full(ProcessFolder):
        def mark_gap(self) -> None:
            raise OSError(28, "No space left on device")

    seen = Seen()
    recorder = Recorder(tmp_path / "trace", "run", seen.process, Full(tmp_path))
    room.is_full = True
    for time in range(50):
        recorder.add(seen.some(), time)
        assert not recorder.write(recorder.take())
    room.is_full = False
    recorder.add(seen.some(), 51)
    assert not recorder.write(recorder.take()), "no file may follow a gap that nobody knows of"
    assert not list((tmp_path / "trace").rglob("*.parquet"))


def test_rows_become_a_file_when_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what they are made of is forgotten as soon as there is a table of it."""
    monkeypatch.setattr(recorder_module, "ROWS_PER_TABLE", 4)
    monkeypatch.setattr(recorder_module, "ROWS_PER_FILE", 40)
    seen = Seen()
    recorder = Recorder(tmp_path / "trace", "run", seen.process, ProcessFolder(tmp_path))
    while not recorder.written:
        turns = seen.some()
        recorder.add(turns, 1)
        if recorder.is_due:
            taken = recorder.take()
            recorder.keep(taken)
            assert not taken
            assert recorder._rows < 40
    assert 40 <= recorder.written < 50
    assert recorder.state == ""
