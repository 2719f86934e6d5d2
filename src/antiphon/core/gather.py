"""A member gathers what one turn brought for the same set of groups, from all clients, into one message."""

from __future__ import annotations

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.model import GroupId


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


class Gathering(msgspec.Struct, array_like=True):
    """The messages of the present turn, in the order in which they will be multicast.

    A request joins its set's newest message unless its client has sent to another set since: so what one client hands
    over is multicast in that order, also across sets.
    """

    messages: list[Gathered] = []
    open: dict[tuple[GroupId, ...], int] = {}  # by set: its newest message
    newest: dict[str, int] = {}  # by client: the last message that it has a request in

    def add(self, destinations: tuple[GroupId, ...], client: str, count: int, data: Buffers, limit: Gather) -> None:
        index = self.open.get(destinations, -1)
        if index < self.newest.get(client, 0) or not self._fits(index, data.size, limit):
            index = self.open[destinations] = len(self.messages)
            self.messages.append(Gathered(destinations))
        message = self.messages[index]
        message.requests.append(data)
        message.count += count
        message.size += data.size
        self.newest[client] = index

    def _fits(self, index: int, size: int, limit: Gather) -> bool:
        message = self.messages[index]
        return len(message.requests) < limit.requests and message.size + size <= limit.bytes
