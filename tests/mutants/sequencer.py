"""The sequencer with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import Message, ProcessId
from antiphon.core.keys import Key
from antiphon.protocols.sequencer import Number, Ordered, Sequencer


class TwoSequencers(Sequencer):
    def multicast(self, m: Message) -> None:
        members = self.topology.members(m.destinations[0])
        self.send(members[m.id.number % min(2, len(members))], Number(m))


class DeliversItsOwnMessagesAtOnce(Sequencer):
    def multicast(self, m: Message) -> None:
        super().multicast(m)
        if self.topology.group_of.get(self.me) in m.destinations:
            self.deliver(m)

    def deliver(self, m: Message, key: Key | None = None) -> None:
        if key is None or m.id.origin != self.me:
            super().deliver(m, key)


class ForgetsItsNumbersOnRestart(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.numbered = max(self.numbered - 1, 0)


class ForgetsWhatItDeliveredOnRestart(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.delivered = 0


class SkipsNumbers(Sequencer):
    def on_number(self, sender: ProcessId, number: Number) -> None:
        if self.numbered % 11 == 10:
            self.numbered += 1
        super().on_number(sender, number)


class DoesNotTellTheLastMember(Sequencer):
    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:
        (group,) = ordered.message.destinations
        last = self.topology.members(group)[-1]
        if self.me != last or ordered.number % 7:
            super().on_ordered(sender, ordered)


class NumbersTheNewestFirst(Sequencer):
    """Keeps two requests together and swaps them: breaks the order of each sender."""

    kept: list[Number]

    def initialise(self) -> None:
        super().initialise()
        self.kept = []

    def on_number(self, sender: ProcessId, number: Number) -> None:
        self.kept.append(number)
        if len(self.kept) == 2:
            for each in reversed(self.kept):
                super().on_number(sender, each)
            self.kept.clear()


class ShowsTheMessageToABystander(Sequencer):
    def on_number(self, sender: ProcessId, number: Number) -> None:
        super().on_number(sender, number)
        bystanders = [
            p for p in self.topology.processes if self.topology.group_of[p] not in number.message.destinations
        ]
        self.send(bystanders[:1], Ordered(-self.numbered, number.message))


class ServesMembersOnly(Sequencer):
    """The sequencer takes nothing from a sender that is no member of the group: as if the model were closed."""

    def on_number(self, sender: ProcessId, number: Number) -> None:
        if sender in self.topology.members(self.group):
            super().on_number(sender, number)


class DeliversAsItComes(Sequencer):
    """Without a hold-back queue."""

    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:
        self.delivered += 1
        self.deliver(ordered.message, (ordered.number, self.group))


class NumbersEachSenderApart(Sequencer):
    numbers: dict[ProcessId, int]

    def initialise(self) -> None:
        super().initialise()
        self.numbers = {}

    def on_number(self, sender: ProcessId, number: Number) -> None:
        self.numbers[sender] = self.numbered = self.numbers.get(sender, 0)
        super().on_number(sender, number)
        self.numbers[sender] = self.numbered


MUTANTS = (
    ServesMembersOnly,
    NumbersEachSenderApart,
    TwoSequencers,
    DeliversItsOwnMessagesAtOnce,
    ForgetsItsNumbersOnRestart,
    ForgetsWhatItDeliveredOnRestart,
    SkipsNumbers,
    DoesNotTellTheLastMember,
    NumbersTheNewestFirst,
    ShowsTheMessageToABystander,
)
