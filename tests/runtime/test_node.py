"""The parts of a process that need no second one: failing disks, the detector, the deliveries, the trace."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import msgspec
import pytest
import uvloop

import antiphon
from antiphon.core import Host, Message, Process, ProcessId, Topology
from antiphon.core.buffers import Buffers
from antiphon.core.effects import Reply, SetTimer
from antiphon.core.errors import JournalBehind, JournalError, JournalFull, Unavailable, UsageError
from antiphon.core.events import Delivered, decode_event
from antiphon.core.inputs import Suspect, Trust
from antiphon.core.model import GroupId, MessageId
from antiphon.core.requests import encode_request, parse_request
from antiphon.protocols import protocol_named
from antiphon.protocols.tom import Tom
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.disk import DeliveredLog, JournalIdentity, SegmentedLog, Spills, UnderWay
from antiphon.runtime.disk import delivered as delivered_module
from antiphon.runtime.net import FrameStream, ReceivedFrame
from antiphon.runtime.net.frames import (
    HEADER,
    MAGIC,
    PROGRESS_MAX,
    VERSION,
    FrameKind,
    Hello,
    ProgressQuestion,
    RouteNumber,
    StatusAnswer,
    Subscribe,
    data_head,
    encode,
    request_head,
)
from antiphon.runtime.net.port import Shares
from antiphon.runtime.net.stream import FRAMES_AT_ONCE
from antiphon.runtime.node import ClusterNode, company, detector, links
from antiphon.runtime.node import gateway as gateway_module
from antiphon.runtime.node import node as node_module
from antiphon.runtime.node.clients import ClientCaller
from antiphon.runtime.node.detector import HeartbeatDetector
from antiphon.runtime.node.gateway import Undelivered
from antiphon.runtime.node.links import Lag, LinkStream, PeerLink
from antiphon.runtime.node.peers import PeerCaller
from antiphon.runtime.node.subscribers import Shelf

IDENTITY = JournalIdentity("cluster", "a.1", "code")


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    made = cluster.create(tmp_path / "cluster", {"a": 1}, trace=False, segment_bytes=1 << 16)
    made.process("a.1").path.mkdir()
    return made


def open_node(folder: ClusterFolder) -> ClusterNode:
    return ClusterNode(folder, folder.config.known("a.1"))


def test_a_failed_sync_stops_the_process_and_is_never_retried(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> int:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await client.multicast({"a"}, b"one")
            calls = []

            def fail(fd: int) -> None:
                calls.append(fd)
                raise OSError(5, "Input/output error")

            monkeypatch.setattr(os, "fdatasync", fail)
            sending = asyncio.create_task(client.multicast({"a"}, b"two"))
            code = await asyncio.wait_for(running, 60)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            assert len(calls) == 1
            assert node.driver.delivered.end == 1, "what may not be durable was not released"
            return code

    assert uvloop.run(run()) == 4
    assert "failed write or sync" in capsys.readouterr().err


def test_a_protocol_that_fails_stops_the_process(folder: ClusterFolder, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> int:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await client.multicast({"a"}, b"one")

            def fail(m: Message) -> None:
                raise AssertionError("an invariant is broken")

            node.driver.process.protocol.multicast = fail  # type: ignore[method-assign]
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            sending = asyncio.create_task(client.multicast({"a"}, b"two"))
            code = await asyncio.wait_for(running, 60)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            return code

    assert uvloop.run(run()) == 1
    assert "an invariant is broken" in capsys.readouterr().err


def test_a_timer_rings_whatever_is_wrong_with_what_came_before_it(folder: ClusterFolder) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        node = open_node(folder)
        driver = node.driver
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await client.multicast({"a"}, b"one")
        rung: asyncio.Future[bytes] = loop.create_future()
        driver.process.protocol.fire = rung.set_result  # type: ignore[method-assign]
        wrong = []
        loop.set_exception_handler(lambda loop, context: wrong.append(context))

        def read_datagrams() -> None:
            raise ZeroDivisionError

        driver.before_alarm = read_datagrams
        index, due = driver.process.protocol.index, driver.clock()
        driver.process.state.timers[index, b"a timer"] = due
        driver.on_set_timer(SetTimer(index, b"a timer", due))
        assert await asyncio.wait_for(rung, 60) == b"a timer"
        assert len(wrong) == 1, "and the mistake is told"
        node.stop()
        assert await running == 0

    uvloop.run(run())


def test_a_delivered_log_that_lacks_what_the_snapshot_delivered_is_refused(folder: ClusterFolder) -> None:
    async def first() -> None:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast({"a"}, b"x") for _ in range(10)))
        node.driver.snapshots.take()
        node.stop()
        assert await running == 0

    uvloop.run(first())
    for path in folder.process("a.1").delivered.iterdir():
        path.unlink()

    async def second() -> None:
        node = open_node(folder)
        try:
            await node.run()
        finally:
            node.driver.abandon()

    with pytest.raises(JournalBehind, match="old copy"):
        uvloop.run(second())


class FullLog(SegmentedLog):
    """A log whose disk has no room, for a while."""

    is_full = False

    def append(self, record: Buffers) -> None:
        if self.is_full:
            raise JournalFull("no room")
        super().append(record)


def event(position: int, count: int) -> Delivered:
    payloads = [b"payload %d" % i for i in range(position, position + count)]
    requests = (parse_request(encode_request("c", position, 0, payloads)),) if payloads else ()
    return Delivered(MessageId(ProcessId("a.1"), position + 1), (GroupId("a"),), position, count, requests, None, 0)


def test_deliveries_wait_for_room_and_keep_their_order(tmp_path: Path) -> None:
    async def run() -> None:
        log = FullLog(tmp_path / "log", IDENTITY, 1 << 16)
        delivered = DeliveredLog(log, lambda job: job())
        for number in range(30):
            log.is_full = 10 <= number < 20
            delivered.append(event(number, 1))
            assert delivered.full == (number >= 10)
        assert delivered.end == 30
        assert log.next_index == 10
        delivered.flush()
        assert not delivered.full
        assert [decode_event(record.joined()).position for record in delivered.history(0)] == list(range(30))
        delivered.close()

    asyncio.run(run())


def test_what_readers_are_shown_early_is_on_disk_only_when_it_is_appended(tmp_path: Path) -> None:
    """Else the log would know more than the journal, and its process be refused after a crash."""
    without = msgspec.structs.replace(event(3, 0), key=b"5")  # what brings no payload, and a floor
    old = msgspec.structs.replace(event(3, 0), key=b"4")  # and what brings nothing
    made = [event(0, 1), event(1, 2), without, old, event(3, 1)]

    async def run() -> None:
        for appended in range(len(made)):
            path = tmp_path / str(appended)
            delivered = DeliveredLog(SegmentedLog.open(path, IDENTITY), lambda job: job())
            assert delivered.append(made[0])
            for each in made[1:]:
                delivered.show(each)
            assert delivered.end == 4
            assert [delivered.locate(position) for position in range(4)] == [0, 1, 1, 3]
            records = delivered.recent(0, 1 << 20)
            assert records is not None
            assert [decode_event(record.joined()) for record in records] == [*made[:3], made[4]]
            for each in made[1 : 1 + appended]:
                assert delivered.append(each) == (each is old), "readers have seen it"
            delivered.flush()
            delivered.abandon()
            again = DeliveredLog(SegmentedLog.open(path, IDENTITY), lambda job: job())
            assert again.end == [1, 3, 3, 3, 4][appended]
            for each in made[1:]:
                again.append(each)
            again.flush()
            assert [decode_event(record.joined()) for record in again.history(0)] == [*made[:3], made[4]]
            again.close()

    asyncio.run(run())


def test_a_floor_is_kept_once_and_takes_no_position(tmp_path: Path) -> None:
    """As a replay makes it again, behind what the disk kept of the log."""

    def floor(position: int, key: bytes) -> Delivered:
        return msgspec.structs.replace(event(position, 0), key=key)

    made = [event(0, 2), floor(2, b"5"), event(2, 3), floor(5, b"7"), floor(5, b"8")]

    async def run() -> None:
        for kept in range(1, len(made) + 1):
            path = tmp_path / str(kept)
            delivered = DeliveredLog(SegmentedLog.open(path, IDENTITY), lambda job: job())
            for each in made[:kept]:
                delivered.append(each)
            delivered.close()
            again = DeliveredLog(SegmentedLog.open(path, IDENTITY), lambda job: job())
            for each in made:
                again.append(each)
            assert again.end == 5
            again.flush()
            assert [decode_event(record.joined()) for record in again.history(0)] == made
            assert [again.locate(position) for position in range(5)] == [0, 0, 2, 2, 2]
            again.close()

    asyncio.run(run())


def test_deliveries_that_the_disk_does_not_take_hold_the_process_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivered_module, "TAIL_BYTES", 500)
    monkeypatch.setattr(delivered_module, "BEHIND_BYTES", 2000)
    jobs: list[Callable[[], None]] = []

    async def run() -> None:
        delivered = DeliveredLog(SegmentedLog.open(tmp_path / "log", IDENTITY), jobs.append)
        while not delivered.is_behind:
            delivered.append(event(delivered.end, 10))
            delivered.flush()
            delivered.trim()
        assert len(jobs) > 5, "nothing is forgotten that is not durable"
        for job in jobs:
            job()
        delivered.trim()
        assert not delivered.is_behind
        delivered.abandon()

    asyncio.run(run())


def test_positions_are_found_in_the_tail_and_on_disk_and_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivered_module, "TAIL_BYTES", 500)
    sizes = [1, 7, 2, 1, 30, 4] * 8
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    expected = [index for index, size in enumerate(sizes) for _ in range(size)]

    def open_log() -> DeliveredLog:
        return DeliveredLog(SegmentedLog.open(tmp_path / "log", IDENTITY, segment_bytes=4096), lambda job: job())

    async def run() -> None:
        delivered = open_log()
        for start, size in zip(starts, sizes, strict=True):
            delivered.append(event(start, size))
            delivered.append(event(start, size))  # as a replay does
            delivered.append(event(start + size, 0))  # nothing of it was admitted
            delivered.flush()
            delivered.trim()
        assert [delivered.locate(position) for position in range(delivered.end)] == expected
        recent = delivered.recent(len(sizes) - 1, 1 << 20)
        assert recent is not None
        assert [decode_event(record.joined()).position for record in recent] == starts[-1:]
        assert delivered.recent(len(sizes), 1 << 20) == []
        assert delivered.recent(0, 1 << 20) is None, "it was trimmed"
        delivered.abandon()
        again = open_log()
        assert again.end == sum(sizes)
        assert [again.locate(position) for position in range(again.end)] == expected
        again.append(event(again.end, 3))
        assert again.locate(again.end - 1) == len(sizes)
        again.close()

    asyncio.run(run())


def test_a_silent_peer_is_suspected_and_trusted_again_with_more_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(detector, "SUSPECT_SECONDS", 0.05)
    told: list[Any] = []
    suspects: list[str] = []

    def take(opinion: Any) -> None:
        told.append(opinion)
        (suspects.append if isinstance(opinion, Suspect) else suspects.remove)(opinion.process)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        process = SimpleNamespace(state=SimpleNamespace(suspects=suspects))
        driver: Any = SimpleNamespace(take=take, clock=lambda: 0, process=process, watched=("b", "c"), congested=False)
        links: list[Any] = [SimpleNamespace(peer=p, absent_since=None) for p in ("b", "c", "d")]
        sessions: dict[Any, Any] = {p: SimpleNamespace(heard_at=loop.time(), incarnation=1) for p in ("b", "c", "d")}
        watching = HeartbeatDetector(driver, {link.peer: link for link in links}, sessions)
        task = asyncio.create_task(watching.run())
        rounds = 0
        while rounds < 20 or not told:
            rounds += 1
            await asyncio.sleep(0.01)
            sessions["b"].heard_at = loop.time()
        assert told == [Suspect(0, "c")], "d is silent too, but nobody asks about it"
        while len(told) < 2:
            sessions["b"].heard_at = sessions["c"].heard_at = loop.time()
            await asyncio.sleep(0.01)
        assert told[1] == Trust(0, "c")
        assert watching._timeouts["c"] > watching._timeouts["b"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def make_link(tmp_path: Path) -> PeerLink:
    process = Process(ProcessId("a.1"), Topology.sized({"a": 2}), Tom, {})
    driver: Any = SimpleNamespace(process=process, stopped=False)
    driver.host = Host(process, None, driver)
    driver.spills = Spills(tmp_path / "spill", IDENTITY, 1000, lambda job, then: (job(), then()), UnderWay(1.0))
    return PeerLink(driver, ("cluster", 1), ProcessId("a.2"), ("127.0.0.1", 1))


def test_nothing_is_written_to_a_connection_that_broke_a_moment_ago(tmp_path: Path) -> None:
    """The heartbeat may come before the link's own task has noticed. It once ended the process."""

    async def run() -> None:
        link = make_link(tmp_path)
        transport: Any = MagicMock()
        stream = LinkStream(link)
        stream.connection_made(transport)
        stream.flush()
        link.ready = True
        transport.reset_mock()
        stream.connection_lost(None)
        link.heartbeat()
        link.pump()
        await asyncio.sleep(0)
        transport.writelines.assert_not_called()
        assert await stream.closed, "it was past the handshake"
        assert not link.ready

    asyncio.run(run())


