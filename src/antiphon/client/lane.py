"""A route's way to one member."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from antiphon.client.connection import MEMBER_SILENCE_SECONDS
from antiphon.client.ledger import Ledger
from antiphon.client.members import RequestConnection
from antiphon.client.outgoing import Outgoing
from antiphon.core.buffers import COPIED_MAX
from antiphon.runtime.net.frames import FrameKind, Refused, RouteMarks, RouteNumber, encode, request_head
from antiphon.runtime.net.stream import WRITE_BUFFER_BYTES

BUSY_SECONDS = 15.0  # a member that is alive but takes nothing for so long is left for another


class LaneOwner(Protocol):
    """A route, as its lanes know it."""

    destinations: tuple[str, ...]
    ledger: Ledger
    lane: Lane | None
    is_prompt: bool

    def flush(self) -> None: ...
    def leave(self, lane: Lane, why: str) -> None: ...
    def on_taken(self, lane: Lane, marks: RouteMarks) -> None: ...
    def on_refused(self, lane: Lane, refused: Refused) -> None: ...


class Lane:
    """A route's way through one connection, from when it turns to that member until it leaves it.

    Each has a route number of its own on the connection, so that late answers to an earlier one are known as such.
    """

    def __init__(self, route: LaneOwner, connection: RequestConnection) -> None:
        self.route = route
        self.connection = connection
        self.number = connection.add_route(self)
        self.begins_at = route.ledger.settled  # sent in order from this number on
        self.unsent = deque(route.ledger.requests)  # by an earlier lane, and not yet by this one
        self.sent_end = 0
        self.taken = 0
        self.asked_at = 0.0  # when the member came to owe an answer, or last gave one
        self.assured_at = connection.loop.time()  # when it last assured something, or there was nothing to assure
        self.is_prompt = route.is_prompt
        self._unflushed = 0
        self._name_route()

    def _name_route(self) -> None:
        named = RouteNumber(self.number, list(self.route.destinations), self.is_prompt)
        self.connection.write(encode(FrameKind.ROUTE, named))

    def become_prompt(self) -> None:
        """Somebody waits to hear what the member has taken."""
        self.is_prompt = True
        self._name_route()

    @property
    def awaits_answer(self) -> bool:
        return self.taken < self.sent_end

    def is_stuck(self, now: float) -> bool:
        """Whether the member says nothing, or says for long that it is busy."""
        silent_since = max(self.asked_at, self.connection.heard_at)
        return now - silent_since > MEMBER_SILENCE_SECONDS or now - self.asked_at > BUSY_SECONDS

    @property
    def is_writable(self) -> bool:
        return self.connection.is_open and self.connection.is_writable

    @property
    def is_current(self) -> bool:
        return self.route.lane is self

    def on_taken(self, marks: RouteMarks) -> None:
        self.route.on_taken(self, marks)

    def on_refused(self, refused: Refused) -> None:
        self.route.on_refused(self, refused)

    def on_writable(self) -> None:
        self.route.flush()

    def on_gone(self, why: str) -> None:
        self.route.leave(self, why)

    def send(self, request: Outgoing) -> None:
        """It leaves with the connection's `flush`, if not before."""
        size = request.size
        head = request_head(self.number, size) + request.head
        if size > COPIED_MAX:
            self.connection.add(head, *request.packed.pieces)
        else:
            self.connection.add(b"".join((head, *request.packed.pieces)))
        if self.taken >= self.sent_end:
            self.asked_at = self.connection.loop.time()
        self.sent_end = max(self.sent_end, request.end)
        self._unflushed += size
        if self._unflushed > WRITE_BUFFER_BYTES:  # so that the transport can push back
            self._unflushed = 0
            self.connection.flush()
