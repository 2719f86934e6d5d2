"""What a route has numbered: which requests have their receipts, and which are settled, so delivered in all groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from antiphon.client.outgoing import Outgoing
from antiphon.core.errors import BadFrame


class Ledger:
    """The requests of one session, from when they are numbered until they are settled."""

    def __init__(self, destinations: Sequence[str]) -> None:
        self.next_number = 0
        self.settled = 0  # all below was delivered in every group
        self.delivered: dict[str, int] = dict.fromkeys(destinations, 0)  # by group, as far as is known
        self.requests: deque[Outgoing] = deque()  # not known to be delivered everywhere
        # Those of them that no majority is known to hold; where nobody ever knows, that no member is known to hold.
        self.unanswered: deque[Outgoing] = deque()

    def enter(self, request: Outgoing) -> None:
        """It was just numbered."""
        self.next_number = request.end
        self.requests.append(request)
        self.unanswered.append(request)

    def settle(self, end: int) -> int:
        """Every group has delivered all below ``end``: let go of it; returns how many bytes that frees."""
        freed = 0
        while self.requests and self.requests[0].end <= end:
            freed += self.requests.popleft().size
        self.settled = self.requests[0].first if self.requests else self.next_number
        return freed

    def doubt(self) -> None:
        """The member to which they were sent may have taken any of them."""
        for request in self.requests:
            request.is_doubtful = True

    def withdraw(self, first: int) -> deque[Outgoing]:
        """A member surely did not take anything from this number on: what nobody else may have taken becomes drafts
        again, and their numbers are free."""
        withdrawn: deque[Outgoing] = deque()
        while self.requests and self.requests[-1].first >= first and not self.requests[-1].is_doubtful:
            if not self.unanswered or self.unanswered[-1] is not self.requests[-1]:
                break  # another member has answered for it
            if self.requests[-1].is_answered:
                break
            request = self.requests.pop()
            self.unanswered.pop()
            self.next_number = request.first
            request.withdraw()
            withdrawn.appendleft(request)
        return withdrawn

    def since(self, number: int) -> deque[Outgoing]:
        """The requests from this number on. BadFrame: none begins with it."""
        if number not in (request.first for request in self.requests):
            raise BadFrame("A member expects a request that was never made.")
        return deque(request for request in self.requests if request.first >= number)
