"""Groups to which nobody sends hold up what the others have delivered: they are asked to raise their floors."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from antiphon.core import ProcessId, parse_options
from antiphon.core.errors import OutcomeUnknown, Unavailable
from antiphon.core.keys import first_number
from antiphon.merge.floors import Floor, behind, floors_of
from antiphon.merge.logs import MemberLog, reach_of
from antiphon.merge.table import Increment
from antiphon.protocols import protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

LOOK_SECONDS, TOLD_SECONDS, WRITTEN_SECONDS = 0.2, 10.0, 10.0


class Asked(msgspec.Struct, frozen=True):
    """What came of it, by group."""

    advanced: list[str]
    silent: list[str]  # nobody of it answers
    late: list[str]  # it was asked, and has not come so far in time


def advance(
    folder: ClusterFolder,
    logs: Sequence[MemberLog],
    floors: dict[str, Floor],
    wait_seconds: float,
    *,
    before: Increment | None = None,
) -> tuple[dict[str, Floor], Asked]:
    """Ask the groups that others wait for, wait until their logs show it, and say how far all groups are then."""
    config = folder.config
    kind = protocol_named(config.protocol)
    wanted = behind(floors) if kind.can_advance(parse_options(kind, config.options)) else {}
    silent = [group for group, key in wanted.items() if not _ask(folder, group, first_number(key) + 1)]
    asked = {group: key for group, key in wanted.items() if group not in silent}
    deadline = time.monotonic() + wait_seconds
    late = list(asked)
    while late:
        time.sleep(LOOK_SECONDS)
        floors |= floors_of(config, [log for log in logs if log.group in late], late, before=before)
        late = [group for group in late if (floors[group].key or b"") < asked[group]]
        if time.monotonic() >= deadline:
            break
    if asked:  # meanwhile others may have gone on
        rest = [group for group in config.groups if group not in asked]
        floors |= floors_of(config, [log for log in logs if log.group in rest], rest, before=before)
    return floors, Asked([group for group in asked if group not in late], silent, late)


def _ask(folder: ClusterFolder, group: str, floor: int) -> bool:
    """Tell one member of a group, the first that takes it. If one that did not answer was told as well: no harm."""
    for process in folder.config.groups[group]:
        try:
            cluster.tell(folder.config, process, ["advance", f"floor={floor}"], timeout=TOLD_SECONDS)
            return True
        except (Unavailable, OutcomeUnknown):
            continue
    return False


def await_disks(folder: ClusterFolder, logs: Sequence[MemberLog]) -> None:
    """Processes write what they deliver a moment later: wait for what they have delivered by now, if they answer."""
    delivered = {p: status.delivered for p, status in cluster.statuses(folder).items() if status is not None}
    waiting = [log for log in logs if log.process in delivered]
    deadline = time.monotonic() + WRITTEN_SECONDS
    while waiting := [log for log in waiting if reach_of(log).end < delivered[ProcessId(log.process)]]:
        if time.monotonic() >= deadline:
            return
        time.sleep(LOOK_SECONDS)


def is_running(folder: ClusterFolder) -> bool:
    return any(pid is not None for pid in cluster.alive(folder).values())
