"""Reading what a group delivers, through whichever of its members is alive."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

from antiphon.client.connection import MEMBER_SILENCE_SECONDS, JoinMember, MemberConnection
from antiphon.client.values import Batch, Delivery, batch_of
from antiphon.core.errors import BadFrame, PositionGone, Unavailable, UsageError
from antiphon.core.events import Adopted, Delivered, Gap, View, decode_event
from antiphon.core.model import GroupId, Topology
from antiphon.core.requests import NUMBER_MAX
from antiphon.runtime.net import ReceivedFrame
from antiphon.runtime.net.backoff import Backoff
from antiphon.runtime.net.frames import (
    PEER_BYTES_MAX,
    FrameKind,
    Refused,
    Subscribe,
    Subscribed,
    decode,
    decode_records,
    encode,
)
from antiphon.runtime.net.stream import LARGE_CHUNK_BYTES

AHEAD_BYTES_MAX = 8 << 20  # read ahead of the application
SEARCH_SECONDS = 5.0  # for a live member, or one that has what others let go, unless the reader waits for news anyway
AHEAD_SECONDS = 5.0  # that a group has to come to where a reader wants to begin, if it is not there yet
END_SECONDS = 1.0  # that the other members have to say where their logs end, when a reader wants to read up to the end


class SubscriptionConnection(MemberConnection):
    """Takes a member's records as they come; they are read when the application asks for them."""

    frame_bytes_max = PEER_BYTES_MAX
    chunk_bytes = LARGE_CHUNK_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.records: deque[memoryview] = deque()
        self.end: int | None = None  # of the log, when the subscription began
        self.alike = True  # whether the group's other members have the same log
        self.refused: Refused | None = None
        self._bytes = 0
        self._is_ahead = False
        self._news: asyncio.Future[None] | None = None
        self._waits_since = 0.0
        self._silence: asyncio.TimerHandle | None = None

    def on_answers(self, frames: list[ReceivedFrame]) -> None:
        for kind, body in frames:
            if self.is_given_up:
                return
            if kind == FrameKind.EVENTS:
                self.records.extend(decode_records(body))
                self._bytes += len(body)
                if self._bytes > AHEAD_BYTES_MAX and not self._is_ahead:
                    self._is_ahead = True
                    self.pause_reading()
            elif kind == FrameKind.SUBSCRIBED:
                subscribed = decode(Subscribed, body)
                self.end, self.alike = subscribed.end, subscribed.alike
            elif kind == FrameKind.REFUSED:
                self.refused = decode(Refused, body)
            elif kind != FrameKind.BUSY:
                super().on_answers([(kind, body)])
        self.tell()

    def on_gone(self) -> None:
        self.tell()

    def next_record(self) -> memoryview:
        record = self.records.popleft()
        self._bytes = self._bytes - len(record) if self.records else 0
        if self._is_ahead and self._bytes < AHEAD_BYTES_MAX // 2:
            self._is_ahead = False
            self.resume_reading()
        return record

    def tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    async def wait(self) -> None:
        """Wait for news. A member that says nothing for long, not even that it lives, is given up."""
        self._news = news = self.loop.create_future()
        self._waits_since = self.loop.time()
        if self._silence is None:  # one for as long as there is somebody who waits: to set one for each takes longer
            self._silence = self.loop.call_later(MEMBER_SILENCE_SECONDS, self._look)
        await news

    def _look(self) -> None:
        self._silence = None
        if self._news is None or self._news.done():
            return  # who waits next sets it again
        left = max(self._waits_since, self.heard_at) + MEMBER_SILENCE_SECONDS - self.loop.time()
        if left > 0:
            self._silence = self.loop.call_later(left, self._look)
        else:
            self.give_up()
            self.tell()


