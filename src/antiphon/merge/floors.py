"""How far the logs of each group go, and up to where nothing more can come: no Spark is needed for that."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from antiphon.merge.logs import Log, last_key
from antiphon.runtime.cluster import ClusterConfig


class Floor(msgspec.Struct, frozen=True):
    """A group's floor: the key of the last delivery in the most advanced of its logs. None: it has delivered nothing.

    The members of a group deliver the same messages, in the order of their keys: so whatever the group will deliver,
    and is not in this log, has a greater key.
    """

    group: str
    log: Log | None
    key: bytes | None


def floors_of(config: ClusterConfig, logs: Iterable[Log]) -> dict[str, Floor]:
    """The floor of each group of the cluster."""
    found = {group: Floor(group, None, None) for group in config.groups}
    logs = list(logs)
    with ThreadPoolExecutor(8) as pool:
        for log, key in zip(logs, pool.map(last_key, logs), strict=True):
            if (key or b"") >= (found[log.group].key or b""):
                found[log.group] = Floor(log.group, log, key)
    return found


def closed_by(floors: dict[str, Floor]) -> bytes | None:
    """The key up to which every group has delivered all that it ever will; None: some have not delivered anything."""
    keys = [floor.key for floor in floors.values()]
    return None if None in keys else min(key for key in keys if key is not None)
