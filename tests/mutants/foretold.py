"""What can go wrong where frames leave before they are durable: mistakes of primcast, and of the host beneath it.

BY_SEEDS are caught by the suite's own seeds; SLIPS are the host's, and have runs of their own (`runs_from`);
tests/papers/test_foretold.py has schedules for BY_HAND, and for most others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.core import Message, ProcessId
from antiphon.core.channel import ChannelId
from antiphon.core.contract import Wire
from antiphon.core.effects import Send
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import Foretold
from antiphon.core.process import Process
from antiphon.protocols.primcast import Ack, Announce, Append, Primcast
from antiphon.services.epochs import Vote
from antiphon.simulation import Scenario
from antiphon.simulation.campaign import scenarios
from antiphon.simulation.values import MILLISECOND
from mutants.host import Slip

# What is heard early -----------------------------------------------------------------------------------------------


class CountsTheEarlyAppend(Primcast):
    """As the primary's vote, which it is when it comes."""

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        if isinstance(message, Append):
            self.on_append(sender, message)
        else:
            super().foretold(sender, message)


class CountsTheEarlyAnnouncement(Primcast):
    """The same of another group's primary."""

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        if isinstance(message, Announce):
            self.on_announce(sender, message)
        else:
            super().foretold(sender, message)


class CountsEarlyVotes(Primcast):
    """Followers acknowledge before they have anything on disk."""

    def send(self, to: Any, message: Wire) -> None:
        if isinstance(message, Ack):
            self.foretell(to, message)
        else:
            super().send(to, message)

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        if isinstance(message, Ack):
            self.on_ack(sender, message)
        else:
            super().foretold(sender, message)


class AnswersTheEarlyAppend(Primcast):
    """Its own vote came with the same input, and is not durable."""

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        if isinstance(message, Append) and self.follows(sender, message):
            self.extend(message)
            self.settle(early=True)
        else:
            super().foretold(sender, message)


class AnswersWithTheAppend(Primcast):
    """The same, where nothing came early."""

    def vote(self, member: ProcessId, vote: Vote, *, early: bool = False) -> None:
        super().vote(member, vote, early=True)


class ExtendsAnyLog(Primcast):
    """With what is appended early in another epoch."""

    def follows(self, sender: ProcessId, append: Append) -> bool:
        return self.is_active and append.index <= self.log.length


# What was forgotten ------------------------------------------------------------------------------------------------


class LeadsOn(Primcast):
    """In an epoch in which it may have said what it does not remember."""

    def resign(self) -> None:
        pass


class AcknowledgesThoughItResigned(Primcast):
    """It appends nothing more, and says how far its clock is."""

    @property
    def is_active(self) -> bool:
        return self.promised == self.epoch

    @property
    def leads(self) -> bool:
        return super().leads and not self.resigned


class LeavesItToTheOthers(Primcast):
    """To see that nobody leads."""

    def move_on(self) -> None:
        if not self.resigned:
            super().move_on()


class GivesNamesAgain(Primcast):
    """To other messages than those that it has forgotten."""

    def on_recover(self) -> None:
        multicasts = self.process.state.multicasts  # type: ignore[attr-defined]
        super().on_recover()
        self.process.state.multicasts = multicasts  # type: ignore[attr-defined]


class GivesLabelsAgain(Primcast):
    def on_recover(self) -> None:
        labeller = msgspec.structs.replace(self.labeller)
        super().on_recover()
        self.labeller = labeller


class DoesNotSayItAgain(Primcast):
    """That it multicast what it has forgotten: nobody did, as far as the trace knows."""

    def when_held(self, known: Any) -> None:
        recall, self.process.recall = self.process.recall, lambda m: None  # type: ignore[method-assign]
        super().when_held(known)
        self.process.recall = recall  # type: ignore[method-assign]


# By hand -----------------------------------------------------------------------------------------------------------


class HeedsEarlyWordOfALaterEpoch(Primcast):
    """Nobody has begun it, and perhaps nobody ever will."""

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        if isinstance(message, Announce) and (group := self.other_group(sender)) is not None:
            self.learner(group).heed(sender, message.epoch, 0)
        super().foretold(sender, message)


class DoesNotHearThatOthersHaveMore(Primcast):
    """It has forgotten all that there was to lead."""

    def on_ack(self, sender: ProcessId, ack: Ack) -> None:
        if self.resigned:
            self.vote(sender, Vote(ack.epoch, ack.length, ack.clock), early=True)
        else:
            super().on_ack(sender, ack)


class WaitsThoughItStood(Primcast):
    """Who stands does so because there is something to lead, whatever it has of it."""

    def move_on(self) -> None:
        if not self.resigned or self.held or self.log.length or any(vote.length for vote in self.votes.values()):
            super().move_on()


class GoesOnWithItsPupils(Primcast):
    """In an epoch in which it acknowledges nothing more."""

    def resign(self) -> None:
        pupils = self.pupils
        super().resign()
        if self.resigned:
            self.pupils = pupils


BY_SEEDS = (
    CountsTheEarlyAppend,
    CountsTheEarlyAnnouncement,
    ExtendsAnyLog,
    LeadsOn,
    LeavesItToTheOthers,
    GivesNamesAgain,
    GivesLabelsAgain,
    DoesNotSayItAgain,
)
BY_HAND = (
    AcknowledgesThoughItResigned,
    CountsEarlyVotes,
    AnswersTheEarlyAppend,
    AnswersWithTheAppend,
    HeedsEarlyWordOfALaterEpoch,
    DoesNotHearThatOthersHaveMore,
    WaitsThoughItStood,
    GoesOnWithItsPupils,
)

# Of the host -------------------------------------------------------------------------------------------------------

_to_foretell, _on_foretold, _begin_life = Host._to_foretell, Process._on_foretold, Process.begin_life


def _before_its_life_is_durable(self: Host, index: int) -> Iterator[tuple[Turn, Send]]:
    for turn in self._held:
        for effect in turn.effects:
            if turn.index >= max(index, self._foretold) and type(effect) is Send and effect.foretold:
                yield turn, effect


def _counts_what_is_foretold(self: Process, told: Foretold) -> None:
    """As held: after a restart its sender does not know of it."""
    _on_foretold(self, told)
    inbox = self.inbox(ChannelId(told.sender, told.transport))
    if told.number == inbox.received + 1:
        inbox.take_frame(told.number, told.frame)


def _says_when_it_returned(self: Process, m: Message) -> None:
    lives = [msgspec.structs.replace(life, ended=self.now) for life in self.state.lives]
    before, self.state.lives = self.state.lives, lives
    _recall(self, m)
    self.state.lives = before


_recall = Process.recall

BEFORE_ITS_LIFE_IS_DURABLE = Slip(Host, "_to_foretell", _before_its_life_is_durable)
SAYS_WHEN_IT_RETURNED = Slip(Process, "recall", _says_when_it_returned)
SLIPS = (Slip(Process, "_on_foretold", _counts_what_is_foretold),)  # the other two have schedules


def runs_from(first: int) -> Iterator[Scenario]:
    """Seeds of primcast on disks so slow that much is foretold when a process crashes."""
    for scenario in scenarios(Primcast, first, {"early": "true"}):
        yield msgspec.structs.replace(scenario, sync_ns=20 * MILLISECOND)
