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
DOUBT_SECONDS = 2.0  # what was sent so long ago should be delivered: those who do not know of it may be behind
PROGRESS_ANSWER_SECONDS = 3.0
DOUBT_DIAL_SECONDS = 0.25  # that a connection may take while others could be asked; it is made all the same, for later


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
        if self._task is None and self._known() < self._sent():
            self._task = asyncio.get_running_loop().create_task(self._ask_on())

    def set_members(self, members: Sequence[str]) -> None:
        kept = [member for member in self._members if member in members]
        self._members = deque([*kept, *[member for member in members if member not in kept]])

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _sent(self) -> int:
        return sum(route.ledger.next_number for route in self.routes)

    def _known(self) -> int:
        """How many payloads are known to be delivered in this group."""
        return sum(route.ledger.delivered[self._group] for route in self.routes)

    async def _ask_on(self) -> None:
        """Ask one member as long as it has news. But a group may go on without that one, which then knows too little:
        if it does not come to know in time of what was sent, all members are asked in turn."""
        loop = asyncio.get_running_loop()
        goal, set_at = self._sent(), loop.time()
        try:
            while (known := self._known()) < self._sent():
                await self._pause()
                in_doubt = loop.time() - set_at > DOUBT_SECONDS
                member = self._members[0] if in_doubt else self._connected_member()
                await self._ask(member, DOUBT_DIAL_SECONDS if in_doubt else PROGRESS_ANSWER_SECONDS)
                if member in self._members and (in_doubt or self._known() == known):
                    self._members.remove(member)
                    self._members.append(member)
                if self._known() >= goal:
                    goal, set_at = self._sent(), loop.time()
        finally:
            self._task = None

    def _connected_member(self) -> str:
        return next(filter(self._connections.is_connected, self._members), self._members[0])

    async def _pause(self) -> None:
        await asyncio.sleep(HURRY_SECONDS)
        try:
            async with asyncio.timeout(SETTLE_SECONDS - HURRY_SECONDS):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    async def _ask(self, member: str, dial_seconds: float) -> None:
        ledgers = [(route, route.ledger) for route in self.routes]
        unknown = [route for route, ledger in ledgers if ledger.delivered[self._group] < ledger.next_number]
        sets = [list(route.destinations) for route in unknown]
        connection = None
        try:
            async with asyncio.timeout(dial_seconds):
                connection = await self._connections.connection(member)
            for first in range(0, len(sets), PROGRESS_MAX):
                async with asyncio.timeout(PROGRESS_ANSWER_SECONDS):
                    await connection.ask_progress(sets[first : first + PROGRESS_MAX])
        except (Unavailable, UsageError):
            return
        except TimeoutError:
            if connection is not None and connection.loop.time() - connection.heard_at > MEMBER_SILENCE_SECONDS:
                self._connections.drop(connection)
