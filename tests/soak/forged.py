"""Logs and receipts of a cluster that never ran: honest ones, to be forged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from antiphon.core.buffers import Buffers
from antiphon.core.events import Adopted, Delivered, encode_event
from antiphon.core.model import GroupId, MessageId, ProcessId
from antiphon.core.requests import encode_request, parse_request
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.disk import JournalIdentity, SegmentedLog
from antiphon.runtime.disk.stored import store
from antiphon.soak.judge import LoggedPayload
from antiphon.soak.records import RecordLine, payload_of

CLIENT, TAG = "c1-00", "c1.0"
BOTH = ("a", "b")
ROUTES = (("a",), BOTH, ("b",), BOTH)
ROUNDS = 4

Logs = dict[str, list[LoggedPayload]]


def honest() -> tuple[Logs, list[RecordLine]]:
    """A client sends by turns to a, both, b and both again; each group delivers in the order of its calls."""
    logs: Logs = {"a": [], "b": []}
    receipts = []
    numbers: dict[tuple[str, ...], int] = {}
    for serial, route in enumerate(ROUTES * ROUNDS):
        number = numbers.get(route, 0)
        numbers[route] = number + 1
        receipts.append(RecordLine(float(serial), route, serial, 1, CLIENT, number))
        for group in route:
            logs[group].append(LoggedPayload(CLIENT, route, number, payload_of(TAG, serial)))
    return logs, receipts


def written(
    path: Path, logs: Mapping[str, Sequence[LoggedPayload]], begins: Mapping[str, int] | None = None
) -> ClusterFolder:
    """A cluster of two groups of two that is down, whose members have these logs on disk, by process or by group.

    ``begins``: of those that took another's place, the position with which their logs begin.
    """
    folder = cluster.create(path, {"a": 2, "b": 2}, protocol="skeen", segment_bytes=1 << 16)
    for process in folder.config.processes:
        own = folder.process(process)
        own.path.mkdir(parents=True)
        identity = JournalIdentity(folder.config.cluster, process, "")
        log = SegmentedLog.open(own.delivered, identity, segment_bytes=folder.config.segment_bytes)
        begin = (begins or {}).get(process, 0)
        if begin:
            adopted = Adopted(ProcessId("b.1"), None, begin, 0)
            log.append(store(adopted, encode_event(adopted)))
        for position, each in enumerate(logs.get(process, logs[process.partition(".")[0]]), begin):
            log.append(_record(position, each))
        log.close()
    return folder


def _record(position: int, each: LoggedPayload) -> Buffers:
    request = parse_request(encode_request(each.client, each.number, 0, [each.payload]))
    groups = tuple(GroupId(group) for group in each.destinations)
    id = MessageId(ProcessId("a.1"), position)
    event = Delivered(id, groups, position, 1, (request,), None, 0)
    return store(event, encode_event(event))
