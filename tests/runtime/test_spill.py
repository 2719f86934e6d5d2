"""Frames on disk for a peer that is away."""

from __future__ import annotations

from pathlib import Path

from antiphon.core import Process, Topology
from antiphon.core.channel import Outbox
from antiphon.protocols import protocol_named
from antiphon.runtime.journal import JournalIdentity
from antiphon.runtime.spill import Spills

PEER = "a.2"
IDENTITY = JournalIdentity("cluster", "a.1", "code")


def make(tmp_path: Path) -> tuple[Process, Outbox, Spills]:
    process = Process("a.1", Topology.sized({"a": 2}), protocol_named("skeen"))
    return process, process.channels.outbox(PEER), Spills(tmp_path / "spill", IDENTITY, 1000)


def push(outbox: Outbox, count: int) -> None:
    for _ in range(count):
        outbox.push(b"%09d" % (outbox.sent + 1))


def frames(numbers: range) -> list[bytes]:
    return [b"%09d" % number for number in numbers]


def test_a_small_outbox_stays_in_memory(tmp_path: Path) -> None:
    process, outbox, spills = make(tmp_path)
    push(outbox, 100)
    spills.relieve(process)
    assert outbox.spilled == 0
    assert len(outbox.frames) == 100


def test_a_large_one_goes_to_disk_piece_by_piece_and_is_read_back(tmp_path: Path) -> None:
    process, outbox, spills = make(tmp_path)
    push(outbox, 10)
    outbox.acknowledge(10)
    for _ in range(2):
        push(outbox, 200)
        spills.relieve(process)
        assert (outbox.frames, outbox.size, outbox.spilled) == ({}, 0, outbox.sent)
    push(outbox, 5)
    assert list(spills.read(PEER, 11, outbox.spilled)) == frames(range(11, 411))
    assert list(spills.read(PEER, 300, 310)) == frames(range(300, 311))
    outbox.acknowledge(300)
    outbox.acknowledge(412)
    assert sorted(outbox.frames) == [413, 414, 415]
    spills.forget(PEER)
    assert list(spills.read(PEER, 301, 410)) == []
    spills.close()


def test_a_restart_from_an_older_snapshot_makes_the_same_frames_again(tmp_path: Path) -> None:
    process, outbox, spills = make(tmp_path)
    push(outbox, 50)
    snapshot = process.snapshot()
    push(outbox, 150)
    spills.relieve(process)
    spills.close()
    process, _, spills = make(tmp_path)
    process.restore(snapshot)
    outbox = process.channels.outbox(PEER)
    push(outbox, 170)
    spills.relieve(process)
    assert list(spills.read(PEER, 1, outbox.spilled)) == frames(range(1, 221))
    spills.close()


def test_a_log_from_before_the_peer_caught_up_is_replaced(tmp_path: Path) -> None:
    process, outbox, spills = make(tmp_path)
    push(outbox, 200)
    spills.relieve(process)
    push(outbox, 100)
    outbox.acknowledge(300)
    push(outbox, 200)
    spills.relieve(process)
    assert list(spills.read(PEER, 301, outbox.spilled)) == frames(range(301, 501))
    spills.close()
