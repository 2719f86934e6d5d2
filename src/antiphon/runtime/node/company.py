"""How many peers a process needs: to begin, and to let its clients send more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from antiphon.core import Failures, ProcessId, Topology
from antiphon.core.component import OrderingProtocol
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.neighbours import Neighbours
from antiphon.runtime.node.peers import PEER_SILENCE_SECONDS

MEET_SECONDS = 2.0  # that peers who may be there have to speak before a process begins without them
FIRST_SECONDS = 10.0  # the same for all, also those who are not there, at a process's first start where there are views
LAG_BYTES_MAX = 32 << 20  # a peer that lacks more than this does not keep up


class Company:
    """The peers of one process, as far as it needs them."""

    def __init__(self, cluster: ClusterFolder, driver: Driver, neighbours: Neighbours) -> None:
        self._cluster = cluster
        self._driver = driver
        self._neighbours = neighbours
        self._met: set[ProcessId] = set()  # the peers whose numbers fit this journal
        self._expected_at = 0.0  # when this process could first be met

    def expect(self) -> None:
        """From now on peers can meet this process."""
        self._expected_at = asyncio.get_running_loop().time()

    def meet(self, peer: ProcessId) -> None:
        self._met.add(peer)

    def awaited(self) -> list[ProcessId]:
        """The peers for whom this process waits before it takes part: enough of them have to show that its journal is
        not an old copy. No receipt, no vote before.

        Those who may be there get some time to speak, also where fewer would do: any of them may know better. And where
        there are views, those who start together are to be together in the first one.
        """
        driver, process, neighbours = self._driver, self._driver.process, self._neighbours
        if driver.begun:
            return []
        spares = self._cluster.config.spares
        needed = awaited(process.protocol, neighbours.topology, process.me, self._met, process.peers(), spares)
        if needed:
            return needed
        seconds = asyncio.get_running_loop().time() - self._expected_at
        unmet = [link for peer, link in neighbours.links.items() if peer not in self._met]
        is_first = process.with_views and driver.is_new and process.me not in spares  # a spare joins those who run
        silent = [link.peer for link in unmet if link.absent_since is None] if seconds < MEET_SECONDS else []
        coming = [link.peer for link in unmet if link.peer not in spares] if seconds < FIRST_SECONDS else []
        return coming if is_first and coming else silent

    def lags(self) -> bool:
        """Whether clients must wait for peers that lack much of what was sent to them."""
        links = self._neighbours.links.values()
        behind = {link.peer for link in links if link.unacknowledged > LAG_BYTES_MAX}
        if not behind:
            return False
        dead = {link.peer for link in links if not link.is_live}
        process = self._driver.process
        return too_few_keep_up(process.protocol, process.topology, behind, dead)

    def keeps_up(self) -> bool:
        """Whether what the group delivers is delivered here, too, as far as one can tell from here: not if this process
        has no room, or hears of fewer of its group than it would need to begin."""
        driver, now = self._driver, asyncio.get_running_loop().time()
        callers = self._neighbours.callers.items()
        heard = [peer for peer, caller in callers if now - caller.heard_at < PEER_SILENCE_SECONDS]
        process, spares = driver.process, self._cluster.config.spares
        return driver.begun and not (
            driver.is_full or awaited(process.protocol, process.topology, process.me, heard, (), spares)
        )


def awaited(
    protocol: OrderingProtocol,
    topology: Topology,
    me: ProcessId,
    met: Collection[ProcessId],
    spoken_with: Collection[ProcessId],
    spares: Collection[str] = (),
) -> list[ProcessId]:
    """Those whom a process still has to meet before it begins; empty when it met enough.

    What a peer holds uncovers a journal that is an old copy, if that peer heard of what is missing: the more are met,
    the better. Asked are the other members of its group. With fewer than the protocol needs to order a message nothing
    could be ordered anyway. Who is alone in its group asks those outside with whom, as its journal says, it has spoken,
    by the same measure. It is no proof: where just those are away who heard of it, an old copy passes. Spares do not
    count in a group's size: most of them never run.
    """
    own = topology.group_of[me]
    if len(topology.groups[own]) > 1:
        asked = {own: [member for member in topology.groups[own] if member != me]}
    else:
        asked = {group: [m for m in members if m in spoken_with] for group, members in topology.groups.items()}
    needs_all = protocol.assumes(protocol.options).failures is Failures.CRASH_RECOVERY
    found: list[ProcessId] = []
    for group, peers in asked.items():
        missing = [peer for peer in peers if peer not in met]
        size = len([member for member in topology.groups[group] if member not in spares])
        others_in_majority = size // 2 + (group != own)
        enough = len(peers) if needs_all else min(len(peers), others_in_majority)
        if len(peers) - len(missing) < enough:
            found += missing
    return found


def too_few_keep_up(
    protocol: OrderingProtocol, topology: Topology, behind: Collection[ProcessId], dead: Collection[ProcessId]
) -> bool:
    """Whether clients must wait: fewer peers keep up than the protocol needs, and it is not that they are dead."""
    slow = [process for process in behind if process not in dead]
    if protocol.assumes(protocol.options).failures is Failures.CRASH_RECOVERY:
        return bool(slow)
    for members in topology.groups.values():
        keep_up = [member for member in members if member not in behind and member not in dead]
        if 2 * len(keep_up) <= len(members) and any(member in slow for member in members):
            return True
    return False
