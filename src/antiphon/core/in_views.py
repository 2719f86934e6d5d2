"""Where processes part and come together again: when a member hands on what clients ask for.

The rule, and why it suffices, is in core/sessions.py; how processes of a view tell one another, in services/marks.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from antiphon.core.gather import Gather, Gathering
from antiphon.core.model import GroupId, Message, ProcessId, Topology
from antiphon.core.requests import Request, trusted_requests_in
from antiphon.core.sessions import Mark, SessionId, Sessions


class Teller(Protocol):
    """What is needed of a protocol with views."""

    def must_wait(self, destinations: tuple[GroupId, ...]) -> bool: ...
    def tell_all(self, mark: Mark) -> None: ...


class Kept(Protocol):
    """What a process keeps of its clients."""

    sessions: Sessions
    gathering: Gathering


class Member(Protocol):
    """What is needed of the process."""

    me: ProcessId
    topology: Topology
    gather: Gather

    @property
    def state(self) -> Kept: ...
    @property
    def protocol(self) -> Teller: ...
    def multicast_gathered(self) -> None: ...


class ClientsInViews:
    """The clients of one member, while there are views."""

    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def _sessions(self) -> Sessions:
        return self._member.state.sessions

    # A client's request -------------------------------------------------------------------------------------------

    def takes(self, session: SessionId, request: Request) -> bool:
        """Whether a request may be handed on at once; else it is held, and all are told of it."""
        sessions = self._sessions
        if not (self._member.protocol.must_wait(session.destinations) or sessions.must_wait(session, request)):
            sessions.hands_on(session, request)
            return True
        before = sessions.mark(session)
        sessions.hold(session, request)
        mark = sessions.mark(session)
        if mark is not None and mark != before:
            self._tell_all(mark)
        return False

    def delivered(self, session: SessionId) -> None:
        """Something of a session was: what is held of it may be next."""
        if session in self._sessions.held:
            self._hand_on_held(session)

    def hold_again(self, m: Message) -> None:
        """Have the clients' requests of a message handed on once more, in a view with somebody of each group, because
        one of these may never get it. Whoever has delivered them drops them."""
        for request in trusted_requests_in(m.body):
            if request.client != m.id.origin:  # what a process multicasts itself nobody would know again
                self._sessions.hold(SessionId(request.client, m.destinations), request)

    def held_sets(self) -> dict[tuple[GroupId, ...], int]:
        """How many requests are held, by the groups to which they go."""
        held: Counter[tuple[GroupId, ...]] = Counter()
        for session, requests in self._sessions.held.items():
            held[session.destinations] += len(requests)
        return held

    # Marks --------------------------------------------------------------------------------------------------------

    def hear_mark(self, mark: Mark) -> None:
        """A process of the same view, or this one itself, hands on nothing below, and nobody shall."""
        member, sessions = self._member, self._sessions
        if member.topology.group_of[member.me] not in mark.destinations:
            return
        session = SessionId(mark.client, mark.destinations)
        before = sessions.mark(session)
        sessions.hear(mark)
        member.state.gathering.drop(*mark)
        after = sessions.mark(session)
        if after is not None and after != before:  # what is left waits for a greater mark
            self._tell_all(after)

    def heard_by_all(self, mark: Mark) -> None:
        """Each process of the view has said something since it heard of it."""
        self._hand_on_held(SessionId(mark.client, mark.destinations), mark.number)

    def _tell_all(self, mark: Mark) -> None:
        protocol = self._member.protocol
        if not protocol.must_wait(mark.destinations):  # else it is told in a view to come
            protocol.tell_all(mark)

    def _hand_on_held(self, session: SessionId, heard: int = 0, *, anew: bool = False) -> None:
        """``anew``: what still has to wait has to be told in this view."""
        member, sessions = self._member, self._sessions
        if member.protocol.must_wait(session.destinations):
            return
        released = sessions.release(session, heard)
        for request in released:
            sessions.hands_on(session, request)
            member.state.gathering.add(session.destinations, request, member.gather)
        mark = sessions.mark(session)
        if mark is not None and (released or anew):
            self._tell_all(mark)

    # A view begins ------------------------------------------------------------------------------------------------

    def marks(self) -> list[Mark]:
        """How far each client's requests were delivered here."""
        return self._sessions.marks()

    def meet(self, marks: Iterable[Mark]) -> None:
        """A process says where it is, while sides meet."""
        for mark in marks:
            self._sessions.meet(mark)

    def met(self, processes: Iterable[ProcessId]) -> None:
        """All processes of a view have said so."""
        self._sessions.met(Counter(self._member.topology.group_of[process] for process in processes))

    def announce(self) -> None:
        """The application hears of a view now."""
        self.hold_gathered()
        self._sessions.begin_view()

    def hold_gathered(self) -> None:
        """In another view other numbers are common."""
        state = self._member.state
        gathered, state.gathering = state.gathering, Gathering()
        for message in gathered.messages:
            for request in trusted_requests_in(message.body()):
                state.sessions.hold(SessionId(request.client, message.destinations), request)

    def begin(self) -> None:
        """Processes multicast in a view from here on."""
        for session in [*self._sessions.held]:
            self._hand_on_held(session, anew=True)
        self._member.multicast_gathered()  # before another one's mark is heard
