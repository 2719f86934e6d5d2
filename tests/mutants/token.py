"""The rotating token with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

import msgspec

from antiphon.core import GroupId, Message, ProcessId
from antiphon.protocols.token import Got, Hand, Ordered, RotatingToken, Token


class BelievesEveryToken(RotatingToken):
    """A token that comes a second time is a second token."""

    def on_token(self, sender: ProcessId, token: Token) -> None:
        self.visit = min(self.visit, token.visit - 1)
        super().on_token(sender, token)


class NumbersWithoutTheToken(RotatingToken):
    def multicast(self, m: Message) -> None:
        if self.topology.group_of.get(self.me) in m.destinations and self.token is None and m.id.number % 8 == 0:
            self.send(self.members, Ordered(self.newest + 1, m))
        else:
            super().multicast(m)


class LosesTheTokenInACrash(RotatingToken):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.token = self.passed = None


class PassesTheTokenOnOnce(RotatingToken):
    def repeat_later(self) -> None:
        self.passed = None
        super().repeat_later()


class DoesNotSayWhatItMisses(RotatingToken):
    def serve(self, token: Token) -> list[tuple[ProcessId, int]]:
        return [(who, number) for who, number in super().serve(token) if who != self.me]


class ServesNobody(RotatingToken):
    def serve(self, token: Token) -> list[tuple[ProcessId, int]]:
        held, self.held = self.held, {}
        missing = super().serve(token)
        self.held = held
        return missing


class NeverAsksForTheToken(RotatingToken):
    def seek(self) -> None:
        self.asked = True
        super().seek()


class ForgetsWhatIsNotEverywhere(RotatingToken):
    def on_token(self, sender: ProcessId, token: Token) -> None:
        super().on_token(sender, msgspec.structs.replace(token, low=token.newest))


class OnlyTheFirstMemberCounts(RotatingToken):
    """For what everybody has."""

    def on_token(self, sender: ProcessId, token: Token) -> None:
        received = self.received
        if not self.first:
            self.received = max(self.received, token.low)
        super().on_token(sender, token)
        self.received = received if self.received < max(received, token.low) + 1 else self.received


class RestsTooEarly(RotatingToken):
    def on_token(self, sender: ProcessId, token: Token) -> None:
        if self.first and not token.missing:
            token = msgspec.structs.replace(token, stable=token.newest)
        super().on_token(sender, token)


class KeepsWhatItHasNumbered(RotatingToken):
    def use(self, token: Token) -> None:
        newest = self.queue[-1:]
        super().use(token)
        if token.newest % 9 == 8:
            self.queue += newest


class LeavesANumberOut(RotatingToken):
    def use(self, token: Token) -> None:
        leap = token.newest % 10 == 9 and len(self.members) > 1
        super().use(msgspec.structs.replace(token, newest=token.newest + 1) if leap else token)


class HandsToOneAndThenToAnother(RotatingToken):
    def helper(self, group: GroupId) -> ProcessId:
        members = self.topology.members(group)
        return members[self.sent[group] % len(members)]

    def on_hand(self, sender: ProcessId, hand: Hand) -> None:
        self.taken[hand.message.id.origin] = max(self.taken.get(hand.message.id.origin, 0), hand.index - 1)
        super().on_hand(sender, hand)


class TakesARepeatedMessageAgain(RotatingToken):
    def on_hand(self, sender: ProcessId, hand: Hand) -> None:
        if hand.index == self.taken.get(hand.message.id.origin):
            self.taken[hand.message.id.origin] -= 1
        super().on_hand(sender, hand)


class DeliversAsItComes(RotatingToken):
    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:
        self.received = max(self.received, ordered.number - 1)
        super().on_ordered(sender, ordered)


class ForgetsItsQueueInACrash(RotatingToken):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.queue = []


class TakesAnyAnswerForTheToken(RotatingToken):
    """An old acknowledgement, doubled on its way, is taken for one of the newest token."""

    def on_got(self, sender: ProcessId, got: Got) -> None:
        self.passed = None


class ForgetsThatItWasAsked(RotatingToken):
    """The request came while the token was on its way to rest."""

    def on_token(self, sender: ProcessId, token: Token) -> None:
        self.wanted = False
        super().on_token(sender, token)


class CountsWhatIsStable(RotatingToken):
    """As if it were not: in the end there is no room left."""

    def on_token(self, sender: ProcessId, token: Token) -> None:
        unstable = list(self.unstable)
        super().on_token(sender, token)
        self.unstable = [*unstable, *(number for number in self.unstable if number not in unstable)]


class RestsWithoutRoom(RotatingToken):
    """The first member, which could not go on, keeps the token until somebody wants it."""

    def keep(self, token: Token, *, settled: bool) -> bool:
        return super().keep(token, settled=settled or bool(self.queue and not self.room()))


class NeverPauses(RotatingToken):
    """Breaks no promise: tests/papers/test_token.py counts its frames."""

    PAUSE_NS = PAUSE_NS_MAX = 0


class NumbersWhateverIsMissing(RotatingToken):
    """Breaks no promise: tests/papers/test_token.py looks at what is held."""

    def room(self) -> int:
        return self.options.window


MUTANTS = (
    BelievesEveryToken,
    NumbersWithoutTheToken,
    LosesTheTokenInACrash,
    PassesTheTokenOnOnce,
    DoesNotSayWhatItMisses,
    ServesNobody,
    NeverAsksForTheToken,
    ForgetsWhatIsNotEverywhere,
    OnlyTheFirstMemberCounts,
    RestsTooEarly,
    KeepsWhatItHasNumbered,
    LeavesANumberOut,
    HandsToOneAndThenToAnother,
    TakesARepeatedMessageAgain,
    DeliversAsItComes,
    ForgetsItsQueueInACrash,
    TakesAnyAnswerForTheToken,
    ForgetsThatItWasAsked,
    CountsWhatIsStable,
    RestsWithoutRoom,
)
