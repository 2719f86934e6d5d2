"""Reading a group's deliveries, through whichever member is alive."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from antiphon.core.errors import BadFrame, Unavailable, UsageError
from antiphon.runtime.connection import MemberConnection
from antiphon.runtime.frames import Delivered, DeliveredRecord, Kind, Refused, Subscribe, Subscribed, decode

if TYPE_CHECKING:
    from antiphon.runtime.client import Client

BUFFERED_MAX = 10_000  # messages read ahead of the application
SEARCH_SECONDS = 5.0  # for a live member, when the reader does not want to wait for news anyway
SILENT_SECONDS = 5.0
BACKOFF_SECONDS = 0.1


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message, as the ``position``-th that its group delivered."""

    position: int
    name: str
    destinations: tuple[str, ...]
    payload: bytes


class Subscription:
    """An iterator over a group's messages. It goes on at another member when the one it reads from dies."""

    def __init__(self, client: Client, group: str, start: int, follow: bool) -> None:
        self._client = client
        self._group = group
        self._next = start  # the position that comes next from the network
        self._follow = follow
        self._end: int | None = None  # where to stop, if not following
        self._connection: MemberConnection | None = None
        self._buffer: deque[Delivery] = deque()
        self._news = asyncio.Event()
        self._refusal: str | None = None
        self._is_paused = False
        self._closed = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            if self._buffer:
                delivery = self._buffer.popleft()
                if self._is_paused and len(self._buffer) < BUFFERED_MAX // 2 and self._connection is not None:
                    self._is_paused = False
                    self._connection.resume_reading()
                if self._end is not None and delivery.position >= self._end:
                    break
                return delivery
            if self._closed or (self._end is not None and self._next >= self._end):
                break
            if self._refusal is not None:
                raise UsageError(self._refusal)
            if self._connection is None or not self._connection.is_open:
                await self._search()
            self._news.clear()
            await self._wait()
        await self.aclose()
        raise StopAsyncIteration

    async def _wait(self) -> None:
        """Wait for news. A member that says nothing for long, not even that it lives, is left for another."""
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                await self._news.wait()
        except TimeoutError:
            if self._connection is not None and not self._is_paused:
                self._connection.close()
                self._connection = None

    async def aclose(self) -> None:
        self._closed = True
        self._client.forget(self)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._news.set()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _is_closed(self) -> bool:
        return self._closed

    async def _search(self) -> None:
        """Subscribe at a live member; while following, wait for one as long as it takes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SEARCH_SECONDS
        members = self._client.members([self._group])
        while not self._closed:
            refusals = []
            for member in random.sample(members, len(members)):
                try:
                    connection = await self._client.dial(member)
                except Unavailable:
                    continue
                except UsageError as error:  # one member may be on its way out; all of them mean it
                    refusals.append(error)
                    continue
                if self._is_closed():
                    connection.close()
                    return
                self._is_paused = False
                self._connection = connection
                connection.on_frame = self._on_frame
                connection.on_lost = self._news.set
                connection.send(Kind.SUBSCRIBE, Subscribe(self._group, self._next))
                return
            if len(refusals) == len(members):
                raise refusals[0]
            if not self._follow and loop.time() > deadline:
                raise Unavailable(f"No member of {self._group} can be reached.")
            await asyncio.sleep(BACKOFF_SECONDS)

    def _on_frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.DELIVERED:
            self._on_delivered(decode(Delivered, body))
        elif kind == Kind.SUBSCRIBED:
            if self._end is None and not self._follow:
                self._end = decode(Subscribed, body).end
        elif kind == Kind.REFUSED:
            self._refusal = decode(Refused, body).sentence
        elif kind != Kind.BUSY:
            raise BadFrame(f"A frame of kind {kind} is out of place.")
        self._news.set()

    def _on_delivered(self, delivered: Delivered) -> None:
        if delivered.first != self._next:
            raise BadFrame(f"Position {delivered.first} came instead of {self._next}.")
        for record in delivered.records:
            read = decode(DeliveredRecord, record)
            self._buffer.append(Delivery(self._next, read.message, read.destinations, read.payload))
            self._next += 1
        if len(self._buffer) > BUFFERED_MAX and not self._is_paused and self._connection is not None:
            self._is_paused = True
            self._connection.pause_reading()
