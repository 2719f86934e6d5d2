"""What leaves in one request, from the callers' `multicast` until it is known to be delivered in all its groups."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from itertools import islice

from antiphon.client.turns import ClientTurn
from antiphon.client.values import Receipt
from antiphon.core.buffers import Buffers
from antiphon.core.errors import AntiphonError
from antiphon.core.model import Service
from antiphon.core.requests import encode_head, unpack_payloads
from antiphon.runtime.net.frames import ReceiptKind

NO_DEADLINE = float("inf")  # of a caller who waits for as long as it takes
NOTHING = Buffers(b"")


class Outgoing:
    """First a *draft*: calls with their payloads, all of which may still go away.

    It is numbered when it is handed to a connection, and is a *request* from then on: range and payloads are for life,
    unless it is withdrawn.
    """

    __slots__ = (
        "batches",
        "count",
        "deadlines",
        "end",
        "first",
        "futures",
        "head",
        "is_answered",
        "is_doubtful",
        "packed",
        "payloads",
        "receipt",
        "room",
        "service",
        "size",
        "turn",
    )

    def __init__(
        self, room: int, service: Service | None = None, receipt: ReceiptKind = "member", turn: ClientTurn | None = None
    ) -> None:
        # One for each call. What a call brings together stays together: as long as it waits, it is one piece.
        self.futures: list[asyncio.Future[Receipt]] = []
        self.deadlines: list[float] = []
        self.payloads: list[bytes] = []  # of a draft
        self.batches: dict[int, array[int]] = {}  # by call, where it brought several payloads: their lengths
        self.count = 0  # of payloads, once they are packed
        self.packed = NOTHING  # of a request: the lengths of all payloads, and the payloads
        self.room = room  # bytes that a draft still takes
        self.service = service  # of all its payloads
        self.receipt = receipt  # for which all its callers wait
        self.is_answered = False
        self.turn = turn  # of its client, where these are counted
        self.is_doubtful = False  # somebody may have taken it, or was told so
        self.first = -1
        self.end = -1
        self.head = b""  # of a request: what comes before the payloads
        self.size = 0  # of a request, in bytes

    def number(self, client: str, first: int, settled: int) -> None:
        lengths = self._lengths() if self.batches else array("I", map(len, self.payloads))
        self.count, self.packed = len(lengths), Buffers.gathered((lengths.tobytes(), *self.payloads))
        self.payloads = []
        self.first, self.end = first, first + self.count
        self.settle(client, settled)

    def _lengths(self) -> array[int]:
        """Of all payloads of a draft in which some calls brought several."""
        sizes = list(map(len, self.payloads))
        lengths, done = array("I"), 0
        for call, batch in self.batches.items():
            lengths.extend(sizes[done:call])
            lengths.extend(batch)
            done = call + 1
        lengths.extend(sizes[done:])
        return lengths

    def settle(self, client: str, settled: int) -> None:
        """Say what is settled by now."""
        turn = self.turn
        place = (0, 0) if turn is None else (turn.floor, turn.number)
        self.head = encode_head(client, self.first, settled, self.count, self.packed.size, self.service, *place)
        self.size = len(self.head) + self.packed.size

    def withdraw(self) -> None:
        """Make a draft of it again. Only for what surely no member has taken or will take."""
        payloads = iter(unpack_payloads(bytes(self.packed), self.count))
        self.payloads = [b"".join(islice(payloads, count)) for count in self._counts()]
        self.packed = NOTHING
        self.room = 0
        self.first = self.end = -1

    def _counts(self) -> list[int]:
        """How many payloads each call brought."""
        counts = [1] * len(self.futures)
        for call, lengths in self.batches.items():
            counts[call] = len(lengths)
        return counts

    def answer(self, client: str, destinations: tuple[str, ...], member: str, timestamp: int) -> None:
        """It is held by whom it was to be: give every caller its receipt."""
        number, kind = self.first, self.receipt
        self.is_answered = True
        for future, count in zip(self.futures, self._counts(), strict=True):
            if not future.done():
                future.set_result(Receipt(client, destinations, number, count, member, kind, timestamp))
            number += count
        self.futures, self.deadlines, self.batches = [], [], {}

    def fail(self, error: Callable[[int], AntiphonError], now: float = NO_DEADLINE) -> None:
        """Tell the callers whose time is over by ``now``; ``error`` gets the number of the caller's first payload."""
        number = self.first
        for future, deadline, count in zip(self.futures, self.deadlines, self._counts(), strict=True):
            if deadline <= now and not future.done():
                future.set_exception(error(number))
                self.is_doubtful = self.first >= 0
            number += count

    def earliest(self) -> float:
        """The next deadline of a caller who still waits."""
        waiting = (deadline for deadline, future in zip(self.deadlines, self.futures, strict=True) if not future.done())
        return min(waiting, default=NO_DEADLINE)

    def drop_done(self) -> None:
        """Let go of a draft's payloads for which nobody waits any more."""
        kept = [call for call, future in enumerate(self.futures) if not future.done()]
        if len(kept) == len(self.futures):
            return
        self.batches = {new: self.batches[call] for new, call in enumerate(kept) if call in self.batches}
        self.payloads = [self.payloads[call] for call in kept]
        self.futures = [self.futures[call] for call in kept]
        self.deadlines = [self.deadlines[call] for call in kept]
