"""The journal never answers wrongly: after any crash or damage it gives what was durable, or refuses."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.core.buffers import Buffers
from antiphon.core.errors import JournalCorrupt, JournalError, JournalFull, RecordsGone, UsageError
from antiphon.runtime.disk import JournalIdentity, SegmentedLog
from antiphon.runtime.disk import segments as disk
from antiphon.runtime.disk.segments import Snapshot
from antiphon.runtime.disk.writer import encode_block
from crashing import crashing_at_each_step

ME = JournalIdentity(cluster="c", process="p1", code="1.0")

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

Files = dict[str, bytes]


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """For tests that open thousands of journals: a folder that lies in memory where there is such a thing."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """For exhaustive tests: what they damage is in the files, synced or not."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


def opened(
    folder: Path, *, segment_bytes: int = 1024, identity: JournalIdentity = ME, recycled_max: int = 0
) -> SegmentedLog:
    return SegmentedLog.open(folder, identity, segment_bytes=segment_bytes, recycled_max=recycled_max)


def fill(journal: SegmentedLog, *batches: list[bytes]) -> None:
    for batch in batches:
        for record in batch:
            journal.append(Buffers(record))
        journal.commit()


def contents(journal: SegmentedLog, start: int = 0) -> list[bytes]:
    pairs = list(journal.replay(start))
    assert [index for index, _ in pairs] == list(range(start, journal.next_index))
    return [record for _, record in pairs]


def look(folder: Path, *, start: int = 0, segment_bytes: int = 1024) -> list[bytes]:
    """Open as after a crash, read all, and leave without a trace of a clean close."""
    journal = opened(folder, segment_bytes=segment_bytes)
    try:
        return contents(journal, start)
    finally:
        journal.abandon()


def saved(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def restore(folder: Path, files: Files) -> None:
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def poke(path: Path, offset: int, byte: int) -> None:
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes([byte]), offset)


def segment_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("segment-*.log"))


def small_journal(folder: Path) -> tuple[list[list[bytes]], list[str]]:
    """Several blocks in two segments: large ones across sectors, small ones, an empty record."""
    batches = [
        [b"a" * 30, b"", b"bb"],
        [bytes(range(1, 256)) * 2],
        [b"c" * 300],
        [b"d", b"e" * 250, b"f"],
        [b"last"],
    ]
    journal = opened(folder)
    fill(journal, *batches)
    journal.abandon()
    names = segment_names(folder)
    assert len(names) == 2
    return batches, names


def guarded_bytes(segment: disk.Segment) -> set[int]:
    """The offsets of all that a checksum guards: the segment's head, and each block's header and records."""
    data = segment.path.read_bytes()
    found = set(range(disk.parse_head(segment.path, data, disk.SEGMENT_MAGIC, segment.first).end))
    end = len(found)
    while end < segment.end:
        block = disk.next_block(data, end, segment.salt)
        assert block is not None
        at, header = block
        found |= set(range(at, at + disk.HEADER_BYTES + header.length))
        end = at + disk.block_bytes(header.length)
    return found


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [record for batch in batches for record in batch]


# Everyday use


def test_records_come_back_in_order_after_a_clean_close(tmp_path: Path) -> None:
    records = [bytes([i % 256]) * (i % 40) for i in range(500)]
    journal = opened(tmp_path / "new" / "journal")
    assert journal.clean
    assert journal.snapshot is None
    assert journal.next_index == 0
    for record in records:
        journal.append(Buffers(record))
    assert journal.next_index == 500
    journal.close()
    journal.close()
    journal = opened(tmp_path / "new" / "journal")
    assert journal.clean
    assert contents(journal) == records
    assert contents(journal, 321) == records[321:]
    journal.append(Buffers(b"more"))
    assert journal.next_index == 501
    journal.commit()
    journal.abandon()
    journal = opened(tmp_path / "new" / "journal")
    assert not journal.clean
    assert contents(journal) == [*records, b"more"]
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append(Buffers(b"late"))


def test_one_commit_is_one_write_and_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path, segment_bytes=1 << 20)
    calls: list[str] = []
    pwritev, fdatasync = os.pwritev, os.fdatasync
    monkeypatch.setattr(os, "pwritev", lambda *args: calls.append("write") or pwritev(*args))
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("sync") or fdatasync(fd))
    for i in range(100):
        journal.append(Buffers(b"%d" % i))
    assert (journal.next_index, journal.durable_index, calls) == (100, 0, [])
    assert list(journal.replay(0)) == []
    assert journal.commit() == 100
    assert calls == ["write", "sync"]
    assert journal.syncs == 1
    assert journal.last_sync_seconds > 0
    assert journal.commit() == 100
    assert calls == ["write", "sync"]
    journal.close()


