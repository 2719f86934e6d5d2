"""Delivered logs that are cut: what goes, what stays through crashes, and what readers are told."""

from __future__ import annotations

import asyncio
import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.cli.status import _notes
from antiphon.core.errors import JournalError, JournalFull, RecordsGone, UsageError
from antiphon.core.events import Adopted, Delivered, decode_event
from antiphon.core.model import GroupId, MessageId, ProcessId
from antiphon.core.requests import encode_request, parse_request
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.disk import DeliveredLog, JournalIdentity, Retain, SegmentedLog
from antiphon.runtime.disk import delivered as delivered_module
from antiphon.runtime.disk.files import LogFiles
from crashing import crashing_at_each_step

MakeCluster = Callable[..., ClusterFolder]
IDENTITY = JournalIdentity("cluster", "a.1", "")
SEGMENT_BYTES = 2048


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["10GB"], Retain(10**10, None)),
        (["7d"], Retain(None, 7 * 86400)),
        (["10GB,7d"], Retain(10**10, 7 * 86400)),
        (["7d", "10GB"], Retain(10**10, 7 * 86400)),
        (["1.5 GiB , 90s"], Retain(3 << 29, 90)),
        (["512kb"], Retain(512_000, None)),
        (["2w"], Retain(None, 14 * 86400)),
        (["all"], Retain(None, None)),
    ],
)
def test_limits_as_they_are_written(words: list[str], found: Retain) -> None:
    assert Retain.parse(words) == found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["10"], "'10' does not say what to retain: give a size such as 10GB, an age such as 7d"),
        (["10G"], "'10G' does not say"),
        (["-1GB"], "'-1GB' does not say"),
        (["7 days"], "'7 days' does not say"),
        ([""], "'' does not say"),
        (["all", "7d"], "'all' stands alone"),
        (["1GB,2GB"], "two limits of one kind"),
        (["1d", "2h"], "two limits of one kind"),
        (["0GB"], "would keep nothing"),
        (["0d"], "would keep nothing"),
    ],
)
def test_limits_that_make_no_sense(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Retain.parse(words)


# The log by itself ------------------------------------------------------------------------------------------------


def event(position: int, count: int = 1, at: float = 0.0) -> Delivered:
    payloads = [b"%d" % i * 50 for i in range(position, position + count)]
    requests = (parse_request(encode_request("c", position, 0, payloads)),) if payloads else ()
    id = MessageId(ProcessId("a.1"), position + 1)
    return Delivered(id, (GroupId("a"),), position, count, requests, None, int(at * 1e9))


def opened(path: Path, retain: Retain = Retain()) -> DeliveredLog:  # noqa: B008 - it does not change
    log = SegmentedLog.open(path, IDENTITY, segment_bytes=SEGMENT_BYTES)
    return DeliveredLog(log, lambda job: job(), lambda: retain)


def filled(log: DeliveredLog, count: int, at: Callable[[int], float] = lambda position: 0.0) -> None:
    for position in range(log.end, log.end + count):
        log.append(event(position, at=at(position)))
        log.flush()


def positions(log: DeliveredLog) -> list[int]:
    """What is kept, as a reader gets it."""
    return [decode_event(record.joined()).position for record in log.history(log.locate(log.begin))]


def in_loop(story: Callable[[], None]) -> None:
    async def run() -> None:
        story()

    asyncio.run(run())


def test_the_oldest_segments_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    def story() -> None:
        log = opened(tmp_path / "log", Retain(5 * SEGMENT_BYTES))
        began = []
        for _ in range(100):
            filled(log, 1)
            began.append(log.begin)
            assert log.bytes_on_disk <= 6 * SEGMENT_BYTES, "all but what is being written"
            assert positions(log) == list(range(log.begin, log.end))
        assert began == sorted(began)
        assert len(set(began)) > 5
        assert log.begin > 50
        with pytest.raises(RecordsGone):
            log.locate(log.begin - 1)
        assert [log.locate(position) for position in range(log.begin, log.end)] == list(range(log.begin, log.end))
        begin = log.begin
        log.abandon()
        again = opened(tmp_path / "log")
        assert (again.begin, again.end) == (begin, 100)
        assert positions(again) == list(range(begin, 100))
        again.append(event(50))  # as a replay does
        assert again.end == 100
        filled(again, 20)
        assert positions(again) == list(range(begin, 120)), "nothing more goes where there is no limit"
        again.close()

    in_loop(story)


def test_a_log_that_goes_on_behind_anothers_begins_there(tmp_path: Path) -> None:
    """In memory, on disk, through a replay, and when its oldest segments go."""
    adopted = Adopted(ProcessId("a.2"), MessageId(ProcessId("a.1"), 100), 100, 0)

    def story() -> None:
        log = opened(tmp_path / "log")
        log.append(adopted)
        log.flush()
        for _ in range(2):
            assert (log.begin, log.end, log.next_index) == (100, 100, 1)
            with pytest.raises(RecordsGone):
                log.locate(99)
            log.close()
            log = opened(tmp_path / "log")
            log.append(adopted)  # as a replay does
        filled(log, 20)
        for _ in range(2):
            assert (log.begin, log.end, log.next_index) == (100, 120, 21)
            assert positions(log) == list(range(100, 120))
            assert [log.locate(position) for position in range(100, 120)] == list(range(1, 21))
            log.close()
            log = opened(tmp_path / "log", Retain(3 * SEGMENT_BYTES))
            log.append(adopted)
            log.append(event(100))
        filled(log, 50)
        assert log.begin > 120
        assert positions(log) == list(range(log.begin, 170))
        log.close()

    in_loop(story)


def test_what_is_younger_than_the_limit_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(delivered_module, "time", lambda: now)

    def story() -> None:
        nonlocal now
        log = opened(tmp_path / "log", Retain(None, 50.0))
        filled(log, 100, at=lambda position: 900.0 + position)  # one a second, the newest 1 second ago
        assert 35 < log.begin <= 50, "whole segments go, and nothing that is younger than the limit"
        before = log.begin
        log.let_go()
        assert log.begin == before
        now = 1020.0
        log.let_go()
        assert 55 < log.begin <= 70
        now = 10_000.0
        log.let_go()
        assert 85 < log.begin < 100, "the newest segment stays"
        assert positions(log) == list(range(log.begin, 100))
        log.close()

    in_loop(story)


def test_both_limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_module, "time", lambda: 1000.0)

    def story() -> None:
        for retain in (Retain(5 * SEGMENT_BYTES, 90.0), Retain(500 * SEGMENT_BYTES, 25.0)):
            log = opened(tmp_path / str(retain.bytes), retain)
            filled(log, 100, at=lambda position: 900.0 + position)
            assert 55 < log.begin <= 85
            log.close()

    in_loop(story)


