"""Uniform consensus, numbered: what Chandra-Toueg and Hurfin-Raynal have in common.

D1-D4 are the lines of docs/protocols/consensus.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from antiphon.core import Component, GroupId, MessageId, ProcessId, Table, Wire
from antiphon.services.label import Label, Labels, check_numbers, has_qualified_majority, majority


class Decide(Wire, frozen=True, tag=1):
    """The decision, flooded."""

    instance: Label
    value: bytes
    origin: ProcessId  # who decided first


class ConsensusOptions(msgspec.Struct, frozen=True):
    estimates: bool = True  # Chandra-Toueg: whether round 1 has its estimate phase too (R2 counts it, R1 does not)
    echo_origin: bool = True  # whether a decision is also sent on to the one who decided first (R2 yes, R1 no)
    qualified: bool = False  # whether a quorum is a majority of every group, not just of all members together


class Consensus(Component):
    """``propose`` a value for an instance; ``decided`` tells its decision, the same at every process.

    An instance is a label: the members of its groups take part. What comes for an instance before this process has
    proposed waits; what comes after its decision is dropped, which needs bounded memory only.
    """

    Options = ConsensusOptions
    options: ConsensusOptions
    decided: Callable[[Label, bytes], None]
    accept: Callable[[Label, bytes], object]  # raises BadFrame for what is no value to decide on in an instance
    about_value: Callable[[bytes], tuple[MessageId, ...]]  # all multicast messages that a value is about

    runs: dict[Label, Any]  # proposed in, and not decided; each kind of consensus says what it keeps of one
    early: Table[Label, list[tuple[ProcessId, Any]]]  # what came for an instance that is not proposed in yet
    running: Table[tuple[GroupId, ...], int]  # how many instances run, by their groups
    done: Labels

    def initialise(self) -> None:
        self.runs, self.early, self.running = {}, {}, {}
        self.done = Labels()

    def validate(self, message: Wire) -> None:
        message.instance.check(self.topology, self.me)  # type: ignore[attr-defined]
        check_numbers([getattr(message, field, 0) for field in ("round", "adopted")])
        for field in ("estimate", "value"):
            value = getattr(message, field, None)
            if value is not None:
                self.accept(message.instance, value)  # type: ignore[attr-defined]

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        """What its value is about or, where it has none, the estimate that this process has at present."""
        value = next((v for field in ("estimate", "value") if (v := getattr(message, field, None)) is not None), None)
        if value is None:
            run = self.runs.get(message.instance)  # type: ignore[attr-defined]
            value = run.estimate if run is not None else None
        return self.about_value(value) if value is not None else ()

    def propose(self, instance: Label, value: bytes) -> None:
        raise NotImplementedError

    def is_new(self, instance: Label) -> bool:
        """Whether this process has neither proposed in an instance nor learnt its decision."""
        return instance not in self.runs and not self.is_done(instance)

    def keep_for_later(self, sender: ProcessId, instance: Label, message: Wire) -> None:
        if self.is_new(instance):
            self.early.setdefault(instance, []).append((sender, message))

    def handle_kept(self, instance: Label, kept: list[tuple[ProcessId, Any]]) -> None:
        for sender, message in kept:
            if instance in self.runs:  # else one of them brought the decision
                self.handlers[type(message)](sender, message)

    def run(self, instance: Label, run: Any) -> None:
        self.runs[instance] = run
        self.running[instance.groups] = self.running.get(instance.groups, 0) + 1
        self.watch()

    def forget(self, instance: Label) -> None:
        """Drop the state of an instance that was decided."""
        self.early.pop(instance, None)
        if self.runs.pop(instance, None) is not None:
            self.running[instance.groups] -= 1
            if not self.running[instance.groups]:
                del self.running[instance.groups]

    def members(self, instance: Label) -> tuple[ProcessId, ...]:
        return self.topology.addressees(instance.groups)

    def coordinator(self, instance: Label, round: int) -> ProcessId:
        members = self.members(instance)
        return members[(round - 1) % len(members)]

    def is_quorum(self, instance: Label, who: set[ProcessId]) -> bool:
        """Any two quorums have a member in common, and one quorum is always correct."""
        if self.options.qualified:
            return has_qualified_majority(who, instance.groups, self.topology)
        return len(who) >= majority(self.members(instance))

    def is_done(self, instance: Label) -> bool:
        return self.done.has(instance, self.group)

    def watch(self) -> None:
        """Only the members of running instances are monitored."""
        self.monitor(sorted({p for groups in self.running for p in self.topology.addressees(groups)}))

    def decide(self, instance: Label, value: bytes, origin: ProcessId) -> None:  # D1
        if not self.done.add(instance, self.group):  # D2
            return
        self.forget(instance)
        skipped = (self.me,) if self.options.echo_origin else (self.me, origin)
        self.send([p for p in self.members(instance) if p not in skipped], Decide(instance, value, origin))  # D3
        self.decided(instance, value)  # D4
        self.watch()  # now, so that who is suspected stays so when the next instance begins at once

    def on_decide(self, sender: ProcessId, decision: Decide) -> None:
        self.decide(decision.instance, decision.value, decision.origin)


ConsensusKind = Literal["ct", "hr"]
