"""What one client sends to one set of groups: a session (core/sessions.py), seen from its client.

A route numbers its payloads 0, 1, 2, ... All its requests go to one member, in order. A request is kept until it is
known to be delivered in all its groups. When the member is lost, refuses or is silent, another gets everything that is
not known to be delivered, in order; the members recognise what they have.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from antiphon.client.candidates import Candidates
from antiphon.client.lane import Lane
from antiphon.client.ledger import Ledger
from antiphon.client.members import Members
from antiphon.client.outgoing import NO_DEADLINE, Outgoing
from antiphon.client.turns import ClientTurn, Turns
from antiphon.client.values import Receipt
from antiphon.core.errors import AntiphonError, BadFrame, OutcomeUnknown, Unavailable, UsageError
from antiphon.core.model import Service
from antiphon.runtime.net.frames import ReceiptKind, Refused, RouteMarks

AT_ONCE_BYTES = 32 << 10  # a draft that is full and has so much leaves amid the turn; to write less takes too long


class RouteOwner(Protocol):
    """What a route needs of its client's sender: how it sends, whom it reaches, and room for what is kept."""

    client: str
    linger: float
    batch_bytes: int
    entry_bytes: int
    assures: bool
    turns: Turns
    newest: ClientTurn | None
    loop: asyncio.AbstractEventLoop
    members: Members

    def has_room(self, route: Route) -> bool: ...
    def hold(self, route: Route, size: int) -> None: ...
    def release(self, route: Route, size: int) -> None: ...
    def see_to(self, route: Route) -> None: ...
    def hear(self, timestamp: int) -> None: ...
    def begin_turn(self, route: Route) -> ClientTurn: ...


