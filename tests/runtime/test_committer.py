"""A slow disk: what waits is made durable together, and the process goes on reading, beating and answering."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import antiphon
from antiphon.core import MessageId, Process, ProcessId, Topology, Transport
from antiphon.core.buffers import Buffers
from antiphon.core.errors import JournalError
from antiphon.core.inputs import Fire, Multicast, Receive
from antiphon.protocols.skeen import Propose, Skeen
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, ask
from antiphon.runtime.disk import Committer, JournalIdentity, SegmentedLog, Spills
from antiphon.runtime.disk import committer as committer_module
from antiphon.runtime.disk.committer import LATER_SECONDS, QUICK_IN_A_ROW
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.observer import TurnObserver
from antiphon.services.timestamp import Timestamp
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows
from waiting import IN_TIME_SECONDS

MakeCluster = Callable[..., ClusterFolder]
IDENTITY = JournalIdentity("cluster", "a.1", "code")
SLOW = 0.2  # seconds


class Disk:
    """``os.fdatasync``, as slow as one likes; a quick one stays quick when others have the processor for a moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        self.calls = 0
        self.error: OSError | None = None
        self.answers = threading.Event()  # it does not, while this is not set
        self.answers.set()
        monkeypatch.setattr(os, "fdatasync", self.sync)
        monkeypatch.setattr(committer_module, "SLOW_SECONDS", SLOW / 2)
        monkeypatch.setattr(committer_module, "QUICK_SECONDS", SLOW / 2)

    def sync(self, fd: int) -> None:
        self.calls += 1
        self.answers.wait(IN_TIME_SECONDS)
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_slow_sync_does_not_stop_the_loop_and_a_quick_disk_needs_no_thread(tmp_path: Path, disk: Disk) -> None:
    async def run() -> None:
        log = SegmentedLog.open(tmp_path / "log", IDENTITY)
        durable: list[int] = []
        committer = Committer(log, durable.append, lambda error: pytest.fail(str(error)))

        def commit(record: bytes) -> None:
            log.append(Buffers(record))
            committer.commit()

        commit(b"quick")
        assert (durable, committer.is_inline) == ([1], True)
        disk.seconds = SLOW
        commit(b"slow")
        assert (durable, committer.is_inline) == ([1, 2], False), "nobody could know before"
        disk.calls = 0
        disk.answers.clear()
        for _ in range(100):
            commit(b"waits")
        await asyncio.sleep(0.05)
        assert durable == [1, 2]
        disk.answers.set()
        while durable[-1] < 102:
            await asyncio.sleep(0.001)
        assert disk.calls == 2, "one sync for the first, and one for all that came meanwhile"
        assert durable == [1, 2, 3, 102]
        disk.seconds, disk.calls = 0.0, 0
        while not committer.is_inline:
            commit(b"quick again")
            await asyncio.sleep(0.001)
        assert disk.calls >= QUICK_IN_A_ROW
        commit(b"at once")
        assert durable[-1] == log.next_index
        committer.close()
        log.close()

    asyncio.run(run())


def test_a_failed_sync_is_final_on_the_thread_too(tmp_path: Path, disk: Disk) -> None:
    async def run() -> None:
        log = SegmentedLog.open(tmp_path / "log", IDENTITY)
        durable: list[int] = []
        failures: list[BaseException] = []
        committer = Committer(log, durable.append, failures.append)
        disk.seconds = SLOW
        log.append(Buffers(b"slow"))
        committer.commit()
        disk.error = OSError(5, "Input/output error")
        log.append(Buffers(b"lost"))
        committer.commit()
        log.append(Buffers(b"waits"))
        committer.commit()
        while not failures:
            await asyncio.sleep(0.001)
        disk.error = None
        with pytest.raises(JournalError):
            log.append(Buffers(b"never"))
        committer.commit()
        committer.finish()
        assert (durable, len(failures)) == ([1], 1)
        committer.close()
        log.abandon()

    asyncio.run(run())


def test_what_nobody_waits_for_has_time(tmp_path: Path, disk: Disk) -> None:
    async def run() -> None:
        log = SegmentedLog.open(tmp_path / "log", IDENTITY)
        durable: list[int] = []
        committer = Committer(log, durable.append, lambda error: pytest.fail(str(error)))
        for _ in range(3):
            log.append(Buffers(b"has time"))
            committer.commit_later()
        assert durable == []
        log.append(Buffers(b"has none"))
        committer.commit()
        assert durable == [4], "it takes the others along"
        await asyncio.sleep(2 * LATER_SECONDS)
        log.append(Buffers(b"alone"))
        committer.commit_later()
        assert durable == [4]
        while durable != [4, 5]:
            await asyncio.sleep(0.001)
        committer.commit_later()
        committer.close()
        log.close()

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0.0, SLOW], ids=["on the loop", "on the thread"])
def test_what_was_appended_before_a_failure_stays_off_the_disk(tmp_path: Path, disk: Disk, seconds: float) -> None:
    """A process that failed on an input must not find it in its journal."""

    async def run() -> None:
        log = SegmentedLog.open(tmp_path / "log", IDENTITY)
        committer = Committer(log, lambda index: None, lambda error: pytest.fail(str(error)))
        disk.seconds = seconds
        for _ in range(2):  # the second one on the thread, if the first was slow
            log.append(Buffers(b"good"))
            committer.commit()
        log.append(Buffers(b"the process fails on this"))
        committer.commit_later()
        committer.stop()
        while log.durable_index < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(2 * seconds + 2 * LATER_SECONDS)
        committer.close()
        assert log.durable_index == 2
        log.abandon()

    asyncio.run(run())


