"""How a cluster is doing, from what its processes answer: who is there, who reaches whom, and which groups go on."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.core import ProcessId
from antiphon.runtime.cluster.control import Answered, ask_all
from antiphon.runtime.cluster.folder import ClusterFolder
from antiphon.runtime.net.frames import Rejected, StatusAnswer


def answers(folder: ClusterFolder) -> dict[ProcessId, Answered]:
    """What every process says, wherever it runs: its status, or why it does not tell it."""
    found = ask_all(folder.config, folder.config.processes)
    return {process: found[process] for process in folder.config.processes}


def statuses(folder: ClusterFolder) -> dict[ProcessId, StatusAnswer | None]:
    """The status of every process, wherever it runs; None where it does not tell it."""
    return {process: a if isinstance(a, StatusAnswer) else None for process, a in answers(folder).items()}


def is_there(answer: Answered) -> bool:
    """Also a process that turns a command away runs, unless it is one of another cluster."""
    return answer is not None and not (isinstance(answer, Rejected) and answer.reason == "wrong cluster")


def is_stopped(folder: ClusterFolder, found: Mapping[ProcessId, Answered]) -> bool:
    """Whether nothing runs, and everything ended as it should."""
    own = [folder.process(process) for process in folder.in_use()]
    return not any(found.values()) and all(each.stopped_cleanly and each.pid() is None for each in own)


def is_well(folder: ClusterFolder, found: Mapping[ProcessId, Answered]) -> bool:
    """Whether every process is there and takes part, reaches all others, and every group goes on."""
    used = [found[process] for process in folder.in_use()]
    takes_part = all(isinstance(answer, StatusAnswer) and _takes_part(answer) for answer in used)
    return takes_part and not unreached(found) and not without_majority(folder, found)


def unreached(found: Mapping[ProcessId, Answered]) -> dict[ProcessId, list[ProcessId]]:
    """The processes that are there and do not reach one another; nobody where there are views, which say it."""
    if _has_views(found):
        return {}
    there = [process for process, answer in found.items() if is_there(answer)]
    cut = {p: [q for q in there if q != p and not _reaches(found, p, q)] for p in there}
    return {process: others for process, others in cut.items() if others}


def without_majority(folder: ClusterFolder, found: Mapping[ProcessId, Answered]) -> dict[str, float | None]:
    """The groups of which no majority goes on together, and since when, if anybody has seen that.

    None where the protocol has views: there those who are left go on without the others.
    """
    if _has_views(found):
        return {}
    lost: dict[str, float] = {}
    for answer in found.values():
        for peer, at in answer.lost.items() if isinstance(answer, StatusAnswer) else ():
            lost[peer] = max(at, lost.get(peer, 0.0))
    stalled: dict[str, float | None] = {}
    for group, names in folder.config.groups.items():
        members = [ProcessId(name) for name in names]
        able = [member for member in members if _takes_part(found[member])]
        # Whoever leads the others has to reach a majority of them, and they it.
        circles = [[q for q in able if q == p or (_reaches(found, p, q) and _reaches(found, q, p))] for p in able]
        together = max(circles, key=len, default=[])
        tolerated = (len(members) - 1) // 2
        if len(members) - len(together) > tolerated:
            seen = sorted(lost[member] for member in members if member in lost and member not in together)
            stalled[group] = seen[tolerated] if len(seen) > tolerated else None
    return stalled


def _has_views(found: Mapping[ProcessId, Answered]) -> bool:
    return any(isinstance(answer, StatusAnswer) and answer.view is not None for answer in found.values())


def _takes_part(answer: Answered) -> bool:
    """Whether it takes inputs; of one that does not tell, that is supposed."""
    return not (answer.full or answer.returning) if isinstance(answer, StatusAnswer) else is_there(answer)


def _reaches(found: Mapping[ProcessId, Answered], process: ProcessId, peer: ProcessId) -> bool:
    """Whether a process has a connection to a peer that takes what it is sent, as far as it tells."""
    answer = found[process]
    return not isinstance(answer, StatusAnswer) or peer in answer.connected
