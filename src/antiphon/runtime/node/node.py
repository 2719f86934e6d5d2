"""The wiring of one real process: driver, port, links to its peers, gateway to its clients."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import sys
import threading
import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, TextIO

import msgspec

from antiphon.core import Detector, Failures, Gather, Process, ProcessId
from antiphon.core.channel import ChannelId, Transport
from antiphon.core.effects import Send
from antiphon.core.errors import JournalError, JournalFull, UsageError
from antiphon.core.version import __version__
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.cluster.spares import advice
from antiphon.runtime.disk import JournalIdentity, SegmentedLog, Spills
from antiphon.runtime.net import Port, reason
from antiphon.runtime.net.frames import Replaced, StatusAnswer
from antiphon.runtime.node.company import awaited, too_few_keep_up
from antiphon.runtime.node.datagrams import Datagrams
from antiphon.runtime.node.detector import HEARTBEAT_SECONDS, HeartbeatDetector
from antiphon.runtime.node.driver import EXIT_BUG, EXIT_DISK, EXIT_REFUSED, Driver
from antiphon.runtime.node.gateway import Gateway
from antiphon.runtime.node.links import PeerLink
from antiphon.runtime.node.neighbours import Neighbours
from antiphon.runtime.node.observer import TurnObserver
from antiphon.runtime.node.peers import PEER_SILENCE_SECONDS
from antiphon.runtime.node.reception import Reception

KEEP_ALIVE_SECONDS = 1.0
STOP_SECONDS = 5.0
STOP_AFTER_DRAIN_SECONDS = 0.3
CLOSE_SECONDS = 10.0  # for all that an orderly end writes; then the process ends without it ...
FOLDER_LOOK_SECONDS = 1.0  # between two looks into the folder, however many strangers call
MEET_SECONDS = 2.0  # that peers who may be there have to speak before a process begins without them
FIRST_SECONDS = 10.0  # the same for all, also those who are not there, at a process's first start where there are views
FAIL_SECONDS = 3.0  # ... and after a failure
LAG_BYTES_MAX = 32 << 20  # a peer that lacks more than this does not keep up
GATHERED_BYTES = 48 << 10  # in a message that travels in datagrams: on one machine it fits into one
# Of the delivered log, a segment holds up to so many segments of the journal, nearly all of which it refers to; so its
# file is a small part of that, and yet not so small that small messages fill one after the other.
REFERRED_SEGMENTS, FILE_SHARE, FILE_BYTES_MIN = 4, 32, 64 << 10
CODE = f"antiphon {__version__}"  # only this code may replay what it journaled


class ClusterNode:
    """One process of a cluster."""

    def __init__(self, cluster: ClusterFolder, me: ProcessId) -> None:
        self._cluster = cluster
        self._folder = cluster.process(me)
        self.me = me
        self.incarnation = self._folder.next_incarnation()
        self.driver = self._open_driver(cluster)
        self.gateway = Gateway(self.driver, self._peers_lag, self._keeps_up)
        self.gateway.status = self.status
        hears = (self._on_met, self._on_stranger)
        self.neighbours = Neighbours(cluster, self.incarnation, self.driver, self._start, *hears)
        self.links = self.neighbours.links
        ways = (self.driver, self.gateway, self.links, self._on_replaced, self._on_stranger)
        self.reception = Reception(cluster, self.incarnation, *ways)
        self.port = Port(self._config.cluster, self.reception.greet, peers=len(self._config.addresses))
        self.datagrams = Datagrams(self._config, self.incarnation, self.driver, self.reception.callers)
        self._met: set[ProcessId] = set()  # the peers whose numbers fit this journal
        self._sent_to: dict[PeerLink, None] = {}  # those for whom the present release has something
        self._last_resort: threading.Timer | None = None
        self._last_resort_at = 0.0
        self._last_resort_lock = threading.Lock()  # signals come on a thread of their own
        self._tasks: list[asyncio.Task[None]] = []
        self._looked_at = -math.inf  # when the folder was last read again
        self._complaint = ""  # about what was read there
        self._counts_durably = False  # one that has taken another's place
        self._exit: asyncio.Future[int]
        self._stopping = False

    @property
    def _config(self) -> ClusterConfig:
        return self._cluster.config

    def _open_driver(self, cluster: ClusterFolder) -> Driver:
        config, folder = self._config, self._folder
        topology = config.topology_at_first(self.me)
        gather = Gather(requests=config.gather)
        process = Process(self.me, topology, protocol_named(config.protocol), config.options, gather)
        if process.sends_datagrams:
            process.gather = msgspec.structs.replace(gather, bytes=GATHERED_BYTES)
        observer = TurnObserver()
        if config.trace:
            from antiphon.runtime.node.recorder import Recorder  # pyarrow is slow to load

            observer = Recorder(cluster.trace, config.run, process, folder)
        journal = None
        if config.journal:
            identity = JournalIdentity(config.cluster, self.me, CODE)
            recycled_max = config.snapshot_bytes // config.segment_bytes
            journal = SegmentedLog.open(
                folder.journal,
                identity,
                segment_bytes=config.segment_bytes,
                recycled_max=recycled_max,
                direct=True,
                lends=True,
            )
        plain = JournalIdentity(config.cluster, self.me, "")  # these logs mean the same to every version of the code
        try:
            held_bytes = cluster.retained().segment_bytes(REFERRED_SEGMENTS * config.segment_bytes)
            segment_bytes = max(held_bytes // FILE_SHARE, min(held_bytes, FILE_BYTES_MIN))
            delivered = SegmentedLog.open(folder.delivered, plain, segment_bytes=segment_bytes, direct=True)
        except BaseException:
            if journal is not None:
                journal.abandon()
            raise
        if journal is not None:
            delivered.shares_room_with(journal)
        driver = Driver(process, journal, delivered, observer, config.snapshot_bytes, cluster.retained, held_bytes)
        driver.spills = Spills(folder.spill, plain, config.spill_bytes, driver.submit, driver.spilling)
        driver.on_send = self._send
        driver.on_foretell = self._foretell
        driver.on_durable = self._on_durable
        driver.on_congested = self._set_reading
        driver.on_refused = folder.mark_refused
        driver.on_failure = self._on_failure
        driver.advice = advice(cluster, self.me, process.protocol) or "."
        return driver

    # The life of the process ------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until a signal or a failure ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        self._exit = loop.create_future()
        gc.disable()  # nothing that a replay makes is garbage in a cycle
        try:
            self.driver.recover()
            for channel, box in self.driver.host.outboxes.items():
                self.driver.spills.restore(channel, box)
        finally:
            gc.enable()
        self._connect()
        host, port = self._config.listens_on(self.me)
        self._started_at = loop.time()
        try:
            server = await self.port.listen((host, port))
        except OSError as error:
            raise UsageError(f"{self.me} cannot listen on {host}:{port}: {reason(error)}.") from None
        self.datagrams.open()
        self.driver.disk_watch.start(self._on_hang)
        self._start_tasks()
        self._begin_if_known()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        tell(f"{self.me} listens on {host}:{port} (incarnation {self.incarnation}).", sys.stdout)
        try:
            return await self._exit
        finally:
            server.close()
            await self._end_tasks()
            for link in self.links.values():
                link.close()
            self.port.close()
            self.datagrams.close()
            with suppress(Exception):  # the exit code stands, whatever else fails on the way
                self.driver.abandon()
            self.driver.disk_watch.stop()
            await asyncio.sleep(0)
            if self._last_resort is not None:
                self._last_resort.cancel()

    def _connect(self) -> None:
        driver = self.driver
        self.neighbours.connect()
        driver.logged = self.gateway.logged
        driver.on_reply = self.gateway.reply
        driver.on_assured = self.gateway.assured
        driver.on_early = self._on_early
        driver.before_alarm = self.datagrams.read

    def _on_replaced(self, told: Replaced) -> None:
        """A command says who has taken whose place. UsageError: that is not how this process knows it.

        JournalFull: nothing was taken; what the folder says is taken at the next start.
        """
        protocol = self.driver.process.protocol
        if not protocol.replaces:
            raise UsageError(f"A member of {protocol.declaration.name} cannot be replaced.")
        if any(lost == self.me for lost, _, _ in told.replaced):
            raise UsageError(f"{self.me} is alive, and was not replaced.")
        self._cluster.learn(told.replaced, self.neighbours.check)
        self._follow()

    def _on_stranger(self) -> None:
        """Somebody knows of other members than this process, which may not have heard of them: the folder tells."""
        now = time.monotonic()
        if now - self._looked_at < FOLDER_LOOK_SECONDS or not self.driver.process.protocol.replaces:
            return
        self._looked_at = now
        try:
            self._cluster.look_again(self.neighbours.check)
        except UsageError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                tell(f"{self.me} does not learn who the members are: {error}")
            return
        if (found := self._config.replacement_of(self.me)) is not None:
            self.driver.fail(EXIT_REFUSED, f"{self.me} was replaced by {found.newcomer}.")
            return
        with suppress(JournalFull):  # it is tried again
            self._follow()

    def _follow(self) -> None:
        """Go on with those who are members now."""
        for peer in self.neighbours.follow():
            if (caller := self.reception.callers.pop(peer, None)) is not None:
                caller.close()
        if self.driver.begun:
            self.driver.install(self.neighbours.topology.roster)
            self.driver.when_durable(self.neighbours.forget_gone)
            self.gateway.announce(self.reception.directory())

    def _on_met(self, peer: ProcessId) -> None:
        self._met.add(peer)
        self._begin_if_known()

    def _awaited(self) -> list[ProcessId]:
        """The peers for whom this process waits before it takes part: enough of them have to show that its journal is
        not an old copy. No receipt, no vote before.

        Those who may be there get some time to speak, also where fewer would do: any of them may know better. And where
        there are views, those who start together are to be together in the first one.
        """
        driver, process = self.driver, self.driver.process
        if driver.begun:
            return []
        spares = self._config.spares
        needed = awaited(process.protocol, self.neighbours.topology, self.me, self._met, process.peers(), spares)
        if needed:
            return needed
        seconds = asyncio.get_running_loop().time() - self._started_at
        unmet = [link for peer, link in self.links.items() if peer not in self._met]
        is_first = process.with_views and driver.is_new and self.me not in spares  # a spare joins those who run
        silent = [link.peer for link in unmet if link.absent_since is None] if seconds < MEET_SECONDS else []
        coming = [link.peer for link in unmet if link.peer not in spares] if seconds < FIRST_SECONDS else []
        return coming if is_first and coming else silent

    def _begin_if_known(self) -> None:
        """Take part once nobody is waited for any more."""
        driver = self.driver
        if driver.begun or driver.stopped or self._stopping or self._awaited():
            return
        try:
            driver.begin(self.neighbours.topology.roster)
        except JournalFull:
            return  # it is tried again
        except JournalError:
            return  # the process has failed, and ends
        self._folder.unmark_refused()
        protocol = driver.process.protocol
        if protocol.assumes(protocol.options).detector is not Detector.NONE:
            detector = HeartbeatDetector(driver, self.links, self.reception.callers)
            driver.on_watch = lambda: self._look_soon(detector)
            self._start(detector.run())
        driver.when_durable(self.neighbours.forget_gone)
        self._set_reading()

    def _start_tasks(self) -> None:
        self.neighbours.dial()
        if self.datagrams.port is not None:
            self._start(self.datagrams.port.look_up())
        self._start(self._beat())
        self._start(self._keep_alive())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)
        return task

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self) -> None:
        """Say to all peers that this process takes part: a connection that is open and silent is broken. And see what
        is kept for those who have come to lag since they were last sent something."""
        driver = self.driver
        while True:
            self._begin_if_known()
            for link in self.links.values():
                if driver.begun and not driver.is_held_up:
                    link.heartbeat()
                link.relieve()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            self.gateway.keep_alive()
            self.driver.delivered.let_go()
            self.driver.make_room()
            self.datagrams.sweep()
            for caller in self.reception.callers.values():
                caller.look()

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
            self.end_in_time()
            # Whoever told us to drain before has waited already.
            seconds = STOP_AFTER_DRAIN_SECONDS if self.gateway.draining else STOP_SECONDS
            self.gateway.drain(math.inf)
            self._start(self._drain_and_close(seconds))

    async def _drain_and_close(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._is_idle() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        if self.driver.stopped:
            return
        try:
            ending = self.driver.close()
            if ending.is_clean:
                self._folder.mark_clean(self.incarnation)
        except JournalError as error:
            self._on_failure(EXIT_DISK, str(error))
            return
        except OSError as error:
            self._on_failure(EXIT_DISK, f"it ended cleanly, and could not note that: {error.strerror or error}.")
            return
        except Exception as error:
            self._on_failure(EXIT_BUG, f"The end failed: {error!r}.")
            return
        if ending.is_written:
            self._end(0)
        else:
            self._on_failure(EXIT_DISK, "its trace or its deliveries could not be written; its journal has them.")

    def _is_idle(self) -> bool:
        driver = self.driver
        if not driver.begun:
            return True
        waits = any(link.ready and link.unacknowledged for link in self.links.values())
        return not (driver.host.held or driver.process.protocol.pending() or waits)

    def _on_failure(self, code: int, sentence: str) -> None:
        """The process cannot go on: it ends at once, whatever else fails on the way."""
        self._end_surely(code, FAIL_SECONDS)
        self.port.close()
        self._end(code)
        tell(f"{self.me} stops: {sentence}")

    def _on_hang(self, seconds: float) -> None:
        """The disk does not answer; nothing orderly can be done, and even to say so may take for ever."""
        self._end_surely(EXIT_DISK, FAIL_SECONDS)
        tell(f"{self.me} stops: its disk has not answered for {seconds:.0f} seconds.")
        os._exit(EXIT_DISK)

    def end_in_time(self) -> None:
        """The process was told to end; from here on it does, in an orderly way or not."""
        self._end_surely(EXIT_DISK, STOP_SECONDS + CLOSE_SECONDS)

    def _end_surely(self, code: int, seconds: float) -> None:
        """A disk that hangs may hold up all that is orderly; a process that cannot go on must not seem alive."""
        until = time.monotonic() + seconds
        with self._last_resort_lock:
            if self._last_resort is not None:
                if self._last_resort_at <= until:
                    return  # it ends before that
                self._last_resort.cancel()
            self._last_resort_at = until
            self._last_resort = threading.Timer(seconds, os._exit, (code,))
            self._last_resort.daemon = True
            self._last_resort.start()

    def _end(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)

    # Effects ----------------------------------------------------------------------------------------------------

    def _send(self, send: Send, _: Any) -> None:
        transport, frame = send.transport, send.frame
        if transport is Transport.DATAGRAM:
            for peer in send.to:
                self.datagrams.send(peer, send)
            return
        links, sent_to = self.links, self._sent_to
        for peer, number in zip(send.to, send.numbers):  # noqa: B905 - saying how to compare lengths is slow
            link = links.get(peer)
            if link is not None:  # else it was replaced
                link.send(transport, number, frame)
                sent_to[link] = None

    def _foretell(self, send: Send, _: Any) -> None:
        for peer, number in zip(send.to, send.numbers, strict=True):
            link = self.links.get(peer)
            if link is not None:
                link.foretell(send.transport, number, send.frame)

    def _on_early(self) -> None:
        self.gateway.answer()
        self.gateway.serve()

    def _on_durable(self, channels: Iterable[ChannelId]) -> None:
        """First what others wait for; acknowledgements have time."""
        gateway, sent_to = self.gateway, self._sent_to
        gateway.answer()  # a few bytes, for which clients wait who have much to send
        self.datagrams.flush()
        for link in sent_to:
            link.flush()  # peers before readers: others wait for them
        sent_to.clear()
        gateway.serve()
        callers = self.reception.callers
        for channel in channels:
            caller = callers.get(channel[0])
            if caller is not None:
                caller.acknowledge()

    def _set_reading(self) -> None:
        for caller in self.reception.callers.values():
            caller.set_reading()
        self.datagrams.set_reading()
        self.gateway.set_reading()

    def _peers_lag(self) -> bool:
        behind = {link.peer for link in self.links.values() if link.unacknowledged > LAG_BYTES_MAX}
        if not behind:
            return False
        dead = {link.peer for link in self.links.values() if not link.is_live}
        process = self.driver.process
        return too_few_keep_up(process.protocol, process.topology, behind, dead)

    def _keeps_up(self) -> bool:
        """Whether what the group delivers is delivered here, too, as far as one can tell from here: not if this process
        has no room, or hears of fewer of its group than it would need to begin."""
        driver, now = self.driver, asyncio.get_running_loop().time()
        callers = self.reception.callers.items()
        heard = [peer for peer, caller in callers if now - caller.heard_at < PEER_SILENCE_SECONDS]
        process, spares = driver.process, self._config.spares
        return driver.begun and not (
            driver.is_full or awaited(process.protocol, process.topology, self.me, heard, (), spares)
        )

    # Questions --------------------------------------------------------------------------------------------------

    def status(self) -> StatusAnswer:
        driver = self.driver
        journal, protocol = driver.journal, driver.process.protocol
        view = protocol.present_view()
        return StatusAnswer(
            process=self.me,
            incarnation=self.incarnation,
            begins=driver.delivered.begin,
            delivered=driver.delivered.end,
            delivered_bytes=driver.delivered.bytes_on_disk,
            pending=protocol.pending() + driver.host.held,
            waits_for=self._waits_for(),
            unacknowledged=self._unacknowledged(),
            journal_bytes=journal.bytes_on_disk if journal is not None else 0,
            written_bytes=driver.written_bytes,
            last_sync_ms=round(journal.last_sync_seconds * 1e3, 3) if journal is not None else 0.0,
            disk_seconds=driver.disk_watch.seconds(),
            connected=[link.peer for link in self.links.values() if link.ready],
            lost={link.peer: link.lost_at for link in self.links.values() if not link.ready},
            refused=dict(self.port.refused),
            datagrams=self.datagrams.counted(),
            full=driver.is_full,
            returning=list(self._awaited()),
            trace=driver.observer.state,
            retain=driver.delivered.complaint,
            draining=self.gateway.draining,
            view=None if view is None else (str(view[0]), list(view[1])),
            counters=protocol.counters(),
            epoch=driver.process.topology.epoch,
            learns=not self._counts(),
        )

    def _counts(self) -> bool:
        """Whether it does, and will after a crash: then another member may be lost. What has yet to begin does not know
        that it takes another's place."""
        driver, process = self.driver, self.driver.process
        if self.me in process.topology.joined and driver.is_new and not driver.begun:
            return False
        if self.me in process.topology.joined and process.protocol.counts and not self._counts_durably:
            self.driver.when_durable(self._count)
            return self._counts_durably
        return process.protocol.counts

    def _count(self) -> None:
        self._counts_durably = self.driver.process.protocol.counts

    def _unacknowledged(self) -> int:
        """Where there are views, nothing waits for who is away: nobody delivers anything by what is kept for it."""
        with_views = self.driver.process.with_views
        return sum(link.unacknowledged for link in self.links.values() if link.ready or not with_views)

    def _waits_for(self) -> list[str]:
        """Where a majority is enough, whoever is there and not suspected is not what a message waits for."""
        process = self.driver.process
        named, suspects = process.protocol.waits_for(), process.state.suspects
        if process.protocol.assumes(process.protocol.options).failures is Failures.CRASH_RECOVERY:
            return list(named)
        return [p for p in named if p not in self.links or p in suspects or not self.links[p].ready]


def tell(sentence: str, stream: TextIO | None = None) -> None:
    """Say it, if that is possible: the disk that the words go to may be the one that failed."""
    with suppress(OSError, ValueError):
        print(sentence, file=stream or sys.stderr, flush=True)
