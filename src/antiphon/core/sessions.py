"""A client's order, exactly once, however often and through whichever members its requests come.

What one client sends to one set of groups is a *session*: its payloads are numbered 0, 1, 2, ... A request holds a
range of these numbers for life. Two rules make everything else follow:

- **At delivery** a request is admitted when all numbers before it were: an earlier range has been delivered before, and
  is dropped; a later one waits for its predecessor and is delivered right behind it. The messages of one set of groups
  come in one order to all their members, so all admit the same requests in the same order, without another message.
- **At the member** a request is taken only after its predecessor. So whoever acknowledges a request holds all that it
  may have to wait for, and what is acknowledged by a member that is up is delivered.

A session is one number, and the requests that wait. A client that changes member sends again, in order, everything that
it does not know to be delivered in all its groups; below that mark all is *settled*, and will never be repeated.

A member that was away while others delivered goes on behind one of these, and takes over where clients are there (a
`Standing`). So it admits what the others admit, though it never delivered what they did.

Where messages may be lost for good (a protocol with gaps), nobody knows where clients are behind a gap, and what is
missing there is not waited for: the first request of a session behind it is admitted whatever its number, and all that
waited comes before it. A member forgets what it took and has not delivered: it may be lost, and the client's next
request has it sent again.

Where processes part and come together again (a protocol with views), what was delivered on one side may never come to
the other, and nothing waits for it: a request is admitted unless it, or a later one, was delivered before. Yet of those
who go on together nobody misses what another one delivers, unless it was beyond that when the view began; and that
where the protocol keeps no order but the causal one. For in each view **a request that is handed on follows, in the
causal order, every copy of an earlier number that the view will ever bring**. It may be handed on at once if

- its predecessor was handed on by the same member in the view, or
- all numbers before it are *common*: delivered by all who are in the view, or brought by the view before. Where sides
  meet, each process tells where it is, nobody hands on anything before it has heard all, and the least is common.

Else the member *holds* it, and tells all in the view a `Mark`: nothing below is to be handed on any more. When each of
them has said something after it heard that, all copies of earlier numbers are here, and the request goes. So it does
not matter whether what the client says is settled is still to come, or was delivered where this member was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.errors import AntiphonError, Unavailable
from antiphon.core.model import GroupId
from antiphon.core.requests import Request, parse_request, trusted_requests_in

SESSIONS_MAX = 1 << 16  # how many a group remembers; the one not heard of for longest goes first
STANDING_MAX = 256  # sessions in one piece of where clients are


class SessionId(NamedTuple):
    client: str
    destinations: tuple[GroupId, ...]


class Mark(NamedTuple):
    """Nothing of a session below this number is handed on any more."""

    client: str
    destinations: tuple[GroupId, ...]
    number: int


class WaitingRequest(NamedTuple):
    """A request that waits for its predecessor."""

    destinations: tuple[GroupId, ...]
    request: Buffers


class Standing(NamedTuple):
    """Where clients are at a point of the order, or a piece of that: it fits into a frame."""

    delivered: tuple[Mark, ...] = ()  # the number after the last one that was, of each session
    waiting: tuple[WaitingRequest, ...] = ()


class OutOfTurn(AntiphonError):
    """A request whose predecessor this member does not have: the client must go on at ``expected``."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"This member takes the client's requests to these groups from number {expected} on.")
        self.expected = expected


class Session(msgspec.Struct, array_like=True):
    """What was delivered of one session."""

    next: int = 0  # all numbers below were delivered here
    waiting: dict[int, Buffers] = {}  # requests that came before their predecessor, by first number
    floor: int = 0  # with views: the greatest mark that was heard; nothing below it is taken
    common: int = 0  # with views: no number below it can still come, in the present one, before what is handed on now
    gaps: int = 0  # how many gaps had been announced when something was last delivered of it


_UNKNOWN = Session()  # never changed


