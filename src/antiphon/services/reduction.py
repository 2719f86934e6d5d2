"""Ordered multicast by distributed swap (swap.txt, section 3), whichever swap it is.

S1-S16 are the lines of docs/protocols/reduction.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar
from zlib import crc32

import msgspec

from antiphon.core import (
    Assumptions,
    Detector,
    Failures,
    FaultModel,
    GroupId,
    Message,
    MessageId,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Topology,
    Transport,
    Wire,
)
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.keys import Key
from antiphon.services.gaps import Eras
from antiphon.services.spread import ChannelSpread, NumberedSpread, Spread, SpreadKind, SpreadOptions
from antiphon.services.swap import BOTTOM, DistributedSwap
from antiphon.services.tree import Place, TreeKind, band, check_weights, lightest, parse_weights, pieces, places, ring

SwapKind = TypeVar("SwapKind", bound=DistributedSwap)

PROMISES = (
    Promise.VALIDITY,
    Promise.INTEGRITY,
    Promise.UNIFORM_AGREEMENT,
    Promise.FIFO,
    Promise.TOTAL_ORDER,
    Promise.ACYCLIC_ORDER,
    Promise.GENUINENESS,
)

PROMISES_WITH_GAPS = (Promise.INTEGRITY, Promise.ACYCLIC_ORDER, Promise.GAPS, Promise.GENUINENESS)


class Hand(Wire, frozen=True, tag=1):
    """Sender outside the group to one member: multicast this for me."""

    message: Message


class TreeOptions(msgspec.Struct, frozen=True):
    tree: TreeKind = "balanced"
    multicast: SpreadKind = "direct"  # tree: along the edges, so that a node knows nobody but its neighbours
    seed: int = 0  # of the random tree
    weights: str = ""  # a graph, as 1-2:3,2-3:5: instead of these trees, the lightest that spans it


class TreeProtocol(OrderingProtocol):
    """The members of each group are the nodes of a tree; a sender outside hands its messages to one of them."""

    transport = Transport.FIFO  # so that what a sender outside hands over keeps its order
    Options: ClassVar[type[msgspec.Struct]] = TreeOptions
    options: Any

    spread: Spread

    delivered: int

    @classmethod
    def drawn_last(cls, topology: Topology) -> dict[str, tuple[str, ...]]:
        n = max(len(members) for members in topology.groups.values())
        return {"weights": ("", "", ring(n), band(n)) if n > 1 else ("",)}

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        if options.weights:
            parse_weights(options.weights)

    def initialise(self) -> None:
        if self.options.weights:
            check_weights(self.options.weights, max(len(members) for members in self.topology.groups.values()))
        kind, options = self.spread_kind()
        self.spread = self.part(
            kind, "multicast", options, received=self.when_received, members=self.nodes, neighbours=self.neighbours
        )
        self.delivered = 0

    def spread_kind(self) -> tuple[type[Spread], msgspec.Struct | None]:
        """The unordered multicast, with its options."""
        return ChannelSpread, SpreadOptions(self.options.multicast)

    def nodes(self) -> tuple[ProcessId, ...]:
        """The members of this process's group that live; nobody, at a process outside all groups.

        In a graph: those that live and to which a path of edges leads, round the dead.
        """
        members = self.members
        dead = self.dead(self.group) if members else ()
        if not dead:
            return members
        if self.options.weights:
            return pieces(members, self.options.weights, dead)[self.me]
        return tuple(p for p in members if p not in dead)

    def place(self) -> Place:
        """Where this process is in the tree of its group."""
        options = self.options
        if not self.members:
            return Place()
        if options.weights:
            return lightest(self.members, options.weights, self.dead(self.group))[self.me]
        return places(self.nodes(), options.tree, options.seed)[self.me]

    def neighbours(self) -> tuple[ProcessId, ...]:
        return self.place().neighbours

    def multicast(self, m: Message) -> None:
        (group,) = m.destinations
        if self.topology.group_of.get(self.me) == group:
            self.order(m)
        else:
            self.send(self.contact(group), Hand(m))  # S2

    def contact(self, group: GroupId) -> ProcessId:
        """The one member that a sender outside knows: always the same, and another one for another sender.

        If it is dead, the next one that lives.
        """
        members, dead = self.topology.members(group), self.dead(group)
        first = crc32(self.me.encode()) % len(members)
        return next((p for p in (*members[first:], *members[:first]) if p not in dead), members[first])

    def dead(self, group: GroupId) -> tuple[ProcessId, ...]:
        """The members of a group that are known to have crashed for good."""
        return ()

    def on_hand(self, sender: ProcessId, hand: Hand) -> None:
        self.order(hand.message)

    def order(self, m: Message) -> None:
        """Find m's place in the order."""
        raise NotImplementedError

    def when_received(self, place: MessageId | int, m: Message) -> None:
        """m is here, with its place in the order."""
        raise NotImplementedError

    def deliver_next(self, m: Message) -> None:
        """All members deliver the same messages in the same order, so each can number them by itself."""
        self.delivered += 1
        self.deliver(m, (*self.era_key(), self.delivered, self.group))

    def era_key(self) -> Key:
        """What comes before the number where the order has gaps, and numbers begin anew behind each."""
        return ()

    def validate(self, message: Wire) -> None:
        assert isinstance(message, Hand)
        if message.message.destinations != (self.topology.group_of.get(self.me),):
            raise BadFrame(f"A message for {', '.join(message.message.destinations)} is not for {self.me}.")


