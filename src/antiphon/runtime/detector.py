"""Heartbeats, and what follows from their absence. Only `Suspect` and `Trust` reach the process, as inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from antiphon.core import ProcessId
from antiphon.core.errors import JournalFull
from antiphon.core.inputs import Suspect, Trust
from antiphon.runtime.channels import Link, PeerSession
from antiphon.runtime.driver import Driver

HEARTBEAT_SECONDS = 0.1
TIMEOUT_SECONDS = 1.0  # at first; grows with every mistake, so that there is a last one


class HeartbeatDetector:
    """Eventually strong as long as delays stay bounded: a wrongly suspected peer gets more time from then on."""

    def __init__(self, driver: Driver, links: Iterable[Link], sessions: dict[ProcessId, PeerSession]) -> None:
        self._driver = driver
        self._links = list(links)
        self._sessions = sessions
        self._suspected: set[ProcessId] = set()
        self._timeouts = {link.peer: TIMEOUT_SECONDS for link in self._links}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if self._driver.process.state.seq:
            # What was believed before a restart is in the replayed state; all begin anew.
            for link in self._links:
                self._tell(Trust(self._driver.clock(), link.peer))
        while True:
            for link in self._links:
                link.heartbeat()
            now = loop.time()
            for peer, timeout in self._timeouts.items():
                session = self._sessions.get(peer)
                silent = now - (session.heard_at if session is not None else begun)
                if silent > timeout and peer not in self._suspected:
                    if self._tell(Suspect(self._driver.clock(), peer)):
                        self._suspected.add(peer)
                elif silent <= timeout and peer in self._suspected and self._tell(Trust(self._driver.clock(), peer)):
                    self._suspected.discard(peer)
                    self._timeouts[peer] = timeout * 1.5
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _tell(self, opinion: Suspect | Trust) -> bool:
        try:
            self._driver.take(opinion)
        except JournalFull:
            return False
        return True
