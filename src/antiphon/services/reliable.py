"""Reliable multicast, three kinds with one face: eager, lazy and uniform.

E1-E7, Z1-Z7 and U1-U8 are the lines of docs/protocols/reliable.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from antiphon.core import Component, GroupId, Message, ProcessId, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.label import Counter, Label, Seen, has_qualified_majority


class Copy(Wire, frozen=True, tag=1):
    """m, from its origin or forwarded."""

    message: Message
    label: Label


class ReliableOptions(msgspec.Struct, frozen=True):
    echo_origin: bool = False  # whether a copy is also sent on to the origin (R1: MTO's row counts it so)


class ReliableMulticast(Component):
    """R-multicast and R-deliver. ``delivered`` gets each message once, with a label that can be forgotten."""

    Options = ReliableOptions
    options: ReliableOptions
    delivered: Callable[[Message, Label], None]

    counter: Counter
    seen: Seen

    def initialise(self) -> None:
        self.counter = Counter()
        self.seen = Seen()

    @property
    def group(self) -> GroupId:
        return self.topology.group_of[self.me]

    def validate(self, message: Wire) -> None:
        if isinstance(message, Copy):
            message.label.check(self.topology, self.me)
            if message.label.groups != message.message.destinations:
                raise BadFrame("A copy's label is for other groups than its message.")

    def multicast(self, m: Message) -> None:  # E1 Z1 U1
        label = self.counter.next(self.me, m.destinations)  # E2 Z2 U2
        self.send(self.topology.addressees(m.destinations), Copy(m, label))  # E3 Z3 U3

    def forward(self, copy: Copy, *, to_origin: bool) -> None:
        """Send a copy on to the other addressees; the origin itself has just sent it to everybody."""
        origin = copy.label.origin
        if origin != self.me:
            skipped = (self.me,) if to_origin else (self.me, origin)
            others = self.topology.addressees(copy.message.destinations)
            self.send([p for p in others if p not in skipped], copy)


class EagerReliableMulticast(ReliableMulticast):
    """Forward on first receipt, then deliver."""

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # E4
        if self.seen.add(copy.label, self.group):  # E5
            self.forward(copy, to_origin=self.options.echo_origin)  # E6
            self.delivered(copy.message, copy.label)  # E7


class Acknowledge(Wire, frozen=True, tag=2):
    """I have everything of these origins up to these numbers of my group."""

    received: dict[str, int]


class LazyReliableMulticast(ReliableMulticast):
    """Deliver on first receipt; forward only when the origin is suspected.

    A copy is kept until every addressee is known to have the message. They tell one another, some time after a message
    came and once for all that came meanwhile; so an idle system is silent.
    """

    kept: dict[str, dict[int, Copy]]  # by origin, by the number in the own group
    holds: dict[ProcessId, dict[str, int]]  # what the other addressees said that they have
    timing: bool

    ACKNOWLEDGE_NS = 50_000_000

    def initialise(self) -> None:
        super().initialise()
        self.kept = {}
        self.holds = {}
        self.timing = False

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # Z4
        if not self.seen.add(copy.label, self.group):  # Z5
            return
        origin = copy.label.origin
        self.kept.setdefault(origin, {})[self.number(copy.label)] = copy
        self.watch()
        if not self.timing:
            self.timing = True
            self.set_timer("acknowledge", self.ACKNOWLEDGE_NS)
        self.delivered(copy.message, copy.label)  # Z6
        if origin in self.suspects:
            self.forward(copy, to_origin=False)

    def on_suspect(self, process: ProcessId) -> None:  # Z7
        for copy in self.kept.get(process, {}).values():
            self.forward(copy, to_origin=False)

    def number(self, label: Label) -> int:
        return label.numbers[label.groups.index(self.group)]

    def watch(self) -> None:
        """Only the origins of what is kept are monitored."""
        self.monitor(ProcessId(origin) for origin in self.kept)

    def on_acknowledge_timer(self) -> None:
        self.timing = False
        received = {origin: stream.received for origin, stream in self.seen.streams.items() if origin in self.kept}
        interested = {p for copies in self.kept.values() for c in copies.values() for p in self.others(c)}
        self.send(sorted(interested), Acknowledge(received))
        self.drop()

    def others(self, copy: Copy) -> list[ProcessId]:
        return [p for p in self.topology.addressees(copy.message.destinations) if p != self.me]

    def on_acknowledge(self, sender: ProcessId, acknowledge: Acknowledge) -> None:
        holds = self.holds.setdefault(sender, {})
        for origin, number in acknowledge.received.items():
            holds[origin] = max(holds.get(origin, 0), number)
        if not self.timing:  # else the others have yet to hear that this process has them too
            self.drop()

    def drop(self) -> None:
        """Keep no longer what is everywhere."""
        for origin, copies in list(self.kept.items()):
            for number in [n for n, copy in copies.items() if self.is_everywhere(copy)]:
                del copies[number]
            if not copies:
                del self.kept[origin]
        self.watch()

    def is_everywhere(self, copy: Copy) -> bool:
        label = copy.label
        numbers = dict(zip(label.groups, label.numbers, strict=True))
        group_of = self.topology.group_of
        return all(self.holds.get(p, {}).get(label.origin, 0) >= numbers[group_of[p]] for p in self.others(copy))


class UniformReliableMulticast(ReliableMulticast):
    """Deliver when a majority of each destination group has echoed: then some correct member of each has it."""

    echoes: dict[str, dict[int, set[ProcessId]]]  # by origin, by number in the own group: who is known to have it

    def initialise(self) -> None:
        super().initialise()
        self.echoes = {}

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # U4
        label, me = copy.label, self.me
        if self.seen.has(label, self.group):
            return
        number = label.numbers[label.groups.index(self.group)]
        stream = self.echoes.setdefault(label.origin, {})
        if number not in stream:  # U5
            stream[number] = {me}
            self.forward(copy, to_origin=True)  # U6: the origin needs the echoes too
        if sender in self.topology.group_of:
            stream[number].add(sender)  # U7
        if has_qualified_majority(stream[number], label.groups, self.topology):  # U8
            del stream[number]
            if not stream:
                del self.echoes[label.origin]
            self.seen.add(label, self.group)
            self.delivered(copy.message, label)


ReliableKind = Literal["eager", "lazy", "uniform"]

KINDS: dict[ReliableKind, type[ReliableMulticast]] = {
    "eager": EagerReliableMulticast,
    "lazy": LazyReliableMulticast,
    "uniform": UniformReliableMulticast,
}