class SwapOptions(TreeOptions, frozen=True):
    by: Literal["travel", "reduction"] = "travel"  # whether the message travels with its swap, or waits for the answer
    gaps: bool = False  # whether members may crash for good, and the application is told where messages may be missing
    over: Literal["channels", "datagrams"] = "channels"  # under the unordered multicast; lost datagrams are fetched


class OrderedBySwap(TreeProtocol):
    """A message's swap finds its immediate predecessor; members deliver it right after that one."""

    Options = SwapOptions
    options: Any

    swap_object: DistributedSwap
    eras: Eras  # only with gaps

    waiting: Table[MessageId, Message]  # messages of which this process has yet to learn the predecessor
    last: MessageId  # the message delivered last
    holdback: Table[MessageId, Message]  # by predecessor

    @classmethod
    def drawn_last(cls, topology: Topology) -> dict[str, tuple[str, ...]]:
        return {**super().drawn_last(topology), "over": ("channels", "datagrams")}

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        super().check(options, model)
        if options.over == "datagrams" and (options.multicast != "direct" or options.gaps):
            raise UsageError(
                f"{cls.declaration.name} over datagrams repeats to every member until that one has answered: "
                "use over=channels with multicast=tree or gaps=true."
            )

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        if not options.gaps:
            return cls.declaration.assumes
        return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.PERFECT, one_group=True)

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        return PROMISES_WITH_GAPS if options.gaps else cls.declaration.promises

    def initialise(self) -> None:
        if self.options.gaps:
            self.eras = self.part(Eras, "eras", moved=self.when_moved)
            self.channel = self.eras  # from here on, everything that this protocol and its parts send
        super().initialise()
        self.swap_object = self.make_swap_object()
        self.waiting, self.holdback = {}, {}
        self.last = BOTTOM  # S1

    def spread_kind(self) -> tuple[type[Spread], msgspec.Struct | None]:
        return (NumberedSpread, None) if self.options.over == "datagrams" else super().spread_kind()

    def make_swap_object(self) -> DistributedSwap:
        """The swap object of this process's group."""
        raise NotImplementedError

    def swap_part(
        self, kind: type[SwapKind], options: msgspec.Struct | None = None, *, place: Callable[[], object]
    ) -> SwapKind:
        return self.part(
            kind,
            "swap",
            options,
            place=place,
            neighbours=self.neighbours,
            swapped=self.when_swapped,
            found=self.when_found,
        )

    def order(self, m: Message) -> None:  # S3
        if self.options.by == "travel":
            self.swap_object.swap(m.id, carrying=m)  # S4
        else:
            self.waiting[m.id] = m
            self.swap_object.swap(m.id)  # S5

    def when_found(self, m: Message, previous: MessageId) -> None:  # S6
        self.spread.multicast(previous, m)  # S7

    def when_swapped(self, a: MessageId, previous: MessageId) -> None:  # S8
        m = self.waiting.pop(a, None)
        if m is not None:
            self.when_found(m, previous)

    def when_received(self, place: MessageId | int, m: Message) -> None:  # S9
        if isinstance(place, int):
            return  # only a counting protocol sends numbers
        self.holdback[place] = m  # S10
        while (following := self.holdback.pop(self.last, None)) is not None:  # S11
            self.last = following.id
            self.deliver_next(following)

    def when_moved(self) -> None:  # S12
        self.announce_gap()  # S13
        self.last, self.holdback, self.delivered = BOTTOM, {}, 0  # S14
        self.swap_object.begin_anew()  # S15
        # Nobody else has ever had these: they have no place in the era that is over.
        for a in sorted(self.waiting):
            self.swap_object.swap(a)  # S16

    def dead(self, group: GroupId) -> tuple[ProcessId, ...]:
        return self.eras.era(group) if self.options.gaps else ()

    def era_key(self) -> Key:
        """An era comes after all that it contains."""
        if not self.options.gaps:
            return ()
        dead = self.dead(self.group)
        # The pieces of a graph have nothing in common but the era: by its first node each has keys of its own.
        return (len(dead), *dead, *self.nodes()[: bool(self.options.weights)])

    def counters(self) -> dict[str, int]:
        return {"discarded": self.eras.discarded} if self.options.gaps else {}

    def pending(self) -> int:
        return len(self.holdback) + len(self.waiting) + self.spread.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        """Those whose messages are the missing predecessors."""
        held = {m.id for m in self.holdback.values()}
        return tuple(sorted({previous.origin for previous in self.holdback if previous not in held}))
