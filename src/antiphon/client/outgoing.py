"""What leaves in one request, from the caller's `multicast` until it is known to be delivered in all its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.client.values import Receipt
from antiphon.core.errors import AntiphonError
from antiphon.core.model import Service
from antiphon.core.requests import encode_head, pack_payloads, unpack_payloads

NO_DEADLINE = float("inf")  # of a caller who waits for as long as it takes


class Outgoing:
    """First a *draft*: payloads and the calls that wait for them, all of which may still go away.

    It is numbered when it is handed to a connection, and is a *request* from then on: range and payloads are for life,
    unless it is withdrawn.
    """

    __slots__ = (
        "count",
        "deadlines",
        "end",
        "first",
        "futures",
        "head",
        "is_doubtful",
        "is_whole",
        "packed",
        "payloads",
        "room",
        "service",
    )

    def __init__(self, room: int, service: Service | None = None) -> None:
        self.payloads: list[bytes] = []  # of a draft that others may join
        self.count = 0  # of payloads, once they are packed
        self.packed = b""
        self.futures: list[asyncio.Future[Receipt]] = []  # one for each payload; in a whole one, one for all
        self.deadlines: list[float] = []  # one for each future
        self.room = room  # bytes that a draft still takes
        self.service = service  # of all its payloads
        self.is_whole = False  # made by one call: no other joins it
        self.is_doubtful = False  # somebody may have taken it, or was told so
        self.first = -1
        self.end = -1
        self.head = b""  # of a request: what comes before the payloads

    @classmethod
    def whole(
        cls, count: int, packed: bytes, future: asyncio.Future[Receipt], deadline: float, service: Service | None
    ) -> Outgoing:
        made = cls(0, service)
        made.count, made.packed, made.is_whole = count, packed, True
        made.futures, made.deadlines = [future], [deadline]
        return made

    @property
    def size(self) -> int:
        """Of a request, in bytes."""
        return len(self.head) + len(self.packed)

    def number(self, client: str, first: int, settled: int) -> None:
        if not self.is_whole:
            self.count, self.packed = len(self.payloads), pack_payloads(self.payloads)
            self.payloads = []
        self.first, self.end = first, first + self.count
        self.settle(client, settled)

    def settle(self, client: str, settled: int) -> None:
        """Say what is settled by now."""
        self.head = encode_head(client, self.first, settled, self.count, len(self.packed), self.service)

    def withdraw(self) -> None:
        """Make a draft of it again. Only for what surely no member has taken or will take."""
        if not self.is_whole:
            self.payloads, self.packed = unpack_payloads(self.packed, self.count), b""
        self.room = 0
        self.first = self.end = -1

    def answer(self, client: str, destinations: tuple[str, ...], member: str) -> None:
        """A member has it: give every caller its receipt."""
        if self.is_whole:
            if not self.futures[0].done():
                self.futures[0].set_result(Receipt(client, destinations, self.first, self.end - self.first, member))
        else:
            number = self.first
            for future in self.futures:
                if not future.done():
                    future.set_result(Receipt(client, destinations, number, 1, member))
                number += 1
        self.futures, self.deadlines = [], []

    def fail(self, error: Callable[[int], AntiphonError], now: float = NO_DEADLINE) -> None:
        """Tell the callers whose time is over by ``now``; ``error`` gets the number of the caller's payload."""
        for index, deadline in enumerate(self.deadlines):
            future = self.futures[index]
            if deadline <= now and not future.done():
                future.set_exception(error(self.first + index))
                self.is_doubtful = self.first >= 0

    def earliest(self) -> float:
        """The next deadline of a caller who still waits."""
        waiting = (deadline for deadline, future in zip(self.deadlines, self.futures, strict=True) if not future.done())
        return min(waiting, default=NO_DEADLINE)

    def drop_done(self) -> None:
        """Let go of a draft's payloads for which nobody waits any more."""
        kept = [index for index, future in enumerate(self.futures) if not future.done()]
        if len(kept) == len(self.futures):
            return
        if not self.is_whole:
            self.payloads = [self.payloads[index] for index in kept]
        self.futures = [self.futures[index] for index in kept]
        self.deadlines = [self.deadlines[index] for index in kept]
