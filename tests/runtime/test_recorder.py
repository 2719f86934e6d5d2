"""A trace that cannot be written: what waits is bounded, and what is given up is written down before more follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from queue import Queue
from threading import Event
from time import sleep
from typing import Any

import pytest

from antiphon.core import Process, ProcessId, Topology
from antiphon.core.host import Turn
from antiphon.core.inputs import Begin, Multicast
from antiphon.core.prompt import PromptHost
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster.folder import ProcessFolder
from antiphon.runtime.node import recorder as recorder_module
from antiphon.runtime.node import trace_files
from antiphon.runtime.node.recorder import Recorder
from antiphon.trace.parquet import to_table, write_events


class Room:
    """A disk with room for the trace, or without; and it may hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.answers = Event()
        self.answers.set()
        monkeypatch.setattr(trace_files, "write_events", self._write)
        monkeypatch.setattr(trace_files, "WAITING_ROWS_MAX", 10)

    def _write(self, *arguments: Any) -> None:
        self.answers.wait()
        if self.is_full:
            raise OSError(28, "No space left on device")
        write_events(*arguments)


class Seen:
    """A process that multicasts to itself; each gives some rows."""

    def __init__(self) -> None:
        self.process = Process(ProcessId("a.1"), Topology.sized({"a": 1}), protocol_named("skeen"))
        self.process.traced = True
        self._turns: Sequence[Turn] = []
        self._host = PromptHost(self.process, self)  # type: ignore[arg-type]
        self._host.take_at_once(Begin(0))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
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
    assert not recorder.finish(60), "no snapshot counts meanwhile"
    assert recorder.state == "no room"
    room.is_full = False
    recorder.add(seen.some(), 2)
    assert recorder.finish(60)
    assert recorder.state == ""
    assert recorder._files.written == seen.process.state.seq
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
        given_up.append(recorder.finish(60))
        assert recorder._files.waiting_rows <= 10
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
        assert not recorder.finish(60)
    room.is_full = False
    recorder.add(seen.some(), 51)
    assert not recorder.finish(60), "no file may follow a gap that nobody knows of"
    assert not list((tmp_path / "trace").rglob("*.parquet"))


@pytest.mark.parametrize("limit", ["WAITING_ROWS_MAX", "WAITING_BYTES_MAX"])
def test_a_disk_that_hangs_holds_up_nobody_and_what_waits_is_bounded(
    tmp_path: Path, room: Room, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Also what waits on behalf of the trace: the journal keeps what rows are made of."""
    monkeypatch.setattr(trace_files, "SLOW_FILE_SECONDS", -1.0)
    monkeypatch.setattr(trace_files, "WAITING_ROWS_MAX", 1 << 20)
    monkeypatch.setattr(trace_files, limit, 10)
    seen, own = Seen(), ProcessFolder(tmp_path)
    recorder = Recorder(tmp_path / "trace", "run", seen.process, own)
    room.answers.clear()
    answers: Queue[bool] = Queue()
    recorder.add(seen.some(), 1)
    recorder.write(answers.put)
    assert not recorder.finish(0.1), "the end does not wait for ever"
    assert recorder.state == "slow"
    assert answers.empty(), "no snapshot counts meanwhile"
    for time in range(50):
        recorder.add(seen.some(), time)
        recorder.hand_over()
    assert answers.get(timeout=60), "now it does: it is written down that there is a gap"
    assert own.has_gap
    assert recorder.state == "not whole"
    while recorder._made < recorder._taken:
        sleep(0.01)
    assert recorder._files.waiting_rows <= 20
    room.answers.set()
    while recorder._files._begun_at is not None:
        sleep(0.01)
    recorder.add(seen.some(), 51)
    assert recorder.finish(60)
    assert recorder._files.written == seen.process.state.seq, "what comes after the gap is written again"
    recorder.close()


def test_a_process_waits_while_too_much_is_to_be_made_into_rows(
    tmp_path: Path, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "UNMADE_TABLES_MAX", 3)
    made = Event()

    def make_late(rows: Any) -> Any:
        made.wait()
        return to_table(rows)

    monkeypatch.setattr(recorder_module, "to_table", make_late)
    seen = Seen()
    recorder = Recorder(tmp_path / "trace", "run", seen.process, ProcessFolder(tmp_path))
    done: Queue[Any] = Queue()
    recorder.on_done = done.put
    for at in range(4):
        assert not recorder.is_behind
        recorder.add(seen.some(), at)
        recorder.hand_over()
    assert recorder.is_behind
    made.set()
    assert done.get(timeout=60).exception() is None, "then the driver looks again"
    assert not recorder.is_behind
    recorder.close()


def test_rows_become_a_file_when_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what they are made of is forgotten as soon as there is a table of it."""
    monkeypatch.setattr(recorder_module, "ROWS_PER_TABLE", 4)
    monkeypatch.setattr(trace_files, "ROWS_PER_FILE", 40)
    seen = Seen()
    recorder = Recorder(tmp_path / "trace", "run", seen.process, ProcessFolder(tmp_path))
    files = recorder._files
    while files._begun_at is None and not files.written:
        assert files.waiting_rows < 40
        recorder.add(seen.some(), 1)
        if recorder.is_due:
            recorder.hand_over()
            assert not recorder._seen
            while recorder._made < recorder._taken:
                sleep(0.001)
    recorder.close()
    assert 40 <= files.written < 50
    assert recorder.state == ""