def test_a_segment_that_is_still_empty_does_not_make_the_last_record_go(tmp_path: Path) -> None:
    """A crash may leave one behind: the log would not know any more how far it has come."""

    def story() -> None:
        log = opened(tmp_path / "log")
        filled(log, 30)
        inner = log._log
        inner._roll(inner._files.reserve_segment())
        log.abandon()
        log = opened(tmp_path / "log", Retain(1, 0.001))
        log.let_go()
        assert 0 < log.begin < log.end == 30
        log.abandon()
        assert opened(tmp_path / "log").end == 30

    in_loop(story)


@pytest.mark.parametrize("torn", [False, True])
def test_a_crash_at_any_step_of_a_cut_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool) -> None:
    """Also of a second cut, and also when, of the names that were taken away, any are there again."""
    origin, folder = tmp_path / "origin", tmp_path / "copy"

    def story() -> None:
        log = opened(origin, Retain(12 * SEGMENT_BYTES))
        filled(log, 100)
        before = log.begin
        assert before > 0
        log.abandon()
        begins = set()
        steps = 0

        def action() -> None:
            nonlocal log
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(origin, folder)
            log = opened(folder, Retain(3 * SEGMENT_BYTES))
            log.let_go()

        for steps in crashing_at_each_step(monkeypatch, action):
            log.abandon()
            if torn:  # the oldest that is gone is there again
                lost = sorted({path.name for path in origin.iterdir()} - {path.name for path in folder.iterdir()})
                for name in [name for name in lost if name.startswith("segment")][:1]:
                    shutil.copy(origin / name, folder / name)
            log = opened(folder)
            assert log.end == 100, steps
            assert positions(log) == list(range(log.begin, 100)), steps
            begins.add(log.begin)
            assert all(path.suffix in (".log", ".snap") for path in folder.iterdir()), "no leftovers"
            filled(log, 3)
            assert positions(log) == list(range(log.begin, 103))
            log.abandon()
        assert steps > 12
        assert min(begins) == before
        assert len(begins) == 2

    in_loop(story)


