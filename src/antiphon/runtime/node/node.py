"""The wiring of one real process: driver, port, links to its peers, gateway to its clients."""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from antiphon.core import Detector, Failures, Gather, Process, ProcessId, Topology
from antiphon.core.channel import ChannelId
from antiphon.core.effects import Send
from antiphon.core.errors import AntiphonError, JournalBehind, JournalError, JournalFull
from antiphon.core.requests import CLIENT_NAME
from antiphon.core.version import __version__
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster.folder import ClusterFolder
from antiphon.runtime.disk import JournalIdentity, SegmentedLog, Spills
from antiphon.runtime.net import Caller, FrameStream, Port, Rejection
from antiphon.runtime.net.frames import Directory, FrameKind, Hello, StatusAnswer, Welcome, encode
from antiphon.runtime.node.detector import HEARTBEAT_SECONDS, HeartbeatDetector
from antiphon.runtime.node.driver import EXIT_BUG, EXIT_DISK, EXIT_REFUSED, Driver
from antiphon.runtime.node.gateway import Gateway
from antiphon.runtime.node.links import PeerLink
from antiphon.runtime.node.peers import PeerCaller, check_marks, marks

EXIT_USAGE = 2
KEEP_ALIVE_SECONDS = 1.0
STOP_SECONDS = 5.0
STOP_AFTER_DRAIN_SECONDS = 0.3
LAG_BYTES_MAX = 32 << 20  # a peer that lacks more than this does not keep up
CODE = f"antiphon {__version__}"  # only this code may replay what it journaled


