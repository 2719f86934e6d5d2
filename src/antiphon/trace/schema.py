"""The trace's schema: one row per event of one process, and the facts of the run beside it (docs/trace.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
import pyarrow as pa

TRACE_VERSION = 2


class EventKind(StrEnum):
    MULTICAST = "multicast"
    RECEIPT = "receipt"
    DELIVER = "deliver"
    ENTER = "enter"
    SEND = "send"
    RECEIVE = "receive"
    CRASH = "crash"
    RECOVER = "recover"
    SUSPECT = "suspect"
    TRUST = "trust"
    VIEW = "view"
    GAP = "gap"


OrderKey = bytes


class RequestCell(NamedTuple):
    """A client's request, as rows name it: a range of its numbers for the row's set of groups, and a digest."""

    client: str
    first: int
    payloads: int
    digest: int


class Row(NamedTuple):
    """One event of one process. ``seq`` numbers a process's events: (process, seq) is unique in a run."""

    process: str
    seq: int
    time_ns: int
    kind: str
    message: str | None = None  # multicast, deliver, enter: the message; view: its name
    destinations: tuple[str, ...] | None = None  # multicast, receipt, deliver
    requests: tuple[RequestCell, ...] | None = None  # multicast, receipt, deliver
    peers: tuple[str, ...] | None = None  # send: all receivers; view: its members; else the other process
    about: tuple[str, ...] | None = None  # send, receive: all messages that the frame is about; enter: its predecessors
    layer: str | None = None  # the component; multicast: the service that was asked for, if any
    bytes: int | None = None
    step: int | None = None
    order_key: OrderKey | None = None
    position: int | None = None  # deliver: of the first payload; gap, view; enter: the number in its sender's row


EVENTS = pa.schema(
    [
        pa.field("process", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("message", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field(
            "requests",
            pa.list_(
                pa.struct(
                    [
                        pa.field("client", pa.string()),
                        pa.field("first", pa.int64()),
                        pa.field("payloads", pa.int64()),
                        pa.field("digest", pa.int64()),
                    ]
                )
            ),
        ),
        pa.field("peers", pa.list_(pa.string())),
        pa.field("about", pa.list_(pa.string())),
        pa.field("layer", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("step", pa.int32()),
        pa.field("order_key", pa.binary()),
        pa.field("position", pa.int64()),
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
    incomplete: list[str] = []  # processes whose rows are not all here
    clock_error_ns: int | None = None  # how far two processes' clocks may be apart; None: nobody knows
    seed: int | None = None
