"""All other members, both ways: the links to them and their calls; also when some of them are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from antiphon.core import ProcessId
from antiphon.core.errors import UsageError
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.links import PeerLink
from antiphon.runtime.node.peers import PeerCaller

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Neighbours:
    """Who they are the folder says, or a command that has just changed it: the process itself hears of it when it
    begins, or at once, as an input."""

    def __init__(
        self,
        cluster: ClusterFolder,
        incarnation: int,
        driver: Driver,
        start: StartTask,
        on_met: Callable[[ProcessId], None],
        on_stranger: Callable[[], None],
    ) -> None:
        """``start`` runs a link for as long as the process lives; ``on_stranger`` is told of peers that know of other
        members."""
        self.topology = cluster.config.topology()
        self.links: dict[ProcessId, PeerLink] = {}
        self.callers: dict[ProcessId, PeerCaller] = {}  # those who are connected, past the handshake
        self._cluster = cluster
        self._incarnation = incarnation
        self._driver = driver
        self._start = start
        self._on_met = on_met
        self._on_stranger = on_stranger
        self._dialling: dict[ProcessId, asyncio.Task[None]] = {}

    def connect(self) -> None:
        """Make the links, after the process has become what its journal says."""
        self.check(self._cluster.config)
        self._link_all()

    def check(self, config: ClusterConfig) -> None:
        """UsageError: this process, as it has been until now, is none of that cluster. It goes on only with members of
        its own history; else names, and epochs, would be given away twice."""
        me, where = self._driver.process.me, f"{self._cluster.path}/cluster.json"
        for before in (self._driver.process.topology, self.topology):
            if config.epoch < before.epoch:
                raise UsageError(
                    f"{me} knows of {before.epoch} replaced members, and {where} of {config.epoch}: that file is an "
                    "old copy."
                )
            if not config.follows(before):
                raise UsageError(
                    f"{me} knows of other replacements than {where}: that file has another history, as where "
                    "members were replaced on two machines at once."
                )

    def _link_all(self) -> None:
        config, me = self._cluster.config, self._driver.process.me
        for peer in self.topology.processes:
            if peer != me and peer not in self.links:
                identity = (config.cluster, self._incarnation)
                told = (self._on_met, self._on_stranger)
                self.links[peer] = PeerLink(self._driver, identity, peer, config.address(peer), *told)

    def dial(self) -> None:
        for peer, link in self.links.items():
            if peer not in self._dialling:
                self._dialling[peer] = self._start(link.run())

    def follow(self) -> None:
        """The folder may say that members were replaced. What was to be sent to those who are gone is let go when the
        process has heard of it."""
        before, self.topology = self.topology, self._cluster.config.topology()
        gone = [peer for peer in self.topology.gone_since(before) if peer in self.links]
        for peer in gone:
            self._dialling.pop(peer).cancel()
            self.links.pop(peer).retire()
        self._link_all()
        self.dial()
        for peer in gone:
            if (caller := self.callers.pop(peer, None)) is not None:
                caller.close()

    def forget_gone(self) -> None:
        """Of what was kept on the disk for those who were replaced, nothing is needed once the process knows it."""
        for each in self._cluster.config.replaced:
            self._driver.spills.drop(ProcessId(each.lost))