def test_an_input_that_led_to_nothing_is_synced_with_the_next_that_does_or_when_somebody_asks(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proposal that is not the last one: a sync for it would only delay what the last one leads to."""
    monkeypatch.setattr(committer_module, "LATER_SECONDS", 60.0)

    async def run() -> None:
        process = Process(ProcessId("a.1"), Topology.sized({"a": 3}), Skeen)
        journal = SegmentedLog.open(tmp_path / "journal", IDENTITY, lends=True)
        delivered = SegmentedLog.open(tmp_path / "delivered", IDENTITY)
        driver = Driver(process, journal, delivered, TurnObserver(), 1 << 20)
        sent: list[str] = []
        driver.on_send = lambda send, _: sent.extend(f"{p} {n}" for p, n in zip(send.to, send.numbers, strict=True))
        driver.on_durable = lambda channels: None
        driver.on_failure = lambda code, sentence: pytest.fail(sentence)
        driver.spills = Spills(tmp_path / "spills", IDENTITY, 1 << 20, driver.jobs.submit, driver.spilling)
        driver.recover()
        driver.begin(process.topology.roster)
        driver.take(Multicast(1, process.topology.destinations("a"), (b"x",)))
        await asyncio.sleep(0.05)
        syncs = disk.calls
        assert sent == ["a.2 1", "a.3 1"]
        for peer in map(ProcessId, ("a.2", "a.3")):
            propose = Propose(MessageId(process.me, 1), Timestamp(1, peer))
            frame = process.encode(process.protocol, propose)
            driver.take(Receive(1, peer, Transport.RELIABLE, 1, frame))
            await asyncio.sleep(0)
            assert (disk.calls - syncs, len(sent)) == ((0, 2) if peer == "a.2" else (1, 4))
        driver.take(Fire(1, 0, b"", 1))
        await asyncio.sleep(0)
        asked: list[int] = []
        driver.when_durable(lambda: asked.append(journal.durable_index))
        assert (disk.calls - syncs, asked) == (1, [])
        await asyncio.sleep(0)
        assert (disk.calls - syncs, asked) == (2, [journal.next_index])
        driver.close()

    asyncio.run(run())


SLOW_DISK = """
import os, time
def slowed(sync):
    def slow(fd):
        time.sleep(0.2)
        sync(fd)
    return slow
os.fsync, os.fdatasync = slowed(os.fsync), slowed(os.fdatasync)
"""


def test_with_every_sync_slowed_reading_heartbeats_and_status_go_on(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 ms for every sync at every process: much is under way, and nobody is suspected."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_DISK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"), prepend=os.pathsep)
    folder = make_cluster({"a": 3}, protocol="tom", trace=True, snapshot_bytes=20_000)
    answers: list[float] = []

    async def ask_again_and_again() -> None:
        while True:
            for process in folder.config.processes:
                begun = time.perf_counter()
                status = await asyncio.to_thread(ask, folder.config, process)
                assert status is not None
                answers.append(time.perf_counter() - begun)
            await asyncio.sleep(0.01)

    def has_snapshot(process: ProcessId) -> bool:
        return any(folder.process(process).journal.glob("snapshot-*.snap"))

    async def send() -> list[str]:
        """As much as it takes until everybody has taken a snapshot while it was busy."""
        asking = asyncio.create_task(ask_again_and_again())
        async with antiphon.connect(folder.path) as client:
            receipts = []
            while len(receipts) < 1200 or not all(has_snapshot(process) for process in folder.config.processes):
                sent = [client.multicast({"a"}, b"%100d" % number) for number in range(200)]
                receipts += await asyncio.gather(*sent)
            asking.cancel()
            names = []
            async with asyncio.timeout(60):
                async for delivery in client.subscribe("a"):
                    names.append(delivery.name)
                    if len(names) == len(receipts):
                        break
        assert names == [receipt.name for receipt in receipts]
        return names

    begun = time.monotonic()
    assert len(asyncio.run(asyncio.wait_for(send(), 300))) >= 1200, "also a busy process takes snapshots"
    assert time.monotonic() - begun > 1.2, "the disk was slow"
    assert len(answers) > 20
    assert sorted(answers)[len(answers) // 2] < 0.1, "status does not wait for the disk"
    assert cluster.stop(folder, drain_seconds=60)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert not [row for row in rows if row.kind == "suspect"]
