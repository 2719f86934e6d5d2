"""What the ends of a load are told, what they tell, and how a reader knows what it has read."""

from __future__ import annotations

import secrets
import struct
from typing import Literal

import msgspec

HEAD = struct.Struct("<4sIQ")  # the first bytes of a request's first payload: mark, number, when it was sent
TASK_MARK_BYTES = 4


def new_mark() -> bytes:
    """Tells the heads of one load from other bytes: payloads go on with zeros, and what stands between them is text."""
    return bytes(128 + secrets.randbelow(128) for _ in range(TASK_MARK_BYTES))


class WorkerTask(msgspec.Struct, kw_only=True):
    """What a worker is to do. Times are of the monotonic clock."""

    role: Literal["client", "reader"]
    peer: str = "antiphon"
    target: str  # what the peer's ends need to know to find it; of Antiphon, the cluster's folder
    groups: list[str]  # the client's destinations; the reader's one group
    place: int = 0  # which of the readers
    batch: int
    size: int
    outstanding: int
    seconds: float  # that are measured
    rate: float | None = None  # payloads a second that the client sends; None: as many as it may
    mark: bytes
    begin: float = 0.0  # of what is measured, once that is known

    @property
    def end(self) -> float:
        return self.begin + self.seconds

    def payloads(self) -> tuple[bytes, list[bytes]]:
        """What follows the head in a request's first payload, and the other payloads."""
        return bytes(self.size - HEAD.size), [bytes(self.size)] * (self.batch - 1)

    def heads(self, data: bytes | bytearray) -> list[tuple[int, int]]:
        """Numbers and times of all heads in some bytes. One byte is found ten times as quickly as four."""
        found = []
        mark, first = self.mark, self.mark[0]
        at = data.find(first)
        while at >= 0:
            if data.startswith(mark, at):
                _, number, sent = HEAD.unpack_from(data, at)
                found.append((number, sent))
                at += HEAD.size
            else:
                at += 1
            at = data.find(first, at)
        return found


class WorkerReport(msgspec.Struct, kw_only=True):
    """What came of it, in the time that was measured."""

    payloads: int = 0
    cpu_seconds: float = 0.0
    failure: str | None = None  # a sentence: then there is nothing else
    latencies_ms: list[float] = []  # client: to the receipt; reader: to the delivery: a thousand quantiles of them
    rates: list[float] = []  # reader: payloads a second, in bins
