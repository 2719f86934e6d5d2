"""Heartbeats, and what follows from their absence. Only `Suspect` and `Trust` reach the process, as inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from antiphon.core import ProcessId
from antiphon.core.errors import JournalFull
from antiphon.core.inputs import Suspect, Trust
from antiphon.runtime.channels import Link, PeerSession
from antiphon.runtime.driver import Driver

HEARTBEAT_SECONDS = 0.2
TIMEOUT_SECONDS = 1.0  # at first; grows with every mistake, so that there is a last one
PATIENCE = 1.5  # by this much


class HeartbeatDetector:
    """Eventually strong as long as delays stay bounded: a wrongly suspected peer gets more time from then on.

    Every process beats for all its peers, and judges only those whom the process asked it to watch. What was
    believed before a restart is in the replayed state: a peer that is heard again is trusted again.
    """

    def __init__(self, driver: Driver, links: Iterable[Link], sessions: dict[ProcessId, PeerSession]) -> None:
        self._driver = driver
        self._links = list(links)
        self._sessions = sessions
        self._timeouts = {link.peer: TIMEOUT_SECONDS for link in self._links}
        self._since = 0.0  # silence before this does not count

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._since = looked = loop.time()
        while True:
            for link in self._links:
                link.heartbeat()
            now = loop.time()
            if now - looked > TIMEOUT_SECONDS / 2:
                self._since = now  # this process itself was asleep: what was sent meanwhile is still to be read
            looked = now
            for peer in self._driver.watched:
                self._judge(peer, now)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _judge(self, peer: ProcessId, now: float) -> None:
        session = self._sessions.get(peer)
        timeout = self._timeouts[peer]
        heard_at = session.heard_at if session is not None else 0.0
        is_suspected = peer in self._driver.process.state.suspects
        if not is_suspected and now - max(heard_at, self._since) > timeout:
            self._tell(Suspect(self._driver.clock(), peer))
        elif is_suspected and now - heard_at <= timeout and self._tell(Trust(self._driver.clock(), peer)):
            self._timeouts[peer] = timeout * PATIENCE

    def _tell(self, opinion: Suspect | Trust) -> bool:
        try:
            self._driver.take(opinion)
        except JournalFull:
            return False  # it will be said again
        return True
