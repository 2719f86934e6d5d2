"""A delivered log whose records refer to the journal: what they refer to is there as long as they are, and intact."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import antiphon
from antiphon.core.buffers import COPIED_MAX, Buffers, Origin
from antiphon.core.errors import JournalCorrupt, JournalError, RecordsGone
from antiphon.core.events import Delivered, decode_event, encode_event
from antiphon.core.inputs import Submit, decode_input, lay
from antiphon.core.model import GroupId, MessageId, ProcessId
from antiphon.core.requests import Request, encode_request, parse_request, trusted_requests_in
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.disk import DeliveredLog, InputJournal, JournalIdentity, Retain, SegmentedLog, events_of
from antiphon.runtime.disk.kept import Keeping, kept_in
from antiphon.runtime.disk.stored import head_of, store, whole
from crashing import crashing_at_each_step

MakeCluster = Callable[..., ClusterFolder]
IDENTITY = JournalIdentity("cluster", "a.1", "")
CODED = JournalIdentity("cluster", "a.1", "code")
SEGMENT_BYTES = 64 << 10
GROUPS = (GroupId("a"),)


def payload(number: int) -> bytes:
    """Those of every third are small: their bytes are in the delivered log itself."""
    return random.Random(number).randbytes(500 if number % 3 == 0 else 9000)


class Member:
    """A journal and a delivered log, as a process has them. What is taken may be delivered later; positions are those
    of the requests' numbers, and so is what a restart has to deliver again."""

    def __init__(self, folder: Path, retain: Retain = Retain()) -> None:  # noqa: B008 - it does not change
        self.folder = folder
        self.retain = retain
        self.pending: list[Request] = []
        self.journal = SegmentedLog.open(
            folder / "journal", CODED, segment_bytes=SEGMENT_BYTES, recycled_max=2, lends=True
        )
        opened = [self.journal]
        try:
            opened.append(log := SegmentedLog.open(folder / "delivered", IDENTITY, segment_bytes=4096))
            self.delivered = DeliveredLog(log, lambda job: job(), lambda: self.retain, self.journal, 2 * SEGMENT_BYTES)
        except BaseException:
            for each in opened:
                each.abandon()
            raise
        self._inputs = InputJournal(self.journal)
        self.taken = 0
        self._replay()

    def _replay(self) -> None:
        snapshot = self.journal.snapshot
        first = int(snapshot.state) if snapshot is not None else 0  # nothing is pending in a snapshot here
        self.taken = first
        for index, record in self.journal.replay(snapshot.index if snapshot is not None else 0):
            happened = decode_input(record)
            lay(happened, index, len(record))
            assert isinstance(happened, Submit)
            self.pending += trusted_requests_in(happened.requests)
            self.taken += 1
        self.deliver(len(self.pending))

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            data = encode_request("c", self.taken, 0, [payload(self.taken)])
            request = parse_request(data, 0, Origin())
            requests = Buffers(data)
            requests.origin, requests.offset = request.origin, 0
            self._inputs.append(Submit(0, GROUPS, requests))
            self.journal.commit()
            self.pending.append(request)
            self.taken += 1

    def deliver(self, count: int = 1) -> None:
        for request in self.pending[:count]:
            id = MessageId(ProcessId("a.1"), request.first + 1)
            self.delivered.append(Delivered(id, GROUPS, request.first, 1, (request,), None, 0))
        del self.pending[:count]

    def run(self, count: int) -> None:
        for _ in range(count):
            self.take()
            self.deliver()

    def snapshot(self, between: Callable[[], None] = lambda: None) -> None:
        """``between``: what the event loop does before the disk thread has written it."""
        self.delivered.flush()
        index, state = self.journal.next_index, str(self.taken - len(self.pending)).encode()
        self.journal.seal(index)
        between()
        self.journal.write_snapshot(index, state)

    def read(self) -> list[int]:
        """Whatever is kept, every byte of it compared."""
        self.delivered.flush()
        found: list[int] = []
        if self.delivered.end:
            found.extend(compared(self.delivered.history(self.delivered.locate(self.delivered.begin))))
        return found

    def check(self) -> None:
        assert self.read() == list(range(self.delivered.begin, self.delivered.end))

    def abandon(self) -> None:
        self.delivered.abandon()
        self.journal.abandon()

    def again(self) -> Member:
        self.abandon()
        return Member(self.folder, self.retain)


