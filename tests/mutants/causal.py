"""Causal multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import Message, ProcessId
from antiphon.protocols.causal import Causal, maxima
from antiphon.services.numbered import Copy, NumberedMulticast, PastCounts
from mutants.parts import with_parts


class FifoOnly(Causal):
    """Waits for the sender's earlier messages and for nobody else's."""

    def precedes(self, copy: Copy) -> dict[ProcessId, int]:
        return {}


class DeliversAsItComes(Causal):
    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        self.learn(sender, copy)
        self.deliver(copy.message)


class IgnoresTheSendersOrder(Causal):
    """Waits for all that precedes, but for the sender's own messages."""

    def is_ready(self, sender: ProcessId) -> bool:
        self.vt[sender] = min(self.holdback[sender]) - 1
        return super().is_ready(sender)


class LearnsTheMessageOnly(Causal):
    """Not what precedes it: what travels is not transitive."""

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        super().learn(sender, Copy(copy.message, copy.numbers, {}))


class LearnsOfItsOwnGroupOnly(Causal):
    """Forgets what was sent to groups that it is not in, and for which it may be the next to send."""

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        own = self.topology.group_of.get(self.me)
        before = self.past
        super().learn(sender, copy)
        if sender != self.me:
            self.past = {g: vector if g == own else before.get(g, {}) for g, vector in self.past.items()}


class LearnsThePastOnly(Causal):
    """Not the message itself."""

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        self.past = {g: maxima(self.past.get(g, {}), copy.past.get(g, {})) for g in {**self.past, **copy.past}}


class DoesNotCountItsOwn(Causal):
    """What it sent itself precedes nothing that it sends later."""

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        if sender != self.me:
            super().learn(sender, copy)


class CountsItsOwnTwice(Causal):
    def learn(self, sender: ProcessId, copy: Copy) -> None:
        numbers = tuple(n + 1 for n in copy.numbers) if sender == self.me else copy.numbers
        super().learn(sender, Copy(copy.message, numbers, copy.past))


class LearnsWhenItArrives(Causal):
    """And not when it is delivered. With nearest timestamps, its own message then implies what it has not delivered."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        self.learn(sender, copy)
        super().when_arrived(sender, number, copy)


class TakesTheLastForTheMaximum(Causal):
    """What a message says of the past takes the place of what was known."""

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        self.past = {**self.past, **copy.past}
        super().learn(sender, copy)


class DropsMoreThanIsImplied(Causal):
    """With nearest timestamps: a message implies only what it waits for, not all that is known."""

    def beyond(self, copy: Copy, group: object, vector: dict[ProcessId, int]) -> dict[ProcessId, int]:
        return {}


class DropsWhatOtherGroupsWaitFor(Causal):
    """A message to one group is taken to imply what precedes it in all groups."""

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        super().learn(sender, copy)
        if self.options.timestamps == "nearest":
            gone = [g for g in self.past if g not in copy.message.destinations]
            self.past = {**self.past, **{g: self.beyond(copy, g, self.past[g]) for g in gone}}


class DeliversOneAtATime(Causal):
    """Looks once for what has become ready."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        self.holdback.setdefault(sender, {})[number] = copy
        if self.is_ready(sender):
            self.deliver_next(sender)


class DoesNotDeliverItsOwnAtOnce(Causal):
    """Its own message is delivered, but not counted, so that what depends on it waits for ever."""

    def multicast(self, m: Message) -> None:
        super().multicast(m)
        self.vt.pop(self.me, None)


class WaitsForItsOwn(Causal):
    """Waits for what precedes in all groups, not only in its own."""

    def precedes(self, copy: Copy) -> dict[ProcessId, int]:
        found: dict[ProcessId, int] = {}
        for vector in copy.past.values():
            found = maxima(found, vector)
        return found


class ForgetsThePastOnRestart(Causal):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.past = {}


class ForgetsWhatItHoldsBackOnRestart(Causal):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.holdback = {}


class SendsThePastOfItsFirstMessage(NumberedMulticast):
    """The same vector travels with all messages."""

    first: PastCounts

    def initialise(self) -> None:
        super().initialise()
        self.first = {}

    def multicast(self, m: Message, past: PastCounts) -> Copy:
        self.first = self.first or past
        super().multicast(m, self.first)
        return Copy(m, tuple(self.sent[group] for group in m.destinations), past)


class TakesTheExpectedForReceived(NumberedMulticast):
    def expect(self, sender: ProcessId, number: int) -> None:
        super().expect(sender, number)
        self.streams[sender].inbox.received = max(self.streams[sender].inbox.received, number)


MUTANTS = (
    FifoOnly,
    DeliversAsItComes,
    IgnoresTheSendersOrder,
    LearnsTheMessageOnly,
    LearnsOfItsOwnGroupOnly,
    LearnsThePastOnly,
    DoesNotCountItsOwn,
    CountsItsOwnTwice,
    LearnsWhenItArrives,
    TakesTheLastForTheMaximum,
    DropsMoreThanIsImplied,
    DropsWhatOtherGroupsWaitFor,
    DeliversOneAtATime,
    DoesNotDeliverItsOwnAtOnce,
    WaitsForItsOwn,
    ForgetsThePastOnRestart,
    ForgetsWhatItHoldsBackOnRestart,
    with_parts(Causal, SendsThePastOfItsFirstMessage),
    with_parts(Causal, TakesTheExpectedForReceived),
)
