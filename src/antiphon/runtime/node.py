"""One real process: ``python -m antiphon.runtime.node --dir CLUSTER --process orders.1``.

Exit codes: 0 after a clean stop, 1 for a bug, 2 for bad usage, 3 when it must not run on what its disk holds,
4 when the disk failed it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from antiphon import __version__
from antiphon.core import Detector, Process, ProcessId, Topology
from antiphon.core.effects import Reply, Send
from antiphon.core.errors import AntiphonError, JournalBehind, JournalError, JournalFull, UsageError
from antiphon.core.process import CLIENT_NAME
from antiphon.protocols import protocol_named
from antiphon.runtime.channels import Link, PeerSession, judge
from antiphon.runtime.detector import HeartbeatDetector
from antiphon.runtime.driver import EXIT_REFUSED, Driver
from antiphon.runtime.folder import ClusterFolder
from antiphon.runtime.frames import Directory, Hello, Kind, StatusAnswer, Welcome, encode
from antiphon.runtime.gateway import Gateway
from antiphon.runtime.journal import Journal, JournalIdentity
from antiphon.runtime.server import Port, Rejection, Session
from antiphon.runtime.spill import Spills

EXIT_USAGE = 2
KEEP_ALIVE_SECONDS = 1.0
STOP_SECONDS = 5.0
STOP_AFTER_DRAIN_SECONDS = 0.3
BACKLOG_BYTES_MAX = 32 << 20  # unacknowledged frames for live peers: above this, clients wait
CODE = f"antiphon {__version__}"  # only this code may replay what it journaled


class Node:
    """The wiring of one process: driver, port, links and gateway."""

    def __init__(self, cluster: ClusterFolder, me: ProcessId) -> None:
        self._config = cluster.config
        self._folder = cluster.process(me)
        self.me = me
        self.incarnation = self._folder.next_incarnation()
        self.driver = self._open_driver(cluster)
        self.gateway = Gateway(self.driver, self._backlog_bytes, BACKLOG_BYTES_MAX)
        self.gateway.status = self.status
        self.port = Port(self._config.cluster, self._greet)
        self.links: dict[str, Link] = {}
        self.sessions: dict[ProcessId, PeerSession] = {}
        self._incarnations: dict[ProcessId, int] = {}
        self._unsent: dict[Link, None] = {}  # links with frames released in this turn
        self._tasks: list[asyncio.Task[None]] = []
        self._exit: asyncio.Future[int]
        self._stopping = False

    def _open_driver(self, cluster: ClusterFolder) -> Driver:
        config, folder = self._config, self._folder
        topology = Topology(config.groups)
        process = Process(self.me, topology, protocol_named(config.protocol), config.options)
        identity = JournalIdentity(config.cluster, self.me, CODE)
        recorder = None
        if config.trace:
            from antiphon.runtime.recorder import Recorder  # pyarrow is slow to load

            recorder = Recorder(cluster.trace, config.run, self.me)
        journal = None
        if config.journal:
            journal = Journal.open(folder.journal, identity, segment_bytes=config.segment_bytes)
        plain = JournalIdentity(config.cluster, self.me, "")  # these logs mean the same to every version of the code
        delivered = Journal.open(folder.delivered, plain, segment_bytes=config.segment_bytes)
        spills = Spills(folder.spill, plain, config.spill_bytes)
        driver = Driver(process, journal, delivered, recorder, spills, config.snapshot_bytes)
        driver.on_send = self._on_send
        driver.on_reply = self._on_reply
        driver.on_durable = self._on_durable
        driver.on_failure = self._on_failure
        return driver

    # The life of the process ------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until a signal or a failure ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        self._exit = loop.create_future()
        self.driver.recover()
        self._make_links()
        self.driver.begin()
        server = await self._listen()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self.stop)
        self._start_tasks()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        print(f"{self.me} listens on {self._config.addresses[self.me]} (incarnation {self.incarnation}).", flush=True)
        try:
            return await self._exit
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for link in self.links.values():
                link.close()
            self.port.close()
            self.driver.abandon()
            await asyncio.sleep(0)

    async def _listen(self) -> asyncio.Server:
        host, port = self._config.address(self.me)
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(self.port.connection, host, port, backlog=512)
        except OSError as error:
            raise UsageError(f"{self.me} cannot listen on {host}:{port}: {error.strerror or error}.") from None

    def _make_links(self) -> None:
        identity = (self._config.cluster, self.incarnation)
        for peer in self.driver.process.topology.processes:
            if peer != self.me:
                self.links[peer] = Link(self.driver, identity, peer, self._config.address(peer))

    def _start_tasks(self) -> None:
        self._tasks = [asyncio.create_task(link.run()) for link in self.links.values()]
        if self.driver.process.protocol.declaration.assumes.detector is not Detector.NONE:
            detector = HeartbeatDetector(self.driver, self.links.values(), self.sessions)
            self._tasks.append(asyncio.create_task(detector.run()))
            self.driver.on_watch = lambda: self._look_soon(detector)
        self._tasks.append(asyncio.create_task(self._keep_alive()))
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            self.gateway.keep_alive()

    def _look_soon(self, detector: HeartbeatDetector) -> None:
        asyncio.get_running_loop().call_soon(detector.look)  # not amid the effects of an input

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """These tasks run as long as the process does: one that ends has failed."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.driver.fail(1, f"A part of {self.me} failed: {error!r}.")

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
        try:
            self.driver.close()
        except JournalError as error:
            self._on_failure(4, str(error))
            return
        self._folder.mark_clean(self.incarnation)
        self._end(0)

    def _is_idle(self) -> bool:
        driver = self.driver
        waits = any(link.ready and link.unacknowledged for link in self.links.values())
        return not (driver.held or driver.process.protocol.pending() or waits)

    def _on_failure(self, code: int, sentence: str) -> None:
        print(f"{self.me} stops: {sentence}", file=sys.stderr, flush=True)
        self._end(code)

    def _end(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)

    # Effects ----------------------------------------------------------------------------------------------------

    def _on_send(self, effect: Send) -> None:
        link = self.links[effect.to]
        link.release(effect.number, effect.frame)
        self._unsent[link] = None

    def _on_reply(self, effect: Reply) -> None:
        self.gateway.reply(effect.client, effect.number)

    def _on_durable(self, peers: Iterable[ProcessId]) -> None:
        for link in self._unsent:
            link.pump()
        self._unsent.clear()
        for peer in peers:
            session = self.sessions.get(peer)
            if session is not None:
                session.acknowledge()
        self.gateway.flush()

    def _backlog_bytes(self) -> int:
        return max((link.backlog_bytes for link in self.links.values()), default=0)

    # Callers ----------------------------------------------------------------------------------------------------

    def _greet(self, hello: Hello, transport: Any) -> Session:
        if hello.role == "client":
            return self._greet_client(hello, transport)
        peer = ProcessId(hello.name)
        if peer not in self.links or hello.to != self.me:
            raise Rejection("unknown process", f"{self.me} has no channel with {hello.name!r} to {hello.to!r}.")
        if hello.incarnation < self._incarnations.get(peer, 0):
            raise Rejection(
                "old incarnation",
                f"A newer {peer} than incarnation {hello.incarnation} runs: this one is an old copy and must not.",
            )
        try:
            judge(self.me, peer, self.driver, hello)
        except JournalBehind as error:
            self.driver.fail(EXIT_REFUSED, str(error))
            raise Rejection("behind", str(error)) from None
        self._incarnations[peer] = hello.incarnation
        former = self.sessions.get(peer)
        if former is not None:
            former.close()
        outbox = self.driver.process.channels.outbox(peer)
        held = self.driver.received.get(peer, 0)
        welcome = Welcome(self.me, self.incarnation, outbox.sent, outbox.acknowledged, held)
        transport.write(encode(Kind.WELCOME, welcome))
        transport.set_write_buffer_limits(high=1 << 20)
        self.links[peer].wake()
        session = self.sessions[peer] = PeerSession(self.driver, peer, hello.incarnation, transport)
        return session

    def _greet_client(self, hello: Hello, transport: Any) -> Session:
        if not CLIENT_NAME.fullmatch(hello.name):
            raise Rejection("bad client name", "A client's name is 1 to 64 letters, digits, '_' or '-'.")
        config = self._config
        directory = Directory(config.cluster, self.me, config.groups, config.addresses)
        transport.write(encode(Kind.WELCOME, directory))
        transport.set_write_buffer_limits(high=1 << 20)
        return self.gateway.open(hello.name, transport, is_trusted=bool(hello.cluster))

    def status(self) -> StatusAnswer:
        driver = self.driver
        journal = driver.journal
        return StatusAnswer(
            process=self.me,
            incarnation=self.incarnation,
            delivered=driver.deliveries.end,
            pending=driver.process.protocol.pending() + driver.held,
            unacknowledged=sum(link.unacknowledged for link in self.links.values()),
            journal_bytes=journal.bytes_on_disk if journal is not None else 0,
            last_sync_ms=round(journal.last_sync_seconds * 1e3, 3) if journal is not None else 0.0,
            connected=[link.peer for link in self.links.values() if link.ready],
            lost={link.peer: link.lost_at for link in self.links.values() if not link.ready},
            refused=dict(self.port.refused),
            full=driver.is_full,
            draining=self.gateway.draining,
            counters=driver.process.protocol.counters(),
        )


