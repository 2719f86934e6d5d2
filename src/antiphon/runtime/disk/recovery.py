"""What a log finds when it is opened: its snapshot and its segments, all checked, and the last one made ready for more.

A torn tail is cut. Everything else that is not as it was written, or was written by others, is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from antiphon.core.errors import JournalCorrupt, JournalError
from antiphon.runtime.disk import segments as disk
from antiphon.runtime.disk.files import no_space
from antiphon.runtime.disk.scan import load_segments
from antiphon.runtime.disk.segments import JournalIdentity, Segment, Snapshot
from antiphon.runtime.disk.writer import Writer


class FoundLog(NamedTuple):
    snapshot: Snapshot | None
    snapshot_bytes: int  # of its file
    segments: list[Segment]  # those that hold what the snapshot does not cover


def find(folder: Path, identity: JournalIdentity) -> FoundLog:
    """Read and check all of a log. JournalCorrupt: it is damaged; JournalError: not for this process, or this code."""
    snapshot, snapshot_bytes = None, 0
    for index, path in disk.list_files(folder, disk.SNAPSHOT_NAME)[-1:]:
        owner, snapshot = disk.read_snapshot(path, index)
        _check_owner(folder, owner, identity)
        snapshot_bytes = path.stat().st_size
    covered = snapshot.index if snapshot is not None else 0
    segments = load_segments(folder, covered)
    for segment in segments:
        _check_owner(folder, segment.identity, identity)
        _check_code(folder, segment, identity.code, covered)
    end = segments[-1].next_index if segments else 0
    if end < covered:
        raise JournalCorrupt(
            f"Journal {folder} ends before record {end}, but its snapshot covers the records up to "
            f"{covered}: its last segment was cut or lost."
        )
    return FoundLog(snapshot, snapshot_bytes, segments)


def _check_owner(folder: Path, found: JournalIdentity, wanted: JournalIdentity) -> None:
    for name in ("format", "cluster", "process"):
        theirs, ours = getattr(found, name), getattr(wanted, name)
        if theirs != ours:
            raise JournalError(f"Journal {folder} is of {name} {theirs!r}, not of {name} {ours!r}.")


def _check_code(folder: Path, segment: Segment, ours: str, covered: int) -> None:
    """Only the code that took an input may replay it: other code may draw other conclusions from it."""
    theirs = segment.identity.code
    if theirs != ours and segment.next_index > max(segment.first, covered):
        raise JournalError(
            f"Journal {folder} holds records of code version {theirs!r} that no snapshot covers: "
            f"version {ours!r} must not replay them, so let {theirs!r} write a snapshot first."
        )


def resume(active: Segment, writer: Writer) -> None:
    """Make the last segment ready for more: the torn block gone, space reserved, all of it durable but its name."""
    fd = os.open(active.path, os.O_RDWR)
    writer.use(fd)
    # A header that is cut, or half written over by the next one, could look like a damaged one.
    if os.fstat(fd).st_size != active.size:
        os.ftruncate(fd, active.end)
    elif active.torn_at:
        writer.write([bytes(disk.GRAIN)], active.torn_at)
    try:
        os.posix_fallocate(fd, 0, active.size)
    except OSError as error:
        raise no_space(active.path.parent, active.size, error) from error
    if active.last_block:
        # The last block may be in memory only: the process was killed before its sync, or the sync failed
        # and the kernel forgot about it. Writing it again makes the sync below count.
        writer.write(disk.whole_block(fd, active), active.last_block)
    os.fsync(fd)
