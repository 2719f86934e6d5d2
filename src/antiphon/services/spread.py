"""The unordered multicast under the protocols of swap.txt: to every member, or along the edges of a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from antiphon.core import Component, Message, MessageId, ProcessId, Wire
from antiphon.core.errors import BadFrame

SpreadKind = Literal["direct", "tree"]
NUMBER_MAX = 1 << 62


class Pair(Wire, frozen=True, tag=1):
    """m, and what tells its place in the order: its predecessor, or its number."""

    place: MessageId | int
    message: Message


class SpreadOptions(msgspec.Struct, frozen=True):
    kind: SpreadKind = "direct"


class Spread(Component):
    """Every member gets each pair once, in any order: ``received(place, m)``.

    Along the tree a node needs to know its neighbours only, and a pair crosses each edge once.
    """

    Options = SpreadOptions
    options: SpreadOptions
    received: Callable[[MessageId | int, Message], None]
    members: Callable[[], tuple[ProcessId, ...]]
    neighbours: Callable[[], tuple[ProcessId, ...]]  # in the tree

    def multicast(self, place: MessageId | int, m: Message) -> None:
        to = self.members() if self.options.kind == "direct" else (self.me, *self.neighbours())
        self.send(to, Pair(place, m))

    def pass_on(self, to: ProcessId, place: MessageId | int, m: Message) -> None:
        """To a new neighbour, what came before it was one."""
        self.send(to, Pair(place, m))

    def on_pair(self, sender: ProcessId, pair: Pair) -> None:
        if self.options.kind == "tree" and sender != self.me:
            self.send([node for node in self.neighbours() if node != sender], pair)
        self.received(pair.place, pair.message)

    def validate(self, message: Wire) -> None:
        assert isinstance(message, Pair)
        if message.message.destinations != (self.topology.group_of.get(self.me),):
            raise BadFrame(f"A message for {', '.join(message.message.destinations)} is not for {self.me}.")
        if isinstance(message.place, int) and not 0 < message.place < NUMBER_MAX:
            raise BadFrame("Messages are numbered from 1.")