def test_what_was_not_committed_is_lost_in_a_crash(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    fill(journal, [b"kept"])
    journal.append(Buffers(b"lost"))
    assert journal.take_blocks() is not None
    journal.append(Buffers(b"lost too"))
    journal.abandon()
    assert look(tmp_path) == [b"kept"]


def test_batches_are_written_in_the_order_taken(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(Buffers(b"one"))
    first = journal.take_blocks()
    journal.append(Buffers(b"two"))
    second = journal.take_blocks()
    assert first is not None
    assert second is not None
    assert journal.take_blocks() is None
    with pytest.raises(UsageError):
        journal.write_blocks(second)
    journal.write_blocks(first)
    assert journal.durable_index == 1
    with pytest.raises(UsageError):
        journal.write_blocks(first)
    journal.write_blocks(second)
    journal.abandon()
    assert look(tmp_path) == [b"one", b"two"]


def test_one_batch_may_fill_many_segments_and_a_record_may_exceed_one(tmp_path: Path) -> None:
    records = [bytes([i]) * 400 for i in range(1, 12)]
    records.insert(5, b"x" * 5000)
    journal = opened(tmp_path)
    fill(journal, records)
    assert len(segment_names(tmp_path)) > 5
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert journal.bytes_on_disk == on_disk
    journal.abandon()
    assert look(tmp_path) == records


def test_a_folder_is_used_by_one_journal_at_a_time(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(JournalError, match="in use"):
        opened(tmp_path)
    journal.close()
    opened(tmp_path).close()


def test_closing_again_and_again_costs_no_space(tmp_path: Path) -> None:
    for _ in range(100):
        opened(tmp_path).close()
    assert len(segment_names(tmp_path)) == 1
    for i in range(100):
        journal = opened(tmp_path)
        fill(journal, [b"%d" % i])
        journal.close()
    journal = opened(tmp_path)
    assert journal.clean
    assert contents(journal) == [b"%d" % i for i in range(100)]
    journal.close()


# Reading by position


@pytest.mark.parametrize("refuses", [False, True])
def test_blocks_that_pass_by_the_page_cache_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    if refuses:  # as some file systems do
        fcntl_ = fcntl.fcntl

        def refuse(fd: int, command: int, argument: int = 0) -> int:
            if command == fcntl.F_SETFL:
                raise OSError(errno.EINVAL, "no such thing here")
            return fcntl_(fd, command, argument)

        monkeypatch.setattr(fcntl, "fcntl", refuse)
    batches = [[b"a" * size, b"b"] for size in (0, 1, 4000, 4096, 9000, 40_000, 3)]
    journal = SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 16, recycled_max=2, direct=True)
    for batch in batches:
        fill(journal, batch)
        assert contents(journal) == flat(batches[: batches.index(batch) + 1])
        journal.abandon()
        journal = SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 16, recycled_max=2, direct=True)
    journal.write_snapshot(journal.next_index, b"state")
    fill(journal, *batches)
    journal.close()
    assert all(path.stat().st_size % 4096 == 0 for path in tmp_path.glob("segment-*.log"))
    plain = SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 16)  # and without: goes on in another segment
    assert plain.clean
    fill(plain, [b"last"])
    assert contents(plain, len(flat(batches))) == [*flat(batches), b"last"]
    plain.close()


def test_read_gives_any_stretch_of_durable_records(tmp_path: Path) -> None:
    records = [b"%d" % i * (i % 7) for i in range(300)]
    journal = opened(tmp_path, segment_bytes=2048)
    for i in range(0, 300, 7):
        fill(journal, records[i : i + 7])
    for start in range(0, 300, 3):
        for limit in (0, 1, 6, 50, 1000):
            assert journal.read(start, limit) == records[start : start + limit]
    journal.append(Buffers(b"not durable"))
    assert journal.read(299, 10) == records[299:]
    assert journal.read(300, 10) == []
    assert journal.read(5000, 10) == []
    with pytest.raises(RecordsGone):
        journal.read(-1, 1)
    journal.close()


def test_read_does_not_scan_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path, segment_bytes=8 << 20)
    for i in range(400):
        fill(journal, [b"%6d" % (i * 100 + k) * 15 for k in range(100)])
    journal.abandon()
    journal = opened(tmp_path, segment_bytes=8 << 20)
    amounts: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: amounts.append(n) or pread(fd, n, at))
    assert journal.read(33_333, 10) == [b"%6d" % i * 15 for i in range(33_333, 33_343)]
    assert sum(amounts) <= 1 << 16
    assert journal.read(0, 1) == [b"     0" * 15]
    big = [b"x" * 300_000, b"y" * 70_000]
    fill(journal, big, [b"z"])
    assert journal.read(40_000, 5) == [*big, b"z"]
    journal.abandon()


def test_reading_and_appending_go_on_while_a_thread_writes(tmp_path: Path) -> None:
    journal = opened(tmp_path, segment_bytes=4096)
    seen: list[bytes] = []
    total = 3000
    failures: list[BaseException] = []

    def subscriber() -> None:
        try:
            while len(seen) < total:
                seen.extend(journal.read(len(seen), 50))
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=subscriber)
    reader.start()
    for i in range(total):
        journal.append(Buffers(b"record %d" % i))
        if i % 30 == 29:
            batch = journal.take_blocks()
            assert batch is not None
            writer = threading.Thread(target=journal.write_blocks, args=(batch,))
            writer.start()
            writer.join(timeout=0.0005 if i + 1 < total else None)
            # The next batch must wait for this one, but appends need not.
            writer.join()
    reader.join(timeout=60)
    assert failures == []
    assert seen == [b"record %d" % i for i in range(total)]
    journal.close()


# Truncation, bit flips, torn writes


def test_every_truncation_leaves_whole_batches_or_is_refused(memory_path: Path, no_sync: None) -> None:
    batches, names = small_journal(memory_path)
    files = saved(memory_path)
    prefixes = [flat(batches[:n]) for n in range(len(batches) + 1)]
    outcomes = set()
    for name in names:
        for length in range(len(files[name])):
            restore(memory_path, files | {name: files[name][:length]})
            try:
                result = look(memory_path)
            except JournalError:
                outcomes.add("refused")
                continue
            assert result in prefixes, (name, length)
            assert name == names[-1] or result == prefixes[-1], "only the last segment may lose its tail"
            outcomes.add(len(result))
            # Cut once, the journal is sound: new records follow the prefix.
            journal = opened(memory_path)
            fill(journal, [b"new"])
            journal.abandon()
            assert look(memory_path) == [*result, b"new"]
    assert outcomes >= {"refused", len(prefixes[-1]), len(prefixes[-2])}


