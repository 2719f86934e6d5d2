"""Exactly once for clients: however often and through whichever members a request comes, it is delivered once.

A member that accepts a request multicasts a copy of its own. Total order does the rest: every member of a group sees
the copies in the same order, keeps the first and drops the others, so all members agree without another message.

A request number may be forgotten when the client says that it is *settled*: delivered in every destination group, and
never to be repeated. A copy that still turns up later is below the client's mark, and dropped for that.
"""

from __future__ import annotations

import msgspec

REQUESTS_MAX = 1 << 16  # how far a client's numbers may run ahead of its settled mark
CLIENTS_MAX = 10_000  # how many clients a group remembers; the one not heard of for longest goes first


class Seen(msgspec.Struct):
    """The numbers of one client that were delivered here, above its settled mark."""

    settled: int = 0
    delivered: set[int] = msgspec.field(default_factory=set)

    def __contains__(self, number: int) -> bool:
        return number < self.settled or number in self.delivered

    def settle(self, mark: int) -> None:
        if mark > self.settled:
            self.settled = mark
            self.delivered = {number for number in self.delivered if number >= mark}


class Sessions(msgspec.Struct):
    """``seen`` is the same at all members of a group, for it follows from their deliveries alone."""

    seen: dict[str, Seen] = {}
    accepted: dict[str, set[int]] = {}  # by this member, not yet delivered here

    def accept(self, client: str, number: int) -> bool:
        """Whether this member must multicast the request: neither accepted nor delivered here before."""
        numbers = self.accepted.setdefault(client, set())
        if number in numbers or (client in self.seen and number in self.seen[client]):
            if not numbers:
                del self.accepted[client]
            return False
        numbers.add(number)
        return True

    def admit(self, client: str, number: int, settled: int) -> bool:
        """Whether an ordered copy is the first of its request, and so to be delivered."""
        seen = self.seen.pop(client, None) or Seen()
        self.seen[client] = seen  # the newest is last
        first = number not in seen
        if first:
            seen.delivered.add(number)
        seen.settle(settled)
        if len(self.seen) > CLIENTS_MAX:
            del self.seen[next(iter(self.seen))]
        numbers = self.accepted.get(client)
        if numbers is not None:
            numbers.discard(number)
            if not numbers:
                del self.accepted[client]
        return first

    def delivered(self, client: str, start: int, limit: int) -> list[int]:
        """The numbers from ``start`` on that were delivered here, for the client to move its mark."""
        seen = self.seen.get(client)
        if seen is None:
            return []
        known = set(range(start, min(seen.settled, start + limit))) | {
            number for number in seen.delivered if number >= start
        }
        return sorted(known)[:limit]
