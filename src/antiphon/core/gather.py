"""A member gathers what one turn brought for the same set of groups and service, from all clients, into one message."""

from __future__ import annotations

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.model import GroupId, Service
from antiphon.core.requests import Request, trusted_requests_in


class Gather(msgspec.Struct, frozen=True):
    """How much goes into one message. One request is never cut, whatever its size."""

    requests: int = 4096  # 1: every request is a message of its own
    bytes: int = 1 << 20


class Gathered(msgspec.Struct, array_like=True):
    """A message to be."""

    destinations: tuple[GroupId, ...]
    requests: list[Buffers] = []
    count: int = 0  # of payloads
    size: int = 0

    def body(self) -> Buffers:
        """All of it, as it came; what is known of the requests goes with it."""
        if len(self.requests) == 1:
            return self.requests[0]
        body = Buffers(*[piece for request in self.requests for piece in request.pieces])
        body.decoded = [read for request in self.requests for read in trusted_requests_in(request)]
        return body


class Gathering(msgspec.Struct, array_like=True):
    """The messages of the present turn, in the order in which they will be multicast.

    A request joins the newest message of its set and service unless its client has sent to another since: so what one
    client hands over is multicast in that order, also across sets.
    """

    messages: list[Gathered] = []
    open: dict[tuple[tuple[GroupId, ...], Service | None], int] = {}  # by set and service: the newest message
    newest: dict[str, int] = {}  # by client: the last message that it has a request in

    def add(self, destinations: tuple[GroupId, ...], request: Request, limit: Gather) -> None:
        kind = (destinations, request.service)  # those of one message are delivered in one way
        index, size = self.open.get(kind, -1), len(request.data)
        if index < self.newest.get(request.client, 0) or not self._fits(index, size, limit):
            index = self.open[kind] = len(self.messages)
            self.messages.append(Gathered(destinations))
        message = self.messages[index]
        data = Buffers(request.data)
        data.decoded = [request]
        message.requests.append(data)
        message.count += request.count
        message.size += size
        self.newest[request.client] = index

    def drop(self, client: str, destinations: tuple[GroupId, ...], below: int) -> None:
        """Leave out a client's requests to these groups that begin below a number. A message may stay without any."""
        for message in self.messages:
            if message.destinations == destinations:
                read = [(data, trusted_requests_in(data)[0]) for data in message.requests]
                kept = [(data, each) for data, each in read if each.client != client or each.first >= below]
                message.requests = [data for data, _ in kept]
                message.count = sum(each.count for _, each in kept)
                message.size = sum(len(each.data) for _, each in kept)

    def _fits(self, index: int, size: int, limit: Gather) -> bool:
        message = self.messages[index]
        return len(message.requests) < limit.requests and message.size + size <= limit.bytes
