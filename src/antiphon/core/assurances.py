"""What a member can answer for though it may be gone for good: requests on which all their groups have decided.

A member that has journaled a request has it alone. Where a protocol knows when every destination group has decided on a
message, that is, when a majority of each holds it for good, it says so (`OrderingProtocol.assure`); a delivery says the
same. The member then *assures* the client of the message's requests, in the order in which it took them: what a request
waits for (core/sessions.py) is assured before it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.requests import Request, parse_request
from antiphon.core.sessions import SessionId


class Decided(NamedTuple):
    """A request of whose message all is known, while one that the same member took before it still waits."""

    request: Buffers
    timestamp: int


class Assurances(msgspec.Struct, array_like=True):
    """Of all clients of one member."""

    waiting: dict[SessionId, dict[int, Decided | None]] = {}  # taken and not assured, in order, by first number
    latest: int = 0  # the greatest timestamp of all that was decided on or delivered here

    def take(self, session: SessionId, request: Request) -> None:
        self.waiting.setdefault(session, {})[request.first] = None

    def reached(self, session: SessionId, taken: int) -> int:
        """The number below which all is assured of a session, of which all below ``taken`` was taken."""
        waiting = self.waiting.get(session)
        return next(iter(waiting)) if waiting else taken

    def assure(self, session: SessionId, request: Request, timestamp: int) -> tuple[list[Request], int]:
        """Its message is decided on. Returns what is assured by that, and the greatest of its timestamps."""
        waiting = self.waiting.get(session)
        if waiting is None or request.first not in waiting:
            return [], 0
        waiting[request.first] = Decided(Buffers(request.data), timestamp)
        found, latest = list[Request](), 0
        for first in list(waiting):
            decided = waiting[first]
            if decided is None:
                break
            found.append(parse_request(decided.request.joined()) if first != request.first else request)
            latest = max(latest, decided.timestamp)
            del waiting[first]
        if not waiting:
            del self.waiting[session]
        return found, latest

    def delivered(self, session: SessionId, request: Request, timestamp: int) -> tuple[list[Request], int]:
        """It was delivered here, and so was all that its client sent before it."""
        waiting = self.waiting.get(session)
        if waiting is None:
            return [], 0
        for first in [first for first in waiting if first < request.first]:
            del waiting[first]  # a client that calls settled what is not has given it up
        return self.assure(session, request, timestamp)
