"""Which member a route turns to next: one after the other, whoever leads before the others."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from antiphon.runtime.net.backoff import Backoff


class Candidates:
    def __init__(self, members: Sequence[str]) -> None:
        start = random.randrange(len(members))
        self._members = deque([*members[start:], *members[:start]])  # the one to be tried next is first
        self.why = "no member answered"  # when the last one failed
        self.is_unsettled = False  # whether any was tried, or left, since one last took something
        self._failures = 0  # since then
        self._left = ""  # the member that failed last, until another one takes something
        self._was_led = False  # to a member that leads, since something was last taken
        self._backoff = Backoff()

    @property
    def next(self) -> str:
        return self._members[0]

    async def pause(self) -> None:
        """Wait a little after each round."""
        if self._failures and self._failures % len(self._members) == 0:
            await self._backoff.wait()

    def failed(self, why: str) -> None:
        """The next one cannot be reached, or was left."""
        self.why = why
        self.is_unsettled = True
        self._left = self._members[0]
        self._failures += 1
        self._members.rotate(-1)

    def turn_to(self, leader: str, member: str) -> bool:
        """Whether another one is next, for it leads the group of this member: asked first, it saves a hop. But a member
        that was just left is not asked again because this one has not heard of it yet; and what they say is believed
        once."""
        if self._was_led or leader in ("", member, self._left) or leader not in self._members:
            return False
        self.is_unsettled = self._was_led = True
        self._members.rotate(-self._members.index(leader))
        return True

    def found(self) -> None:
        """A member has taken something."""
        self.is_unsettled = False
        self._failures = 0
        self._left, self._was_led = "", False
        self._backoff.reset()

    def set_members(self, members: Sequence[str]) -> None:
        """Some were replaced. Who is new is tried last."""
        kept = [member for member in self._members if member in members]
        self._members = deque([*kept, *[member for member in members if member not in kept]])
