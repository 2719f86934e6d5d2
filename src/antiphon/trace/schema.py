"""The trace's schema: one row per event of one process, and the facts of the run beside it (docs/trace.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
import pyarrow as pa

TRACE_VERSION = 1


class Kind(StrEnum):
    MULTICAST = "multicast"
    DELIVER = "deliver"
    SEND = "send"
    RECEIVE = "receive"
    CRASH = "crash"
    RECOVER = "recover"
    SUSPECT = "suspect"
    TRUST = "trust"
    VIEW = "view"
    GAP = "gap"


class Row(NamedTuple):
    """One event of one process. ``seq`` numbers a process's events: (process, seq) is unique in a run."""

    process: str
    seq: int
    time_ns: int
    kind: str
    message: str | None = None
    destinations: tuple[str, ...] | None = None
    peer: str | None = None
    layer: str | None = None
    bytes: int | None = None
    step: int | None = None
    order_key: str | None = None


EVENTS = pa.schema(
    [
        pa.field("process", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("message", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field("peer", pa.string()),
        pa.field("layer", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("step", pa.int32()),
        pa.field("order_key", pa.string()),
    ],
    metadata={"antiphon.trace.version": str(TRACE_VERSION)},
)


class RunFacts(msgspec.Struct, kw_only=True):
    """What holds for a whole run; the file ``runs/<run>.json`` of a trace."""

    version: int = TRACE_VERSION
    run: str
    driver: str  # "simulation" or "runtime"
    protocol: str
    options: dict[str, str] = {}
    groups: dict[str, list[str]]
    promises: list[str]
    drained: bool  # every promised delivery had its time: missing ones may be judged
    faulty: list[str] = []  # processes that were down when the run ended
    seed: int | None = None
