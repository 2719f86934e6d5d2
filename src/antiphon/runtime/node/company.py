"""How many peers a process needs: to begin, and to let its clients send more."""

from __future__ import annotations

from collections.abc import Collection

from antiphon.core import Failures, ProcessId, Topology
from antiphon.core.component import OrderingProtocol


def awaited(
    protocol: OrderingProtocol, topology: Topology, me: ProcessId, met: Collection[ProcessId]
) -> list[ProcessId]:
    """The members of its group that a process still has to meet before it begins; empty when it met enough.

    A peer's numbers uncover a journal that is an old copy, if that peer heard of what is missing: the more are met, the
    better. With fewer than the protocol needs to order a message nothing could be ordered anyway. It is no proof: where
    just those are away who heard of it, an old copy passes.
    """
    members = topology.groups[topology.group_of[me]]
    others = [member for member in members if member != me]
    missing = [member for member in others if member not in met]
    if protocol.assumes(protocol.options).failures is Failures.CRASH_RECOVERY:
        return missing
    return missing if len(others) - len(missing) < len(members) // 2 else []


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