class Sessions(msgspec.Struct, array_like=True):
    """``known`` is the same at all members of a group, for it follows from their deliveries alone."""

    known: dict[SessionId, Session] = {}  # the one heard of last is last
    taken: dict[SessionId, int] = {}  # by this member, beyond what is delivered: the next number that it takes
    held: dict[SessionId, dict[int, Buffers]] = {}  # with views: taken, and not handed on yet; by first number
    handed: dict[SessionId, int] = {}  # with views: the number after the last one that was, in the present one
    told: dict[SessionId, tuple[int, int]] = {}  # while sides meet: how many have said where they are; the least of it
    gaps: int = 0  # how many were announced here

    # At the member ------------------------------------------------------------------------------------------------

    def expected(self, session: SessionId, settled: int) -> int:
        """The number from which on this member takes requests of a session."""
        known = self.known.get(session)
        return max(self.taken.get(session, 0), max(known.next, known.floor) if known is not None else 0, settled)

    def check(
        self,
        session: SessionId,
        request: Request,
        expected: int | None = None,
        *,
        with_views: bool = False,
        mixed: bool = False,
    ) -> None:
        """Raise OutOfTurn or Unavailable for a request that may not be taken now; call before it is journaled.

        ``expected``: where it stands behind others that came with it, the number after theirs.
        ``with_views``: what is settled and not delivered here may never come. Then the request is held.
        ``mixed``: not all messages come in one order. Then only the causal order puts a request behind what is settled:
        who multicasts it must have delivered that, also where the session is not known yet. (Once sessions are
        forgotten, an unknown one may be one of these.)
        """
        known = self.known.get(session)
        if mixed and known is None and request.settled and len(self.known) < SESSIONS_MAX:
            known = _UNKNOWN
        may_never_come = with_views or (known is not None and known.gaps != self.gaps)
        if known is not None and request.settled > known.next and not may_never_come:
            raise Unavailable("This member has not delivered yet what the client says is settled: ask another one.")
        if expected is None:
            expected = self.expected(session, request.settled)
        if request.first > expected or request.first < expected < request.end:
            raise OutOfTurn(expected)

    def take(self, session: SessionId, request: Request) -> tuple[int, bool]:
        """The number from which on this member now takes requests, and whether it must multicast this one.

        If it need not, the request was taken or delivered here before.
        """
        expected = self.expected(session, request.settled)
        if request.first != expected:
            return expected, False
        self.taken[session] = end = request.end
        return end, True

    # At the member, with views ------------------------------------------------------------------------------------

    def must_wait(self, session: SessionId, request: Request) -> bool:
        """Whether a request that is taken now has to be held."""
        at_once = max(self.handed.get(session, 0), self._common(session))
        return session in self.held or request.first > at_once

    def hands_on(self, session: SessionId, request: Request) -> None:
        self.handed[session] = request.end

    def hold(self, session: SessionId, request: Request) -> None:
        self.held.setdefault(session, {})[request.first] = Buffers(request.data)

    def mark(self, session: SessionId) -> Mark | None:
        """What all have to hear of before the requests that are held of a session are handed on."""
        held = self.held.get(session)
        return Mark(*session, min(held)) if held else None

    def release(self, session: SessionId, heard: int = 0) -> list[Request]:
        """What is held of a session and may be handed on now, up to the next hole. ``heard``: a mark that all know."""
        held, released = self.held.get(session, {}), list[Request]()
        end = max(heard, self._common(session))
        for first in sorted(held):
            if first > end:
                break
            released.append(parse_request(held.pop(first).joined()))
            end = released[-1].end
        if not held:
            self.held.pop(session, None)
        return released

    def hear(self, mark: Mark) -> None:
        """Nothing below is to be handed on any more."""
        session = SessionId(mark.client, mark.destinations)
        known = self.known.pop(session, None) or Session()
        known.floor = max(known.floor, mark.number)
        self.known[session] = known
        if len(self.known) > SESSIONS_MAX:
            self._forget_one()
        kept = {first: data for first, data in self.held.pop(session, {}).items() if first >= mark.number}
        if kept:
            self.held[session] = kept

    def begin_view(self) -> None:
        """All who come from the last view together have had the same copies in it, and heard of the same marks."""
        self.handed, self.told = {}, {}
        for known in self.known.values():
            known.common = max(known.common, known.floor)

    def marks(self) -> list[Mark]:
        """Where this process is."""
        return [Mark(*session, known.next) for session, known in self.known.items() if known.next]

    def meet(self, mark: Mark) -> None:
        """A process, or this one itself, says where it is."""
        session = SessionId(mark.client, mark.destinations)
        count, least = self.told.get(session, (0, mark.number))
        self.told[session] = count + 1, min(least, mark.number)

    def met(self, sizes: Mapping[GroupId, int]) -> None:
        """All have. ``sizes``: how many of each group are in the view. Who said nothing of a session is at 0."""
        for session, known in self.known.items():
            count, least = self.told.get(session, (0, 0))
            known.common = least if count == sum(sizes[group] for group in session.destinations) else 0
        self.told = {}

    def _common(self, session: SessionId) -> int:
        known = self.known.get(session)
        return 0 if known is None else known.common

    # At delivery --------------------------------------------------------------------------------------------------

    def admit(self, session: SessionId, request: Request, *, ordered: bool, with_views: bool = False) -> list[Request]:
        """What is delivered with this request: nothing, or itself and all that waited for it.

        ``ordered``: whether the protocol keeps one order, so that everything below the request's settled mark was
        delivered before it. Then a session that was forgotten, or never known here, begins there.
        """
        known = self.known.pop(session, None)
        if known is None:
            known = Session(request.settled if ordered else 0)
        elif ordered and request.settled > known.next:  # no honest client says so: what it skips, it loses
            known.next = request.settled
            known.waiting = {first: data for first, data in known.waiting.items() if first >= known.next}
        self.known[session] = known
        if len(self.known) > SESSIONS_MAX and (ordered or with_views):
            self._forget_one()
        if with_views:
            known.next = max(known.next, request.first)  # what is left out was delivered where this process was not
            known.common = max(known.common, request.end)
            if self.handed.get(session, known.common + 1) <= known.common:
                del self.handed[session]
        if request.first < known.next:
            return []
        if request.first == known.next:
            admitted = [request]
            known.next = request.end
            while (follower := known.waiting.pop(known.next, None)) is not None:
                admitted += trusted_requests_in(follower)
                known.next = admitted[-1].end
        else:
            data = Buffers(request.data)
            data.decoded = [request]  # it knows where it lies
            known.waiting.setdefault(request.first, data)
            if known.gaps == self.gaps:
                return []
            admitted = _all_that_waited(known)
        known.gaps = self.gaps
        if known.waiting:  # what a dishonest client's other ranges left behind
            known.waiting = {first: data for first, data in known.waiting.items() if first > known.next}
        if self.taken.get(session, known.next + 1) <= known.next:
            del self.taken[session]
        return admitted

    def standing(self) -> list[Standing]:
        """All that decides what is admitted from here on, in pieces, of which there is at least one."""
        marks = [Mark(*session, known.next) for session, known in self.known.items()]
        pieces = [Standing(tuple(marks[at : at + STANDING_MAX])) for at in range(0, len(marks) or 1, STANDING_MAX)]
        for session, known in self.known.items():
            pieces += [
                Standing(waiting=(WaitingRequest(session.destinations, data),)) for data in known.waiting.values()
            ]
        return pieces

    def adopt(self, pieces: Iterable[Standing]) -> None:
        """Admit from here on what the process admits whose standing this is."""
        self.known = {}
        for piece in pieces:
            for mark in piece.delivered:
                self.known[SessionId(mark.client, mark.destinations)] = Session(mark.number)
            for destinations, data in piece.waiting:
                request = parse_request(data.joined())
                known = self.known.get(SessionId(request.client, destinations))
                if known is not None:
                    known.waiting[request.first] = data
        self.taken = {session: end for session, end in self.taken.items() if end > self.progress(session)}

    def begin_gap(self) -> None:
        """Messages may be missing from here on, and nobody knows which."""
        self.gaps += 1
        self.taken = {}

    def _forget_one(self) -> None:
        """The one not heard of for longest, but none that has requests waiting: they must come out everywhere."""
        for session, known in self.known.items():
            if not known.waiting:
                del self.known[session]
                return

    def progress(self, session: SessionId) -> int:
        """How far a session was delivered here."""
        known = self.known.get(session)
        return 0 if known is None else known.next


def _all_that_waited(known: Session) -> list[Request]:
    """In the order of their numbers. What is missing in between was lost where the gap is."""
    admitted: list[Request] = []
    for first in sorted(known.waiting):
        if first >= known.next:
            admitted += trusted_requests_in(known.waiting[first])
            known.next = admitted[-1].end
    known.waiting = {}
    return admitted
