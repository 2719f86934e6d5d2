"""The wiring of one real process: driver, port, links to its peers, gateway to its clients."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import sys
import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from antiphon.core import Detector, ProcessId
from antiphon.core.channel import ChannelId, Transport
from antiphon.core.effects import Send
from antiphon.core.errors import JournalError, JournalFull, UsageError
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.net import Port, reason
from antiphon.runtime.net.frames import Replaced
from antiphon.runtime.node.company import Company
from antiphon.runtime.node.datagrams import Datagrams
from antiphon.runtime.node.detector import HEARTBEAT_SECONDS, HeartbeatDetector
from antiphon.runtime.node.ending import EXIT_BUG, EXIT_DISK, EXIT_REFUSED, LastResort, tell
from antiphon.runtime.node.gateway import Gateway
from antiphon.runtime.node.links import PeerLink
from antiphon.runtime.node.neighbours import Neighbours
from antiphon.runtime.node.opening import open_driver
from antiphon.runtime.node.reception import Reception
from antiphon.runtime.node.status import StatusReport

KEEP_ALIVE_SECONDS = 1.0
STOP_SECONDS = 5.0
STOP_AFTER_DRAIN_SECONDS = 0.3
CLOSE_SECONDS = 10.0  # for all that an orderly end writes; then the process ends without it ...
FAIL_SECONDS = 3.0  # ... and after a failure
FOLDER_LOOK_SECONDS = 1.0  # between two looks into the folder, however many strangers call


class ClusterNode:
    """One process of a cluster."""

    def __init__(self, cluster: ClusterFolder, me: ProcessId) -> None:
        self._cluster = cluster
        self._folder = cluster.process(me)
        self.me = me
        self.incarnation = self._folder.next_incarnation()
        self.driver = driver = open_driver(cluster, me)
        hears = (self._on_met, self._on_stranger)
        self.neighbours = Neighbours(cluster, self.incarnation, driver, self._start, *hears)
        self.links, self.callers = self.neighbours.links, self.neighbours.callers
        self.company = Company(cluster, driver, self.neighbours)
        self.gateway = Gateway(driver, self.company.lags, self.company.keeps_up)
        ways = (driver, self.gateway, self.neighbours, self._on_replaced, self._on_stranger)
        self.reception = Reception(cluster, self.incarnation, *ways)
        self.port = Port(self._config.cluster, self.reception.greet, peers=len(self._config.addresses))
        self.datagrams = Datagrams(self._config, self.incarnation, driver, self.callers)
        parts = (driver, self.neighbours, self.company, self.gateway, self.port, self.datagrams)
        self.gateway.status = StatusReport(self.incarnation, *parts).answer
        self._sent_to: dict[PeerLink, None] = {}  # those for whom the present release has something
        self._last_resort = LastResort()
        self._tasks: list[asyncio.Task[None]] = []
        self._looked_at = -math.inf  # when the folder was last read again
        self._complaint = ""  # about what was read there
        self._exit: asyncio.Future[int]
        self._stopping = False
        driver.on_send = self._send
        driver.on_foretell = self._foretell
        driver.on_durable = self._on_durable
        driver.on_congested = self._set_reading
        driver.on_failure = self._on_failure

    @property
    def _config(self) -> ClusterConfig:
        return self._cluster.config

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
        self.company.expect()
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
        self.neighbours.follow()
        if self.driver.begun:
            self.driver.install(self.neighbours.topology.roster)
            self.driver.when_durable(self.neighbours.forget_gone)
            self.gateway.announce(self.reception.directory())

    def _on_met(self, peer: ProcessId) -> None:
        self.company.meet(peer)
        self._begin_if_known()

    def _begin_if_known(self) -> None:
        """Take part once nobody is waited for any more."""
        driver = self.driver
        if driver.begun or driver.stopped or self._stopping or self.company.awaited():
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
            detector = HeartbeatDetector(driver, self.links, self.callers)
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
            for caller in self.callers.values():
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
        self._last_resort.end_within(FAIL_SECONDS, code)
        self.port.close()
        self._end(code)
        tell(f"{self.me} stops: {sentence}")

    def _on_hang(self, seconds: float) -> None:
        """The disk does not answer; nothing orderly can be done, and even to say so may take for ever."""
        self._last_resort.end_within(FAIL_SECONDS, EXIT_DISK)
        tell(f"{self.me} stops: its disk has not answered for {seconds:.0f} seconds.")
        os._exit(EXIT_DISK)

    def end_in_time(self) -> None:
        """The process was told to end; from here on it does, in an orderly way or not."""
        self._last_resort.end_within(STOP_SECONDS + CLOSE_SECONDS, EXIT_DISK)

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
        callers = self.callers
        for channel in channels:
            caller = callers.get(channel[0])
            if caller is not None:
                caller.acknowledge()

    def _set_reading(self) -> None:
        for caller in self.callers.values():
            caller.set_reading()
        self.datagrams.set_reading()
        self.gateway.set_reading()
