"""A client's requests, from the first try to the settled mark.

A request keeps its number for life. It is sent again, to the same member or another, until one has said that it is
safe; the members recognise the number (core/sessions.py). The client tells them which numbers they may forget: those
below its *settled* mark, of which it has heard that every destination group has delivered them.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from antiphon.core import Topology
from antiphon.core.errors import BadFrame, OutcomeUnknown, Unavailable, UsageError
from antiphon.core.model import PAYLOAD_BYTES_MAX
from antiphon.core.sessions import REQUESTS_MAX
from antiphon.runtime.connection import MemberConnection
from antiphon.runtime.frames import (
    Accepted,
    Kind,
    Progress,
    ProgressAnswer,
    Refused,
    Request,
    decode,
)

OUTSTANDING_MAX = 8192  # requests that no member has accepted yet
SETTLE_EVERY = 4096  # numbers between two attempts to move the settled mark
SETTLE_SECONDS = 0.25
PROGRESS_MAX = 1 << 14  # numbers asked for at once
PROGRESS_SECONDS = 3.0
SILENCE_SECONDS = 5.0  # then a member with our requests is given up
BACKOFF_SECONDS = (0.05, 1.0)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """A member has journaled the message: it will be delivered in all its destination groups."""

    name: str  # of the message, as deliveries and traces show it
    member: str


class _Pending:
    """A request that no member has accepted yet."""

    __slots__ = ("future", "is_doubtful", "number", "payload", "refusals", "route")

    def __init__(self, number: int, route: _Route, payload: bytes, future: asyncio.Future[Receipt]) -> None:
        self.number = number
        self.route = route
        self.payload = payload
        self.future = future
        self.is_doubtful = False  # a member that did not answer may have taken it
        self.refusals = 0


class _Route:
    """One destination set, and the member through which its requests go for as long as that lives."""

    def __init__(self, destinations: tuple[str, ...], members: list[str]) -> None:
        self.destinations = destinations
        self.wire_destinations = list(destinations)
        start = random.randrange(len(members))
        self.members = deque(members[start:] + members[:start])  # the one to be tried next is first
        self.member: _Member | None = None
        self.waiting: deque[_Pending] = deque()
        self.search: asyncio.Task[None] | None = None


class _Member:
    """A live connection to one member, and what it has been asked."""

    def __init__(self, name: str, connection: MemberConnection) -> None:
        self.name = name
        self.connection = connection
        self.outstanding: dict[int, _Pending] = {}
        self.asked_at = 0.0  # when the oldest unanswered request was sent, or the last answer came
        self.questions: deque[asyncio.Future[ProgressAnswer]] = deque()


class Requests:
    """All requests of one client."""

    def __init__(self, client: str, topology: Topology, dial: Callable[[str], Awaitable[MemberConnection]]) -> None:
        self._client = client
        self._topology = topology
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._members: dict[str, _Member] = {}
        self._dialling: dict[str, asyncio.Task[_Member]] = {}
        self._routes: dict[frozenset[str], _Route] = {}
        self._pending: dict[int, _Pending] = {}
        self._unsettled: deque[tuple[int, _Route]] = deque()  # in the order of the numbers
        self._void: set[int] = set()  # numbers that surely never happened
        self._next_number = 0
        self._settled = 0
        self._rooms: deque[asyncio.Future[None]] = deque()  # multicasts that wait for room in the window
        self._settling: asyncio.Task[None] | None = None
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        tasks: list[asyncio.Task[None] | None] = [route.search for route in self._routes.values()]
        running: list[asyncio.Task[None] | asyncio.Task[_Member]] = [*self._dialling.values()]
        running += [task for task in [*tasks, self._settling, self._watching] if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for member in self._members.values():
            member.connection.close()
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(self._failure(pending, "the client was closed"))
                pending.future.exception()  # nobody may be waiting
        for room in self._rooms:
            if not room.done():
                room.set_exception(Unavailable("The client was closed."))
                room.exception()

    # Multicast --------------------------------------------------------------------------------------------------

    async def multicast(self, destinations: Iterable[str], payload: bytes, timeout: float | None) -> Receipt:
        route = self._route(destinations)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise UsageError(f"A payload has at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}.")
        deadline = None if timeout is None else self._loop.time() + timeout
        while self._is_full(route):
            await self._wait_for_room(deadline)
        pending = self._submit(route, bytes(payload))
        expiry = None if deadline is None else self._loop.call_at(deadline, self._expire, pending)
        try:
            return await pending.future
        except asyncio.CancelledError:
            self._expire(pending)
            raise
        finally:
            if expiry is not None:
                expiry.cancel()

    def _route(self, destinations: Iterable[str]) -> _Route:
        key = frozenset((destinations,) if isinstance(destinations, str) else destinations)
        route = self._routes.get(key)
        if route is None:
            wanted = self._topology.destinations(key)
            route = self._routes[key] = _Route(wanted, list(self._topology.addressees(wanted)))
        return route

    def _is_full(self, route: _Route) -> bool:
        member = route.member
        return (
            len(self._pending) >= OUTSTANDING_MAX
            or self._next_number - self._settled >= REQUESTS_MAX
            or (member is not None and not member.connection.is_writable)
        )

    async def _wait_for_room(self, deadline: float | None) -> None:
        room = self._loop.create_future()
        self._rooms.append(room)
        try:
            async with asyncio.timeout_at(deadline):
                await room
        except TimeoutError:
            raise Unavailable("Too many requests are under way, and none got further in time.") from None

    def _make_room(self) -> None:
        """Wake as many waiting multicasts as may find room; they look for themselves."""
        free = min(OUTSTANDING_MAX - len(self._pending), REQUESTS_MAX - (self._next_number - self._settled))
        while self._rooms and free > 0:
            room = self._rooms.popleft()
            if not room.done():
                room.set_result(None)
                free -= 1

    def _submit(self, route: _Route, payload: bytes) -> _Pending:
        number = self._next_number
        self._next_number += 1
        pending = _Pending(number, route, payload, self._loop.create_future())
        self._pending[number] = pending
        self._unsettled.append((number, route))
        if route.member is not None:
            self._send(route.member, pending)
        else:
            self._enqueue(pending)
        return pending

    def _send(self, member: _Member, pending: _Pending) -> None:
        if not member.outstanding:
            member.asked_at = self._loop.time()
        member.outstanding[pending.number] = pending
        request = Request(pending.number, self._settled, pending.route.wire_destinations, pending.payload)
        member.connection.send(Kind.REQUEST, request)

    def _enqueue(self, pending: _Pending) -> None:
        """Wait for a member of the route."""
        route = pending.route
        route.waiting.append(pending)
        if route.search is None or route.search.done():
            route.search = asyncio.create_task(self._search(route))

    def _expire(self, pending: _Pending) -> None:
        """The caller no longer waits. What may have been taken is still pursued, so that the mark can move."""
        if pending.future.done() and not pending.future.cancelled():
            return
        is_sent = pending.is_doubtful or pending not in pending.route.waiting
        if not pending.future.done():
            pending.future.set_exception(self._failure(pending, "no member answered in time"))
        if not is_sent:
            pending.route.waiting.remove(pending)
            self._drop(pending)

    def _failure(self, pending: _Pending, why: str) -> Unavailable | OutcomeUnknown:
        name = f"{self._client}:{pending.number}"
        if pending.is_doubtful or pending not in pending.route.waiting:
            return OutcomeUnknown(f"Whether {name} was multicast is unknown: {why}.")
        return Unavailable(f"{name} was not multicast: {why}.")

    def _drop(self, pending: _Pending) -> None:
        del self._pending[pending.number]
        self._void.add(pending.number)
        self._make_room()

    async def _search(self, route: _Route) -> None:
        """Find a live member for what waits, and hand it over."""
        delay, longest = BACKOFF_SECONDS
        while route.waiting:
            for _ in range(len(route.members)):
                if any(pending.refusals for pending in route.waiting):
                    await asyncio.sleep(delay)  # it was refused a moment ago
                try:
                    member = await self._member(route.members[0])
                except (Unavailable, UsageError):  # nobody there, or somebody else's process
                    route.members.rotate(-1)
                    continue
                route.member = member
                waiting, route.waiting = route.waiting, deque()
                for pending in sorted(waiting, key=lambda pending: pending.number):
                    self._send(member, pending)
                return
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(longest, delay * 2)

    # Members ----------------------------------------------------------------------------------------------------

    async def _member(self, name: str) -> _Member:
        """The live connection to a member, made now if there is none."""
        found = self._members.get(name)
        if found is not None:
            return found
        task = self._dialling.get(name)
        if task is None:
            task = self._dialling[name] = asyncio.create_task(self._dial_member(name))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting
        return await asyncio.shield(task)

    async def _dial_member(self, name: str) -> _Member:
        try:
            connection = await self._dial(name)
        finally:
            del self._dialling[name]
        member = self._members[name] = _Member(name, connection)
        connection.on_frame = lambda kind, body: self._on_frame(member, kind, body)
        connection.on_lost = lambda: self._on_lost(member)
        return member

    def _on_frame(self, member: _Member, kind: int, body: bytes) -> None:
        member.asked_at = self._loop.time()
        if kind == Kind.ACCEPTED:
            for number in decode(Accepted, body).numbers:
                pending = member.outstanding.pop(number, None)
                if pending is not None:
                    self._complete(pending, member.name)
            self._make_room()
            if self._next_number - self._settled >= SETTLE_EVERY:
                self._settle_soon()
        elif kind == Kind.REFUSED:
            self._on_refused(member, decode(Refused, body))
        elif kind == Kind.PROGRESS_ANSWER:
            if not member.questions:
                raise BadFrame("An answer came without a question.")
            question = member.questions.popleft()
            if not question.done():
                question.set_result(decode(ProgressAnswer, body))
        elif kind == Kind.BUSY:
            self._make_room()
        else:
            raise BadFrame(f"A frame of kind {kind} is out of place.")

    def _complete(self, pending: _Pending, member: str) -> None:
        self._pending.pop(pending.number, None)
        if not pending.future.done():
            pending.future.set_result(Receipt(f"{self._client}:{pending.number}", member))

    def _on_refused(self, member: _Member, refused: Refused) -> None:
        pending = member.outstanding.pop(refused.number, None)
        if pending is None:
            return
        pending.refusals += 1
        route = pending.route
        is_final = refused.error == "usage" or pending.refusals >= len(route.members)
        if is_final and not pending.is_doubtful:
            error = UsageError if refused.error == "usage" else Unavailable
            if not pending.future.done():
                pending.future.set_exception(error(refused.sentence))
            self._drop(pending)
            return
        if route.member is member:
            route.member = None
            route.members.rotate(-1)
        self._enqueue(pending)

    def _on_lost(self, member: _Member) -> None:
        """Whether the member took what it has not answered is unknown; another will be asked."""
        self._members.pop(member.name, None)
        for question in member.questions:
            if not question.done():
                question.set_exception(Unavailable(f"{member.name} went away."))
        for route in self._routes.values():
            if route.member is member:
                route.member = None
                route.members.rotate(-1)
        for pending in member.outstanding.values():
            pending.is_doubtful = True
            self._enqueue(pending)
        self._make_room()

    async def _watch(self) -> None:
        """Give up members that are connected but say nothing."""
        while True:
            await asyncio.sleep(SILENCE_SECONDS / 5)
            now = self._loop.time()
            for member in list(self._members.values()):
                if member.outstanding and now - member.asked_at > SILENCE_SECONDS:
                    member.connection.close()
                    self._on_lost(member)

    # The settled mark -------------------------------------------------------------------------------------------

    def _settle_soon(self) -> None:
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        """Ask one member of each group what it has delivered, until the window is small again."""
        while self._next_number - self._settled >= SETTLE_EVERY:
            groups = {group for _, route in self._unsettled for group in route.destinations}
            answers = await asyncio.gather(*(self._delivered_in(group) for group in sorted(groups)))
            self._move_mark(dict(zip(sorted(groups), answers, strict=True)))
            self._make_room()
            await asyncio.sleep(SETTLE_SECONDS)

    async def _delivered_in(self, group: str) -> frozenset[int]:
        """The numbers from the mark on that a member of the group has delivered; empty if none can be asked."""
        names = self._topology.members(self._topology.destinations([group])[0])
        for name in sorted(names, key=lambda name: name not in self._members):
            try:
                async with asyncio.timeout(PROGRESS_SECONDS):
                    member = await self._member(name)
                    question: asyncio.Future[ProgressAnswer] = self._loop.create_future()
                    member.questions.append(question)
                    member.connection.send(Kind.PROGRESS, Progress(self._settled, PROGRESS_MAX))
                    return frozenset((await question).delivered)
            except (Unavailable, UsageError, TimeoutError):
                continue
        return frozenset()

    def _move_mark(self, delivered: dict[str, frozenset[int]]) -> None:
        while self._unsettled:
            number, route = self._unsettled[0]
            if number in self._void:
                self._void.discard(number)
            elif all(number in delivered.get(group, ()) for group in route.destinations):
                pending = self._pending.get(number)
                if pending is not None:  # only the answer was lost
                    self._withdraw(pending)
            else:
                break
            self._unsettled.popleft()
        self._settled = self._unsettled[0][0] if self._unsettled else self._next_number

    def _withdraw(self, pending: _Pending) -> None:
        """It was delivered everywhere: it must not be sent again, for its number is about to be settled."""
        if pending in pending.route.waiting:
            pending.route.waiting.remove(pending)
        for member in self._members.values():
            member.outstanding.pop(pending.number, None)
        self._complete(pending, pending.route.members[0])