def salvage_trace(cluster: ClusterFolder, me: ProcessId) -> None:
    """Write what a killed process saw and did but did not get to write: its journal has all of it.

    Raises JournalError where the journal cannot be trusted.
    """

    async def replay() -> None:
        driver = Node(cluster, me).driver
        try:
            driver.recover()
            if driver.recorder is not None and not driver.recorder.write(driver.recorder.take()):
                raise JournalFull("There is no room for the trace.")
        finally:
            driver.abandon()

    with cluster.process(me).lock():
        asyncio.run(replay())


def serve(folder: Path, name: str) -> int:
    """Run one process of a cluster in the foreground."""
    import uvloop

    try:
        cluster = ClusterFolder.load(folder)
        me = cluster.config.known(name)
        with cluster.process(me).lock(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(cluster, me))
    except JournalError as error:
        print(f"{name} stops: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except AntiphonError as error:
        print(f"{name} stops: {error}", file=sys.stderr)
        return EXIT_USAGE


async def _serve(cluster: ClusterFolder, me: ProcessId) -> int:
    return await Node(cluster, me).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="antiphon.runtime.node", description="Run one process of a cluster.")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--process", required=True)
    arguments = parser.parse_args()
    return serve(arguments.dir, arguments.process)


if __name__ == "__main__":
    sys.exit(main())
