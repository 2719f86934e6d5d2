"""primcast with one mistake each in what it does when a member is replaced: E18 to E27, K13 to K17, and L28."""

from __future__ import annotations

import msgspec

from antiphon.core import GroupId, ProcessId, Topology
from antiphon.protocols.primcast import Primcast
from antiphon.services.epochs import Elect, Epochs, NewEpoch, Promised, StartEpoch
from antiphon.services.label import Labels, majority
from antiphon.services.retention import Adoption, Handed, SayDelivered


class CountsAtOnce(Primcast):
    def begin(self) -> None:
        super().begin()
        self.learns = False


class CountsAgainOnRestart(Primcast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.learns = False


class StaysInItsEpochs(Primcast):
    """Members go on as they were, with another one in the place of who is gone."""

    @property
    def vacant(self) -> int:
        return 0


class CountsPromisesOfPupils(Primcast):
    @property
    def has_majority(self) -> bool:
        return len(self.pledges) + 1 >= majority(self.members)


class StandsWhileItLearns(Primcast):
    def elect(self) -> None:
        learns, self.learns = self.learns, False
        super().elect()
        self.learns = learns


class CallsNewcomers(Primcast):
    """Who does not count is asked to stand, and does not."""

    def elect(self) -> None:
        newcomers, self.newcomers = self.newcomers, []
        super().elect()
        self.newcomers = newcomers


class GivesNothingToTakeOver(Primcast):
    def adoption(self) -> Adoption:
        whole = super().adoption()
        return msgspec.structs.replace(whole, delivered=0, position=0, done={}, ahead=[], standing=())


class PromisesToWhoKnowsMore(Primcast):
    """The call of one who knows of another topology is taken for one of this one."""

    def is_of_others(self, epoch: int) -> bool:
        return False


class ForgetsEarlyCalls(Primcast):
    def on_new_epoch(self, sender: ProcessId, new: NewEpoch) -> None:
        super().on_new_epoch(sender, new)
        self.calls = {}


class WaitsToBeCalled(Primcast):
    """Nobody asks for an epoch when the topology has changed."""

    def on_topology(self, before: Topology) -> None:
        move_on, self.move_on = self.move_on, lambda: None  # type: ignore[method-assign]
        super().on_topology(before)
        self.move_on = move_on  # type: ignore[method-assign]


class DoesNotAnnounceToNewcomers(Primcast):
    """Nor to anybody else since somebody came, when an epoch begins."""

    def announce(self, group: GroupId) -> None:
        if not self.topology.joined or self.log.base == self.appended:
            super().announce(group)


class AnnouncesNothingAgain(Primcast):
    """To newcomers of another group; the next epoch's primary would."""

    def on_topology(self, before: Topology) -> None:
        announce, self.announce = self.announce, lambda group: None  # type: ignore[method-assign]
        super().on_topology(before)
        self.announce = announce  # type: ignore[method-assign]


class VouchesForNothingAgain(Primcast):
    """The same of a follower."""

    def on_topology(self, before: Topology) -> None:
        if self.members and not self.leads:
            Epochs.on_topology(self, before)
        else:
            super().on_topology(before)


class KeepsNothingForThoseWhoLag(Primcast):
    """What it took over it never had, so it lets it go."""

    def keep_on(self) -> None:
        self.cut = self.delivered
        super().keep_on()


class CountsThoughSomebodyLags(Primcast):
    """It stands for deliveries that it can give to nobody."""

    def learn_enough(self) -> None:
        said, self.said = self.said, dict.fromkeys(self.mates, self.begun)
        super().learn_enough()
        self.said = said


class DoesNotSayWhatItHas(Primcast):
    """A newcomer hears of no earlier deliveries."""

    def on_topology(self, before: Topology) -> None:
        delivered, self.delivered = self.delivered, 0
        super().on_topology(before)
        self.delivered = delivered


class DoesNotSayThatItCounts(Primcast):
    def when_learnt(self) -> None:
        pass


class GivesWhatItHasAtOnce(Primcast):
    """Though some member had delivered more."""

    def start(self, member: ProcessId, pledge: Promised) -> None:
        self.goal = 0
        super().start(member, pledge)


class NeverStartsItsPupils(Primcast):
    def on_say_delivered(self, timer: SayDelivered) -> None:
        self.pupils = {}
        super().on_say_delivered(timer)


class ForgetsEarlyElections(Primcast):
    """Who is asked to stand before it has heard of the topology is asked once."""

    def on_elect(self, sender: ProcessId, elect: Elect) -> None:
        if not self.is_of_others(elect.epoch):
            super().on_elect(sender, elect)


class TakesOverWithoutLabels(Primcast):
    """What was delivered before it came may come again."""

    def take_over(self, donor: ProcessId, adoption: Adoption) -> None:
        super().take_over(donor, adoption)
        self.done = Labels()


class TakesOverWithoutClients(Primcast):
    def take_over(self, donor: ProcessId, adoption: Adoption) -> None:
        super().take_over(donor, msgspec.structs.replace(adoption, standing=()))


class TakesOverWithoutPlaces(Primcast):
    """What was delivered, and is still in the log, is not known to be."""

    def take_over(self, donor: ProcessId, adoption: Adoption) -> None:
        super().take_over(donor, msgspec.structs.replace(adoption, ahead=[]))


class KeepsWhatItHeld(Primcast):
    """What was delivered before it came, and it has heard of, waits for ever."""

    def take_over(self, donor: ProcessId, adoption: Adoption) -> None:
        held, known = dict(self.held), dict(self.known)
        super().take_over(donor, adoption)
        self.held, self.known = held, known


class TakesWhatIsHandedFirst(Primcast):
    """A newcomer that has taken over nothing delivers from the beginning, if somebody begins there."""

    def on_handed(self, sender: ProcessId, handed: Handed) -> None:
        begun, self.begun = self.begun, 0
        super().on_handed(sender, handed)
        self.begun = begun


class HandsOverToThoseWhoHaveNothing(Primcast):
    def hand_over(self) -> None:
        self.said = {**dict.fromkeys(self.mates, 0), **self.said}
        super().hand_over()


class BeginsTheEpochWithoutIt(Primcast):
    """A newcomer goes on with the log alone."""

    def on_start_epoch(self, sender: ProcessId, start: StartEpoch) -> None:
        self.learns, self.begun = False, 0
        super().on_start_epoch(sender, msgspec.structs.replace(start, adoption=None))


BY_SEEDS = (
    CountsAtOnce,
    CountsAgainOnRestart,
    StaysInItsEpochs,
    CountsPromisesOfPupils,
    CallsNewcomers,
    GivesNothingToTakeOver,
    PromisesToWhoKnowsMore,
    ForgetsEarlyCalls,
    WaitsToBeCalled,
    DoesNotAnnounceToNewcomers,
    NeverStartsItsPupils,
    TakesOverWithoutLabels,
    TakesOverWithoutClients,
    TakesOverWithoutPlaces,
    KeepsWhatItHeld,
    BeginsTheEpochWithoutIt,
)

# tests/papers/test_replaced.py has schedules for these.
BY_HAND = (
    StandsWhileItLearns,
    AnnouncesNothingAgain,
    VouchesForNothingAgain,
    TakesWhatIsHandedFirst,
    HandsOverToThoseWhoHaveNothing,
    KeepsNothingForThoseWhoLag,
    CountsThoughSomebodyLags,
    DoesNotSayWhatItHas,
    DoesNotSayThatItCounts,
    GivesWhatItHasAtOnce,
    ForgetsEarlyElections,
)
