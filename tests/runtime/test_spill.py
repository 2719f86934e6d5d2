"""Frames on disk for a peer that is away, or slow."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.core.buffers import Buffers
from antiphon.core.channel import ChannelId, Outbox, Transport
from antiphon.core.errors import JournalBehind, JournalError
from antiphon.core.model import ProcessId
from antiphon.runtime.disk import JournalIdentity, Spills, UnderWay
from antiphon.runtime.disk import spill as module

PEER = ChannelId(ProcessId("a.2"), Transport.FIFO)
IDENTITY = JournalIdentity("cluster", "a.1", "code")


def at_once(job: Callable[[], None], then: Callable[[], None]) -> None:
    job()
    then()


def make(tmp_path: Path) -> tuple[Outbox, Spills]:
    return Outbox(), Spills(tmp_path / "spill", IDENTITY, 1000, at_once, UnderWay(1.0))


def push(outbox: Outbox, count: int) -> None:
    for number in range(outbox.sent + 1, outbox.sent + count + 1):
        outbox.push(number, Buffers(b"%04d" % (number // 100000), b"%05d" % (number % 100000)))


def frames(numbers: range) -> list[bytes]:
    return [b"%09d" % number for number in numbers]


def test_a_small_outbox_stays_in_memory(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 100)
    spills.relieve(PEER, outbox)
    assert outbox.spilled == 0
    assert len(outbox.frames) == 100
    assert not (tmp_path / "spill").exists()


def test_a_large_one_goes_to_disk_piece_by_piece_and_is_read_back(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 10)
    outbox.acknowledge(10)
    for _ in range(2):
        push(outbox, 200)
        spills.relieve(PEER, outbox)
        assert (list(outbox.frames), outbox.size, outbox.spilled) == ([], 0, outbox.sent)
    assert spills.written_bytes > 400 * 9
    push(outbox, 5)
    assert list(spills.read(PEER, 11, outbox.spilled)) == frames(range(11, 411))
    assert list(spills.read(PEER, 300, 310)) == frames(range(300, 311))
    outbox.acknowledge(300)
    spills.acknowledged(PEER, outbox)
    assert list(spills.read(PEER, 301, outbox.spilled)) == frames(range(301, 411))
    outbox.acknowledge(412)
    assert [number for number, _ in outbox.frames_from(1)] == [413, 414, 415]
    spills.acknowledged(PEER, outbox)
    assert list(spills.read(PEER, 301, 410)) == []
    spills.close()


def test_a_log_knows_the_digest_of_all_frames_up_to_one(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 400)
    expected = {number: outbox.digest_up_to(number) for number in (11, 200, 201, 390)}
    outbox = Outbox()
    push(outbox, 200)
    outbox.acknowledge(10)
    spills.relieve(PEER, outbox)
    push(outbox, 190)
    spills.relieve(PEER, outbox)
    push(outbox, 10)
    assert {number: spills.digest_up_to(PEER, number) for number in expected} == expected
    assert spills.digest_up_to(PEER, 10) is None, "it was acknowledged"
    assert spills.digest_up_to(PEER, 391) is None, "it is in memory"
    spills.close()


def test_frames_leave_the_memory_only_when_the_disk_has_them(tmp_path: Path) -> None:
    jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []
    outbox = Outbox()
    waiting = UnderWay(1.0)
    spills = Spills(tmp_path / "spill", IDENTITY, 1000, lambda job, then: jobs.append((job, then)), waiting)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    assert (outbox.spilled, len(jobs)) == (0, 1), "one write at a time"
    job, then = jobs.pop()
    outbox.acknowledge(50)  # it comes while the thread writes
    spills.acknowledged(PEER, outbox)
    job()
    assert outbox.spilled == 50
    then()
    assert outbox.spilled == 200
    assert list(spills.read(PEER, 51, outbox.spilled)) == frames(range(51, 201))
    spills.close()


def test_a_restart_from_an_older_snapshot_makes_the_same_frames_again(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    spills.close()
    outbox, spills = make(tmp_path)
    push(outbox, 220)
    spills.relieve(PEER, outbox)
    assert outbox.spilled == 220
    assert list(spills.read(PEER, 1, outbox.spilled)) == frames(range(1, 221))
    spills.close()


def test_after_a_restart_nothing_on_disk_counts_as_acknowledged(tmp_path: Path) -> None:
    """A snapshot says only that frames are not in memory. To call them forgotten would make the peer refuse to run."""
    outbox, spills = make(tmp_path)
    push(outbox, 30)
    outbox.acknowledge(30)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    spills.close()
    _, spills = make(tmp_path)
    restored = as_in_a_snapshot(outbox)
    assert (restored.acknowledged, restored.spilled) == (30, 230)
    push(restored, 200)
    spills.relieve(PEER, restored)
    assert list(spills.read(PEER, 31, restored.spilled)) == frames(range(31, 431))
    spills.close()


def as_in_a_snapshot(outbox: Outbox) -> Outbox:
    restored = Outbox(outbox.sent, outbox.acknowledged)
    restored.spilled, restored.digest = outbox.spilled, outbox.digest
    return restored


def test_after_a_restart_the_disk_knows_what_was_acknowledged_since_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the process would offer frames for ever that nobody has."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 4096)
    outbox, spills = make(tmp_path)
    for last in (600, 1200):
        while outbox.sent < last:
            push(outbox, 200)
            spills.relieve(PEER, outbox)
        snapshot = as_in_a_snapshot(outbox)
        outbox.acknowledge(last - 20)
        spills.acknowledged(PEER, outbox)
        pruned = as_in_a_snapshot(snapshot)
        spills.close()
        spills = make(tmp_path)[1]
        spills.restore(PEER, pruned)
        assert snapshot.acknowledged < pruned.acknowledged <= last - 20, "the beginning of the log is gone"
        assert list(spills.read(PEER, pruned.acknowledged + 1, last))[-20:] == frames(range(last - 19, last + 1))
        outbox.acknowledge(last)
        spills.acknowledged(PEER, outbox)
        spills.close()
        left = [path.name for path in (tmp_path / "spill").rglob("*")]
        assert left == [f"acknowledged-a.2-fifo-{last}"], "and no longer what was left of the log before"
        spills = make(tmp_path)[1]
        spills.restore(PEER, snapshot)
        assert (snapshot.acknowledged, snapshot.spilled) == (last, last)
    spills.close()


def test_frames_that_are_gone_and_were_not_acknowledged_are_missed_at_once(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    spills.close()
    shutil.rmtree(tmp_path / "spill")
    spills = make(tmp_path)[1]
    for seek in (spills.restore, spills.check):
        with pytest.raises(JournalError, match=r"lacks some of the frames 1 to 200 of a.1, which a.2 has yet to ack"):
            seek(PEER, as_in_a_snapshot(outbox))


def test_a_journal_that_lacks_what_was_written_for_a_peer_is_an_old_copy(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 100)
    old = as_in_a_snapshot(outbox)
    push(outbox, 100)
    spills.relieve(PEER, outbox)
    for _ in ("in a log", "in the name of what was one"):
        with pytest.raises(JournalBehind, match=r"knows of 200 frames of a.1 to a.2, but its journal of only 100"):
            spills.restore(PEER, old)
        outbox.acknowledge(200)
        spills.acknowledged(PEER, outbox)
    spills.close()


def test_a_log_from_before_the_peer_caught_up_is_replaced(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    push(outbox, 100)
    outbox.acknowledge(300)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    assert list(spills.read(PEER, 301, outbox.spilled)) == frames(range(301, 501))
    spills.close()


def test_a_log_that_begins_after_what_a_replay_made_again_is_replaced(tmp_path: Path) -> None:
    outbox, spills = make(tmp_path)
    push(outbox, 100)
    outbox.acknowledge(100)
    push(outbox, 200)
    spills.relieve(PEER, outbox)
    spills.close()
    outbox, spills = make(tmp_path)  # from before the acknowledgement
    push(outbox, 300)
    spills.relieve(PEER, outbox)
    assert list(spills.read(PEER, 1, outbox.spilled)) == frames(range(1, 301))
    spills.close()


def test_what_a_lagging_peer_acknowledges_is_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 4096)
    outbox, spills = make(tmp_path)
    for _ in range(40):
        push(outbox, 200)
        spills.relieve(PEER, outbox)
        outbox.acknowledge(outbox.sent - 150)
        spills.acknowledged(PEER, outbox)
    folder = tmp_path / "spill" / "a.2-fifo"
    assert len(list(folder.glob("segment-*.log"))) < 10
    assert list(spills.read(PEER, outbox.acknowledged + 1, outbox.spilled)) == frames(
        range(outbox.acknowledged + 1, outbox.sent + 1)
    )
    spills.close()


def test_nothing_that_the_event_loop_does_here_waits_for_the_disk_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs would hold up the loop, and nobody would know."""
    waiting, called, unseen, on_thread = UnderWay(1.0), set(), [], False

    def on_disk_thread(job: Callable[[], None], then: Callable[[], None]) -> None:
        nonlocal on_thread
        on_thread = True
        job()
        on_thread = False
        then()

    def seen(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: object, **named: object) -> object:
            called.add(name)
            if waiting.number is None and not on_thread:
                unseen.append((name, *args))
            return real(*args, **named)

        monkeypatch.setattr(owner, name, call)

    names = ("mkdir", "open", "stat", "scandir", "rename", "unlink", "rmdir", "fsync", "posix_fallocate", "pread")
    for name in names:
        seen(os, name)
    seen(io, "open")
    monkeypatch.setattr(module, "SEGMENT_BYTES", 4096)
    outbox, spills = Outbox(), Spills(tmp_path / "spill", IDENTITY, 1000, on_disk_thread, waiting)
    for acknowledged in (400, 800):
        while outbox.sent < acknowledged:
            push(outbox, 200)
            spills.relieve(PEER, outbox)
        spills.close()  # as after a restart
        spills.restore(PEER, outbox)
        assert spills.digest_up_to(PEER, outbox.sent - 1)
        assert len(list(spills.read(PEER, outbox.sent - 100, outbox.sent))) == 101
        outbox.acknowledge(acknowledged)
        spills.acknowledged(PEER, outbox)
        spills.restore(PEER, outbox)
    assert called == {*names}
    assert unseen == []


def test_a_full_disk_leaves_the_frames_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    outbox, spills = make(tmp_path)
    push(outbox, 200)
    monkeypatch.setattr("os.posix_fallocate", full)
    spills.relieve(PEER, outbox)
    assert (outbox.spilled, len(outbox.frames)) == (0, 200)
    assert list(spills.read(PEER, 1, 200)) == []
    monkeypatch.undo()
    spills.relieve(PEER, outbox)
    assert outbox.spilled == 200
    spills.close()
