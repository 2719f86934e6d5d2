"""Numbered multicast with one mistake each, to be put under fifo and causal."""

from __future__ import annotations

from antiphon.core import Component, GroupId, Message, ProcessId
from antiphon.services.numbered import Answer, Copy, Have, NumberedMulticast, PastCounts, Repeat


class NumbersAllGroupsTogether(NumberedMulticast):
    """One number for a message, whichever groups it addresses: a member waits for what is not for its group."""

    def multicast(self, m: Message, past: PastCounts) -> Copy:
        highest = max(self.sent.values(), default=0)
        self.sent.update(dict.fromkeys(m.destinations, highest))
        return super().multicast(m, past)


class TakesDoublesForNew(NumberedMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        super().on_copy(sender, copy)
        self.streams[sender].inbox.early.clear()


class DoesNotRepeat(NumberedMulticast):
    """The tail of a stream that is lost is lost."""

    def on_repeat(self, timer: Repeat) -> None:
        pass


class RepeatsOnce(NumberedMulticast):
    def on_repeat(self, timer: Repeat) -> None:
        super().on_repeat(timer)
        self.cancel_timer(timer)


class DoesNotFetch(NumberedMulticast):
    """Answers how far it has come, but names nothing that it misses."""

    def on_have(self, sender: ProcessId, have: Have) -> None:
        super().on_have(sender, Have(have.received, []))


class AcknowledgesBeyondAGap(NumberedMulticast):
    def on_answer(self, timer: Answer) -> None:
        stream = self.streams[timer.sender]
        stream.answered = 0
        self.send(timer.sender, Have(stream.known, []))


class ForgetsWhatOneOtherHas(NumberedMulticast):
    """A message is kept until somebody has it, not everybody."""

    def forget(self, group: GroupId, kept: dict[int, Copy]) -> None:
        reached = max(self.acknowledged.get(p, 0) for p in self.others(group))
        for number in [n for n in kept if n <= reached and n != self.sent[group]]:
            del kept[number]


class ForgetsWhatItKeepsOnRestart(NumberedMulticast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.kept = {group: {n: c for n, c in kept.items() if n == max(kept)} for group, kept in self.kept.items()}


class ForgetsItsNumbersOnRestart(NumberedMulticast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.sent = {group: max(number - 1, 0) for group, number in self.sent.items()}


class ForgetsWhatCameOnRestart(NumberedMulticast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        for stream in self.streams.values():
            stream.inbox.early.clear()


class NeverStopsRepeating(NumberedMulticast):
    """Repeats at once, and does not hear that it was answered."""

    REPEAT_NS = 20_000
    DOUBLINGS_MAX = 0

    def cancel_timer(self, timer: object) -> None:
        pass

    def forget(self, group: GroupId, kept: dict[int, Copy]) -> None:
        pass


class AnswersEverybodyAlike(NumberedMulticast):
    """Tells of its first stream, whoever sent the one that it should tell of."""

    def on_answer(self, timer: Answer) -> None:
        first = self.streams[min(self.streams)]
        self.streams[timer.sender].answered = 0
        self.send(timer.sender, Have(first.inbox.received, list(first.missing_up_to(first.known))[:64]))


class ShowsTheMessageToABystander(NumberedMulticast):
    def multicast(self, m: Message, past: PastCounts) -> Copy:
        copy = super().multicast(m, past)
        self.send([p for p in self.topology.processes if self.topology.group_of[p] not in m.destinations][:1], copy)
        return copy

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if self.group in copy.message.destinations:
            super().on_copy(sender, copy)


NUMBERED_MUTANTS: tuple[type[Component], ...] = (
    NumbersAllGroupsTogether,
    DoesNotRepeat,
    RepeatsOnce,
    DoesNotFetch,
    AcknowledgesBeyondAGap,
    ForgetsWhatOneOtherHas,
    ForgetsWhatItKeepsOnRestart,
    ForgetsItsNumbersOnRestart,
    NeverStopsRepeating,
    AnswersEverybodyAlike,
    ShowsTheMessageToABystander,
)

# No promise can be broken by these: what is taken twice for new has a number that was delivered, and what was forgotten
# is fetched again. But it is held back for ever, and tests/services/test_numbered.py sees that.
LEAKING: tuple[type[NumberedMulticast], ...] = (TakesDoublesForNew, ForgetsWhatCameOnRestart)
