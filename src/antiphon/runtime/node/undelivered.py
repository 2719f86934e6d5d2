"""What a member has taken and not delivered yet: the measure by which its clients are held back."""

from __future__ import annotations

from collections import deque

from antiphon.core.effects import Reply
from antiphon.core.model import GroupId


class Undelivered:
    """The requests that this member took and has not delivered yet, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.taken_bytes = 0  # of all that were ever taken
        self._sessions: dict[
            tuple[str, tuple[GroupId, ...]], deque[tuple[int, int]]
        ] = {}  # (the number after it, its size) of each request

    def taken(self, reply: Reply) -> None:
        if not reply.fresh:
            return
        session = (reply.client, reply.destinations)
        waiting = self._sessions.get(session)
        if waiting is None:
            waiting = self._sessions[session] = deque()
        for request in reply.requests[-reply.fresh :]:
            size = len(request.data)
            waiting.append((request.end, size))
            self.bytes += size
            self.taken_bytes += size

    def delivered(self, client: str, destinations: tuple[GroupId, ...], end: int) -> None:
        session = (client, destinations)
        waiting = self._sessions.get(session)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= end:
            self.bytes -= waiting.popleft()[1]
        if not waiting:
            del self._sessions[session]
