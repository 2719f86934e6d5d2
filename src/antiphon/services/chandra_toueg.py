"""Chandra and Toueg's consensus with a rotating coordinator and a failure detector of class ◇S.

C1-C14 are the lines of docs/protocols/chandra_toueg.md.
"""

from __future__ import annotations

import msgspec

from antiphon.core import ProcessId, Table, Wire
from antiphon.services.consensus import Consensus
from antiphon.services.label import Label


class Estimate(Wire, frozen=True, tag=2):
    """Phase 1, to the coordinator: my estimate, and the round in which I adopted it."""

    instance: Label
    round: int
    estimate: bytes
    adopted: int


class Proposal(Wire, frozen=True, tag=3):
    """Phase 2, from the coordinator to all."""

    instance: Label
    round: int
    estimate: bytes


class Ack(Wire, frozen=True, tag=4):
    """Phase 3, to the coordinator: I adopted your proposal."""

    instance: Label
    round: int


class CtRun(msgspec.Struct):
    """One instance at one process."""

    estimate: bytes
    adopted: int = 0
    round: int = 0
    estimates: Table[int, Table[ProcessId, tuple[int, bytes]]] = {}  # as coordinator, by round
    proposals: Table[int, bytes] = {}  # as coordinator
    acks: Table[int, set[ProcessId]] = {}  # as coordinator


class ChandraToueg(Consensus):
    runs: dict[Label, CtRun]
    early: Table[Label, list[tuple[ProcessId, Estimate | Proposal | Ack]]]

    def propose(self, instance: Label, value: bytes) -> None:  # C1
        if self.is_new(instance):
            self.run(instance, CtRun(value))
            self.enter(instance, self.runs[instance], 1)
            self.handle_kept(instance, self.early.pop(instance, []))

    def enter(self, instance: Label, run: CtRun, round: int) -> None:  # C2
        """Phase 1. The estimate of a later round goes to all, so that nobody stays behind in an earlier one."""
        run.round = round
        coordinator = self.coordinator(instance, round)
        if round > 1 or self.options.estimates:  # C3
            to = self.members(instance) if round > 1 else (coordinator,)
            self.send(to, Estimate(instance, round, run.estimate, run.adopted))
        elif coordinator == self.me:  # C4
            self.announce(instance, run, run.estimate)
        if coordinator in self.suspects:
            self.enter(instance, run, round + 1)

    def on_estimate(self, sender: ProcessId, estimate: Estimate) -> None:  # C5
        run = self.run_of(sender, estimate)
        if run is None:
            return
        round, instance = estimate.round, estimate.instance
        if round > run.round:
            self.enter(instance, run, round)  # C6
        collected = run.estimates.setdefault(round, {})
        collected[sender] = (estimate.adopted, estimate.estimate)
        is_mine = self.coordinator(instance, round) == self.me and round == run.round and round not in run.proposals
        if is_mine and self.is_quorum(instance, set(collected)):  # C7
            newest = max(adopted for adopted, _ in collected.values())
            candidates = {p: value for p, (adopted, value) in collected.items() if adopted == newest}
            chosen = next(candidates[p] for p in self.members(instance) if p in candidates)
            self.announce(instance, run, chosen)  # C8

    def announce(self, instance: Label, run: CtRun, value: bytes) -> None:
        """Phase 2."""
        run.proposals[run.round] = value
        self.send(self.members(instance), Proposal(instance, run.round, value))

    def on_proposal(self, sender: ProcessId, proposal: Proposal) -> None:  # C9
        """Phase 3."""
        run = self.run_of(sender, proposal)
        if run is None or proposal.round < run.round:
            return
        run.round = proposal.round
        run.estimate, run.adopted = proposal.estimate, proposal.round  # C10
        self.send(sender, Ack(proposal.instance, proposal.round))  # C11

    def on_ack(self, sender: ProcessId, ack: Ack) -> None:  # C12
        """Phase 4. Acknowledgements of an earlier round still count: a majority has locked its value."""
        run = self.run_of(sender, ack)
        if run is None:
            return
        acks = run.acks.setdefault(ack.round, set())
        acks.add(sender)
        if self.is_quorum(ack.instance, acks):  # C13
            self.decide(ack.instance, run.proposals[ack.round], self.me)

    def on_suspect(self, process: ProcessId) -> None:  # C14
        for instance, run in list(self.runs.items()):
            if instance in self.runs and self.coordinator(instance, run.round) == process:
                self.enter(instance, run, run.round + 1)

    def run_of(self, sender: ProcessId, message: Estimate | Proposal | Ack) -> CtRun | None:
        """The running instance that a message is for. If there is none yet, the message waits for it."""
        run = self.runs.get(message.instance)
        if run is None:
            self.keep_for_later(sender, message.instance, message)
        return run
