"""primcast with order=realtime, with one mistake each: those that can break its promise, or keep it waiting for ever.

For each there is a schedule in tests/papers/test_real_time.py. Where somebody asks again after a while, many a mistake
costs time only: such ones show where no timer rings.
"""

from __future__ import annotations

from antiphon.core import GroupId, Message, MessageId, ProcessId
from antiphon.protocols.primcast import Primcast
from antiphon.services.real_time import Ready, RealTime, Waiting
from antiphon.services.retention import Known
from mutants.parts import with_parts

# They break the promise ----------------------------------------------------------------------------------------------


class LeavesOutReady(Primcast):
    """It neither says nor waits for anything."""

    def may_deliver(self, known: Known) -> bool:
        return True


class IsReadyBeforeWhatIsAhead(Primcast):
    """It asks only that the clocks have come so far: the half measure."""

    def deliver_lowest(self, *, early: bool = False) -> None:
        if self.keeps_real_time and self.leads:
            reached = self.reached()
            for known in self.waiting():
                if known.timestamp and self.is_final(known) and known.bound <= reached:
                    self.speak(known)
        super().deliver_lowest(early=early)


class CountsItself(RealTime):
    """Its own word is taken for that of another group."""

    def missing(self, m: Message) -> list[GroupId]:
        return [] if self.said == m.id else super().missing(m)


class OneIsEnough(RealTime):
    """One group speaks for all."""

    def missing(self, m: Message) -> list[GroupId]:
        return [] if self.ready.get(m.id) else super().missing(m)


class AnswersBeforeItIsReady(RealTime):
    def on_waiting(self, sender: ProcessId, waiting: Waiting) -> None:
        self.send(sender, Ready(waiting.id, waiting.groups, waiting.numbers))


# They wait for ever --------------------------------------------------------------------------------------------------


class NeverAsks(RealTime):
    def ask(self, m: Message, numbers: tuple[int, ...]) -> None:
        pass


class NeverAnswers(RealTime):
    def on_waiting(self, sender: ProcessId, waiting: Waiting) -> None:
        pass


class AnswersOnlyOfWhatComesNext(RealTime):
    """Not of what it has delivered."""

    def on_waiting(self, sender: ProcessId, waiting: Waiting) -> None:
        if self.comes_next(waiting.id):
            super().on_waiting(sender, waiting)


class AnswersOnlyOfWhatIsDelivered(RealTime):
    """And so each group waits for the other."""

    def on_waiting(self, sender: ProcessId, waiting: Waiting) -> None:
        if not self.comes_next(waiting.id):
            super().on_waiting(sender, waiting)


# They wait until somebody asks ---------------------------------------------------------------------------------------


class SpeaksWhenItDelivers(RealTime):
    def speak(self, m: Message, numbers: tuple[int, ...]) -> None:
        if not self.missing(m):
            super().speak(m, numbers)


class SpeaksToPrimariesOnly(RealTime):
    def speak(self, m: Message, numbers: tuple[int, ...]) -> None:
        others = [self.topology.members(group)[0] for group in m.destinations if group != self.group]
        if others and self.said != m.id:
            self.said = m.id
            self.send(others, Ready(m.id, m.destinations, numbers))


class DropsWhatComesFirst(RealTime):
    """That a group is ready for a message of which this member has not heard yet."""

    known: dict[MessageId, bool]

    def initialise(self) -> None:
        super().initialise()
        self.known = {}

    def admits(self, m: Message) -> bool:
        self.known[m.id] = True
        return super().admits(m)

    def on_ready(self, sender: ProcessId, ready: Ready) -> None:
        if ready.id in self.known:
            super().on_ready(sender, ready)


class NewPrimariesAreSilent(Primcast):
    """They leave it to the first one to speak."""

    def speak(self, known: Known) -> None:
        if self.epoch == 0:
            super().speak(known)


class KeepsWhatIsDelivered(RealTime):
    """For ever: who was ready."""

    def forget(self, id: MessageId) -> None:
        pass


BREAK_IT = (
    LeavesOutReady,
    IsReadyBeforeWhatIsAhead,
    with_parts(Primcast, CountsItself),
    with_parts(Primcast, OneIsEnough),
    with_parts(Primcast, AnswersBeforeItIsReady),
)
BY_SEEDS = (  # they show in random runs as well, and soon
    with_parts(Primcast, NeverAsks),
    with_parts(Primcast, NeverAnswers),
    with_parts(Primcast, AnswersOnlyOfWhatComesNext),
)
WAIT_FOR_EVER = (*BY_SEEDS, with_parts(Primcast, AnswersOnlyOfWhatIsDelivered))
COST_TIME = (
    with_parts(Primcast, SpeaksWhenItDelivers),
    with_parts(Primcast, SpeaksToPrimariesOnly),
    with_parts(Primcast, DropsWhatComesFirst),
    NewPrimariesAreSilent,
    with_parts(Primcast, KeepsWhatIsDelivered),
)
MUTANTS = (*BREAK_IT, *WAIT_FOR_EVER, *COST_TIME)
