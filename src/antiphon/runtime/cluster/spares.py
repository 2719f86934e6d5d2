"""Processes of a cluster that are not started: each can join in the place of one that is lost.

A process is its name and its journal. One whose journal is gone has forgotten what it said under its name, and must not
say anything else under it: whoever is new takes a name that was never used. That is for protocols with views alone,
where the others go on without those who are away, and who joins begins with nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from antiphon.core import ProcessId, Topology
from antiphon.core.component import OrderingProtocol
from antiphon.core.errors import UsageError
from antiphon.core.promises import Promise
from antiphon.runtime.cluster.folder import ClusterFolder


def check(names: Collection[str], topology: Topology, promises: Collection[Promise]) -> None:
    """Refuse spares that the cluster cannot have."""
    strange = [name for name in names if name not in topology.group_of]
    if strange:
        listed = ", ".join(topology.processes)
        raise UsageError(f"There is no process {strange[0]!r} that could be a spare; the processes are {listed}.")
    for group, members in topology.groups.items():
        if all(member in names for member in members):
            raise UsageError(f"Not all members of group {group} can be spares.")
    if names and Promise.VIRTUAL_SYNCHRONY not in promises:
        raise UsageError(
            "Every process of this protocol takes part from the beginning; "
            "transis, allack and toto with -o membership=true can have spares."
        )


def replace(folder: ClusterFolder, name: str) -> ProcessId:
    """A process is lost, and its name is not to be used any more; returns the spare that is to join in its place."""
    lost = folder.config.known(name)
    if folder.process(lost).pid() is not None:
        raise UsageError(f"{lost} is running: only a process that is down can be replaced.")
    if folder.process(lost).is_lost and _all_are_replaced(folder, lost):
        raise UsageError(f"{lost} was replaced before, and another process is in its place; `antiphon up` starts that.")
    spare = folder.spare_for(lost)
    if spare is None:
        raise UsageError(
            f"No spare is left in the group of {lost}: a cluster is made with some by `antiphon up --spare NAME`."
        )
    folder.process(lost).mark_lost()
    return spare


def _all_are_replaced(folder: ClusterFolder, lost: ProcessId) -> bool:
    """Whether as many spares of its group were started as processes of it are lost. Else one was to be, and did not
    start: then it may be asked for again."""
    members = next(members for members in folder.config.groups.values() if lost in members)
    gone = [member for member in members if folder.process(member).is_lost]
    started = [p for p in members if p in folder.config.spares and (p in gone or folder.process(p).has_run)]
    return len(started) >= len(gone)


def advice(folder: ClusterFolder, me: ProcessId, protocol: OrderingProtocol) -> str:
    """What to do about a process that must not run on its journal, to be put behind the reason."""
    if protocol.replaces and len(protocol.topology.members(protocol.topology.group_of[me])) > 2:
        return f"; `antiphon replace --dir {folder.path} {me}` has a new one take its place."
    if Promise.VIRTUAL_SYNCHRONY not in protocol.promises(protocol.options):
        return ""
    if folder.spare_for(me) is None:
        return "; only a process that has never run can join in its place, and none of its group is left."
    return f"; `antiphon up --dir {folder.path} --replace {me}` has a new one join in its place."
