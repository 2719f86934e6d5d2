"""The membership service with one mistake each, to be put under toto (tests/services/test_membership.py)."""

from __future__ import annotations

import msgspec

from antiphon.core import Message, OrderingProtocol, ProcessId
from antiphon.protocols.toto import ToTo
from antiphon.services.causal_graph import CausalGraph
from antiphon.services.dag import Ack, Cast
from antiphon.services.membership import (
    Attempt,
    Goal,
    Install,
    Invite,
    MachineView,
    Membership,
    Patience,
    Ready,
    Settle,
    State,
    Word,
)
from mutants.parts import with_parts


class SkipsTheFlush(ToTo):
    def flush(self, gone: tuple[ProcessId, ...], staying: tuple[ProcessId, ...]) -> None:
        pass


class IgnoresCrash(ToTo):
    """Of those who are gone; only who stays is out of the view when it ends."""

    def flush(self, gone: tuple[ProcessId, ...], staying: tuple[ProcessId, ...]) -> None:
        for machine in staying:
            self.crash(machine)


class RaisesCrashTooEarly(ToTo):
    """As soon as it suspects a machine, whatever that one may have sent."""

    def on_suspect(self, process: ProcessId) -> None:
        if process in self.graph.dag.places:
            self.crash(process)


class DropsWhatWaitsForTheNextView(ToTo):
    def when_begun(self, view: MachineView) -> None:
        self.waiting_multicasts = []
        super().when_begun(view)


class KeepsItsCandidates(ToTo):
    def begin_view(self, machines: tuple[ProcessId, ...]) -> None:
        pass


class HasEnoughWithItsOwn(Membership):
    """What the others have, and it does not, does not belong to the view."""

    def goal_of(self, settle: Settle) -> Goal | None:
        goal = super().goal_of(settle)
        return None if goal is None else Goal(goal.view, goal.machines, [*self.graph().dag.counts])


class HasEnoughWithWhatAllHave(Membership):
    def goals(self, attempt: Attempt) -> list[Goal]:
        return [
            Goal(
                goal.view,
                goal.machines,
                [min(of_one) for of_one in zip(*[attempt.states[p].counts for p in goal.machines], strict=True)],
            )
            for goal in super().goals(attempt)
        ]


class IsReadyTooEarly(Membership):
    """Enters what it has, when the view is installed."""

    def look_whether_ready(self) -> None:
        settle = self.settle
        if settle is not None and settle.number not in self.ready:
            self.ready[settle.number] = settle
            self.send(self.leader_of(settle.number), Ready(settle.number))

    def goal_of(self, settle: Settle) -> Goal | None:
        goal = super().goal_of(settle)
        if goal is None or settle.number not in self.ready:
            return goal
        counts = [min(pair) for pair in zip(goal.counts, self.graph().reach, strict=True)]
        return Goal(goal.view, goal.machines, counts)


class DoesNotWaitForTheOthers(Membership):
    """Who is ready begins with the new view."""

    def look_whether_ready(self) -> None:
        settle = self.settle
        super().look_whether_ready()
        if settle is not None and settle.number in self.ready:
            self.on_install(self.leader_of(self.promised), Install(settle.number))


class TakesTheFirstForAll(Membership):
    """The leader does not wait until everybody is ready."""

    def on_ready(self, sender: ProcessId, ready: Ready) -> None:
        attempt = self.attempt
        if attempt is not None and attempt.number == ready.number:
            attempt.ready.update(dict.fromkeys(attempt.machines))
        super().on_ready(sender, ready)


class DoesNotAskWhatOthersInstalled(Membership):
    """Breaks no promise: machines that went different ways are not connected. A test of its own shows it."""

    def behind(self, attempt: Attempt) -> dict[ProcessId, int]:
        return {}


class GoesOnThoughInvited(ToTo):
    """Who goes the way of a view that it missed sends in that view, though it was invited to a later one. Breaks no
    promise: nobody will settle the later one (docs/protocols/membership.md). A test of its own shows it."""

    def when_begun(self, view: MachineView) -> None:
        self.graph.still = False
        super().when_begun(view)


class SendsWhileItsViewEnds(ToTo):
    """In the old view, after it said how many messages it has sent."""

    def multicast(self, m: Message) -> None:
        still, self.graph.still = self.graph.still, False
        super().multicast(m)
        self.graph.still = still


class DoesNotStandStill(Membership):
    """What comes after it said what it has enters as before."""

    def on_invite(self, sender: ProcessId, invite: Invite) -> None:
        super().on_invite(sender, invite)
        self.graph().still = False


class TakesMessagesOfOtherViews(CausalGraph):
    """And counts from the beginning in each view: as long as counters go on, a message of an old view is an old one."""

    def begin_view(self, number: int, machines: tuple[ProcessId, ...], starts: list[int]) -> None:
        super().begin_view(number, machines, [0] * len(machines))

    def receive(self, cast: Cast | Ack) -> None:
        if all(name.sender in self.dag.places for name in (cast.name, *cast.follows)):
            cast = msgspec.structs.replace(cast, view=self.view)
        super().receive(cast)


class ForgetsItsViewOnRestart(Membership):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.view = MachineView(1, self.topology.processes)


class ForgetsItsPromiseOnRestart(Membership):
    """And goes on in its view."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.promised, self.settle = self.view.number, None


class AcceptsOlderInvitations(Membership):
    def on_invite(self, sender: ProcessId, invite: Invite) -> None:
        self.promised = min(self.promised, invite.number - 1)
        super().on_invite(sender, invite)


class SaysNothingOfItsPromise(Membership):
    """A leader does not hear that one of its machines was in another view meanwhile."""

    def on_word(self, sender: ProcessId, word: Word) -> None:
        super().on_word(sender, msgspec.structs.replace(word, promised=0))


class NeverGivesUp(Membership):
    """Waits for ever for one who follows another."""

    def on_patience(self, timer: Patience) -> None:
        pass


class NeverMerges(Membership):
    def on_trust(self, process: ProcessId) -> None:
        pass


class CountsTheOldViewsAsOne(Membership):
    """All who come are to have the same, from wherever they come."""

    def on_state(self, sender: ProcessId, state: State) -> None:
        if self.attempt is not None and len(state.counts) == len(self.view.machines):
            state = msgspec.structs.replace(state, view=self.view.number)
        super().on_state(sender, state)


KINDS = (
    HasEnoughWithItsOwn,
    HasEnoughWithWhatAllHave,
    IsReadyTooEarly,
    DoesNotWaitForTheOthers,
    TakesTheFirstForAll,
    DoesNotStandStill,
    TakesMessagesOfOtherViews,
    ForgetsItsViewOnRestart,
    ForgetsItsPromiseOnRestart,
    AcceptsOlderInvitations,
    SaysNothingOfItsPromise,
    NeverGivesUp,
    NeverMerges,
    CountsTheOldViewsAsOne,
)
MUTANTS: tuple[type[OrderingProtocol], ...] = (
    SkipsTheFlush,
    IgnoresCrash,
    RaisesCrashTooEarly,
    DropsWhatWaitsForTheNextView,
    KeepsItsCandidates,
    SendsWhileItsViewEnds,
    *(with_parts(ToTo, kind) for kind in KINDS),
)