def compared(records: Iterator[Buffers]) -> Iterator[int]:
    """The numbers of the requests in a log, every byte of which is as it was sent."""
    for record in records:
        (request,) = decode_event(record.joined()).requests
        assert list(request.payloads()) == [payload(request.first)]
        yield request.first


def in_loop(story: Callable[[], None]) -> None:
    async def run() -> None:
        story()

    asyncio.run(run())


def test_large_requests_are_written_once_and_read_as_they_came(tmp_path: Path) -> None:
    def story() -> None:
        member = Member(tmp_path)
        member.run(60)
        member.check()
        records = member.delivered._log.read(0, 60)
        for number, record in enumerate(records):
            head = head_of(record)
            assert head.event.position == number
            assert [run.record for run in head.runs] == ([] if number % 3 == 0 else [number])
            assert len(record) < 800
            assert head.size > len(payload(number))
        member = member.again()
        member.check()
        assert member.delivered.end == 60
        member.abandon()

    in_loop(story)


def test_events_of_any_size_come_back(tmp_path: Path) -> None:
    """Where what is small ends: head and requests together, or the requests alone, have as much as is copied."""
    for size in range(COPIED_MAX - 200, COPIED_MAX + 50):
        for is_laid in (False, True):
            origin = Origin()
            origin.index = 7 if is_laid else -1
            request = parse_request(encode_request("c", 0, 0, [bytes(size)]), 0, origin)
            event = of(request)
            record = bytes(store(event, encode_event(event), lambda index: True))
            asked: list[tuple[int, int, int]] = []

            def fetch(*run: int, data: bytes = bytes(request.data), asked: list[tuple[int, int, int]] = asked) -> bytes:
                asked.append(run)  # type: ignore[arg-type]
                return data

            assert bytes(whole(record, fetch)) == bytes(encode_event(event))
            assert head_of(record).size == encode_event(event).size
            assert asked == ([(7, 0, len(request.data))] if is_laid and len(request.data) > COPIED_MAX else [])


def test_a_replay_refers_to_the_same_bytes_when_the_end_of_the_log_is_lost(tmp_path: Path) -> None:
    def story() -> None:
        member = Member(tmp_path)
        member.run(20)
        member.delivered.flush()
        found = member.delivered._log.read(0, 20)
        member.abandon()
        shutil.rmtree(tmp_path / "delivered")
        member = Member(tmp_path)
        member.check()
        assert member.delivered._log.read(0, 20) == found
        member.abandon()

    in_loop(story)


def deliver_durably(member: Member, request: Request) -> None:
    member.delivered.append(of(request))
    member.delivered.flush()


def story_of_snapshots(folder: Path) -> None:
    """Snapshots between receipt and delivery, and restarts everywhere."""
    rng = random.Random(5)
    member = Member(folder)
    for step in range(60):
        member.run(rng.randrange(15))
        if rng.random() < 0.3:
            member.snapshot()
        elif rng.random() < 0.2:
            waiting = rng.randrange(1, 4)
            member.deliver(len(member.pending))
            member.take(waiting)
            later = list(member.pending)
            member.deliver(waiting - 1)
            # The last one is not delivered before the snapshot is on its way: its state would have its bytes.
            assert len(member.pending) == 1
            last = member.pending.pop()
            assert later[-1] is last

            member.snapshot(partial(deliver_durably, member, last))
        if rng.random() < 0.2:
            member = member.again()
        if step % 5 == 0:
            member.check()
    member.check()
    assert member.delivered.begin == 0
    assert kept_in(folder / "journal")
    member.abandon()
    events = list(events_of(folder / "delivered", folder / "journal", IDENTITY))
    assert [request.first for event in events for request in event.requests] == list(range(len(events)))
    assert all(list(r.payloads()) == [payload(r.first)] for event in events for r in event.requests)


def of(request: Request) -> Delivered:
    id = MessageId(ProcessId("a.1"), request.first + 1)
    return Delivered(id, GROUPS, request.first, 1, (request,), None, 0)


def test_what_is_referred_to_outlives_snapshots_and_restarts(tmp_path: Path) -> None:
    in_loop(lambda: story_of_snapshots(tmp_path))


def story_of_restarts(folder: Path) -> None:
    """What was delivered before a restart is needed after the next snapshots, though nothing refers to it any more."""
    member = Member(folder)
    member.run(40)
    member.delivered.flush()
    member = member.again()
    member.snapshot()
    member.check()
    member.run(3)
    member.snapshot()
    member = member.again()
    member.take(40)  # and none of these is delivered
    member.pending = []
    member.snapshot()
    member.check()
    assert member.delivered.end == 43
    member.abandon()


