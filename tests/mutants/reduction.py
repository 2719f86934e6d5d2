"""The reduction to swap, and the multicast under it, with one mistake each: to be put into any protocol by swap."""

from __future__ import annotations

from typing import Any

from antiphon.core import GroupId, Message, MessageId, ProcessId
from antiphon.services.numbered import Answer, Have
from antiphon.services.reduction import OrderedBySwap
from antiphon.services.spread import ChannelSpread, NumberedPairs, NumberedSpread, Pair
from antiphon.services.swap import BOTTOM
from mutants.parts import with_parts


class DeliversAsItComes(OrderedBySwap):
    def when_received(self, place: MessageId | int, m: Message) -> None:
        self.deliver_next(m)


class DeliversOneOfThoseThatWait(OrderedBySwap):
    """What waited for a message that waited itself is forgotten."""

    def when_received(self, place: MessageId | int, m: Message) -> None:
        assert not isinstance(place, int)
        self.holdback[place] = m
        following = self.holdback.pop(self.last, None)
        if following is not None:
            self.last = following.id
            self.deliver_next(following)


class MulticastsWithTheLastItDelivered(OrderedBySwap):
    """Of the predecessor that the swap found it takes no notice."""

    def when_found(self, m: Message, previous: MessageId) -> None:
        super().when_found(m, self.last)


class ForgetsWhatItHoldsBackOnRestart(OrderedBySwap):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.holdback = {}


class ForgetsTheLastItDeliveredOnRestart(OrderedBySwap):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.last = BOTTOM


class ForgetsWhatWaitsForItsPredecessorOnRestart(OrderedBySwap):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.waiting = {}


class HandsToOneAfterTheOther(OrderedBySwap):
    """A sender outside breaks its own order."""

    handed: int

    def initialise(self) -> None:
        super().initialise()
        self.handed = 0

    def contact(self, group: GroupId) -> ProcessId:
        self.handed += 1
        members = self.topology.members(group)
        return members[self.handed % len(members)]


class DoesNotFlood(ChannelSpread):
    """Only the neighbours of the node that multicasts get anything."""

    def on_pair(self, sender: ProcessId, pair: Pair) -> None:
        self.received(pair.place, pair.message)


class FloodsToOneNeighbour(ChannelSpread):
    """Along a line one never sees it."""

    def on_pair(self, sender: ProcessId, pair: Pair) -> None:
        if self.options.kind == "tree" and sender != self.me:
            self.send([node for node in self.neighbours() if node != sender][:1], pair)
        self.received(pair.place, pair.message)


class LeavesOutTheLastMember(ChannelSpread):
    def multicast(self, place: MessageId | int, m: Message) -> None:
        members = self.members()
        to = members if self.options.kind == "direct" else (self.me, *self.neighbours())
        self.send(to[: max(1, len(to) - 1)], Pair(place, m))


class SaysNothingOfThePredecessor(NumberedSpread):
    """Over datagrams. To those who get it, everything is the first message."""

    def multicast(self, place: MessageId | int, m: Message) -> None:
        assert isinstance(place, MessageId)
        self.numbered.multicast(m, {})
        self.received(place, m)


class NamesNothingThatIsMissing(NumberedPairs):
    """Over datagrams. The newest is repeated, but nothing before it is fetched."""

    def on_answer(self, timer: Answer) -> None:
        stream = self.streams[timer.sender]
        stream.answered = 0
        self.send(timer.sender, Have(stream.inbox.received, []))


def _over_pairs(protocol: Any, kind: type[NumberedPairs]) -> Any:
    """The streams are a part of a part."""
    mutant = with_parts(protocol, with_parts(NumberedSpread, kind))  # type: ignore[type-var]
    mutant.__name__ = mutant.__qualname__ = kind.__name__
    return mutant


def reduction_mutants(protocol: Any) -> tuple[Any, ...]:
    """Each of these mistakes in a protocol."""
    mistakes = (
        DeliversAsItComes,
        DeliversOneOfThoseThatWait,
        MulticastsWithTheLastItDelivered,
        ForgetsWhatItHoldsBackOnRestart,
        ForgetsTheLastItDeliveredOnRestart,
        ForgetsWhatWaitsForItsPredecessorOnRestart,
        HandsToOneAfterTheOther,
    )
    mixed = tuple(type(mistake.__name__, (mistake, protocol), {}) for mistake in mistakes)
    return (
        *mixed,
        *(with_parts(protocol, kind) for kind in (DoesNotFlood, FloodsToOneNeighbour, LeavesOutTheLastMember)),
        with_parts(protocol, SaysNothingOfThePredecessor),
        _over_pairs(protocol, NamesNothingThatIsMissing),
    )