@pytest.mark.parametrize("close", [False, True])
def test_every_bit_flip_is_harmless_or_refused(memory_path: Path, no_sync: None, close: bool) -> None:
    batches, names = small_journal(memory_path)
    if close:
        opened(memory_path).close()
    files = saved(memory_path)
    journal = opened(memory_path)
    guarded = {segment.path.name: guarded_bytes(segment) for segment in journal.written.segments}
    journal.abandon()
    bits = range(8) if not close else (0, 7)
    for name in names:
        for offset in range(len(files[name])):
            for bit in bits:
                poke(memory_path / name, offset, files[name][offset] ^ 1 << bit)
                try:
                    result = look(memory_path)
                except JournalError:
                    poke(memory_path / name, offset, files[name][offset])
                    continue
                assert result == flat(batches), (name, offset, bit)
                assert offset not in guarded[name]
                restore(memory_path, files)


def test_a_bit_flip_among_zeros_is_not_taken_for_a_torn_write(memory_path: Path, no_sync: None) -> None:
    """The last block holds sectors of zeros, and one with a single bit set: one flip makes it zero too."""
    journal = opened(memory_path, segment_bytes=4096)
    start = journal.written.segments[-1].end
    records = [bytes(1100) + b"\x10" + bytes(1100)]
    fill(journal, records)
    journal.abandon()
    end = max(guarded_bytes(journal.written.segments[-1])) + 1
    (name,) = segment_names(memory_path)
    files = saved(memory_path)
    for offset in range(disk.rounded(start, disk.GRAIN), end):
        for bit in (0, 4) if offset > start + 40 else range(8):
            poke(memory_path / name, offset, files[name][offset] ^ 1 << bit)
            with pytest.raises(JournalCorrupt, match=f"{name}.* offset ({start}|{disk.rounded(start, disk.GRAIN)}) "):
                look(memory_path, segment_bytes=4096)
        poke(memory_path / name, offset, files[name][offset])


def with_next_block(folder: Path, record: bytes, segment_bytes: int) -> tuple[str, int, int, bytes]:
    """Commit a record; return the segment's name, where the block begins, where all that is needed of it ends, and the
    bytes of the file."""
    journal = opened(folder, segment_bytes=segment_bytes)
    active = journal.written.segments[-1]
    offset = disk.rounded(active.end, disk.GRAIN)
    fill(journal, [record])
    journal.abandon()
    return active.path.name, offset, max(guarded_bytes(active)) + 1, active.path.read_bytes()


def old_contents(folder: Path, segment_bytes: int) -> dict[str, bytes]:
    """What a file may hold behind its last block: nothing, whatever bytes, the blocks of an earlier segment."""
    earlier = opened(folder, segment_bytes=segment_bytes)
    while earlier._unwritten._free > 60:
        fill(earlier, [b"old"])
    earlier.abandon()
    blocks = earlier.written.segments[0].path.read_bytes()
    return {
        "nothing": bytes(segment_bytes),
        "bytes": random.Random(1).randbytes(segment_bytes),
        "blocks": blocks,
        "blocks moved": blocks[7:] + bytes(7),
    }


@pytest.mark.parametrize("record", [b"torn" * 20, bytes(400), b""])
def test_a_write_torn_at_any_byte_is_cut(memory_path: Path, no_sync: None, record: bytes) -> None:
    for old in old_contents(memory_path / "old", 1024).values():
        folder = memory_path / "new"
        journal = opened(folder)
        fill(journal, [b"one"], [b"two"])
        journal.close()
        name, offset, end, after = with_next_block(folder, record, 1024)
        for written in (0, *range(disk.HEADER_BYTES, end - offset + 1)):  # a header lies in one sector
            data = after[: offset + written] + old[offset + written :]
            restore(folder, {name: data})
            journal = opened(folder)
            is_whole = data[:end] == after[:end]  # the trailer says only that the write got to its end
            expected = [b"one", b"two", record] if is_whole else [b"one", b"two"]
            assert contents(journal) == expected
            assert journal.clean == (not is_whole)
            fill(journal, [b"next"])
            journal.abandon()
            assert look(folder) == [*expected, b"next"]
        shutil.rmtree(folder)


def test_a_bad_sector_before_a_block_that_begins_a_page_is_refused(tmp_path: Path) -> None:
    """The small block is bad, and the large one behind it stands where the small one could have been, too."""
    journal = SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 20, direct=True)
    fill(journal, [b"a" * 2000], [b"b" * 40_000])
    journal.abandon()
    (name,) = segment_names(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[1024:1536] = bytes(512)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(JournalCorrupt):
        SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 20, direct=True)


def test_a_record_too_large_for_a_segment_that_is_still_empty(tmp_path: Path) -> None:
    """The process was killed between the roll and the first block; the next segment takes the empty one's place."""
    journal = opened(tmp_path, segment_bytes=4096)
    fill(journal, [b"a" * 3000])
    journal.append(Buffers(b"b" * 2000))
    taken = journal.take_blocks()
    assert taken is not None
    assert taken.blocks[0].spare is not None
    journal._roll(taken.blocks[0].spare)
    journal.abandon()
    journal = opened(tmp_path, segment_bytes=4096)
    fill(journal, [b"c" * 9000])
    journal.abandon()
    assert look(tmp_path, segment_bytes=4096) == [b"a" * 3000, b"c" * 9000]


