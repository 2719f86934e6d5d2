"""Reliable multicast, three kinds with one face: eager, lazy and uniform.

E1-E7, Z1-Z7 and U1-U13 are the lines of docs/protocols/reliable.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import msgspec

from antiphon.core import Component, GroupId, Message, MessageId, ProcessId, Table, Timer, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.label import Label, Labeller, Labels, has_qualified_majority


class Copy(Wire, frozen=True, tag=1):
    """m, from its origin or from another who holds it. The label names the groups whose members get copies."""

    message: Message
    label: Label


class ReliableOptions(msgspec.Struct, frozen=True):
    echo_origin: bool = False  # whether a copy is also sent on to the origin (R1: MTO's row counts it so)
    to_everybody: bool = False  # whether copies go to all groups, whichever are addressed


class ReliableMulticast(Component):
    """R-multicast and R-deliver. ``delivered`` gets each message once, with a label that can be forgotten."""

    Options = ReliableOptions
    options: ReliableOptions
    delivered: Callable[[Message, Label], None]

    labeller: Labeller
    seen: Labels

    def initialise(self) -> None:
        self.labeller = Labeller()
        self.seen = Labels()

    def validate(self, message: Wire) -> None:
        label = getattr(message, "label", None)
        if label is not None:
            label.check(self.topology, self.me)
        if isinstance(message, Copy) and message.label.groups != self.groups_of(message.message):
            raise BadFrame("A copy's label is for other groups than its message.")

    def groups_of(self, m: Message) -> tuple[GroupId, ...]:
        return tuple(self.topology.groups) if self.options.to_everybody else m.destinations

    def multicast(self, m: Message) -> None:  # E1 Z1 U1
        label = self.labeller.next(self.me, self.groups_of(m))  # E2 Z2 U2
        self.send(self.topology.addressees(label.groups), Copy(m, label))  # E3 Z3 U3

    def others(self, label: Label) -> list[ProcessId]:
        return [p for p in self.topology.addressees(label.groups) if p != self.me]

    def pending(self) -> int:
        """How many messages this process knows of but has not R-delivered."""
        return 0

    def waits_for(self) -> tuple[ProcessId, ...]:
        """The processes from which it must hear before it can R-deliver the oldest of these."""
        return ()

    def forward(self, copy: Copy, *, to_origin: bool) -> None:
        """Send a copy on to the other addressees; the origin itself has just sent it to everybody."""
        origin = copy.label.origin
        if origin != self.me:
            self.send([p for p in self.others(copy.label) if to_origin or p != origin], copy)


class EagerReliableMulticast(ReliableMulticast):
    """Forward on first receipt, then deliver."""

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # E4
        if self.seen.add(copy.label, self.group):  # E5
            self.forward(copy, to_origin=self.options.echo_origin)  # E6
            self.delivered(copy.message, copy.label)  # E7


class Acknowledge(Wire, frozen=True, tag=2):
    """I have everything of these origins up to these numbers of my group; these messages are new among it."""

    received: dict[str, int]
    ids: list[MessageId]


class TimeToAcknowledge(Timer, frozen=True):
    """It is time to acknowledge what has come."""


class LazyReliableMulticast(ReliableMulticast):
    """Deliver on first receipt; forward only when the origin is suspected.

    A copy is kept until every addressee is known to have the message. They tell one another, some time after a message
    came and once for all that came meanwhile; so an idle system is silent.
    """

    kept: Table[str, dict[int, Copy]]  # by origin, by the number in the own group
    untold: list[tuple[MessageId, Label]]  # what the other addressees have not been told to be here
    holds: Table[ProcessId, Table[str, int]]  # what the other addressees said that they have
    timing: bool

    TELL_NS = 50_000_000

    def initialise(self) -> None:
        super().initialise()
        self.kept, self.holds = {}, {}
        self.untold = []
        self.timing = False

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return tuple(message.ids) if isinstance(message, Acknowledge) else super().about(message)

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # Z4
        if not self.seen.add(copy.label, self.group):  # Z5
            return
        origin = copy.label.origin
        self.kept.setdefault(origin, {})[self.number(copy.label)] = copy
        self.untold.append((copy.message.id, copy.label))
        self.watch()
        if not self.timing:
            self.timing = True
            self.set_timer(TimeToAcknowledge(), self.TELL_NS)
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
        self.monitor(ProcessId(origin) for origin in sorted(self.kept))

    def on_time_to_acknowledge(self, timer: TimeToAcknowledge) -> None:
        """Each group hears of what is addressed to it. What has a gap before it waits for the gap to close."""
        self.timing = False
        received = {label.origin: self.seen.received(label.origin) for _, label in self.untold}
        telling = [(id, label) for id, label in self.untold if self.number(label) <= received[label.origin]]
        self.untold = [(id, label) for id, label in self.untold if self.number(label) > received[label.origin]]
        for group in self.topology.groups:
            to_group = [(id, label) for id, label in telling if group in label.groups]
            if to_group:
                numbers = {label.origin: received[label.origin] for _, label in to_group}
                others = [p for p in self.topology.members(group) if p != self.me]
                self.send(others, Acknowledge(numbers, [id for id, _ in to_group]))
        self.drop()

    def on_acknowledge(self, sender: ProcessId, acknowledge: Acknowledge) -> None:
        holds = self.holds.setdefault(sender, {})
        for origin, number in acknowledge.received.items():
            holds[origin] = max(holds.get(origin, 0), number)
        if not self.timing:  # else the others have yet to hear that this process has them too
            self.drop()

    def drop(self) -> None:
        """Keep no longer what is everywhere."""
        for origin, copies in list(self.kept.items()):
            for number in [n for n, copy in copies.items() if self.is_everywhere(copy.label)]:
                del copies[number]
            if not copies:
                del self.kept[origin]
        self.watch()

    def is_everywhere(self, label: Label) -> bool:
        numbers = dict(zip(label.groups, label.numbers, strict=True))
        group_of = self.topology.group_of
        return all(self.holds.get(p, {}).get(label.origin, 0) >= numbers[group_of[p]] for p in self.others(label))


class Echo(Wire, frozen=True, tag=3):
    """I hold m, and shall not forget it: what is sent leaves only when what it follows from is durable."""

    id: MessageId
    label: Label


class Echoes(Wire, frozen=True, tag=5):
    """The same of several messages to the same groups: of all that came together."""

    echoes: list[Echo]


class Fetch(Wire, frozen=True, tag=4):
    """You hold m and I miss it: send me a copy."""

    id: MessageId
    label: Label


class Missing(Timer, frozen=True):
    """The copy of a message that others hold should be here by now."""

    label: Label


class Spreading(msgspec.Struct):
    """A message that some addressee may not hold yet."""

    id: MessageId
    holders: set[ProcessId]  # the addressees known to hold it
    copy: Copy | None = None
    asked: set[ProcessId] = msgspec.field(default_factory=set)  # for a copy
    timing: bool = False
    kept: bool = False  # delivered here, and kept for those who may miss it


class UniformReliableMulticast(ReliableMulticast):
    """Deliver when a majority of each destination group has echoed: then some correct member of each holds it.

    Echoes carry the label alone, and those of one turn to the same groups travel together. Who hears echoes and gets no
    copy fetches one from those who echoed, one after the other and each once, for their answer comes if they are
    correct; they keep it until every addressee holds it.
    """

    spreading: Table[Label, Spreading]
    unsaid: dict[tuple[GroupId, ...], list[Echo]]  # of this turn, by the groups that will hear of it
    kept_bytes: int  # of the bodies in it that were delivered here

    KEPT_BYTES_MAX: ClassVar[int] = 16 << 20

    FETCH_NS = 20_000_000  # the origin's own copy is usually on its way

    def initialise(self) -> None:
        super().initialise()
        self.spreading, self.unsaid = {}, {}
        self.kept_bytes = 0

    def validate(self, message: Wire) -> None:
        if not isinstance(message, Echoes):
            super().validate(message)
            return
        for echo in message.echoes:
            echo.label.check(self.topology, self.me)
        if len({echo.label.groups for echo in message.echoes}) != 1:
            raise BadFrame("Echoes that travel together are of messages to the same groups.")

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return tuple(e.id for e in message.echoes) if isinstance(message, Echoes) else super().about(message)

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # U4
        found = self.find(copy.message.id, copy.label)
        if found is None or found.copy is not None:
            return
        found.copy = copy  # U5
        found.asked, found.timing = set(), False
        self.cancel_timer(Missing(copy.label))
        self.echo(copy)  # U6
        self.hold(self.me, copy.label, found)

    def echo(self, copy: Copy) -> None:
        """To all other addressees, the origin too; its own copies have told them that it holds the message."""
        label = copy.label
        if label.origin != self.me:
            self.unsaid.setdefault(label.groups, []).append(Echo(copy.message.id, label))
            self.at_turn_end()

    def on_turn_end(self) -> None:
        for echoes in self.unsaid.values():
            alone = len(echoes) == 1
            self.send(self.others(echoes[0].label), echoes[0] if alone else Echoes(echoes))
        self.unsaid = {}

    def on_echoes(self, sender: ProcessId, several: Echoes) -> None:
        for echo in several.echoes:
            self.on_echo(sender, echo)

    def on_echo(self, sender: ProcessId, echo: Echo) -> None:  # U7
        found = self.find(echo.id, echo.label)
        if found is not None and self.is_addressed(sender, echo.label):
            self.hold(sender, echo.label, found)
            self.await_copy(echo.label, found)

    def find(self, id: MessageId, label: Label) -> Spreading | None:
        """What is known of a message; None where all addressees hold it. A member that sends holds what it sent."""
        found = self.spreading.get(label)
        if found is None and not self.seen.has(label, self.group):
            origin = ProcessId(label.origin)
            found = self.spreading[label] = Spreading(id, {origin} if self.is_addressed(origin, label) else set())
        return found

    def is_addressed(self, process: ProcessId, label: Label) -> bool:
        return self.topology.group_of.get(process) in label.groups

    def hold(self, holder: ProcessId, label: Label, found: Spreading) -> None:
        found.holders.add(holder)
        copy = found.copy
        if copy is None:
            return
        if len(found.holders) == len(self.topology.addressees(label.groups)):
            self.forget(label)  # U8
        if not found.kept and self.has_enough(label, found) and self.seen.add(label, self.group):  # U9
            if label in self.spreading:
                found.kept = True
                self.kept_bytes += copy.message.body.size
            self.delivered(copy.message, label)
            if self.kept_bytes > self.KEPT_BYTES_MAX:
                self.hand_over()

    def forget(self, label: Label) -> None:
        found = self.spreading.pop(label, None)
        if found is not None and found.kept and found.copy is not None:
            self.kept_bytes -= found.copy.message.body.size

    def hand_over(self) -> None:
        """Somebody has been away for long: what it misses goes into the channel to it, which the disk keeps."""
        for label in sorted(label for label, found in self.spreading.items() if found.kept):
            found = self.spreading[label]
            assert found.copy is not None, "what was delivered is here"
            self.send([p for p in self.others(label) if p not in found.holders], found.copy)  # U13
            self.forget(label)

    def has_enough(self, label: Label, found: Spreading) -> bool:
        return has_qualified_majority(found.holders, label.groups, self.topology)

    def await_copy(self, label: Label, found: Spreading) -> None:
        if found.copy is None and not found.timing:
            found.timing = True
            self.set_timer(Missing(label), self.FETCH_NS)

    def on_missing(self, timer: Missing) -> None:  # U10
        label, found = timer.label, self.spreading[timer.label]
        found.timing = False
        echoed = [p for p in self.others(label) if p in found.holders and p != label.origin and p not in found.asked]
        if echoed:
            found.asked.add(echoed[0])
            self.send(echoed[0], Fetch(found.id, label))  # U11
            self.await_copy(label, found)

    def on_fetch(self, sender: ProcessId, fetch: Fetch) -> None:  # U12
        found = self.spreading.get(fetch.label)
        if found is None or found.copy is None or sender in found.holders:
            return  # it has got it meanwhile
        if self.is_addressed(sender, fetch.label):
            self.send(sender, found.copy)

    def pending(self) -> int:
        return sum(not self.seen.has(label, self.group) for label in self.spreading)

    def waits_for(self) -> tuple[ProcessId, ...]:
        for label, found in self.spreading.items():
            if not self.seen.has(label, self.group):
                return tuple(p for p in self.others(label) if p not in found.holders)
        return ()


ReliableKind = Literal["eager", "lazy", "uniform"]

KINDS: dict[ReliableKind, type[ReliableMulticast]] = {
    "eager": EagerReliableMulticast,
    "lazy": LazyReliableMulticast,
    "uniform": UniformReliableMulticast,
}
