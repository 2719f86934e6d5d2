"""The sequencer with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import Message, ProcessId
from antiphon.protocols.sequencer import Ordered, Request, Sequencer


class TwoSequencers(Sequencer):
    def multicast(self, m: Message) -> None:
        members = self.topology.members(m.destinations[0])
        self.send(members[len(m.id) % min(2, len(members))], Request(m))


class DeliversItsOwnMessagesAtOnce(Sequencer):
    def multicast(self, m: Message) -> None:
        super().multicast(m)
        if self.topology.group_of.get(self.me) in m.destinations:
            self.deliver(m)

    def deliver(self, m: Message, order_key: str | None = None) -> None:
        if order_key is None or not m.id.startswith(f"{self.me}:"):
            super().deliver(m, order_key)


class ForgetsItsNumbersOnRestart(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.numbered = max(self.numbered - 1, 0)


class ForgetsWhatItDeliveredOnRestart(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.delivered = 0


class SkipsNumbers(Sequencer):
    def on_request(self, sender: ProcessId, request: Request) -> None:
        if self.numbered % 11 == 10:
            self.numbered += 1
        super().on_request(sender, request)


class DoesNotTellTheLastMember(Sequencer):
    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:
        (group,) = ordered.message.destinations
        last = self.topology.members(group)[-1]
        if self.me != last or ordered.number % 7:
            super().on_ordered(sender, ordered)


class NumbersTheNewestFirst(Sequencer):
    """Keeps two requests together and swaps them: breaks the order of each sender."""

    kept: list[Request]

    def initialise(self) -> None:
        super().initialise()
        self.kept = []

    def on_request(self, sender: ProcessId, request: Request) -> None:
        self.kept.append(request)
        if len(self.kept) == 2:
            for each in reversed(self.kept):
                super().on_request(sender, each)
            self.kept.clear()


class ShowsTheMessageToABystander(Sequencer):
    def on_request(self, sender: ProcessId, request: Request) -> None:
        super().on_request(sender, request)
        bystanders = [
            p for p in self.topology.processes if self.topology.group_of[p] not in request.message.destinations
        ]
        self.send(bystanders[:1], Ordered(-self.numbered, request.message))


MUTANTS = (
    TwoSequencers,
    DeliversItsOwnMessagesAtOnce,
    ForgetsItsNumbersOnRestart,
    ForgetsWhatItDeliveredOnRestart,
    SkipsNumbers,
    DoesNotTellTheLastMember,
    NumbersTheNewestFirst,
    ShowsTheMessageToABystander,
)
