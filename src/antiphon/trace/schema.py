"""What a trace holds: one row per event of one process, and the facts of the run beside it (docs/trace.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

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
    ADOPT = "adopt"


OrderKey = bytes
MAJORITY = "majority"  # the layer of a receipt that says so much; that of any other is null


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
    message: str | None = None  # multicast, deliver, enter: the message; view: its name; adopt: the donor's last
    destinations: tuple[str, ...] | None = None  # multicast, receipt, deliver
    requests: tuple[RequestCell, ...] | None = None  # multicast, receipt, deliver
    peers: tuple[str, ...] | None = None  # send: all receivers; view: its members; adopt: the donor; else the other
    about: tuple[str, ...] | None = None  # send, receive: all messages that the frame is about; enter: its predecessors
    layer: str | None = None  # the component; multicast: the service that was asked for, if any; receipt: its kind
    bytes: int | None = None
    step: int | None = None
    order_key: OrderKey | None = None
    position: int | None = (
        None  # deliver: of the first payload; gap, view, adopt; enter: in its sender's row; receipt: the turn
    )


class RunFacts(msgspec.Struct, kw_only=True):
    """What holds for a whole run: the file ``runs/<run>.json`` of a trace, or a line of a ``runs/*.jsonl``."""

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
    rows: dict[str, int] = {}  # the seq of the last row of real processes, as far as it is known
    clock_error_ns: int | None = None  # how far two processes' clocks may be apart; None: nobody knows
    seed: int | None = None
