"""The parts of a process that need no second one: failing disks, the detector, the deliveries, the trace."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvloop

import antiphon
from antiphon.core import Message, Process, ProcessId, Topology
from antiphon.core.errors import JournalBehind, JournalError, JournalFull
from antiphon.core.inputs import Suspect, Trust
from antiphon.protocols.tom import Tom
from antiphon.runtime import cluster, detector
from antiphon.runtime.channels import Link
from antiphon.runtime.deliveries import Deliveries
from antiphon.runtime.detector import HeartbeatDetector
from antiphon.runtime.folder import ClusterFolder
from antiphon.runtime.frames import DeliveredRecord, decode
from antiphon.runtime.journal import Journal, JournalIdentity
from antiphon.runtime.node import Node

IDENTITY = JournalIdentity("cluster", "a.1", "code")


@pytest.fixture
def folder(tmp_path: Path) -> ClusterFolder:
    made = cluster.create(tmp_path / "cluster", {"a": 1}, trace=False, segment_bytes=1 << 16)
    made.process("a.1").path.mkdir()
    return made


def open_node(folder: ClusterFolder) -> Node:
    return Node(folder, folder.config.known("a.1"))


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
            code = await asyncio.wait_for(running, 10)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            assert len(calls) == 1
            assert node.driver.deliveries.end == 1, "what may not be durable was not released"
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
            code = await asyncio.wait_for(running, 10)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            return code

    assert uvloop.run(run()) == 1
    assert "an invariant is broken" in capsys.readouterr().err


def test_a_delivered_log_that_lacks_what_the_snapshot_delivered_is_refused(folder: ClusterFolder) -> None:
    async def first() -> None:
        node = open_node(folder)
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast({"a"}, b"x") for _ in range(10)))
        node.driver.snapshot()
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


class FullJournal(Journal):
    """A journal whose disk has no room, for a while."""

    is_full = False

    def append(self, record: bytes) -> int:
        if self.is_full:
            raise JournalFull("no room")
        return super().append(record)


def test_deliveries_wait_for_room_and_keep_their_order(tmp_path: Path) -> None:
    async def run() -> None:
        log = FullJournal(tmp_path / "log", IDENTITY, 1 << 16)
        deliveries = Deliveries(log, lambda job: job())
        for number in range(30):
            log.is_full = 10 <= number < 20
            deliveries.append(Message(f"c:{number}@a.1", ("a",), b"x"))  # type: ignore[arg-type]
            assert deliveries.full == (number >= 10)
        assert deliveries.end == 30
        assert log.next_index == 10
        deliveries.flush()
        deliveries.trim()
        assert not deliveries.full
        names = [decode(DeliveredRecord, record).message for record in deliveries.history(0)]
        assert names == [f"c:{number}" for number in range(30)]
        assert deliveries.recent(29) is None
        assert deliveries.recent(30) == []
        deliveries.close()

    asyncio.run(run())


def test_a_silent_peer_is_suspected_and_trusted_again_with_more_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(detector, "TIMEOUT_SECONDS", 0.05)
    told: list[Any] = []
    beats: list[str] = []
    suspects: list[str] = []

    def take(opinion: Any) -> None:
        told.append(opinion)
        (suspects.append if isinstance(opinion, Suspect) else suspects.remove)(opinion.process)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        process = SimpleNamespace(state=SimpleNamespace(suspects=suspects))
        driver: Any = SimpleNamespace(take=take, clock=lambda: 0, process=process, watched=("b", "c"))
        links: list[Any] = [
            SimpleNamespace(peer=p, heartbeat=lambda p=p: beats.append(p), absent_since=None) for p in ("b", "c", "d")
        ]
        sessions: dict[Any, Any] = {p: SimpleNamespace(heard_at=loop.time()) for p in ("b", "c", "d")}
        watching = HeartbeatDetector(driver, links, sessions)
        task = asyncio.create_task(watching.run())
        for _ in range(20):
            await asyncio.sleep(0.01)
            sessions["b"].heard_at = loop.time()
        assert told == [Suspect(0, "c")], "d is silent too, but nobody asks about it"
        sessions["c"].heard_at = loop.time()
        await asyncio.sleep(0.03)
        assert told[1] == Trust(0, "c")
        assert watching._timeouts["c"] > watching._timeouts["b"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert set(beats) == {"b", "c", "d"}


def test_nothing_is_written_to_a_connection_that_broke_a_moment_ago() -> None:
    """The heartbeat may come before the link's own task has noticed. It once ended the process."""

    async def run() -> None:
        process = Process(ProcessId("a.1"), Topology.sized({"a": 2}), Tom, {})
        driver: Any = SimpleNamespace(process=process, received={})
        link = Link(driver, ("cluster", 1), ProcessId("a.2"), ("127.0.0.1", 1))
        link._closed = asyncio.get_running_loop().create_future()
        transport: Any = MagicMock()
        link.connection_made(transport)
        link.ready = True
        transport.write.reset_mock()
        link.connection_lost(None)
        link.heartbeat()
        link.pump()
        transport.write.assert_not_called()
        assert await link._closed, "it was past the handshake"
        assert not link.ready

    asyncio.run(run())


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
        driver: Any = SimpleNamespace(take=take, clock=lambda: 0, process=process, watched=("b", "c"))
        silent: Any = SimpleNamespace(peer="b", heartbeat=lambda: None, absent_since=None)
        absent: Any = SimpleNamespace(peer="c", heartbeat=lambda: None, absent_since=now)
        sessions: dict[Any, Any] = {p: SimpleNamespace(heard_at=now - 0.001) for p in ("b", "c")}
        task = asyncio.create_task(HeartbeatDetector(driver, [silent, absent], sessions).run())
        await asyncio.sleep(1.2)
        assert told == [Suspect(0, "c")]
        absent.absent_since = None  # it is back
        sessions["c"].heard_at = now + 1.2
        await asyncio.sleep(0.05)
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
