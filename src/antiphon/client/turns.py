"""A client's order across sets of groups: what it sends to one set waits until what it sent to others has its receipt.

The calls of one client are cut into *turns*: calls in a row to one set of groups. A turn begins when a majority of each
group is known to hold all requests of the turns before it; their greatest timestamp, and one more, is its floor
(core/requests.py). So whatever is sent in it is ordered behind all that, wherever both are delivered. Within a turn
any number of requests are under way.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Flushed(Protocol):
    """A route, as far as turns are concerned."""

    def flush(self) -> None: ...


class ClientTurn:
    __slots__ = ("floor", "number", "pending", "route")

    def __init__(self, number: int, route: Flushed) -> None:
        self.number = number
        self.route = route
        self.floor = 0  # once it has begun
        self.pending = 0  # drafts and requests without a receipt of a majority


class Turns:
    """Of one client. The first one has begun, the last one takes calls."""

    def __init__(self) -> None:
        self.latest = 0  # nothing that has such a receipt is ordered behind this timestamp
        self._waiting: deque[ClientTurn] = deque()
        self._next = 0

    @property
    def newest(self) -> ClientTurn | None:
        return self._waiting[-1] if self._waiting else None

    def add(self, route: Flushed) -> ClientTurn:
        """A call to another set of groups than the one before."""
        turn = ClientTurn(self._next, route)
        self._next += 1
        self._waiting.append(turn)
        self._go_on()
        return turn

    def has_begun(self, turn: ClientTurn) -> bool:
        return self._waiting[0] is turn

    def done(self, turn: ClientTurn) -> None:
        """One draft or request less."""
        turn.pending -= 1
        if not turn.pending and self._go_on():
            self._waiting[0].route.flush()

    def _go_on(self) -> bool:
        """Whether another turn begins."""
        begun = self._waiting[0]
        while not self._waiting[0].pending and len(self._waiting) > 1:
            self._waiting.popleft()
        present = self._waiting[0]
        if present.number and not present.floor:
            present.floor = self.latest + 1
        return present is not begun