def test_a_connection_that_is_welcomed_and_ends_at_once_is_not_dialled_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two such links once woke one another, hundreds of times a second."""
    dialled = []

    async def run() -> None:
        link = make_link(tmp_path)

        async def dial(*_: object) -> Any:
            dialled.append(link)
            link.wake()  # the peer dials, too
            closed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            closed.set_result(True)
            return SimpleNamespace(closed=closed)

        monkeypatch.setattr(links, "dial", dial)
        running = asyncio.create_task(link.run())
        while len(dialled) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert len(dialled) <= 10


def test_a_lag_is_known_to_some_kilobytes_and_ends_exactly() -> None:
    lag = Lag()
    for number in range(1, 1001):
        lag.add(number, 1000)
    assert lag.bytes == 1_000_000
    lag.acknowledge(500, is_all=False)
    assert 500_000 <= lag.bytes <= 500_000 + (64 << 10) + 1000
    lag.acknowledge(1000, is_all=True)
    assert lag.bytes == 0


def test_requests_count_until_they_are_delivered_and_once() -> None:
    undelivered = Undelivered()
    groups = (GroupId("a"),)

    def taken(up_to: int, fresh: int, *firsts: int) -> None:
        requests = tuple(parse_request(encode_request("c", first, 0, [b"x"] * 2)) for first in firsts)
        undelivered.taken(Reply(1, "c", groups, up_to, requests, fresh))

    taken(2, 1, 0)
    size = undelivered.bytes
    assert size > 0
    taken(2, 0, 0)  # again
    assert undelivered.bytes == size
    taken(4, 1, 0, 2)  # again, and the next
    assert undelivered.bytes == 2 * size
    undelivered.delivered("c", groups, 2)
    undelivered.delivered("another", groups, 2)
    assert undelivered.bytes == size
    undelivered.delivered("c", groups, 4)
    assert undelivered.bytes == 0
    taken(4, 0, 0, 2)  # long delivered
    assert undelivered.bytes == 0


def test_only_a_mistake_gives_a_peer_more_time_and_not_for_ever() -> None:
    """Who was dead, and came back as another incarnation, was not suspected wrongly, however often that happens."""
    suspects: list[str] = []

    def take(opinion: Any) -> None:
        (suspects.append if isinstance(opinion, Suspect) else suspects.remove)(opinion.process)

    process = SimpleNamespace(state=SimpleNamespace(suspects=suspects))
    driver: Any = SimpleNamespace(take=take, clock=lambda: 0, process=process)
    peer: Any = SimpleNamespace(heard_at=0.0, incarnation=1)
    link: Any = SimpleNamespace(peer="b", absent_since=None)
    watching = HeartbeatDetector(driver, {ProcessId("b"): link}, {ProcessId("b"): peer})
    now = 0.0

    def silent_for(seconds: float, *, restarted: bool) -> float:
        """Silence, and then the peer is heard again; returns how long it took to suspect it."""
        nonlocal now
        begun, found = now, 0.0
        while now < begun + seconds:
            now += 0.125
            watching._judge(ProcessId("b"), now)
            found = found or (now - begun if suspects else 0.0)
        peer.heard_at, peer.incarnation = now, peer.incarnation + restarted
        watching._judge(ProcessId("b"), now)
        assert not suspects
        return found

    first = silent_for(20, restarted=True)
    assert [silent_for(20, restarted=True) for _ in range(9)] == [first] * 9
    longer = [silent_for(40, restarted=False) for _ in range(9)]
    assert longer == sorted(longer)
    assert longer[-1] > 10 * first
    for _ in range(int(10 * detector.CALM_SECONDS)):
        peer.heard_at = now = now + 1
        watching._judge(ProcessId("b"), now)
    assert silent_for(20, restarted=True) == first


def test_a_peer_that_never_listened_may_be_starting_and_gets_the_whole_time() -> None:
    """On a slow disk one opens its port a second later than another, and is no less there for that."""
    told: list[Any] = []
    process = SimpleNamespace(state=SimpleNamespace(suspects=[]))
    driver: Any = SimpleNamespace(take=told.append, clock=lambda: 0, process=process)
    links: dict[Any, Any] = {"b": SimpleNamespace(peer="b", absent_since=0.1)}
    watching = HeartbeatDetector(driver, links, {})
    for tenth in range(1, int(10 * detector.SUSPECT_SECONDS)):
        watching._judge(ProcessId("b"), tenth / 10)
    assert told == []
    watching._judge(ProcessId("b"), detector.SUSPECT_SECONDS + 0.1)
    assert told == [Suspect(0, "b")]


def test_a_peer_that_no_longer_listens_is_suspected_long_before_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint of a broken connection; a peer that is merely silent for a second is not suspected."""
    monkeypatch.setattr(detector, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(detector, "ABSENT_SECONDS", 0.05)
    told: list[Any] = []
    suspects: list[str] = []

    def take(opinion: Any) -> None:
        told.append(opinion)
        (suspects.append if isinstance(opinion, Suspect) else suspects.remove)(opinion.process)

    async def run() -> None:
        now = asyncio.get_running_loop().time()
        process = SimpleNamespace(state=SimpleNamespace(suspects=suspects))
        driver: Any = SimpleNamespace(take=take, clock=lambda: 0, process=process, watched=("b", "c"), congested=False)
        silent: Any = SimpleNamespace(peer="b", absent_since=None)
        absent: Any = SimpleNamespace(peer="c", absent_since=now)
        links: dict[Any, Any] = {"b": silent, "c": absent}
        sessions: dict[Any, Any] = {p: SimpleNamespace(heard_at=now - 0.001, incarnation=1) for p in ("b", "c")}
        task = asyncio.create_task(HeartbeatDetector(driver, links, sessions).run())
        await asyncio.sleep(1.2)
        assert told == [Suspect(0, "c")]
        absent.absent_since = None  # it is back
        while len(told) < 2:
            sessions["b"].heard_at = sessions["c"].heard_at = asyncio.get_running_loop().time()
            await asyncio.sleep(0.01)
        assert told[1:] == [Trust(0, "c")]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_one_journal_is_not_opened_twice(folder: ClusterFolder) -> None:
    async def run() -> None:
        node = open_node(folder)
        try:
            with pytest.raises(JournalError):
                open_node(folder)
        finally:
            node.driver.abandon()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("protocol", "behind", "dead", "waits"),
    [
        ("tom", [], [], False),
        ("tom", ["a.2"], [], False),  # a majority keeps up
        ("tom", ["a.2", "a.3"], [], True),
        ("tom", ["a.2", "a.3"], ["a.2"], True),
        ("tom", ["a.2", "a.3"], ["a.2", "a.3"], False),  # the dead hold nobody back
        ("tom", ["a.2", "b.1"], [], True),  # b.1 is all of its group
        ("skeen", ["a.2"], [], True),  # it needs everybody
        ("skeen", ["a.2"], ["a.2"], False),
    ],
)
def test_clients_wait_only_when_fewer_peers_keep_up_than_the_protocol_needs(
    tmp_path: Path, protocol: str, behind: list[str], dead: list[str], waits: bool
) -> None:
    folder = cluster.create(tmp_path / "cluster", {"a": 3, "b": 1}, protocol=protocol, trace=False)
    folder.process("a.1").path.mkdir()

    async def run() -> None:
        node = open_node(folder)
        for peer in node.driver.process.topology.processes[1:]:
            unacknowledged = (1 << 30) if peer in behind else 0
            link: Any = SimpleNamespace(peer=peer, unacknowledged=unacknowledged, is_live=peer not in dead)
            node.links[peer] = link
        try:
            assert node.company.lags() == waits
        finally:
            node.driver.abandon()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("protocol", "heard", "keeps_up"),
    [
        ("tom", ["a.2", "a.3"], True),
        ("tom", ["a.3"], True),  # a majority goes on together
        ("tom", ["b.1"], False),
        ("skeen", ["a.2", "a.3"], True),
        ("skeen", ["a.2"], False),  # a.3 may have more
        ("fifo", [], True),  # a log of its own, which is nowhere else
    ],
)
def test_readers_are_kept_only_where_the_group_goes_on(
    tmp_path: Path, protocol: str, heard: list[str], keeps_up: bool
) -> None:
    folder = cluster.create(tmp_path / "cluster", {"a": 3, "b": 1}, protocol=protocol, trace=False)
    folder.process("a.1").path.mkdir()

    async def run() -> None:
        node = open_node(folder)
        now = asyncio.get_running_loop().time()
        for peer in node.driver.process.topology.processes[1:]:
            caller: Any = SimpleNamespace(heard_at=now if peer in heard else now - 10)
            node.callers[peer] = caller
        reader = MagicMock()
        node.gateway.subscribers[reader] = reader
        try:
            node.gateway.keep_alive()
            assert reader.tell.called == (protocol == "fifo"), "before it has begun"
            node.driver.begun = True
            node.gateway.keep_alive()
            assert reader.tell.called == keeps_up
        finally:
            node.driver.abandon()

    asyncio.run(run())