def test_a_torn_block_is_rarely_taken_for_a_damaged_one(memory_path: Path, no_sync: None) -> None:
    """One flipped bit of 64 KiB explains a wrong checksum once in 8,000 times, however large the block is."""
    rng = random.Random(4)
    journal = opened(memory_path, segment_bytes=1 << 20)
    path, start = journal.written.segments[-1].path, journal.written.segments[-1].end
    fill(journal, [rng.randbytes(1 << 19)])
    journal.abandon()
    whole = path.read_bytes()
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 2, 9])):
            at = rng.randrange(start + 64, start + (1 << 19) - 512)
            data[at : at + 512] = rng.randbytes(512)
        path.write_bytes(data)
        assert look(memory_path, segment_bytes=1 << 20) == []


def test_a_block_without_its_trailer_gets_one(memory_path: Path, no_sync: None) -> None:
    """It is whole, and from now on durable: one flipped bit in it must be refused."""
    name, _, end, after = with_next_block(memory_path, b"x" * 300, 1024)
    restore(memory_path, {name: after[:end] + bytes(len(after) - end)})
    assert look(memory_path) == [b"x" * 300]
    poke(memory_path / name, end - 9, after[end - 9] ^ 1)
    with pytest.raises(JournalCorrupt):
        look(memory_path)


def is_direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def test_large_blocks_pass_by_the_page_cache_and_small_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwritev, seen = os.pwritev, {}

    def watch(fd: int, buffers: Any, offset: int) -> int:
        seen[sum(map(len, buffers))] = is_direct(fd)
        return pwritev(fd, buffers, offset)

    journal = SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 20, direct=True)
    monkeypatch.setattr(os, "pwritev", watch)
    fill(journal, [b"a" * 100], [b"b" * 40_000], [b"c" * 100], [b"d" * 60_000])
    journal.abandon()
    assert {size > 32 << 10 for size in seen} == {False, True}
    assert seen == {size: size > 32 << 10 for size in seen}


@pytest.mark.parametrize("outcome", ["short", "refused"])
def test_a_file_system_that_cannot_be_written_to_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """It accepts the flag, but not the write; the block goes through the cache, to the same place."""
    pwritev = os.pwritev

    def picky(fd: int, buffers: Any, offset: int) -> int:
        if is_direct(fd):
            if outcome == "refused":
                raise OSError(errno.EINVAL, "not so")
            return pwritev(fd, [memoryview(buffers[0])[:4096]], offset)
        return pwritev(fd, buffers, offset)

    tried = []
    pwritev_ = picky
    monkeypatch.setattr(os, "pwritev", lambda *call: (tried.append(is_direct(call[0])), pwritev_(*call))[1])
    journal = SegmentedLog.open(tmp_path, ME, segment_bytes=1 << 20, direct=True)
    batches = [[b"a" * 50_000], [b"b"], [b"c" * 70_000]]
    fill(journal, *batches)
    journal.abandon()
    monkeypatch.undo()
    assert sum(tried) == 1, "once, and never again"
    assert look(tmp_path, segment_bytes=1 << 20) == flat(batches)


def test_files_kept_to_be_written_again_are_given_back_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path, recycled_max=8)
    fill(journal, *[[b"x" * 300] for _ in range(12)])
    journal.write_snapshot(12, b"state")
    kept = len(journal._files.recycled)
    assert kept >= 3
    fallocate = os.posix_fallocate

    def full(fd: int, offset: int, size: int) -> None:
        if len(list(tmp_path.glob("spare-*.tmp"))) > kept - 1:  # with the new one: two have to go
            raise OSError(errno.ENOSPC, "no space")
        fallocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    journal.write_snapshot(12, b"a larger state")
    assert len(journal._files.recycled) == kept - 2
    journal.abandon()


def test_a_full_disk_gets_back_what_another_log_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's spare files are of no use while deliveries wait for room."""
    journal = opened(tmp_path / "journal", recycled_max=8)
    delivered = opened(tmp_path / "delivered")
    delivered.shares_room_with(journal)
    fill(journal, *[[b"x" * 300] for _ in range(12)])
    journal.write_snapshot(12, b"state")
    assert list((tmp_path / "journal").glob("spare-*.tmp"))
    fallocate = os.posix_fallocate

    def full(fd: int, offset: int, size: int) -> None:
        if list((tmp_path / "journal").glob("spare-*.tmp")):
            raise OSError(errno.ENOSPC, "no space")
        fallocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    fill(delivered, [b"y" * 900], [b"z" * 900])
    assert contents(delivered) == [b"y" * 900, b"z" * 900]
    journal.abandon()
    delivered.abandon()


def test_what_a_file_held_before_is_never_read_again(memory_path: Path, no_sync: None) -> None:
    for old in old_contents(memory_path / "old", 4096).values():
        folder = memory_path / "new"
        journal = opened(folder, segment_bytes=4096)
        end, path = journal.written.segments[-1].end, journal.written.segments[-1].path
        path.write_bytes(path.read_bytes()[:end] + old[end:])
        records: list[bytes] = []
        for size in (3, 0, 100, 7, 900, 3):
            records.append(b"n" * size)
            fill(journal, records[-1:])
            journal.abandon()
            journal = opened(folder, segment_bytes=4096)
            assert contents(journal) == records
        journal.abandon()
        shutil.rmtree(folder)


