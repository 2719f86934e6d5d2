"""The unordered multicast under the protocols of swap.txt: ``Spread``, and three ways to fill it.

To every member, or along the edges of a tree, over the channels of the host; or to every member by the numbered streams
of services/numbered.py, over datagrams, of which lost ones are fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from antiphon.core import Component, Message, MessageId, ProcessId, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.numbered import Copy, NumberedMulticast, NumberedOptions
from antiphon.services.swap import BOTTOM

SpreadKind = Literal["direct", "tree"]
NUMBER_MAX = 1 << 62


class Pair(Wire, frozen=True, tag=1):
    """m, and what tells its place in the order: its predecessor, or its number."""

    place: MessageId | int
    message: Message


class SpreadOptions(msgspec.Struct, frozen=True):
    kind: SpreadKind = "direct"


class Spread(Component):
    """Every member gets each pair once, in any order: ``received(place, m)``. Any reliable multicast can do it."""

    received: Callable[[MessageId | int, Message], None]
    members: Callable[[], tuple[ProcessId, ...]]
    neighbours: Callable[[], tuple[ProcessId, ...]]  # in the tree

    def multicast(self, place: MessageId | int, m: Message) -> None:
        raise NotImplementedError

    def pass_on(self, to: ProcessId, place: MessageId | int, m: Message) -> None:
        """To a new neighbour, what came before it was one."""
        raise NotImplementedError

    def pending(self) -> int:
        """How many pairs this process knows to be missing, here or elsewhere."""
        return 0


class ChannelSpread(Spread):
    """Over the channels of the host. Along the tree a node knows its neighbours only; a pair crosses each edge once."""

    Options = SpreadOptions
    options: SpreadOptions

    def multicast(self, place: MessageId | int, m: Message) -> None:
        to = self.members() if self.options.kind == "direct" else (self.me, *self.neighbours())
        self.send(to, Pair(place, m))

    def pass_on(self, to: ProcessId, place: MessageId | int, m: Message) -> None:
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


class NumberedPairs(NumberedMulticast):
    """Copies to one group, each of which has one message in its past or none: its predecessor, or ⊥."""

    def validate(self, message: Wire) -> None:
        super().validate(message)
        if isinstance(message, Copy):
            if message.message.destinations != (self.group,) or not message.past.keys() <= {self.group}:
                raise BadFrame(f"A message for {self.group} has its predecessor there.")
            if any(len(vector) != 1 for vector in message.past.values()):
                raise BadFrame("A message has one predecessor.")


class NumberedSpread(Spread):
    """Over datagrams: numbered streams to the whole group, of which every member fetches what it misses."""

    numbered: NumberedPairs

    def initialise(self) -> None:
        self.numbered = self.part(NumberedPairs, "numbered", NumberedOptions("datagram"), arrived=self.when_arrived)

    def multicast(self, place: MessageId | int, m: Message) -> None:
        assert isinstance(place, MessageId), "numbers are spread over channels"
        past = {} if place == BOTTOM else {group: {place.origin: place.number} for group in m.destinations}
        self.numbered.multicast(m, past)  # to all others
        self.received(place, m)

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        found = [MessageId(*last) for vector in copy.past.values() for last in vector.items()]
        self.received(found[0] if found else BOTTOM, copy.message)

    def pending(self) -> int:
        return self.numbered.pending()
