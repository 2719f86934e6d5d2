"""Heartbeats, broken connections, and what follows from them. Only `Suspect` and `Trust` become inputs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from antiphon.core import ProcessId
from antiphon.core.errors import JournalFull
from antiphon.core.inputs import Suspect, Trust
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.links import PeerLink
from antiphon.runtime.node.peers import PeerCaller

HEARTBEAT_SECONDS = 0.2
SUSPECT_SECONDS = 2.0  # at first, so that a peer may be slow for a second; grows with every mistake
PATIENCE = 1.5  # by this much
SUSPECT_SECONDS_MAX = 30.0
CALM_SECONDS = 20.0  # without a mistake, after which it shrinks by as much again
ABSENT_SECONDS = 0.3  # nobody listens any more at a peer's port: it need not be waited for any longer than this


class HeartbeatDetector:
    """Strong for as long as agreement takes, if delays stay bounded: a wrongly suspected peer gets more time.

    It is not wrong to suspect who was dead: a peer that comes back as another incarnation gets no more time for it. And
    the time shrinks again while all is well, so that a crash is not found out late for a pause that is long over.
    Then a mistake may come again, but not two within seconds, and that is all that an agreement needs.

    Every process beats for all its peers (node.py), and judges only those whom it was asked to watch. What was
    believed before a restart is in the replayed state: a peer that is heard again is trusted again.
    """

    def __init__(
        self, driver: Driver, links: Mapping[ProcessId, PeerLink], callers: Mapping[ProcessId, PeerCaller]
    ) -> None:
        """``links`` and ``callers`` change where members are replaced."""
        self._driver = driver
        self._links = links
        self._callers = callers
        self._timeouts: defaultdict[ProcessId, float] = defaultdict(lambda: SUSPECT_SECONDS)
        self._doubted: dict[ProcessId, int] = {}  # which incarnation of a peer is suspected
        self._changed_at: defaultdict[ProcessId, float] = defaultdict(float)  # when its time last grew or shrank
        self._since = 0.0  # silence before this does not count

    def look(self) -> None:
        """Judge now those to be watched: a peer known to be gone need not be found out again."""
        now = asyncio.get_running_loop().time()
        if self._driver.congested:
            self._since = now  # nobody is heard while nothing is read
            return
        for peer in self._driver.watched:
            if peer in self._links:  # else it was just replaced
                self._judge(peer, now)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._since = looked = loop.time()
        while True:
            now = loop.time()
            if now - looked > SUSPECT_SECONDS / 2:
                self._since = now  # this process itself was asleep: what was sent meanwhile is still to be read
            looked = now
            self.look()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _judge(self, peer: ProcessId, now: float) -> None:
        caller = self._callers.get(peer)
        timeout = self._timeouts[peer]
        heard_at = caller.heard_at if caller is not None else 0.0
        is_suspected = peer in self._driver.process.state.suspects
        absent_since = self._links[peer].absent_since if caller is not None else None  # else it may be starting, too
        is_absent = absent_since is not None and now - absent_since > ABSENT_SECONDS and heard_at < absent_since
        is_heard = not is_absent and now - heard_at <= timeout
        if not is_suspected and (is_absent or now - max(heard_at, self._since) > timeout):
            if self._tell(Suspect(self._driver.clock(), peer)):
                self._doubted[peer] = caller.incarnation if caller is not None else 0
        elif is_suspected and caller is not None and is_heard:
            if self._tell(Trust(self._driver.clock(), peer)) and self._doubted.pop(peer, 0) == caller.incarnation:
                self._set_timeout(peer, min(timeout * PATIENCE, SUSPECT_SECONDS_MAX), now)
        elif timeout > SUSPECT_SECONDS >= now - heard_at and now - self._changed_at[peer] > CALM_SECONDS:
            self._set_timeout(peer, max(timeout / PATIENCE, SUSPECT_SECONDS), now)

    def _set_timeout(self, peer: ProcessId, seconds: float, now: float) -> None:
        self._timeouts[peer] = seconds
        self._changed_at[peer] = now

    def _tell(self, opinion: Suspect | Trust) -> bool:
        try:
            self._driver.take(opinion)
        except JournalFull:
            return False  # it will be said again
        return True