class Node:
    """One process of a cluster."""

    def __init__(self, cluster: ClusterFolder, me: ProcessId) -> None:
        self._config = cluster.config
        self._folder = cluster.process(me)
        self.me = me
        self.incarnation = self._folder.next_incarnation()
        self.driver = self._open_driver(cluster)
        self.gateway = Gateway(self.driver, self._peers_lag)
        self.gateway.status = self.status
        self.port = Port(self._config.cluster, self._greet)
        self.links: dict[ProcessId, PeerLink] = {}
        self.callers: dict[ProcessId, PeerCaller] = {}
        self._incarnations: dict[ProcessId, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._exit: asyncio.Future[int]
        self._stopping = False

    def _open_driver(self, cluster: ClusterFolder) -> Driver:
        config, folder = self._config, self._folder
        topology = Topology(config.groups)
        gather = Gather(requests=config.gather)
        process = Process(self.me, topology, protocol_named(config.protocol), config.options, gather)
        recorder = None
        if config.trace:
            from antiphon.runtime.node.recorder import Recorder  # pyarrow is slow to load

            recorder = Recorder(cluster.trace, config.run, process)
        journal = None
        if config.journal:
            identity = JournalIdentity(config.cluster, self.me, CODE)
            recycled_max = config.snapshot_bytes // config.segment_bytes
            journal = SegmentedLog.open(
                folder.journal, identity, segment_bytes=config.segment_bytes, recycled_max=recycled_max, direct=True
            )
        plain = JournalIdentity(config.cluster, self.me, "")  # these logs mean the same to every version of the code
        try:
            delivered = SegmentedLog.open(folder.delivered, plain, segment_bytes=config.segment_bytes, direct=True)
        except BaseException:
            if journal is not None:
                journal.abandon()
            raise
        if journal is not None:
            delivered.shares_room_with(journal)
        driver = Driver(process, journal, delivered, recorder, config.snapshot_bytes)
        driver.spills = Spills(folder.spill, plain, config.spill_bytes, driver.submit)
        driver.send = self._send
        driver.on_durable = self._on_durable
        driver.on_congested = self._set_reading
        driver.on_failure = self._on_failure
        return driver

    # The life of the process ------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until a signal or a failure ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        self._exit = loop.create_future()
        gc.disable()  # nothing that a replay makes is garbage in a cycle
        try:
            self.driver.recover()
        finally:
            gc.enable()
        self._begin()
        host, port = self._config.listens_on(self.me)
        server = await self.port.listen((host, port))
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self.stop)
        self._start_tasks()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        print(f"{self.me} listens on {host}:{port} (incarnation {self.incarnation}).", flush=True)
        try:
            return await self._exit
        finally:
            server.close()
            await self._end_tasks()
            for link in self.links.values():
                link.close()
            self.port.close()
            with suppress(Exception):  # the exit code stands, whatever else fails on the way
                self.driver.abandon()
            await asyncio.sleep(0)

    def _begin(self) -> None:
        driver = self.driver
        identity = (self._config.cluster, self.incarnation)
        for peer in driver.process.topology.processes:
            if peer != self.me:
                self.links[peer] = PeerLink(driver, identity, peer, self._config.address(peer))
        driver.logged = self.gateway.logged
        driver.reply = self.gateway.reply
        driver.begin()

    def _start_tasks(self) -> None:
        self._tasks = [asyncio.create_task(link.run()) for link in self.links.values()]
        if self.driver.process.protocol.declaration.assumes.detector is not Detector.NONE:
            detector = HeartbeatDetector(self.driver, self.links.values(), self.callers)
            self._tasks.append(asyncio.create_task(detector.run()))
            self.driver.on_watch = lambda: self._look_soon(detector)
        else:
            self._tasks.append(asyncio.create_task(self._beat()))
        self._tasks.append(asyncio.create_task(self._keep_alive()))
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self) -> None:
        """Nobody asks for failures here, but a connection that is open and silent is broken all the same."""
        while True:
            for link in self.links.values():
                link.heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            self.gateway.keep_alive()
            for caller in self.callers.values():
                caller.drop_if_silent()

    def _look_soon(self, detector: HeartbeatDetector) -> None:
        asyncio.get_running_loop().call_soon(detector.look)  # not amid the effects of an input

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """These tasks run as long as the process does: one that ends has failed."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.driver.fail(EXIT_BUG, f"A part of {self.me} failed: {error!r}.")

    def stop(self) -> None:
        """End cleanly, after what is under way; but do not wait forever for others."""
        if not self._stopping:
            self._stopping = True
            # Whoever told us to drain before has waited already.
            seconds = STOP_AFTER_DRAIN_SECONDS if self.gateway.draining else STOP_SECONDS
            self.gateway.drain(math.inf)
            self._tasks.append(asyncio.create_task(self._drain_and_close(seconds)))

    async def _drain_and_close(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._is_idle() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        if self.driver.stopped:
            return
        try:
            self.driver.close()
        except JournalError as error:
            self._on_failure(EXIT_DISK, str(error))
            return
        except Exception as error:
            self._on_failure(EXIT_BUG, f"The end failed: {error!r}.")
            return
        self._folder.mark_clean(self.incarnation)
        self._end(0)

    def _is_idle(self) -> bool:
        driver = self.driver
        waits = any(link.ready and link.unacknowledged for link in self.links.values())
        return not (driver.host.held or driver.process.protocol.pending() or waits)

    def _on_failure(self, code: int, sentence: str) -> None:
        self._end(code)
        print(f"{self.me} stops: {sentence}", file=sys.stderr, flush=True)

    def _end(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)

    # Effects ----------------------------------------------------------------------------------------------------

    def _send(self, peer: ProcessId, number: int, send: Send) -> None:
        self.links[peer].send(send.transport, number, send.frame)

    def _on_durable(self, channels: Iterable[ChannelId]) -> None:
        for peer in {channel.peer: None for channel in channels}:
            caller = self.callers.get(peer)
            if caller is not None:
                caller.acknowledge()
        for link in self.links.values():
            link.flush()  # peers first: others wait for them
            link.relieve()
        self.gateway.flush()

    def _set_reading(self) -> None:
        for caller in self.callers.values():
            caller.set_reading()
        self.gateway.set_reading()

    def _peers_lag(self) -> bool:
        """Whether clients must wait: fewer peers keep up than the protocol needs, and it is not that they are dead."""
        behind = {link.peer for link in self.links.values() if link.unacknowledged > LAG_BYTES_MAX}
        if not behind:
            return False
        dead = {link.peer for link in self.links.values() if not link.is_live}
        if self.driver.process.protocol.declaration.assumes.failures is Failures.CRASH_RECOVERY:
            return bool(behind - dead)
        for members in self.driver.process.topology.groups.values():
            keep_up = [p for p in members if p not in behind and p not in dead]
            if 2 * len(keep_up) <= len(members) and any(p in behind and p not in dead for p in members):
                return True
        return False

    # Callers ----------------------------------------------------------------------------------------------------

    def _greet(self, hello: Hello, stream: FrameStream) -> Caller:
        if hello.role == "client":
            return self._greet_client(hello, stream)
        peer = ProcessId(hello.name)
        if peer not in self.links or hello.to != self.me:
            raise Rejection("unknown process", f"{self.me} has no channel with {hello.name!r} to {hello.to!r}.")
        if hello.incarnation < self._incarnations.get(peer, 0):
            raise Rejection(
                "old incarnation",
                f"A newer {peer} than incarnation {hello.incarnation} runs: this one is an old copy and must not.",
            )
        try:
            check_marks(self.driver, peer, hello.channels)
        except JournalBehind as error:
            self.driver.fail(EXIT_REFUSED, str(error))
            raise Rejection("behind", str(error)) from None
        self._incarnations[peer] = hello.incarnation
        former = self.callers.get(peer)
        if former is not None:
            former.close()
        welcome = Welcome(self.me, self.incarnation, marks(self.driver, peer))
        stream.write(encode(FrameKind.WELCOME, welcome))
        self.links[peer].wake()
        caller = self.callers[peer] = PeerCaller(self.driver, peer, hello.incarnation, stream)
        if self.driver.congested:
            caller.set_reading()
        return caller

    def _greet_client(self, hello: Hello, stream: FrameStream) -> Caller:
        if not CLIENT_NAME.fullmatch(hello.name):
            raise Rejection("bad client name", "A client's name is 1 to 64 letters, digits, '.', '_' or '-'.")
        if hello.name in self._config.addresses:
            raise Rejection("bad client name", f"{hello.name!r} is a process of this cluster, not a client.")
        config = self._config
        directory = Directory(config.cluster, self.me, config.groups, config.addresses)
        stream.write(encode(FrameKind.WELCOME, directory))
        return self.gateway.open(hello.name, stream, is_trusted=bool(hello.cluster))

    def status(self) -> StatusAnswer:
        driver = self.driver
        journal, protocol = driver.journal, driver.process.protocol
        return StatusAnswer(
            process=self.me,
            incarnation=self.incarnation,
            delivered=driver.delivered.end,
            pending=protocol.pending() + driver.host.held,
            waits_for=list(protocol.waits_for()),
            unacknowledged=sum(link.unacknowledged for link in self.links.values()),
            journal_bytes=journal.bytes_on_disk if journal is not None else 0,
            written_bytes=driver.written_bytes,
            last_sync_ms=round(journal.last_sync_seconds * 1e3, 3) if journal is not None else 0.0,
            connected=[link.peer for link in self.links.values() if link.ready],
            lost={link.peer: link.lost_at for link in self.links.values() if not link.ready},
            refused=dict(self.port.refused),
            full=driver.is_full,
            draining=self.gateway.draining,
            counters=protocol.counters(),
        )


def serve(folder: Path, name: str) -> int:
    """Run one process of a cluster in the foreground; returns its exit code."""
    return _run(folder, name, _serve)


def salvage_trace(folder: Path, name: str) -> int:
    """Write what a killed process saw and did but did not get to write: its journal has all of it."""
    return _run(folder, name, _salvage)


def _run(folder: Path, name: str, work: Callable[[ClusterFolder, ProcessId], Coroutine[Any, Any, int]]) -> int:
    import uvloop

    try:
        cluster = ClusterFolder.load(folder)
        me = cluster.config.known(name)
        with cluster.process(me).lock(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work(cluster, me))
    except JournalError as error:
        print(f"{name} stops: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except AntiphonError as error:
        print(f"{name} stops: {error}", file=sys.stderr)
        return EXIT_USAGE


async def _serve(cluster: ClusterFolder, me: ProcessId) -> int:
    return await Node(cluster, me).run()


async def _salvage(cluster: ClusterFolder, me: ProcessId) -> int:
    driver = Node(cluster, me).driver
    try:
        driver.recover()
        if driver.recorder is not None and not driver.recorder.write(driver.recorder.take()):
            raise JournalFull("There is no room for the trace.")
    finally:
        driver.abandon()
    return 0
