"""How many peers a process needs: to begin, and to let its clients send more."""

from __future__ import annotations

from collections.abc import Collection

from antiphon.core import Failures, ProcessId, Topology
from antiphon.core.component import OrderingProtocol


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
