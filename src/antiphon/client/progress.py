"""How far a group has delivered what a client sent: asked of one of its members while something is not known."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from antiphon.client.connection import MEMBER_SILENCE_SECONDS
from antiphon.client.members import Members
from antiphon.client.route import Route
from antiphon.core.errors import Unavailable, UsageError
from antiphon.runtime.net.frames import PROGRESS_MAX

SETTLE_SECONDS = 0.25  # between two questions
HURRY_SECONDS = 0.02  # the same, when much is kept that could be let go
DOUBT_SECONDS = 1.0  # without news from those members to whom there is a connection: then the others are asked, too
PROGRESS_ANSWER_SECONDS = 3.0


class GroupProgress:
    """The questions to one group. Each group has its own, so that one that cannot answer delays no other."""

    def __init__(self, members: Sequence[str], connections: Members, group: str) -> None:
        self.routes: list[Route] = []
        self._group = group
        self._members = deque(members)  # the one to be asked next is first
        self._connections = connections
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self, *, hurry: bool) -> None:
        if hurry:
            self._hurry.set()
        if self._task is None and self._unknown():
            self._task = asyncio.get_running_loop().create_task(self._ask_on())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _unknown(self) -> int:
        """How many payloads are not known to be delivered in this group."""
        return sum(route.next_number - route.delivered[self._group] for route in self.routes)

    def _known(self) -> int:
        return sum(route.delivered[self._group] for route in self.routes)

    async def _ask_on(self) -> None:
        loop = asyncio.get_running_loop()
        news_at = loop.time()
        try:
            while self._unknown():
                await self._pause()
                known = self._known()
                member = self._next_member(in_doubt=loop.time() - news_at > DOUBT_SECONDS)
                await self._ask(member)
                if self._known() > known:
                    news_at = loop.time()
                else:  # this one may have been left behind: it is asked again after all others
                    self._members.remove(member)
                    self._members.append(member)
        finally:
            self._task = None

    def _next_member(self, *, in_doubt: bool) -> str:
        """A connection that is there is used before another is made, unless all whom it leads to may be behind."""
        first = self._members[0]
        return first if in_doubt else next(filter(self._connections.is_connected, self._members), first)

    async def _pause(self) -> None:
        await asyncio.sleep(HURRY_SECONDS)
        try:
            async with asyncio.timeout(SETTLE_SECONDS - HURRY_SECONDS):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    async def _ask(self, member: str) -> None:
        unknown = [route for route in self.routes if route.delivered[self._group] < route.next_number]
        sets = [list(route.destinations) for route in unknown]
        connection = None
        try:
            async with asyncio.timeout(PROGRESS_ANSWER_SECONDS):
                connection = await self._connections.connection(member)
            for first in range(0, len(sets), PROGRESS_MAX):
                async with asyncio.timeout(PROGRESS_ANSWER_SECONDS):
                    await connection.ask_progress(sets[first : first + PROGRESS_MAX])
        except (Unavailable, UsageError):
            return
        except TimeoutError:
            if connection is not None and connection.loop.time() - connection.heard_at > MEMBER_SILENCE_SECONDS:
                self._connections.drop(connection)