def test_what_was_referred_to_before_a_restart_stays(tmp_path: Path) -> None:
    in_loop(lambda: story_of_restarts(tmp_path))


def _never_again(log: DeliveredLog, event: object) -> None:
    pass


def _lends_nothing(keeping: Keeping, begin: int, end: int, segments: object) -> None:
    pass


def _never_too_late(keeping: Keeping, first: int) -> None:
    pass


def _keeps_nothing(keeping: Keeping, files: list[tuple[int, Path]]) -> list[Path]:
    return [path for _, path in files]


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (DeliveredLog, "_refer_again", _never_again),
        (Keeping, "lend", _lends_nothing),
        (Keeping, "keep", _keeps_nothing),
    ],
)
def test_what_forgets_who_refers_to_it_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., object]
) -> None:
    """The test above must not pass for a journal that lets go of what the delivered log needs."""
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(JournalError):
        in_loop(lambda: story_of_restarts(tmp_path))


def story_of_a_late_delivery(folder: Path) -> None:
    """What is delivered after a snapshot was taken, and before it is written, and was received long before it."""
    member = Member(folder)
    member.take(1 + 3 * (SEGMENT_BYTES // 9000))
    early = member.pending[1]
    assert len(early.data) > 4096
    member.delivered.begin = member.delivered.end = early.first  # nobody else refers to its segment
    member.pending = []
    member.snapshot(lambda: member.delivered.append(of(early)))
    member.delivered.flush()
    (record,) = member.delivered.history(0)
    assert decode_event(record.joined()).requests[0].data == early.data
    member.abandon()


def test_what_was_sealed_is_not_referred_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_loop(lambda: story_of_a_late_delivery(tmp_path / "right"))
    assert not kept_in(tmp_path / "right" / "journal")
    monkeypatch.setattr(Keeping, "seal", _never_too_late)
    in_loop(lambda: story_of_a_late_delivery(tmp_path / "wrong"))
    assert kept_in(tmp_path / "wrong" / "journal"), "it would have to be kept for that one delivery"


def test_a_crash_at_any_step_of_a_snapshot_leaves_what_is_referred_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, folder = tmp_path / "origin", tmp_path / "copy"

    def story() -> None:
        member = Member(origin)
        member.run(30)
        member.snapshot()
        member.run(30)
        member.delivered.flush()
        member.abandon()
        steps = 0

        def action() -> None:
            nonlocal member
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(origin, folder)
            member = Member(folder)
            member.snapshot()

        for step in crashing_at_each_step(monkeypatch, action):
            steps = step
            member.abandon()
            member = Member(folder)
            assert (member.delivered.begin, member.delivered.end) == (0, 60)
            member.check()
            member.run(20)
            member.snapshot()
            member = member.again()
            member.check()
            member.abandon()
        assert steps > 20

    in_loop(story)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_crash_at_any_step_of_letting_go_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bool
) -> None:
    """``wrong``: what is kept goes before it is durable that the log begins behind it; that must be caught."""
    origin, folder = tmp_path / "origin", tmp_path / "copy"
    cut = SegmentedLog.cut
    keepers: list[SegmentedLog] = []

    def too_early(log: SegmentedLog, index: int) -> None:
        keepers[-1].release(index)
        cut(log, index)

    def story() -> None:
        member = Member(origin)
        for _ in range(6):
            member.run(20)
            member.snapshot()
        member.abandon()
        begins = set()

        def action() -> None:
            nonlocal member
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(origin, folder)
            member = Member(folder, Retain(6 * SEGMENT_BYTES))
            keepers.append(member.journal)
            member.delivered.let_go()

        if wrong:
            monkeypatch.setattr(SegmentedLog, "cut", too_early)
        for _ in crashing_at_each_step(monkeypatch, action):
            member.abandon()
            member = Member(folder)
            member.check()
            begins.add(member.delivered.begin)
            member.abandon()
        assert min(begins) == 0
        assert len(begins) == 2

    if wrong:
        with pytest.raises(JournalCorrupt, match="refers to what is not there"):
            in_loop(story)
    else:
        in_loop(story)


def test_the_journal_lets_go_with_the_log_and_its_files_are_written_again(tmp_path: Path) -> None:
    def story() -> None:
        member = Member(tmp_path, Retain(8 * SEGMENT_BYTES))
        sizes, inodes = [], set[int]()
        for _ in range(20):
            member.run(20)
            member.snapshot()
            member.delivered.let_go()
            member.check()
            sizes.append(member.delivered.bytes_on_disk)
            inodes |= {path.stat().st_ino for path in (tmp_path / "journal").iterdir() if path.suffix == ".log"}
        assert member.delivered.begin > 250
        assert max(sizes) <= 10 * SEGMENT_BYTES
        assert len(inodes) < 30, "of some 40 segments"
        member = member.again()
        member.check()
        member.abandon()

    in_loop(story)


def test_a_reader_amid_what_is_let_go_finds_records_gone_and_nothing_else(tmp_path: Path) -> None:
    """Its file may be another segment's by now."""

    def story() -> None:
        member = Member(tmp_path)
        for _ in range(6):
            member.run(20)
            member.snapshot()
        member.delivered.flush()
        reading = member.delivered.history(0)
        assert decode_event(next(reading).joined()).position == 0
        assert decode_event(next(reading).joined()).position == 1
        member.retain = Retain(3 * SEGMENT_BYTES)
        member.delivered.let_go()
        assert member.delivered.begin > 40
        member.run(40)  # in the files of what was let go
        found: list[int] = []
        with pytest.raises(RecordsGone):
            found.extend(compared(reading))
        assert found == list(range(2, 2 + len(found)))
        assert len(found) + 2 <= member.delivered.begin
        member.check()
        member.abandon()

    in_loop(story)


@pytest.mark.parametrize("kind", ["flipped", "cut", "gone"])
def test_damage_is_refused_in_a_sentence_and_never_delivered(tmp_path: Path, kind: str) -> None:
    def story() -> None:
        member = Member(tmp_path)
        for _ in range(3):
            member.run(20)
            member.snapshot()
        member.delivered.flush()
        kept = kept_in(tmp_path / "journal")
        path = kept[1].path
        data = path.read_bytes()
        rng = random.Random(3)
        for _ in range(1 if kind == "gone" else 30):
            at = rng.randrange(len(data) * 3 // 4)
            if kind == "flipped":
                changed = bytearray(data)
                changed[at] ^= 1 << rng.randrange(8)
                path.write_bytes(changed)
            elif kind == "cut":
                path.write_bytes(data[:at])
            else:
                path.unlink()
            found: list[int] = []
            sentence = ""
            try:
                found.extend(compared(member.delivered.history(0)))
            except JournalCorrupt as error:
                sentence = str(error)
            assert found == list(range(len(found)))
            if len(found) < 60:
                assert str(path) in sentence or "to what is not there" in sentence
            else:
                assert kind == "flipped", "a bit between two blocks, or behind them"
        member.abandon()

    in_loop(story)


def test_a_cluster_reads_all_from_the_start_after_kills_and_snapshots(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2, "b": 1}, segment_bytes=256 << 10, snapshot_bytes=512 << 10)
    sent = [[b"%d.%d " % (number, k) + bytes(100) for k in range(100)] for number in range(120)]

    async def send(batches: list[list[bytes]]) -> None:
        async with antiphon.connect(folder.path) as client:
            for at in range(0, len(batches), 20):
                await asyncio.gather(*(client.multicast_many({"a", "b"}, each) for each in batches[at : at + 20]))

    async def read(count: int) -> list[bytes]:
        found = []
        async with antiphon.connect(folder.path) as client:
            async for each in client.subscribe("a", start=0):
                found.append(each.payload)
                if len(found) == count:
                    break
        return found

    asyncio.run(send(sent[:60]))
    for name in folder.config.processes:
        cluster.kill(folder, name)
    cluster.start(folder)
    asyncio.run(send(sent[60:]))
    assert asyncio.run(read(12_000)) == [each for batch in sent for each in batch]
    journals = [folder.process(name).journal for name in folder.config.processes]
    assert all(kept_in(journal) for journal in journals)
    assert cluster.stop(folder)
    for name in folder.config.processes:
        own = folder.process(name)
        identity = JournalIdentity(folder.config.cluster, name, "")
        log = SegmentedLog.open(own.delivered, identity)
        assert sum(len(record) for record in log.read(0, log.next_index)) < 0.6 * 12_000 * 100
        log.abandon()
        events = events_of(own.delivered, own.journal, identity)
        assert [p for e in events for r in e.requests for p in r.payloads()] == [each for b in sent for each in b]