def test_sectors_may_reach_the_disk_in_any_order(memory_path: Path, no_sync: None) -> None:
    record = bytes(range(1, 251)) * 7
    olds = list(old_contents(memory_path / "old", 4096).values())
    for pad in range(390, 460):  # moves the block's beginning across a sector's edge
        folder = memory_path / str(pad)
        fill(journal := opened(folder, segment_bytes=4096), [b"p" * pad])
        journal.abandon()
        name, offset, end, after = with_next_block(folder, record, 4096)
        before = after[:offset] + olds[pad % len(olds)][offset:]
        sectors = range(offset // 512, (end - 1) // 512 + 1)  # the trailer is not needed
        assert len(sectors) >= 4
        for size in range(len(sectors)):
            for kept in combinations(sectors, size):
                data = bytearray(before)
                for sector in kept:
                    data[sector * 512 : sector * 512 + 512] = after[sector * 512 : sector * 512 + 512]
                restore(folder, {name: bytes(data)})
                assert look(folder, segment_bytes=4096) == [b"p" * pad], (pad, kept)
        restore(folder, {name: after})
        assert look(folder, segment_bytes=4096) == [b"p" * pad, record]


@pytest.mark.parametrize("pad", range(390, 460, 3))
def test_a_lost_sector_before_the_last_block_is_refused(memory_path: Path, no_sync: None, pad: int) -> None:
    journal = opened(memory_path, segment_bytes=8192)
    fill(journal, [b"p" * pad], *[[bytes([i]) * 990] for i in range(1, 6)])
    last = journal.written.segments[-1].last_block
    journal.abandon()
    (name,) = segment_names(memory_path)
    files = saved(memory_path)
    for sector in range(last // 512):
        lost = files[name][: sector * 512] + bytes(512) + files[name][sector * 512 + 512 :]
        restore(memory_path, {name: lost})
        with pytest.raises(JournalCorrupt):
            look(memory_path, segment_bytes=8192)


def test_a_flip_that_empties_a_sector_is_not_taken_for_a_torn_write(memory_path: Path, no_sync: None) -> None:
    """The sector has a single bit, and the zeros around it are as few as can be."""
    journal = opened(memory_path, segment_bytes=4096)
    begin = disk.rounded(journal.written.segments[-1].end, disk.GRAIN) + disk.HEADER_BYTES + 4
    before = -begin % 512 + 512
    fill(journal, [b"x" * before + bytes(256) + b"\x10" + bytes(255) + b"x" * 700])
    journal.abandon()
    (name,) = segment_names(memory_path)
    bit = saved(memory_path)[name].index(b"\0\x10\0", begin) + 1
    assert bit % 512 == 256
    poke(memory_path / name, bit, 0)
    with pytest.raises(JournalCorrupt):
        look(memory_path, segment_bytes=4096)


def test_a_block_of_another_segment_is_no_block_of_this_one(memory_path: Path, no_sync: None) -> None:
    after = {}
    for first in (b"one", b"ONE"):
        folder = memory_path / first.decode()
        fill(journal := opened(folder), [first])
        journal.abandon()
        name, offset, _, after[first] = with_next_block(folder, b"two", 1024)
    mixed = after[b"one"][:offset] + after[b"ONE"][offset:]
    (memory_path / "one" / name).write_bytes(mixed)
    assert look(memory_path / "one") == [b"one"]


def test_a_client_cannot_make_a_block_by_what_it_sends(memory_path: Path, no_sync: None) -> None:
    """A record holds a block that would fit, but for the salt; the block around it is torn before it."""
    journal = opened(memory_path, segment_bytes=4096)
    fill(journal, [b"one"])
    active = journal.written.segments[-1]
    guess = dataclasses.replace(active, salt=active.salt ^ 1, next_index=2)
    forged = bytes(encode_block(disk.RECORDS, guess, disk.Records.of([Buffers(b"forged")]))[0])
    journal.abandon()
    name, offset, _, after = with_next_block(memory_path, bytes(600) + forged, 4096)
    restore(memory_path, {name: after[:offset] + bytes(512) + after[offset + 512 :]})
    assert look(memory_path, segment_bytes=4096) == [b"one"]


def test_a_missing_or_foreign_segment_is_refused(tmp_path: Path) -> None:
    journal = opened(tmp_path / "a")
    fill(journal, *[[bytes([i]) * 600] for i in range(1, 5)])
    journal.abandon()
    names = segment_names(tmp_path / "a")
    files = saved(tmp_path / "a")
    for name in names[:-1]:
        restore(tmp_path / "a", {other: data for other, data in files.items() if other != name})
        with pytest.raises(JournalCorrupt, match=r"missing|lacks"):
            look(tmp_path / "a")
    other = opened(tmp_path / "b")
    fill(other, *[[bytes([i + 100]) * 600] for i in range(1, 5)])
    other.abandon()
    restore(tmp_path / "a", files | {names[1]: saved(tmp_path / "b")[names[1]]})
    with pytest.raises(JournalCorrupt, match="foreign"):
        look(tmp_path / "a")
    restore(tmp_path / "a", {names[1]: files[names[0]], names[0]: files[names[0]]})
    with pytest.raises(JournalCorrupt):
        look(tmp_path / "a")


def test_damage_after_open_is_noticed_by_readers(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    fill(journal, [b"one"], [b"two"])
    path = tmp_path / segment_names(tmp_path)[0]
    path.write_bytes(path.read_bytes().replace(b"two", b"six"))
    assert journal.read(0, 1) == [b"one"]
    with pytest.raises(JournalCorrupt):
        journal.read(0, 2)
    os.truncate(path, 100)
    with pytest.raises(JournalCorrupt):
        journal.read(0, 2)
    journal.abandon()


# Failures of the disk


def failing(error: int) -> Callable[..., Any]:
    def call(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    return call


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_a_failed_write_or_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    journal = opened(tmp_path)
    fill(journal, [b"durable"])
    journal.append(Buffers(b"unsure"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.EIO))
        with pytest.raises(JournalError, match="failed write or sync"):
            journal.commit()
    assert journal.durable_index == 1
    later: list[Callable[[], object]] = [
        lambda: journal.append(Buffers(b"more")),
        journal.take_blocks,
        journal.commit,
        lambda: journal.write_snapshot(1, b""),
        lambda: journal.read(0, 1),
        lambda: journal.replay(0),
        journal.close,
    ]
    for use in later:
        with pytest.raises(JournalError, match="failed write or sync"):
            use()
    assert look(tmp_path)[:1] == [b"durable"]


def test_recovery_makes_the_last_block_durable_before_reporting_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that was written but not synced is written again and synced: the kernel may have dropped it."""
    journal = opened(tmp_path)
    journal.append(Buffers(b"written, not synced"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(JournalError):
            journal.commit()
    journal.abandon()
    calls: list[str] = []
    pwritev, fsync = os.pwritev, os.fsync
    monkeypatch.setattr(os, "pwritev", lambda *args: calls.append("write") or pwritev(*args))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("sync") or fsync(fd))
    assert look(tmp_path) == [b"written, not synced"]
    assert calls[:2] == ["write", "sync"]


def test_a_full_disk_refuses_the_record_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path)
    accepted: list[bytes] = []

    def append_without_end() -> None:
        while len(accepted) < 100:
            record = b"%3d" % len(accepted) * 20
            journal.append(Buffers(record))
            accepted.append(record)

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
        with pytest.raises(JournalFull):
            append_without_end()
        assert 5 < len(accepted) < 20
        assert journal.next_index == len(accepted)
        assert journal.commit() == len(accepted), "what was accepted has its space"
        with pytest.raises(JournalFull):
            journal.append(Buffers(b"x" * 60))
        with pytest.raises(JournalFull):
            journal.write_snapshot(3, b"state")
        assert contents(journal) == accepted
        assert len(saved(tmp_path)) == 1
    journal.append(Buffers(b"space again"))
    journal.write_snapshot(3, b"state")
    journal.close()
    assert look(tmp_path, start=3) == [*accepted[3:], b"space again"]


def test_even_the_close_mark_has_its_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(740, 960):
        folder = tmp_path / str(size)
        journal = opened(folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
            try:
                journal.append(Buffers(b"x" * size))
            except JournalFull:
                break
            journal.close()
        assert (folder / segment_names(folder)[0]).stat().st_size == 1024
    else:
        pytest.fail("the segment never became full")
    assert size > 750


def test_sizes_have_limits(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        opened(tmp_path, segment_bytes=10)
    journal = opened(tmp_path)

    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(UsageError, match="too large"):
        journal.append(Buffers(Huge()))
    fill(journal, [b"fine"])
    journal.abandon()
    assert look(tmp_path) == [b"fine"]


# Identity


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (JournalIdentity("other", "p1", "1.0"), "cluster"),
        (JournalIdentity("c", "p2", "1.0"), "process"),
        (JournalIdentity("c", "p1", "1.0", format=99), "format"),
    ],
)
def test_another_owner_is_refused(tmp_path: Path, other: JournalIdentity, named: str) -> None:
    journal = opened(tmp_path)
    fill(journal, [b"one"])
    journal.write_snapshot(1, b"state")
    journal.close()
    files = saved(tmp_path)
    with pytest.raises(JournalError, match=named):
        opened(tmp_path, identity=other)
    assert saved(tmp_path) == files


def test_other_code_goes_on_only_from_a_snapshot_that_covers_everything(tmp_path: Path) -> None:
    new = JournalIdentity("c", "p1", "2.0")
    opened(tmp_path).abandon()
    opened(tmp_path, identity=new).close()  # nothing to replay
    journal = opened(tmp_path)
    fill(journal, [b"one"], [b"two"])
    journal.write_snapshot(1, b"after one")
    journal.close()
    with pytest.raises(JournalError, match=r"'1\.0'.*'2\.0'"):
        opened(tmp_path, identity=new)
    journal = opened(tmp_path)
    journal.write_snapshot(2, b"after two")
    journal.close()
    journal = opened(tmp_path, identity=new)
    assert journal.snapshot == Snapshot(2, b"after two")
    assert contents(journal, 2) == []
    assert fill(journal, [b"three"]) is None
    assert journal.read(2, 9) == [b"three"]
    journal.close()
    with pytest.raises(JournalError, match=r"'2\.0'.*'1\.0'"):
        opened(tmp_path)
    journal = opened(tmp_path, identity=new)
    assert contents(journal, 2) == [b"three"]
    journal.close()


# Snapshots


def test_a_snapshot_removes_what_it_covers(tmp_path: Path) -> None:
    records = [bytes([i]) * 300 for i in range(20)]
    journal = opened(tmp_path)
    fill(journal, *[[record] for record in records])
    before = journal.bytes_on_disk
    journal.write_snapshot(7, b"seven")
    journal.write_snapshot(13, b"thirteen")
    with pytest.raises(UsageError):
        journal.write_snapshot(12, b"older")
    with pytest.raises(UsageError):
        journal.write_snapshot(21, b"not durable")
    assert 10 < journal.first_index <= 13
    assert journal.bytes_on_disk < before / 2
    assert journal.bytes_on_disk == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert len(list(tmp_path.glob("snapshot-*"))) == 1
    with pytest.raises(RecordsGone):
        journal.read(0, 1)
    journal.abandon()
    journal = opened(tmp_path)
    assert journal.snapshot == Snapshot(13, b"thirteen")
    assert contents(journal, 13) == records[13:]
    journal.write_snapshot(20, b"all")
    journal.close()
    journal = opened(tmp_path)
    assert journal.snapshot == Snapshot(20, b"all")
    assert journal.next_index == 20
    assert journal.clean
    fill(journal, [b"next"])
    journal.abandon()
    assert look(tmp_path, start=20) == [b"next"]


def test_files_of_removed_segments_are_written_again(tmp_path: Path) -> None:
    journal = opened(tmp_path, recycled_max=8)
    inodes = {path.stat().st_ino for path in tmp_path.glob("segment-*.log")}
    for round_ in range(12):
        fill(journal, *[[b"%d-%d" % (round_, i) + b"x" * 200] for i in range(12)])
        inodes |= {path.stat().st_ino for path in tmp_path.glob("segment-*.log")}
        journal.write_snapshot(journal.durable_index, b"state")
        assert len(list(tmp_path.glob("spare-*.tmp"))) <= 8
        files = [path for path in tmp_path.iterdir() if not path.name.endswith(".snap")]
        assert journal.bytes_on_disk - len(b"state") >= sum(path.stat().st_size for path in files)
    assert len(inodes) <= 8, "of some 40 segments"
    fill(journal, [b"after"])
    journal.abandon()
    assert look(tmp_path, start=144) == [b"after"]


def test_a_segment_keeps_its_file_until_its_name_is_durably_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the folder's sync a crash could bring back the old name, over what was written since."""
    journal = opened(tmp_path, recycled_max=2)
    fill(journal, *[[b"x" * 300] for _ in range(12)])
    available = []
    fsync = os.fsync

    def watch(fd: int) -> None:
        files, spares = journal._files, list(tmp_path.glob("spare-*.tmp"))
        available.append((fd == files.folder_fd, len(files.recycled), len(spares)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    journal.write_snapshot(12, b"state")
    is_folder, recycled, renamed = available[-1]
    assert is_folder
    assert (recycled, renamed) == (0, 2)
    assert len(journal._files.recycled) == 2
    journal.abandon()


def test_every_bit_flip_or_truncation_of_a_snapshot_is_refused(memory_path: Path, no_sync: None) -> None:
    journal = opened(memory_path)
    fill(journal, [b"one"], [b"two"])
    journal.write_snapshot(1, b"the state")
    journal.abandon()
    (path,) = memory_path.glob("snapshot-*")
    good = path.read_bytes()
    for offset in range(len(good)):
        for bit in range(8):
            path.write_bytes(good[:offset] + bytes([good[offset] ^ 1 << bit]) + good[offset + 1 :])
            with pytest.raises(JournalCorrupt):
                look(memory_path, start=1)
        path.write_bytes(good[:offset])
        with pytest.raises(JournalCorrupt):
            look(memory_path, start=1)
    path.write_bytes(good + b"\0")
    with pytest.raises(JournalCorrupt):
        look(memory_path, start=1)
    path.write_bytes(good)
    renamed = path.rename(path.with_name(path.name.replace("1", "2")))
    with pytest.raises(JournalCorrupt):
        look(memory_path, start=2)
    renamed.rename(path)
    assert look(memory_path, start=1) == [b"two"]
    path.unlink()
    assert look(memory_path) == [b"one", b"two"], "all segments are still there"


def test_a_log_that_ends_before_its_snapshot_is_refused(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    fill(journal, [b"one"], [b"two"])
    end = journal.written.segments[-1].last_block
    journal.write_snapshot(2, b"state")
    journal.abandon()
    path = tmp_path / segment_names(tmp_path)[0]
    os.truncate(path, end)
    with pytest.raises(JournalCorrupt, match="ends before"):
        look(tmp_path, start=2)
    path.unlink()
    with pytest.raises(JournalCorrupt, match="ends before"):
        look(tmp_path, start=2)


def test_a_crash_within_a_snapshot_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [bytes([i]) * 300 for i in range(12)]
    origin, folder = tmp_path / "origin", tmp_path / "copy"
    journal = opened(origin)
    fill(journal, *[[record] for record in records])
    journal.write_snapshot(3, b"old")
    journal.abandon()
    seen = set()

    def action() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        nonlocal journal
        journal = opened(folder)
        journal.write_snapshot(9, b"new")

    steps = 0
    for steps in crashing_at_each_step(monkeypatch, action):
        journal.abandon()
        journal = opened(folder)
        assert journal.snapshot in (Snapshot(3, b"old"), Snapshot(9, b"new")), steps
        seen.add(journal.snapshot.index)
        assert contents(journal, journal.snapshot.index) == records[journal.snapshot.index :]
        assert all(path.suffix in (".log", ".snap") for path in folder.iterdir()), "no leftovers"
        assert len(list(folder.glob("snapshot-*"))) == 1
        fill(journal, [b"next"])
        journal.abandon()
    assert seen == {3, 9}
    assert steps > 20


def test_a_crash_at_any_step_of_a_commit_over_segments_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [bytes([i]) * 300 for i in range(1, 10)]
    folder = tmp_path / "journal"
    reported = 0

    def action() -> None:
        nonlocal reported
        shutil.rmtree(folder, ignore_errors=True)
        reported = 0
        journal = opened(folder)
        try:
            for batch in (records[:2], records[2:]):
                for record in batch:
                    journal.append(Buffers(record))
                reported = journal.commit()
        finally:
            journal.abandon()

    steps = 0
    for steps in crashing_at_each_step(monkeypatch, action):
        result = look(folder)
        assert reported <= len(result), steps
        assert result == records[: len(result)], steps
    assert steps > 30
    assert reported == len(records)


def test_files_are_durable_before_they_get_their_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = opened(tmp_path)
    journal.append(Buffers(b"x" * 700))
    journal.append(Buffers(b"y" * 700))
    calls: list[str] = []

    def recorded(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: calls.append(name) or call(*args)

    for owner, name in [
        (os, "fsync"),
        (os, "fdatasync"),
        (os, "pwritev"),
        (Path, "rename"),
        (Path, "unlink"),
    ]:
        monkeypatch.setattr(owner, name, recorded(name, getattr(owner, name)))
    journal.commit()
    block = ["pwritev", "fdatasync"]
    named = ["pwritev", "fsync", "rename", "fsync"]
    assert calls == [*block, *named, *block]
    calls.clear()
    journal.write_snapshot(1, b"state")
    assert calls == [*named, "unlink", "fsync"]
    journal.close()


def test_leftovers_of_pruning_are_removed_unread(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    fill(journal, *[[bytes([i]) * 600] for i in range(6)])
    files = saved(tmp_path)
    journal.write_snapshot(5, b"state")
    journal.abandon()
    names = sorted(files)
    (tmp_path / names[0]).write_bytes(b"not even a segment")
    (tmp_path / names[2]).write_bytes(files[names[2]])
    (tmp_path / "spare-7.tmp").write_bytes(b"half a snapshot")
    assert look(tmp_path, start=5) == [bytes([5]) * 600]
    assert len(saved(tmp_path)) == 2


# Anything, in any order


class JournalModel(RuleBasedStateMachine):
    """A journal beside a plain list."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.records: list[bytes] = []
        self.durable = 0
        self.snapshot: Snapshot | None = None
        self.journal = opened(self.folder, recycled_max=2)

    def reopen(self) -> None:
        self.journal = opened(self.folder, recycled_max=2)
        assert self.journal.snapshot == self.snapshot

    @rule(record=st.one_of(st.binary(max_size=50), st.integers(0, 1500).map(bytes)))
    def append(self, record: bytes) -> None:
        assert self.journal.next_index == len(self.records)
        middle = len(record) // 2
        self.journal.append(Buffers(record[:middle], memoryview(record)[middle:]))
        self.records.append(record)

    @rule()
    def commit(self) -> None:
        self.durable = self.journal.commit()
        assert self.durable == len(self.records)

    @rule()
    def close(self) -> None:
        self.journal.close()
        self.durable = len(self.records)
        self.reopen()
        assert self.journal.clean

    @rule()
    def crash(self) -> None:
        self.journal.abandon()
        self.records = self.records[: self.durable]
        self.reopen()

    @rule(records=st.lists(st.binary(max_size=80), min_size=1, max_size=4), share=st.floats(0.01, 0.999))
    def tear(self, records: list[bytes], share: float) -> None:
        active = self.journal.written.segments[-1]
        block, length, _ = encode_block(disk.RECORDS, active, disk.Records.of([Buffers(r) for r in records]))
        self.journal.abandon()
        self.records = self.records[: self.durable]
        at = disk.rounded(active.end, disk.GRAIN)
        if at + len(block) <= active.size:
            with active.path.open("r+b") as file:
                file.seek(at)
                needed = disk.HEADER_BYTES + length  # a block is whole without its trailer
                torn = int(needed * share)
                file.write(block[: torn if torn >= disk.HEADER_BYTES else 0])  # and a header lies in one sector
                file.seek(at)
                if file.read(needed) == block[:needed]:  # what was there before was the same
                    self.records += records
                    self.durable = len(self.records)
        self.reopen()

    @precondition(lambda self: self.durable)
    @rule(share=st.floats(0, 1))
    def take_snapshot(self, share: float) -> None:
        low = self.snapshot.index if self.snapshot else 0
        index = low + round((self.durable - low) * share)
        self.snapshot = Snapshot(index, b"state at %d" % index)
        self.journal.write_snapshot(index, self.snapshot.state)

    @rule(back=st.integers(0, 30), limit=st.integers(0, 30))
    def read(self, back: int, limit: int) -> None:
        start = max(self.durable - back, self.journal.first_index)
        assert self.journal.read(start, limit) == self.records[start : self.durable][:limit]

    @invariant()
    def same_as_the_list(self) -> None:
        first = self.journal.first_index
        assert (self.journal.next_index, self.journal.durable_index) == (len(self.records), self.durable)
        assert first <= (self.snapshot.index if self.snapshot else 0)
        assert list(self.journal.replay(first)) == list(enumerate(self.records[: self.durable]))[first:]

    def teardown(self) -> None:
        self.journal.abandon()
        shutil.rmtree(self.folder)


JournalModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_the_journal_behaves_like_a_list = JournalModel.TestCase
