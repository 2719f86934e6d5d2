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
from antiphon.core.model import GroupId
from antiphon.core.requests import Request, parse_request
from antiphon.core.sessions import SessionId


class Decided(NamedTuple):
    """A request of whose message all is known, while one that the same member took before it still waits."""

    request: Buffers
    timestamp: int


class Told(NamedTuple):
    """What a client is to be told: it is assured of these requests, in their order."""

    session: SessionId
    requests: list[Request]
    timestamp: int  # behind which none of them is ordered


class Assurances(msgspec.Struct, array_like=True):
    """Of all clients of one member."""

    waiting: dict[SessionId, dict[int, Decided | None]] = {}  # taken and not assured, in order, by first number
    latest: int = 0  # the greatest timestamp of all that was decided on or delivered here

    def when_taken(self, session: SessionId, requests: list[Request], fresh: int, taken: int) -> list[Told]:
        """A client has sent these, of which the last ones are ``fresh``; all below ``taken`` was taken.

        Of what it sends again, it is told at once what is assured; the rest is told when it is.
        """
        again = len(requests) - fresh
        if fresh:
            waiting = self.waiting.setdefault(session, {})
            for request in requests[again:]:
                waiting[request.first] = None
        reached = self.reached(session, taken)
        told = [request for request in requests[:again] if request.end <= reached]
        return [Told(session, told, self.latest)] if told else []

    def when_decided(self, destinations: tuple[GroupId, ...], requests: list[Request], timestamp: int) -> list[Told]:
        """All groups have decided on the message that brings these."""
        self.latest = max(self.latest, timestamp)
        told = []
        for request in requests:
            session = SessionId(request.client, destinations)
            if session in self.waiting:
                told += self._assure(session, request, timestamp)
        return told

    def when_delivered(self, destinations: tuple[GroupId, ...], admitted: list[Request], timestamp: int) -> list[Told]:
        """These were, and so was all that their clients sent before them. Whoever multicast it, it is decided on."""
        if self.waiting:
            for request in admitted:
                waiting = self.waiting.get(SessionId(request.client, destinations), {})
                for first in [first for first in waiting if first < request.first]:
                    del waiting[first]  # a client that calls settled what is not has given it up
        return self.when_decided(destinations, admitted, timestamp)

    def reached(self, session: SessionId, taken: int) -> int:
        """The number below which all is assured of a session, of which all below ``taken`` was taken."""
        waiting = self.waiting.get(session)
        return next(iter(waiting)) if waiting else taken

    def _assure(self, session: SessionId, request: Request, timestamp: int) -> list[Told]:
        waiting = self.waiting[session]
        if request.first not in waiting:
            return []
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
        return [Told(session, found, latest)] if found else []
