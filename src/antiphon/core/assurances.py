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
from antiphon.core.requests import Request, trusted_requests_in
from antiphon.core.sessions import SESSIONS_MAX, SessionId


class Decided(NamedTuple):
    """A request of whose message all is known, while one that the same member took before it still waits."""

    request: Buffers
    timestamp: int


class Assurance(NamedTuple):
    """What a client is to be told: it is assured of these requests, in their order."""

    session: SessionId
    requests: list[Request]
    timestamp: int  # behind which none of them is ordered


class Assurances(msgspec.Struct, array_like=True):
    """Of all clients of one member."""

    waiting: dict[SessionId, dict[int, Decided | None]] = {}  # taken and not assured, in order, by first number
    begun: dict[SessionId, int] = {}  # the first number of each session that this member took, the newest last
    latest: int = 0  # the greatest timestamp of all that was decided on or delivered here

    def when_taken(
        self, session: SessionId, requests: list[Request], fresh: int, taken: int, delivered: int
    ) -> list[Assurance]:
        """A client has sent these, of which the last ones are ``fresh``; all below ``taken`` was taken, or called
        settled by the client, and all below ``delivered`` was delivered here.

        Of what it sends again, it is told at once what is assured; the rest is told when it is. Of what this member
        neither took nor delivered, whatever the client says of it, nobody here can answer for anything.
        """
        again = len(requests) - fresh
        if fresh:
            waiting = self.waiting.setdefault(session, {})
            for request in requests[again:]:
                waiting[request.first] = None
            self._begin(session, requests[again].first)
        reached, begun = self.reached(session, taken), self.begun.get(session, taken)
        told = [r for r in requests[:again] if r.end <= delivered or (begun <= r.first and r.end <= reached)]
        return [Assurance(session, told, self.latest)] if told else []

    def _begin(self, session: SessionId, first: int) -> None:
        if session not in self.begun:
            self.begun[session] = first
            if len(self.begun) > SESSIONS_MAX:
                oldest = next(iter(self.begun))
                del self.begun[oldest]
                self.waiting.pop(oldest, None)

    def when_decided(
        self, destinations: tuple[GroupId, ...], requests: list[Request], timestamp: int
    ) -> list[Assurance]:
        """All groups have decided on the message that brings these."""
        return self._assure(destinations, requests, timestamp, is_delivered=False)

    def when_delivered(
        self, destinations: tuple[GroupId, ...], admitted: list[Request], timestamp: int
    ) -> list[Assurance]:
        """These were, and so was all that their clients sent before them. Whoever multicast it, it is decided on."""
        return self._assure(destinations, admitted, timestamp, is_delivered=True)

    def reached(self, session: SessionId, taken: int) -> int:
        """The number below which all is assured of a session, of which all below ``taken`` was taken."""
        waiting = self.waiting.get(session)
        return next(iter(waiting)) if waiting else taken

    def _assure(
        self, destinations: tuple[GroupId, ...], requests: list[Request], timestamp: int, *, is_delivered: bool
    ) -> list[Assurance]:
        self.latest = max(self.latest, timestamp)
        ends: dict[SessionId, int] = {}  # what comes before was delivered
        for request in requests:
            session = SessionId(request.client, destinations)
            waiting = self.waiting.get(session)
            if waiting is None:
                continue
            if request.first in waiting:
                data = Buffers(request.data)
                data.decoded = [request]
                waiting[request.first] = Decided(data, timestamp)
            ends[session] = request.first if is_delivered else 0
        return [told for session, end in ends.items() for told in self._take_assured(session, end)]

    def _take_assured(self, session: SessionId, delivered: int) -> list[Assurance]:
        """All that is assured, up to the first that is not. What stands before something that was delivered, and was
        not itself, its client has given up: it called settled what is not."""
        waiting = self.waiting[session]
        found: dict[int, Decided | None] = {}
        for first, decided in waiting.items():
            if decided is None and first >= delivered:
                break
            found[first] = decided
        for first in found:
            del waiting[first]
        if not waiting:
            del self.waiting[session]
        assured = [decided for decided in found.values() if decided is not None]
        if not assured:
            return []
        requests = [trusted_requests_in(decided.request)[0] for decided in assured]
        return [Assurance(session, requests, max(decided.timestamp for decided in assured))]