class Subscription:
    """An iterator over a group's deliveries. It goes on at another member when the one it reads from is lost, unless
    each member has an order of its own: then it stays with the one where it began."""

    def __init__(
        self,
        group: str,
        members: Sequence[str],
        join: JoinMember,
        start: int | None,
        follow: bool,
        registry: dict[Subscription, None],
        member: str | None = None,
    ) -> None:
        """``start``: a position; None: the oldest that is kept."""
        self.member = member  # whose log it reads, where that was asked for, or no other member has the same
        self._group = group
        self._members = members if member is None else [member]
        self._join = join
        self._next = start or 0  # the position that comes next from the log
        self._may_skip = start is None  # begin behind what is gone, until something was read
        self._is_placed = False  # the group has come to where this begins
        self._gone: dict[str, int] = {}  # the members that no longer have what comes next: the first position they have
        self._absent_until: float | None = None  # so long they are waited for who do not say whether they have it
        self._has_waited = False  # for them
        self._follow = follow
        self._registry = registry  # where it is kept while it is open
        self._end: int | None = None  # where to stop, if not following
        self._preferred = ""  # the member that has what others lack
        self._left = ""  # the member that was read from before
        self._connection: SubscriptionConnection | None = None
        self._batch: Batch | None = None  # the one that is being given out one by one
        self._deliveries: Iterator[Delivery] = iter(())
        self._given = 0  # the position after the last delivery given out
        self._backoff = Backoff()
        self._is_closed = False

    # For the application --------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            for delivery in self._deliveries:
                self._given = delivery.position + 1
                return delivery
            self._batch = None
            event = await self._next_event()
            if event is None:
                raise StopAsyncIteration
            if isinstance(event, Batch):
                self._batch, self._deliveries = event, iter(event)

    async def batches(self) -> AsyncIterator[Batch]:
        """The same, as the batches in which it was delivered; the first and the last may be parts of theirs."""
        async for event in self.events():
            if isinstance(event, Batch):
                yield event

    async def events(self) -> AsyncIterator[Batch | Gap | View]:
        """All that the member's log holds: batches, and the gaps and views of protocols that have such."""
        if self._batch is not None:  # some of it was given out one by one
            rest, self._batch, self._deliveries = self._batch.between(self._given), None, iter(())
            if len(rest):
                yield rest
        while (event := await self._next_event()) is not None:
            yield event

    def follow(self, topology: Topology) -> None:
        """Members were replaced."""
        members = topology.members(GroupId(self._group))
        self._members = [member for member in members if self.member in (None, member)]

    async def aclose(self) -> None:
        self._is_closed = True
        self._registry.pop(self, None)
        if self._connection is not None:
            self._connection.give_up()
            self._connection.tell()

    def _has_ended(self) -> bool:
        return self._is_closed  # asked after an await, where it may have changed

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # From the network -----------------------------------------------------------------------------------------------

    async def _next_event(self) -> Batch | Gap | View | None:
        """The next one, however long it takes; None at the end."""
        while not self._is_closed:
            if self._end is not None and self._next >= self._end:
                await self.aclose()
                break
            connection = self._connection
            if connection is None:
                await self._search()
            elif not connection.alike and self.member is None:
                self.member = connection.directory.process
                self._members = [self.member]
            elif self._end is None and not self._follow and connection.end is not None:
                self._end = await self._find_end(connection, connection.end)
                self._check_start(self._end)
            elif not self._is_placed and connection.end is not None:
                await self._place(connection, connection.end)
            elif connection.records:
                event = self._read(connection)
                if event is not None:
                    return event
            elif connection.refused is not None:
                await self._on_refused(connection, connection.refused)
            elif not connection.is_open:
                self._give_up(connection)
            else:
                await connection.wait()
        return None

    def _read(self, connection: SubscriptionConnection) -> Batch | Gap | View | None:
        """What the next record holds, as far as it is wanted."""
        try:
            event = decode_event(connection.next_record())
            if event.position > self._next:
                raise BadFrame(f"Position {event.position} came instead of {self._next}.")
        except BadFrame:
            self._give_up(connection)
            return None
        begin, end = self._next, event.position + event.count
        if end <= begin or isinstance(event, Adopted):
            return None  # before the start, or without payloads
        self._next, self._may_skip = end, False
        self._absent_until, self._has_waited = None, False
        self._backoff.reset()
        if not isinstance(event, Delivered):
            return event
        wanted = batch_of(event).between(begin, self._end)
        return wanted if len(wanted) else None

    async def _find_end(self, connection: SubscriptionConnection, end: int) -> int:
        """Where the log ends. The member that is read from may have been left behind by the others, and not know it:
        the end is that of whoever is furthest, and what this one lacks is read there."""
        own = connection.directory.process
        ends = {own: end} | await self._ask_ends([member for member in self._members if member != own])
        self._preferred = max(ends, key=lambda member: ends[member])
        if ends[self._preferred] > end:
            self._give_up(connection)
        return ends[self._preferred]

    async def _place(self, connection: SubscriptionConnection, end: int) -> None:
        """See that a reader which waits for news does not wait for what is far ahead. But all members that can be asked
        may lag a little behind one that was read from before."""
        loop, own = asyncio.get_running_loop(), connection.directory.process
        deadline, furthest = loop.time() + AHEAD_SECONDS, own
        while self._next > end and not self._has_ended():
            ends = await self._ask_ends(self._members)
            furthest = max(ends, key=lambda member: ends[member])
            end = max(end, ends[furthest])
            if self._next > end:
                if loop.time() > deadline:
                    self._give_up(connection)
                    self._check_start(end)
                await asyncio.sleep(END_SECONDS / 4)
        self._is_placed = True
        if furthest != own:
            self._give_up(connection)
            self._preferred = furthest

    def _check_start(self, end: int) -> None:
        if self._next > end:
            raise UsageError(
                f"Position {self._next} of {self._group} is not there yet: {end} is the next that it delivers."
            )

    async def _ask_ends(self, members: Sequence[str]) -> dict[str, int]:
        return dict(zip(members, await asyncio.gather(*map(self._ask_end, members)), strict=True))

    async def _ask_end(self, member: str) -> int:
        """Where the log of this member ends; 0 if it does not say."""
        connection = SubscriptionConnection()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._join(connection, member)
                connection.write(encode(FrameKind.SUBSCRIBE, Subscribe(self._group, NUMBER_MAX)))
                while connection.is_open and connection.end is None and connection.refused is None:
                    await connection.wait()
        except (Unavailable, UsageError, TimeoutError):
            pass
        finally:
            connection.give_up()
        return connection.end or 0

    def _give_up(self, connection: SubscriptionConnection) -> None:
        connection.give_up()
        self._connection = None
        self._left = connection.directory.process
        if self._preferred == self._left:
            self._preferred = ""

    async def _on_refused(self, connection: SubscriptionConnection, refused: Refused) -> None:
        self._give_up(connection)
        if refused.error == "usage":
            raise UsageError(refused.sentence)
        if refused.error == "gone" and refused.expected > self._next:
            self._gone[connection.directory.process] = refused.expected  # others may have it
        else:
            await self._backoff.wait()

    async def _search(self) -> None:
        """Subscribe at a live member; while following, wait for one as long as it takes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SEARCH_SECONDS
        while not self._is_closed:
            refusals = []
            self._gone = {member: first for member, first in self._gone.items() if first > self._next}
            for member in self._in_turn():
                connection = SubscriptionConnection()
                try:
                    await self._join(connection, member)
                except Unavailable:
                    continue
                except UsageError as error:  # one member may be on its way out; all of them mean it
                    refusals.append(error)
                    continue
                if self._has_ended():
                    connection.give_up()
                elif connection.is_open:
                    self._connection = connection
                    connection.write(encode(FrameKind.SUBSCRIBE, Subscribe(self._group, self._next)))
                else:
                    continue
                return
            if len(refusals) == len(self._members):
                raise refusals[0]
            if self._gone:
                if not self._is_settled(loop.time()):
                    await self._backoff.wait()
                elif self._gone:
                    self._on_gone()
                continue
            if not self._follow and loop.time() > deadline:
                whom = f"No member of {self._group}" if self.member is None else f"{self.member}, whose log this is,"
                raise Unavailable(f"{whom} can{'' if self.member is None else 'not'} be reached.")
            await self._backoff.wait()

    def _is_settled(self, now: float) -> bool:
        """Whether those that are not there need not be waited for: all have said that they no longer have what comes
        next, or there was time enough. Who was there is asked again then: meanwhile it may have let go of more."""
        if self._has_waited or all(member in self._gone for member in self._members):
            return True
        if self._absent_until is None:
            self._absent_until = now + SEARCH_SECONDS
        if now > self._absent_until:
            self._has_waited, self._gone = True, {}
        return self._has_waited

    def _on_gone(self) -> None:
        """Begin behind what is gone, or say from where it can go on."""
        gone, self._gone = self._gone, {}
        member = min(gone, key=lambda member: gone[member])
        if not self._may_skip:
            self._absent_until, self._has_waited = None, False
            raise PositionGone(
                f"Position {self._next} of {self._group if self.member is None else self.member} is no longer kept: "
                f"reading can go on from position {gone[member]}.",
                gone[member],
            )
        self._next, self._preferred = gone[member], member

    def _in_turn(self) -> list[str]:
        """The members as they are to be tried: by chance, but the one that was left comes last."""
        if not self._members:
            raise Unavailable(f"{self.member}, whose log this is, was replaced.")
        members = [member for member in self._members if member not in self._gone]
        random.shuffle(members)
        return sorted(members, key=lambda member: (member != self._preferred, member == self._left))