def test_a_snapshot_does_not_count_before_the_delivered_log_is_durable(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the journal would let go of what could make the lost records again."""

    async def run() -> list[str]:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast({"a"}, b"x") for _ in range(10)))
        with monkeypatch.context() as lagging:
            lagging.setattr(DeliveredLog, "durable_index", property(lambda log: -1))
            node.driver.snapshots.take()
            await asyncio.sleep(0)  # the snapshot is behind what the loop was just given
            written = asyncio.Event()
            node.driver.jobs.submit(lambda: None, written.set)
            await written.wait()
            found = [path.name for path in folder.process("a.1").journal.glob("snapshot-*")]
        node.stop()
        assert await running == 0
        return found

    assert uvloop.run(run()) == []


@pytest.mark.parametrize(("protocol", "named"), [("tom", ["a.2", "a.3"]), ("skeen", ["a.2", "a.3", "a.4"])])
def test_where_a_majority_is_enough_a_message_does_not_wait_for_who_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, named: list[str]
) -> None:
    folder = cluster.create(tmp_path / "four", {"a": 4}, protocol=protocol, trace=False)
    folder.process("a.1").path.mkdir()

    async def run() -> list[str]:
        node = open_node(folder)
        process = node.driver.process
        others = process.topology.processes[1:]
        monkeypatch.setattr(process.protocol, "waits_for", lambda: others)
        process.state.suspects.append(others[0])
        for peer in others:
            node.links[peer] = MagicMock(ready=peer != "a.3", unacknowledged=0, lost_at=0.0, peer=peer)
        try:
            return node.gateway.status().waits_for
        finally:
            node.driver.abandon()

    assert asyncio.run(run()) == named


def test_who_gives_its_peers_time_to_speak_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no requests before: whoever has started it waits, and `status` names the peer that is silent."""
    folder = cluster.create(tmp_path / "c", {"a": 1, "b": 1}, trace=False)
    folder.process("a.1").path.mkdir()
    monkeypatch.setattr(company, "MEET_SECONDS", math.inf)

    async def run() -> None:
        node = open_node(folder)
        with socket.create_server(folder.config.address("b.1")):  # which takes the call, and says nothing
            running = asyncio.create_task(node.run())
            while not isinstance(answer := await asyncio.to_thread(cluster.ask, folder.config, "a.1"), StatusAnswer):
                await asyncio.sleep(0.01)
            assert (answer.returning, node.driver.begun) == (["b.1"], False)
            monkeypatch.setattr(company, "MEET_SECONDS", 0.0)
            while not node.driver.begun:
                await asyncio.sleep(0.01)
            assert node.gateway.status().returning == []
            node.stop()
            assert await running == 0

    uvloop.run(run())


def test_who_finds_its_address_taken_says_who_it_is(folder: ClusterFolder) -> None:
    async def run(node: ClusterNode) -> None:
        with socket.socket() as squatter:
            squatter.bind(folder.config.address("a.1"))
            squatter.listen()
            with pytest.raises(UsageError) as refused:
                await node.run()
        host, port = folder.config.address("a.1")
        assert str(refused.value) == f"a.1 cannot listen on {host}:{port}: Address already in use."
        node.driver.abandon()

    async def start() -> None:
        await run(open_node(folder))

    uvloop.run(start())


def test_a_crowd_of_clients_does_not_keep_the_commands_out(folder: ClusterFolder) -> None:
    async def run() -> None:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await client.multicast("a", b"x")
            node.port.shares = Shares(strangers=4, clients=1)
            async with antiphon.connect(folder.path) as another:
                with pytest.raises(Unavailable, match="takes no more clients: it has 1 already"):
                    await another.multicast("a", b"x", timeout=1)
            answer = await asyncio.to_thread(cluster.ask, folder.config, "a.1", timeout=60.0)
        assert isinstance(answer, StatusAnswer)
        assert answer.refused["too many clients"] >= 1
        node.stop()
        assert await running == 0

    asyncio.run(run())


def test_a_client_that_asks_and_does_not_read_is_not_heard_and_then_left(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "STUCK_CLIENT_SECONDS", 0.5)
    monkeypatch.setattr(node_module, "KEEP_ALIVE_SECONDS", 0.1)
    question = encode(FrameKind.PROGRESS, ProgressQuestion([["a"]] * PROGRESS_MAX)) * 5

    async def run() -> tuple[int, int]:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        with await call(node, "client") as caller:
            handed, waiting = 0, 0
            (connection,) = node.port.connections
            connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            with suppress(ConnectionError):  # it is left
                while True:
                    handed += await asyncio.wait_for(send_some(caller, question * 200), 60)
                    waiting = max(waiting, connection.transport.get_write_buffer_size())
        assert not node.port.connections
        node.stop()
        assert await running == 0
        return handed, waiting

    handed, waiting = uvloop.run(run())
    assert waiting < 1 << 20
    assert handed > waiting, "much more was asked than is kept"


async def call(node: ClusterNode, role: str) -> socket.socket:
    """A connection to a process of this event loop that has said who it is, and reads nothing from then on."""
    loop, config = asyncio.get_running_loop(), node._config
    async with asyncio.timeout(60):
        while True:
            caller = socket.socket()
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.setblocking(False)
            try:
                await loop.sock_connect(caller, config.address("a.1"))
                break
            except ConnectionError:  # it does not listen yet
                caller.close()
                await asyncio.sleep(0.02)
        hello = Hello(MAGIC, VERSION, config.cluster, role, "x")  # type: ignore[arg-type]
        await loop.sock_sendall(caller, encode(FrameKind.HELLO, hello))
        await loop.sock_recv(caller, 1 << 16)
    return caller


async def send_some(caller: socket.socket, data: bytes) -> int:
    """As much of it as there is room for now, or soon."""
    while True:
        try:
            return caller.send(data)
        except BlockingIOError:
            await asyncio.sleep(0.01)


def test_a_reader_that_does_not_read_is_left_and_gives_back_what_waited_for_it(
    folder: ClusterFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "STUCK_CLIENT_SECONDS", 1.0)
    monkeypatch.setattr(node_module, "KEEP_ALIVE_SECONDS", 0.1)

    async def run() -> None:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            for _ in range(16):  # more than a socket takes
                await client.multicast_many("a", [bytes(1 << 16)] * 16)
        with await call(node, "client") as reader:
            reader.send(encode(FrameKind.SUBSCRIBE, Subscribe("a", 0)))
            async with asyncio.timeout(60):
                while not node.gateway.subscribers:
                    await asyncio.sleep(0.01)
                (connection,) = node.port.connections
                while not connection.transport.get_write_buffer_size():
                    await asyncio.sleep(0.01)
                while node.gateway.subscribers:
                    await asyncio.sleep(0.01)
        assert not node.port.connections
        assert not node.gateway._stalled
        node.stop()
        assert await running == 0

    uvloop.run(run())


def test_however_often_a_command_asks_at_once_one_answer_serves(folder: ClusterFolder) -> None:
    asked = 0

    async def run() -> None:
        nonlocal asked
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        status = node.gateway.status

        def counted() -> StatusAnswer:
            nonlocal asked
            asked += 1
            return status()

        node.gateway.status = counted
        with await call(node, "command") as caller:
            left = encode(FrameKind.STATUS) * 40_000
            while left:
                left = left[await asyncio.wait_for(send_some(caller, left), 60) :]
            await asyncio.sleep(0.2)
        node.stop()
        assert await running == 0

    uvloop.run(run())
    assert 0 < asked < 1000


def test_who_stops_reading_amid_what_came_gets_the_rest_when_it_goes_on() -> None:
    class Reader(FrameStream):
        found: ClassVar[list[int]] = []

        def on_frames(self, frames: list[ReceivedFrame]) -> None:
            self.found.extend(int.from_bytes(body) for _, body in frames)
            self.pause_reading()

    async def run() -> None:
        reader = Reader()
        reader.connection_made(MagicMock(is_closing=lambda: False))
        sent = list(range(2 * FRAMES_AT_ONCE + 10))
        left = b"".join(HEADER.pack(2, FrameKind.DATA) + number.to_bytes(2) for number in sent)
        while left:
            room = reader.get_buffer(-1)
            size = min(len(room), len(left), 5000)
            room[:size] = left[:size]
            left = left[size:]
            reader.buffer_updated(size)
        assert reader.found == sent[: len(reader.found)]
        assert len(reader.found) < FRAMES_AT_ONCE
        for _ in range(5):
            reader.resume_reading()
            await asyncio.sleep(0)
        assert reader.found == sent

    asyncio.run(run())


def test_behind_a_refused_request_a_route_takes_nothing_more() -> None:
    """What the client sent behind it may get other numbers at another member: late bytes must not be believed."""
    process = Process(ProcessId("a.1"), Topology.sized({"a": 1}), protocol_named("skeen"))
    full = [True, False]
    taken: list[Any] = []
    sent: list[bytes] = []

    def take(happened: Any) -> None:
        if full.pop(0):
            raise JournalFull("The disk is full.")
        taken.append(happened)

    driver: Any = SimpleNamespace(process=process, clock=lambda: 1, take=take, congested=False, begun=True)
    driver.when_durable = lambda action: action()
    gateway: Any = SimpleNamespace(driver=driver, draining=False, overloaded=False)
    stream: Any = SimpleNamespace(write=lambda *pieces: sent.extend(pieces), flush=lambda: None, is_writable=True)
    stream.transport = MagicMock()
    caller = ClientCaller(gateway, "c", stream)

    def request(route: int, first: int) -> tuple[int, memoryview]:
        data = encode_request("c", first, 0, [b"x"])
        frame = request_head(route, len(data)) + data
        return FrameKind.REQUEST, memoryview(frame)[HEADER.size :]

    def named(route: int) -> tuple[int, memoryview]:
        return FrameKind.ROUTE, memoryview(encode(FrameKind.ROUTE, RouteNumber(route, ["a"])))[HEADER.size :]

    caller.on_frames([named(0), request(0, 0)])
    caller.on_frames([request(0, 0)])
    assert taken == []
    assert len(sent) == 2, "both are refused"
    caller.on_frames([named(1), request(1, 0)])
    assert len(taken) == 1


def test_a_reader_of_large_records_that_is_slower_than_the_group_gets_them_all(tmp_path: Path) -> None:
    """Its file was opened when the log ended earlier: what came since is read from a new one."""

    async def run() -> list[int]:
        delivered = DeliveredLog(SegmentedLog.open(tmp_path / "log", IDENTITY), lambda job: job())
        payload = bytes(300_000)

        def deliver(count: int) -> None:
            for _ in range(count):
                request = parse_request(encode_request("c", delivered.end, 0, [payload]))
                id = MessageId(ProcessId("a.1"), delivered.end)
                delivered.append(Delivered(id, (GroupId("a"),), delivered.end, 1, (request,), None, 1))
            delivered.flush()
            delivered.trim()

        deliver(40)
        driver: Any = SimpleNamespace(delivered=delivered)
        shelf, reader = Shelf(driver), MagicMock()
        at, ends = 0, []
        while at < 60:
            deliver(4)
            at = shelf.frame(reader, at).end
            ends.append(at)
        delivered.abandon()
        return ends

    assert asyncio.run(run()) == list(range(1, 61))


def test_who_only_connects_is_not_heard_and_who_dies_on_a_full_disk_is_not_heard_for_ever() -> None:
    """Else a process that waits for its peers, or is dead, is trusted, and those who are well wait for it."""
    stream: Any = SimpleNamespace(heard_at=5.0, loop=SimpleNamespace(time=lambda: 9.0, call_later=MagicMock()))
    stream.pause_reading = stream.resume_reading = stream.write = lambda *_: None
    host = SimpleNamespace(received={}, is_new=lambda channel, number: True)
    driver: Any = SimpleNamespace(host=host, begun=True, congested=False, process=MagicMock(), clock=lambda: 1)
    driver.take = MagicMock(side_effect=JournalFull("The disk is full."))
    caller = PeerCaller(driver, ProcessId("a.2"), 1, stream)
    assert caller.heard_at == 0.0
    caller.on_frames([(FrameKind.HEARTBEAT, memoryview(b""))])
    assert caller.heard_at == 5.0
    frame = data_head(Tom.transport, 1, 1) + b"x"
    caller.on_frames([(FrameKind.DATA, memoryview(frame)[HEADER.size :])])
    assert caller.heard_at == 9.0, "it is not read"
    caller.on_closed()
    assert caller.heard_at == 5.0