def test_a_cut_without_what_says_so_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above must not pass for a log that removes first."""

    def removed_only(log: SegmentedLog, index: int) -> None:
        paths = [each.path for each in log.written.segments if each.first < index]
        log.written.drop_below(index)
        for path in paths:
            path.unlink()

    monkeypatch.setattr(SegmentedLog, "cut", removed_only)
    with pytest.raises(JournalError, match="lacks the segment that holds record"):
        test_a_crash_at_any_step_of_a_cut_is_survived(tmp_path, monkeypatch, torn=False)


def test_a_full_disk_gets_room_by_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_full = False
    allocate = LogFiles._allocate

    def allocated(files: LogFiles, fd: int, size: int) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(files, fd, size)

    monkeypatch.setattr(LogFiles, "_allocate", allocated)
    retain = Retain()

    def story() -> None:
        nonlocal is_full, retain
        log = SegmentedLog.open(tmp_path / "log", IDENTITY, segment_bytes=SEGMENT_BYTES)
        delivered = DeliveredLog(log, lambda job: job(), lambda: retain)
        filled(delivered, 50)
        retain = Retain(10**9)
        delivered.let_go()  # this is when a file for the cut is set aside
        is_full = True
        filled(delivered, 30)
        assert delivered.full
        retain = Retain(3 * SEGMENT_BYTES)
        delivered.let_go()
        assert delivered.begin > 20
        retain = Retain(SEGMENT_BYTES)
        delivered.let_go()  # there was no room for another file
        is_full = False
        delivered.flush()
        assert not delivered.full
        assert positions(delivered) == list(range(delivered.begin, 80))
        delivered.close()

    in_loop(story)


@pytest.mark.parametrize("is_full", [False, True])
def test_whoever_finds_records_gone_is_told_where_the_log_begins_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """The disk thread cuts, and meanwhile readers are served."""
    cut = SegmentedLog.cut
    story_log: list[DeliveredLog] = []
    told: list[int] = []

    def cutting(inner: SegmentedLog, index: int) -> None:
        (log,) = story_log
        if is_full:
            raise JournalFull("There is no room.")
        cut(inner, index)
        with pytest.raises(RecordsGone):
            next(log.history(index - 1))
        told.append(log.begin)
        assert positions(log)[0] == log.begin

    monkeypatch.setattr(SegmentedLog, "cut", cutting)

    def story() -> None:
        log = opened(tmp_path / "log", Retain(5 * SEGMENT_BYTES))
        story_log.append(log)
        filled(log, 60)
        assert told == sorted(set(told))
        assert log.begin == (told[-1] if told else 0)
        assert bool(told) is not is_full
        assert positions(log) == list(range(log.begin, 60))
        log.close()

    in_loop(story)


def test_a_log_says_that_it_is_short_of_room_before_anything_has_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = False
    allocate = LogFiles._allocate

    def allocated(files: LogFiles, fd: int, size: int) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(files, fd, size)

    monkeypatch.setattr(LogFiles, "_allocate", allocated)

    def story() -> None:
        nonlocal is_full
        log = opened(tmp_path / "log")
        filled(log, 20)
        is_full = True
        while not log.is_short:
            filled(log, 1)
        assert not log.full, "a snapshot can be taken: all that was delivered can be written"
        filled(log, 1)
        assert not log.full
        is_full = False
        log.flush()
        assert not log.is_short
        filled(log, 20)
        assert positions(log) == list(range(log.end))
        log.close()

    in_loop(story)


def test_a_log_that_is_short_of_room_looks_for_it_again_though_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk thread finds it out when the flush is over, and then nothing is taken that would be flushed."""
    has_room = False
    monkeypatch.setattr(delivered_module, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(SegmentedLog, "reserve_ahead", lambda log: has_room)
    jobs: list[Callable[[], None]] = []

    async def run() -> None:
        nonlocal has_room
        log = DeliveredLog(SegmentedLog.open(tmp_path / "log", IDENTITY), jobs.append)

        def work() -> None:
            while jobs:
                jobs.pop(0)()
                log.written()

        log.append(event(0))
        log.flush()
        work()
        assert log.is_short
        has_room = True
        await asyncio.sleep(0.05)
        work()
        assert not log.is_short
        log.close()

    asyncio.run(run())


def test_a_folder_for_which_there_is_no_room_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", no_room)
    with pytest.raises(JournalFull, match="No space left"):
        SegmentedLog.open(tmp_path / "log", IDENTITY)


def test_a_reader_meets_the_end_of_what_is_kept_and_no_other_records(tmp_path: Path) -> None:
    def story() -> None:
        retain = Retain()
        log = SegmentedLog.open(tmp_path / "log", IDENTITY, segment_bytes=SEGMENT_BYTES)
        delivered = DeliveredLog(log, lambda job: job(), lambda: retain)
        filled(delivered, 100)
        reading = delivered.history(0)
        found = [decode_event(next(reading).joined()).position for _ in range(3)]
        retain = Retain(3 * SEGMENT_BYTES)
        delivered.let_go()
        with pytest.raises(RecordsGone):
            found.extend(decode_event(record.joined()).position for record in reading)
        assert found == list(range(len(found)))
        assert len(found) < delivered.begin
        with pytest.raises(RecordsGone):
            next(delivered.history(5))
        delivered.abandon()
        (oldest, *_) = sorted((tmp_path / "log").glob("segment-*"))
        whole = opened(tmp_path / "log")
        oldest.unlink()  # that nobody has let go
        with pytest.raises(JournalError) as damaged:
            next(whole.history(whole.locate(whole.end - 1) - 30))
        assert not isinstance(damaged.value, RecordsGone)
        whole.abandon()

    in_loop(story)


def test_what_is_not_understood_lets_nothing_go(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path, msgspec.structs.replace(_config()))
    assert folder.retained() == Retain()
    folder.retain(["10GB", "7d"])
    assert folder.retained() == Retain(10**10, 7 * 86400)
    with pytest.raises(UsageError):
        folder.retain(["much"])
    assert folder.retained() == Retain(10**10, 7 * 86400)
    (tmp_path / "retain").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        folder.retained()

    def story() -> None:
        log = SegmentedLog.open(tmp_path / "log", IDENTITY, segment_bytes=SEGMENT_BYTES)
        delivered = DeliveredLog(log, lambda job: job(), folder.retained)
        filled(delivered, 50)
        assert delivered.begin == 0
        assert "cannot be read" in delivered.complaint
        folder.retain([f"{5 * SEGMENT_BYTES}B"])
        delivered.let_go()
        assert delivered.begin > 0
        assert delivered.complaint == ""
        delivered.close()

    in_loop(story)


def test_a_cut_that_is_refused_is_not_taken_for_a_limit_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(log: SegmentedLog, index: int) -> None:
        raise UsageError("It cannot be there.")

    def story() -> None:
        log = opened(tmp_path / "log", Retain(5 * SEGMENT_BYTES))
        with pytest.raises(UsageError, match="cannot be there"):
            filled(log, 50)
        assert log.complaint == ""
        log.abandon()

    monkeypatch.setattr(SegmentedLog, "cut", refused)
    in_loop(story)


def _config() -> Any:
    from antiphon.runtime.cluster import ClusterConfig

    addresses = {"a.1": "127.0.0.1:1"}
    return ClusterConfig(cluster="c", protocol="skeen", options={}, groups={"a": ["a.1"]}, addresses=addresses, run="r")


# Real processes ---------------------------------------------------------------------------------------------------


def begins(folder: ClusterFolder) -> dict[str, int]:
    return {str(name): status.begins for name, status in cluster.statuses(folder).items() if status is not None}


def are_at_rest(folder: ClusterFolder) -> bool:
    """Whether nobody has let go of anything for a while."""
    before = begins(folder)
    time.sleep(4 * delivered_module.FLUSH_SECONDS)
    return begins(folder) == before


def sizes(folder: ClusterFolder) -> list[int]:
    return [status.delivered_bytes for status in cluster.statuses(folder).values() if status is not None]


def complaints(folder: ClusterFolder) -> list[str]:
    """What `antiphon status` says of limits that make no sense."""
    return [sentence for sentence in _notes(cluster.answers(folder)) if "to retain" in sentence]


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def send(client: antiphon.Client, count: int, size: int = 1000, *, paced: bool = False) -> None:
    """``paced``: each batch when the one before it is delivered, so that no record holds many of them."""
    payloads = [b"%d " % number + bytes(size) for number in range(count)]
    for start in range(0, count, 40):
        receipt = await client.multicast_many({"a", "b"}, payloads[start : start + 40])
        if paced:
            async for delivery in client.subscribe("a", start="earliest"):
                if delivery.client == receipt.client and delivery.number >= receipt.number:
                    break


async def read(client: antiphon.Client, start: Any) -> list[int]:
    return [delivery.position async for delivery in client.subscribe("a", start=start, follow=False)]


async def read_on(reader: antiphon.Subscription, found: list[int]) -> None:
    async for delivery in reader:
        found.append(delivery.position)


def test_members_let_go_and_say_where_they_begin_through_kills_and_a_change(make_cluster: MakeCluster) -> None:
    folder = make_cluster(
        {"a": 2, "b": 1}, segment_bytes=64 << 10, snapshot_bytes=256 << 10, retain=["400kB"], gather=1
    )

    async def story() -> None:
        async with antiphon.connect(folder.path) as client:
            await send(client, 2000, paced=True)
            await asyncio.to_thread(cluster.wait_idle, folder, 10)
            await asyncio.to_thread(wait_until, lambda: min(begins(folder).values()) > 1000)
            await asyncio.to_thread(wait_until, lambda: max(sizes(folder)) < 600_000)  # a cut may be under way
            await asyncio.to_thread(wait_until, lambda: are_at_rest(folder))
            for status in cluster.statuses(folder).values():
                assert status is not None
                assert status.delivered == 2000
            first = min(begins(folder)[name] for name in ("a.1", "a.2"))
            with pytest.raises(antiphon.PositionGone, match=f"can go on from position {first}") as gone:
                await read(client, 0)
            assert gone.value.first == first
            assert await read(client, "earliest") == list(range(first, 2000))
            assert await read(client, first) == list(range(first, 2000))
        before = begins(folder)
        for name in folder.config.processes:
            cluster.kill(folder, name)
        cluster.start(folder)
        after = begins(folder)
        assert after.keys() == before.keys()
        assert all(after[name] >= before[name] for name in before)
        folder.retain(["all"])
        async with antiphon.connect(folder.path) as client:
            await send(client, 1000, paced=True)
            await asyncio.to_thread(cluster.wait_idle, folder, 10)
            kept = begins(folder)
            assert await read(client, "earliest") == list(range(min(kept["a.1"], kept["a.2"]), 3000))
            folder.retain(["400kB"])  # they run, and are told
            await asyncio.to_thread(wait_until, lambda: min(begins(folder).values()) > 2000)
            (folder.path / "retain").write_text("400 kilobytes")
            await send(client, 1)
            await asyncio.to_thread(wait_until, lambda: len(complaints(folder)) == 3)
            assert all(
                "cannot tell what to retain" in said and "'400 kilobytes'" in said for said in complaints(folder)
            )
            folder.retain(["400kB"])
            await send(client, 1)
            await asyncio.to_thread(wait_until, lambda: not complaints(folder))

    asyncio.run(story())
    assert cluster.stop(folder)


def test_a_reader_that_lags_behind_what_is_kept_is_told(make_cluster: MakeCluster) -> None:
    limits = {"segment_bytes": 64 << 10, "snapshot_bytes": 256 << 10, "retain": ["1MB"], "gather": 1}
    # What is kept for members that lag is in snapshots, and a large one puts off the next, and with it what it lets go.
    folder = make_cluster({"a": 2, "b": 1}, options={"kept": str(1 << 20)}, **limits)

    async def story() -> None:
        async with antiphon.connect(folder.path) as client, antiphon.connect(folder.path) as sender:
            reader = client.subscribe("a")
            await send(sender, 1)
            assert (await anext(reader)).position == 0
            assert reader._connection is not None
            reader._connection.pause_reading()
            await send(sender, 500, size=100_000)  # more than sockets and members keep in memory for it
            await asyncio.to_thread(wait_until, lambda: min(begins(folder).values()) > 300, 20)
            reader._connection.resume_reading()
            found: list[int] = []
            with pytest.raises(antiphon.PositionGone) as gone:
                await read_on(reader, found)
            assert found == list(range(1, len(found) + 1)), "no hole"
            assert len(found) + 1 < gone.value.first <= 501

    asyncio.run(story())
    assert cluster.stop(folder)


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("5M", "'5M' could be a size or an age; write 5m for an age, B for a size"),
        ("7D", "could be a size or an age; write 7d for an age"),
        ("7d,all", "'all' stands alone"),
    ],
)
def test_a_limit_that_could_mean_two_things_is_refused(limit: str, sentence: str) -> None:
    """Who means 5 MB must not lose all that is older than 5 minutes."""
    with pytest.raises(UsageError, match=sentence):
        Retain.parse([limit])


@pytest.mark.parametrize(
    ("limit", "understood"),
    [
        ("5mb", "up to 5,000,000 bytes"),
        ("7d", "what is younger than 7 days"),
        ("1GiB,90m", "up to 1,073,741,824 bytes of what is younger than 90 minutes"),
        ("1.5s", "what is younger than 1.5 seconds"),
        ("ALL", "everything"),
    ],
)
def test_what_was_understood_is_said(limit: str, understood: str) -> None:
    assert str(Retain.parse([limit])) == understood
