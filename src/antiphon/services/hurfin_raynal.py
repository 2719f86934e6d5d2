"""Hurfin and Raynal's consensus: two steps when nothing fails, with a failure detector of class ◇S.

H1-H13 are the lines of docs/protocols/hurfin_raynal.md.
"""

from __future__ import annotations

import msgspec

from antiphon.core import ProcessId, Table, Wire
from antiphon.services.consensus import Consensus
from antiphon.services.label import Label


class Current(Wire, frozen=True, tag=2):
    """A vote for the coordinator's estimate."""

    instance: Label
    round: int
    estimate: bytes


class Next(Wire, frozen=True, tag=3):
    """A vote for the next round; with the coordinator's estimate if I have seen it, so that FIFO is not needed."""

    instance: Label
    round: int
    estimate: bytes | None


class HrRun(msgspec.Struct):
    """One instance at one process."""

    estimate: bytes
    round: int = 0
    seen: bool = False  # whether the coordinator's estimate of this round is known
    voted_current: bool = False
    voted_next: bool = False
    currents: set[ProcessId] = msgspec.field(default_factory=set)
    nexts: set[ProcessId] = msgspec.field(default_factory=set)
    later: list[tuple[ProcessId, Current | Next]] = []  # votes of rounds to come


class HurfinRaynal(Consensus):
    runs: dict[Label, HrRun]
    early: Table[Label, list[tuple[ProcessId, Current | Next]]]

    def propose(self, instance: Label, value: bytes) -> None:  # H1
        if self.is_new(instance):
            run = HrRun(value, later=self.early.pop(instance, []))
            self.run(instance, run)
            self.enter(instance, run, 1)

    def enter(self, instance: Label, run: HrRun, round: int) -> None:  # H2
        run.round = round
        run.seen = run.voted_current = run.voted_next = False
        run.currents, run.nexts = set(), set()
        coordinator = self.coordinator(instance, round)
        if coordinator == self.me:
            run.seen = True
            self.vote_current(instance, run)  # H3
        elif coordinator in self.suspects:
            self.vote_next(instance, run)
        kept, run.later = run.later, []
        self.handle_kept(instance, kept)

    def vote_current(self, instance: Label, run: HrRun) -> None:
        run.voted_current = True
        self.send(self.members(instance), Current(instance, run.round, run.estimate))

    def vote_next(self, instance: Label, run: HrRun) -> None:
        run.voted_next = True
        self.send(self.members(instance), Next(instance, run.round, run.estimate if run.seen else None))

    def on_current(self, sender: ProcessId, current: Current) -> None:  # H4
        run = self.run_of(sender, current)
        if run is None:
            return
        instance = current.instance
        self.adopt(run, current.estimate)  # H5
        if not run.voted_current and not run.voted_next:
            self.vote_current(instance, run)  # H6
        run.currents.add(sender)
        if self.is_quorum(instance, run.currents):  # H7
            self.decide(instance, run.estimate, self.me)
        else:
            self.change_mind(instance, run)

    def on_next(self, sender: ProcessId, vote: Next) -> None:  # H8
        run = self.run_of(sender, vote)
        if run is None:
            return
        if vote.estimate is not None:
            self.adopt(run, vote.estimate)  # H9
        run.nexts.add(sender)
        if self.is_quorum(vote.instance, run.nexts):  # H10
            if not run.voted_next:
                self.vote_next(vote.instance, run)  # H11
            self.enter(vote.instance, run, run.round + 1)
        else:
            self.change_mind(vote.instance, run)

    def adopt(self, run: HrRun, estimate: bytes) -> None:
        if not run.seen:
            run.seen, run.estimate = True, estimate

    def change_mind(self, instance: Label, run: HrRun) -> None:
        """A majority has voted, but not for one thing: a decision in this round may never come."""
        votes = run.currents | run.nexts
        if run.voted_current and not run.voted_next and self.is_quorum(instance, votes):  # H12
            self.vote_next(instance, run)

    def on_suspect(self, process: ProcessId) -> None:  # H13
        for instance, run in list(self.runs.items()):
            undecided = not run.voted_current and not run.voted_next
            if undecided and self.coordinator(instance, run.round) == process:
                self.vote_next(instance, run)

    def run_of(self, sender: ProcessId, message: Current | Next) -> HrRun | None:
        """The running instance in whose present round the message is; if it came early, it waits."""
        run = self.runs.get(message.instance)
        if run is None:
            self.keep_for_later(sender, message.instance, message)
            return None
        if message.round > run.round:
            run.later.append((sender, message))
        return run if message.round == run.round else None
