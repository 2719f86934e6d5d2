"""How far the logs of each group go, and up to where nothing more can come: no Spark is needed for that."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from antiphon.core.errors import UsageError
from antiphon.merge.logs import Beginning, MemberLog, reach_of
from antiphon.merge.table import Increment
from antiphon.runtime.cluster import ClusterConfig


class Floor(msgspec.Struct, frozen=True):
    """A group's floor: the key of the last delivery in the most advanced of its logs. None: it has delivered nothing.

    The members of a group deliver the same messages, in the order of their keys: so whatever the group will deliver,
    and is not in this log, has a greater key.
    """

    group: str
    log: MemberLog | None
    key: bytes | None
    payload: bytes | None = None  # the key of the last delivery in it that brought anything


def floors_of(
    config: ClusterConfig,
    logs: Iterable[MemberLog],
    groups: Iterable[str] | None = None,
    *,
    before: Increment | None = None,
) -> dict[str, Floor]:
    """The floor of each group of the cluster, or of these.

    ``before``: the newest of what is in the table. Only logs count that have all that is behind it. UsageError: nobody
    of some group has.
    """
    found = {group: Floor(group, None, None) for group in groups or config.groups}
    gone: dict[str, list[int]] = {}
    logs = list(logs)
    with ThreadPoolExecutor(8) as pool:
        for log, reach in zip(logs, pool.map(reach_of, logs), strict=True):
            if reach.begins is not None and not _is_joined(before, log.group, reach.begins):
                gone.setdefault(log.group, []).append(reach.begins.position)
            elif found[log.group].log is None or (reach.floor or b"") > (found[log.group].key or b""):
                found[log.group] = Floor(log.group, log, reach.floor, reach.payload)
    for group, positions in gone.items():
        if found[group].log is None:
            raise UsageError(
                f"{group} keeps what it delivered from position {min(positions)} on, and what is before that is not "
                "all in the table: nothing was added."
            )
    return found


def _is_joined(before: Increment | None, group: str, begins: Beginning) -> bool:
    """Whether all that is not in a group's log, as it is before it, is in the table."""
    if before is None:
        return not begins.position
    is_told = begins.key is not None and begins.key <= before.until
    return is_told or begins.position <= before.ends.get(group, 0)


def behind(floors: dict[str, Floor]) -> dict[str, bytes]:
    """The groups that keep something from being merged, which others have delivered: each with the last key of that."""
    newest = max((floor.payload for floor in floors.values() if floor.payload is not None), default=b"")
    return {group: newest for group, floor in floors.items() if (floor.key or b"") < newest}


def closed_by(floors: dict[str, Floor]) -> bytes | None:
    """The key up to which every group has delivered all that it ever will; None: some have not delivered anything."""
    keys = [floor.key for floor in floors.values()]
    return None if None in keys else min(key for key in keys if key is not None)