class Route:
    def __init__(self, destinations: tuple[str, ...], members: Sequence[str], owner: RouteOwner) -> None:
        self.destinations = destinations
        self.ledger = Ledger(destinations)
        self.candidates = Candidates(members)
        self.drafts: deque[Outgoing] = deque()
        self._open: Outgoing | None = None  # the newest draft, if others may join it
        self._turn: ClientTurn | None = None  # of the client, in which it last had a call
        self.is_prompt = not owner.assures  # whether anybody has asked for the receipt of one member
        self.bytes = 0  # of all that is numbered
        self.lane: Lane | None = None
        self._owner = owner
        self._search: asyncio.Task[None] | None = None
        self._flush_handle: asyncio.Handle | None = None
        self._is_closed = False
        self._has_leavers = False  # callers who no longer wait for what is a draft

    # From the caller ------------------------------------------------------------------------------------------------

    def add(
        self,
        payload: bytes,
        future: asyncio.Future[Receipt],
        deadline: float,
        service: Service | None = None,
        receipt: ReceiptKind = "member",
    ) -> None:
        size = len(payload) + self._owner.entry_bytes
        if self._turn is not self._owner.newest:
            self._enter_turn()
        draft = self._open
        if draft is None or draft.room < size or draft.service != service or draft.receipt != receipt:
            draft = self._begin_draft(service, receipt)
        draft.room -= size
        draft.payloads.append(payload)
        draft.futures.append(future)
        draft.deadlines.append(deadline)
        if self._flush_handle is None:
            self._flush_later()

    def _begin_draft(self, service: Service | None, receipt: ReceiptKind) -> Outgoing:
        full, owner = self._open, self._owner
        if full is not None and owner.batch_bytes - full.room >= AT_ONCE_BYTES:
            self.flush()  # the member can take it while the callers go on
        elif full is not None and owner.linger:
            self._flush_soon()
        draft = self._open = Outgoing(self._owner.batch_bytes, service, receipt, self._turn)
        if self._turn is not None:
            self._turn.pending += 1
        self.is_prompt = self.is_prompt or receipt == "member"
        self.drafts.append(draft)
        return draft

    def _enter_turn(self) -> None:
        """The last call was to another set of groups, or there was none."""
        self._turn = self._owner.begin_turn(self)
        self._open = None

    def add_batch(
        self,
        lengths: array[int],
        payloads: bytes,
        future: asyncio.Future[Receipt],
        deadline: float,
        service: Service | None = None,
        receipt: ReceiptKind = "member",
    ) -> None:
        """Several payloads in one piece, which are not to be divided; they do not linger."""
        size = len(payloads) + len(lengths) * self._owner.entry_bytes
        if self._turn is not self._owner.newest:
            self._enter_turn()
        draft = self._open
        if draft is None or draft.room < size or draft.service != service or draft.receipt != receipt:
            draft = self._begin_draft(service, receipt)
        draft.room -= size
        draft.batches[len(draft.futures)] = lengths
        draft.payloads.append(payloads)
        draft.futures.append(future)
        draft.deadlines.append(deadline)
        self._flush_soon()

    def caller_left(self) -> None:
        self._has_leavers = True

    def expire(self, now: float) -> float:
        """Tell the callers whose time is over; returns the next deadline."""
        why = self.candidates.why if self.lane is None else "too much that was sent before is not delivered yet"
        if self.drafts and not self._may_leave(self.drafts[0]):
            why = 'what was sent before to other groups has no receipt yet (with order="set" it is not waited for)'
        for draft in self.drafts:
            draft.fail(lambda _: Unavailable(f"It was not multicast to {self._names()} in time: {why}."), now)
        self._drop_leavers()
        for request in self.ledger.unanswered:
            request.fail(self._unknown, now)
        return min((each.earliest() for each in (*self.drafts, *self.ledger.unanswered)), default=NO_DEADLINE)

    def close(self) -> None:
        """Nothing leaves after this: what was not sent surely did not happen."""
        self._is_closed = True
        if self._search is not None:
            self._search.cancel()
        if self._flush_handle is not None:
            self._flush_handle.cancel()
        for draft in self.drafts:
            draft.fail(lambda _: Unavailable(f"It was not multicast to {self._names()}: the client was closed."))
        for request in self.ledger.unanswered:
            request.fail(self._unknown)
        self.lane = None

    def _unknown(self, number: int) -> AntiphonError:
        name = f"{self._owner.client}:{number}"
        return OutcomeUnknown(f"Whether {name} was multicast to {self._names()} is unknown: no answer came in time.")

    def _names(self) -> str:
        return ", ".join(self.destinations)

    def _drop_leavers(self) -> None:
        self._has_leavers = False
        for draft in self.drafts:
            draft.drop_done()
        if not all(draft.futures for draft in self.drafts):
            dropped = [draft for draft in self.drafts if not draft.futures]
            self.drafts = deque(draft for draft in self.drafts if draft.futures)
            self._open = None
            for draft in dropped:
                self._done(draft)

    def _done(self, request: Outgoing) -> None:
        """Nothing that is sent in later turns has to wait for it any more."""
        if request.turn is not None:
            self._owner.turns.done(request.turn)

    def _may_leave(self, draft: Outgoing) -> bool:
        return draft.turn is None or self._owner.turns.has_begun(draft.turn)

    # To the member --------------------------------------------------------------------------------------------------

    def _flush_later(self) -> None:
        loop, linger = self._owner.loop, self._owner.linger
        self._flush_handle = loop.call_later(linger, self.flush) if linger else loop.call_soon(self.flush)

    def _flush_soon(self) -> None:
        if self._flush_handle is not None:
            if not self._owner.linger:
                return  # it is soon
            self._flush_handle.cancel()
        self._flush_handle = self._owner.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what can be sent now. What cannot stays a draft, and is free to expire."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()  # another may have called before it was due
            self._flush_handle = None
        if self._is_closed:
            return
        if self._has_leavers:
            self._drop_leavers()
        lane = self.lane
        if lane is not None and not lane.connection.is_open:
            self.leave(lane, "the connection was lost")
        if lane is None or lane is not self.lane:
            self._seek()
            return
        ledger, owner = self.ledger, self._owner
        while lane.unsent and lane.is_writable:
            request = lane.unsent.popleft()
            if request.end > ledger.settled:
                request.settle(owner.client, ledger.settled)
                lane.send(request)
        while self.drafts and not lane.unsent and lane.is_writable and owner.has_room(self):
            turn = self.drafts[0].turn
            if turn is not None and not owner.turns.has_begun(turn):
                break
            draft = self.drafts.popleft()
            if draft is self._open:
                self._open = None
            if not ledger.unanswered:
                lane.assured_at = owner.loop.time()
            draft.number(owner.client, ledger.next_number, ledger.settled)
            ledger.enter(draft)
            if draft.receipt == "member" and not lane.is_prompt:
                lane.become_prompt()
            owner.hold(self, draft.size)
            lane.send(draft)
        lane.connection.flush()  # what this turn brought is together here
        owner.see_to(self)

    def _seek(self) -> None:
        if self._search is None and not self._is_closed and (self.drafts or self.ledger.requests):
            self._search = self._owner.loop.create_task(self._find_member())

    async def _find_member(self) -> None:
        """Go from member to member until one can be reached."""
        candidates = self.candidates
        try:
            while self.lane is None and (self.drafts or self.ledger.requests):
                await candidates.pause()
                try:
                    connection = await self._owner.members.connection(candidates.next)
                except (Unavailable, UsageError) as error:  # nobody there, or somebody else's process
                    candidates.failed(str(error).removesuffix("."))
                    continue
                if not connection.is_open:  # it was lost between its welcome and now
                    candidates.failed(f"{connection.member} closed the connection")
                    continue
                if candidates.turn_to(connection.directory.leader, connection.member):
                    continue
                self.lane = Lane(self, connection)
                self.flush()
        finally:
            self._search = None

    def leave(self, lane: Lane, why: str) -> None:
        """The member behind this lane is lost or does not want it: find another."""
        if self.lane is not lane:
            return
        self.lane = None
        self.ledger.doubt()
        self.candidates.failed(why)
        self._seek()

    # From the member ------------------------------------------------------------------------------------------------

    def on_taken(self, lane: Lane, marks: RouteMarks) -> None:
        if max(marks.taken, marks.delivered, marks.assured) > self.ledger.next_number:
            raise BadFrame("A member answers requests that were never made.")
        connection = lane.connection
        if marks.taken > lane.taken:
            lane.taken = marks.taken
            lane.asked_at = connection.loop.time()
            if self.candidates.is_unsettled:
                self.candidates.found()
        self._owner.hear(marks.timestamp)
        self._answer(marks.taken, marks.assured, connection.member)
        self.on_delivered(connection.group, marks.delivered, connection.member)

    def _answer(self, taken: int, assured: int, member: str) -> None:
        """A member has all below ``taken``, a majority of each group all below ``assured``."""
        unanswered, owner = self.ledger.unanswered, self._owner
        done = assured if owner.assures else taken
        if unanswered and unanswered[0].end <= done:
            if self.lane is not None:
                self.lane.assured_at = owner.loop.time()
            while unanswered and unanswered[0].end <= done:
                request = unanswered.popleft()
                request.answer(owner.client, self.destinations, member, owner.turns.latest)
                self._done(request)
        for request in unanswered if self.is_prompt else ():
            if request.end > taken:
                break
            if request.receipt == "member":
                request.answer(owner.client, self.destinations, member, 0)

    def on_delivered(self, group: str, delivered: int, member: str) -> None:
        """A member of one of the groups has delivered all below this number."""
        ledger = self.ledger
        if delivered > ledger.next_number:
            raise BadFrame("A member has delivered requests that were never made.")
        if delivered <= ledger.delivered[group]:
            return
        ledger.delivered[group] = delivered
        settled = min(ledger.delivered.values())
        if settled <= ledger.settled:
            return
        if ledger.unanswered:  # only the answer was lost
            self._answer(settled, settled, member)
        self._owner.release(self, ledger.settle(settled))

    def on_refused(self, lane: Lane, refused: Refused) -> None:
        if lane is not self.lane:
            return
        if refused.error == "out of turn":
            self._go_on_at(lane, refused)
            return
        withdrawn = self._withdraw(refused.first)
        if refused.error == "usage" and withdrawn:
            withdrawn[0].fail(lambda _: UsageError(refused.sentence))
        self.leave(lane, refused.sentence.removesuffix("."))
        self._owner.release(self, 0)  # others may have waited for the room

    def _withdraw(self, first: int) -> deque[Outgoing]:
        """What is withdrawn never goes over this lane: it can expire, or go elsewhere under the same numbers."""
        withdrawn = self.ledger.withdraw(first)
        self._owner.hold(self, -sum(request.size for request in withdrawn))
        self._has_leavers = True  # while it was a request, nobody looked
        self.drafts.extendleft(reversed(withdrawn))
        return withdrawn

    def _go_on_at(self, lane: Lane, refused: Refused) -> None:
        """The member lacks a predecessor: send again from the one that it expects."""
        if refused.expected == refused.first:
            raise BadFrame("A member refuses the request that it expects.")
        if refused.first < self.ledger.settled:
            return  # delivered everywhere meanwhile
        expected = max(refused.expected, self.ledger.settled)
        if expected == lane.begins_at and lane.taken <= expected:
            return  # all that followed the first refused one is refused too, and was sent again already
        lane.unsent = self.ledger.since(expected)
        lane.begins_at = expected
        lane.taken = min(lane.taken, expected)  # it has forgotten the rest
        self.flush()
