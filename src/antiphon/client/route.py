"""What one client sends to one set of groups: a session (core/sessions.py), seen from its client.

A route numbers its payloads 0, 1, 2, ... All its requests go to one member, in order. A request is kept until it is
known to be delivered in all its groups. When the member is lost, refuses or is silent, another gets everything that is
not known to be delivered, in order; the members recognise what they have.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from antiphon.client.connection import MEMBER_SILENCE_SECONDS
from antiphon.client.members import Members, RequestConnection
from antiphon.client.outgoing import NO_DEADLINE, Outgoing
from antiphon.client.turns import ClientTurn, Turns
from antiphon.client.values import Receipt
from antiphon.core.buffers import COPIED_MAX
from antiphon.core.errors import AntiphonError, BadFrame, OutcomeUnknown, Unavailable, UsageError
from antiphon.core.model import Service
from antiphon.runtime.net.backoff import Backoff
from antiphon.runtime.net.frames import FrameKind, ReceiptKind, Refused, RouteMarks, RouteNumber, encode, request_head
from antiphon.runtime.net.stream import WRITE_BUFFER_BYTES

AT_ONCE_BYTES = 32 << 10  # a draft that is full and has so much leaves amid the turn; to write less takes too long
BUSY_SECONDS = 15.0  # a member that is alive but takes nothing for so long is left for another


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


class Lane:
    """A route's way through one connection, from when it turns to that member until it leaves it.

    Each has a route number of its own on the connection, so that late answers to an earlier one are known as such.
    """

    def __init__(self, route: Route, connection: RequestConnection) -> None:
        self.route = route
        self.connection = connection
        self.number = connection.add_route(self)
        self.begins_at = route.settled  # sent in order from this number on
        self.unsent = deque(route.numbered)  # by an earlier lane, and not yet by this one
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


class Route:
    def __init__(self, destinations: tuple[str, ...], members: Sequence[str], owner: RouteOwner) -> None:
        self.destinations = destinations
        self.next_number = 0
        self.settled = 0  # all below was delivered in every group
        self.delivered: dict[str, int] = dict.fromkeys(destinations, 0)  # by group, as far as is known
        self.drafts: deque[Outgoing] = deque()
        self._open: Outgoing | None = None  # the newest draft, if others may join it
        self._turn: ClientTurn | None = None  # of the client, in which it last had a call
        self.numbered: deque[Outgoing] = deque()  # not known to be delivered everywhere
        # Those of them that no majority is known to hold; where nobody ever knows, that no member is known to hold.
        self.unanswered: deque[Outgoing] = deque()
        self.is_prompt = not owner.assures  # whether anybody has asked for the receipt of one member
        self.bytes = 0  # of all that is numbered
        self.lane: Lane | None = None
        self._owner = owner
        start = random.randrange(len(members))
        self._members = deque([*members[start:], *members[:start]])  # the one to be tried next is first
        self._failures = 0  # since a member last took something
        self._left = ""  # the member that failed last, until another one takes something
        self._was_led = False  # to a member that leads, since something was last taken
        self._why = "no member answered"
        self._backoff = Backoff()
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
        why = self._why if self.lane is None else "too much that was sent before is not delivered yet"
        if self.drafts and not self._may_leave(self.drafts[0]):
            why = 'what was sent before to other groups has no receipt yet (with order="set" it is not waited for)'
        for draft in self.drafts:
            draft.fail(lambda _: Unavailable(f"It was not multicast to {self._names()} in time: {why}."), now)
        self._drop_leavers()
        for request in self.unanswered:
            request.fail(self._unknown, now)
        return min((each.earliest() for each in (*self.drafts, *self.unanswered)), default=NO_DEADLINE)

    def close(self) -> None:
        """Nothing leaves after this: what was not sent surely did not happen."""
        self._is_closed = True
        if self._search is not None:
            self._search.cancel()
        if self._flush_handle is not None:
            self._flush_handle.cancel()
        for draft in self.drafts:
            draft.fail(lambda _: Unavailable(f"It was not multicast to {self._names()}: the client was closed."))
        for request in self.unanswered:
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
        while lane.unsent and lane.is_writable:
            request = lane.unsent.popleft()
            if request.end > self.settled:
                request.settle(self._owner.client, self.settled)
                lane.send(request)
        while self.drafts and not lane.unsent and lane.is_writable and self._owner.has_room(self):
            if not self._may_leave(self.drafts[0]):
                break
            draft = self.drafts.popleft()
            if draft is self._open:
                self._open = None
            draft.number(self._owner.client, self.next_number, self.settled)
            self.next_number = draft.end
            self.numbered.append(draft)
            if not self.unanswered:
                lane.assured_at = self._owner.loop.time()
            if draft.receipt == "member" and not lane.is_prompt:
                lane.become_prompt()
            self.unanswered.append(draft)
            self._owner.hold(self, draft.size)
            lane.send(draft)
        lane.connection.flush()  # what this turn brought is together here
        self._owner.see_to(self)

    def set_members(self, members: Sequence[str]) -> None:
        """Some were replaced. Who is new is tried last."""
        kept = [member for member in self._members if member in members]
        self._members = deque([*kept, *[member for member in members if member not in kept]])

    def _seek(self) -> None:
        if self._search is None and not self._is_closed and (self.drafts or self.numbered):
            self._search = self._owner.loop.create_task(self._find_member())

    async def _find_member(self) -> None:
        """Go from member to member until one can be reached; wait a little after each round."""
        try:
            while self.lane is None and (self.drafts or self.numbered):
                if self._failures and self._failures % len(self._members) == 0:
                    await self._backoff.wait()
                try:
                    connection = await self._owner.members.connection(self._members[0])
                except (Unavailable, UsageError) as error:  # nobody there, or somebody else's process
                    self._failed(str(error).removesuffix("."))
                    continue
                if not connection.is_open:  # it was lost between its welcome and now
                    self._failed(f"{connection.member} closed the connection")
                    continue
                if self._goes_to_leader(connection):
                    continue
                self.lane = Lane(self, connection)
                self.flush()
        finally:
            self._search = None

    def _goes_to_leader(self, connection: RequestConnection) -> bool:
        """Whether somebody else leads the group of this member: asked first, it saves a hop. But a member that was just
        left is not asked again because this one has not heard of it yet; and what they say is believed once."""
        leader = connection.directory.leader
        if self._was_led or leader in ("", connection.member, self._left) or leader not in self._members:
            return False
        self._was_led = True
        self._members.rotate(-self._members.index(leader))
        return True

    def _failed(self, why: str) -> None:
        self._why = why
        self._left = self._members[0]
        self._failures += 1
        self._members.rotate(-1)

    def leave(self, lane: Lane, why: str) -> None:
        """The member behind this lane is lost or does not want it: find another."""
        if self.lane is not lane:
            return
        self.lane = None
        for request in self.numbered:
            request.is_doubtful = True
        self._failed(why)
        self._seek()

    # From the member ------------------------------------------------------------------------------------------------

    def on_taken(self, lane: Lane, marks: RouteMarks) -> None:
        if max(marks.taken, marks.delivered, marks.assured) > self.next_number:
            raise BadFrame("A member answers requests that were never made.")
        connection = lane.connection
        if marks.taken > lane.taken:
            lane.taken = marks.taken
            lane.asked_at = connection.loop.time()
            self._failures = 0
            self._left, self._was_led = "", False
            self._backoff.reset()
        self._owner.hear(marks.timestamp)
        self._answer(marks.taken, marks.assured, connection.member)
        self.on_delivered(connection.group, marks.delivered, connection.member)

    def _answer(self, taken: int, assured: int, member: str) -> None:
        """A member has all below ``taken``, a majority of each group all below ``assured``."""
        unanswered, owner = self.unanswered, self._owner
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
        if delivered > self.next_number:
            raise BadFrame("A member has delivered requests that were never made.")
        if delivered <= self.delivered[group]:
            return
        self.delivered[group] = delivered
        settled = min(self.delivered.values())
        if settled <= self.settled:
            return
        if self.unanswered:  # only the answer was lost
            self._answer(settled, settled, member)
        freed = 0
        while self.numbered and self.numbered[0].end <= settled:
            freed += self.numbered.popleft().size
        self.settled = self.numbered[0].first if self.numbered else self.next_number
        self._owner.release(self, freed)

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

    def _withdraw(self, first: int) -> list[Outgoing]:
        """The member surely did not take anything from this number on, and never will on this lane: what nobody
        else may have taken becomes drafts again, which can expire or go elsewhere under the same numbers."""
        withdrawn: deque[Outgoing] = deque()
        while self.numbered and self.numbered[-1].first >= first and not self.numbered[-1].is_doubtful:
            if not self.unanswered or self.unanswered[-1] is not self.numbered[-1]:
                break  # another member has answered for it
            if self.numbered[-1].is_answered:
                break
            request = self.numbered.pop()
            self.unanswered.pop()
            self.next_number = request.first
            self._owner.hold(self, -request.size)
            request.withdraw()
            withdrawn.appendleft(request)
        self._has_leavers = True  # while it was a request, nobody looked
        self.drafts.extendleft(reversed(withdrawn))
        return list(withdrawn)

    def _go_on_at(self, lane: Lane, refused: Refused) -> None:
        """The member lacks a predecessor: send again from the one that it expects."""
        if refused.expected == refused.first:
            raise BadFrame("A member refuses the request that it expects.")
        if refused.first < self.settled:
            return  # delivered everywhere meanwhile
        expected = max(refused.expected, self.settled)
        if expected == lane.begins_at and lane.taken <= expected:
            return  # all that followed the first refused one is refused too, and was sent again already
        if expected not in (request.first for request in self.numbered):
            raise BadFrame("A member expects a request that was never made.")
        lane.begins_at = expected
        lane.taken = min(lane.taken, expected)  # it has forgotten the rest
        lane.unsent = deque(request for request in self.numbered if request.first >= expected)
        self.flush()
