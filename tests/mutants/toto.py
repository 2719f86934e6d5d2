"""ToTo with one mistake each: a rule of section 4 left out or bent. The suite's own seeds must catch every one."""

from __future__ import annotations

from typing import ClassVar

from antiphon.core import ProcessId
from antiphon.protocols.toto import Activation, Candidate, ToTo
from antiphon.services.dag import Dag, Node
from mutants.chosen import SERVICE_LOST, chosen_wrongly
from mutants.dag import (
    AcknowledgesNothing,
    EntersBeforeItsPredecessors,
    ForgetsBeforeStable,
    LosesWhatItFetched,
    NeverAcknowledges,
)
from mutants.parts import with_parts


class PhiBelowHalf(ToTo):
    @property
    def phi(self) -> int:
        return max((len(self.graph.machines) - 1) // 2, 0)


class Mistaken(ToTo):
    """With another account of the agreement."""

    KIND: ClassVar[type[Activation]] = Activation

    def initialise(self) -> None:
        super().initialise()
        self.activation = self.KIND.among(len(self.graph.machines))

    def restore(self, data: bytes) -> None:
        super().restore(data)
        a = self.activation
        self.activation = self.KIND(a.heard, a.ntail, a.m_p, a.waiting, a.defunc)


def mistaken(kind: type[Activation]) -> type[ToTo]:
    """ToTo with this one mistake in what it keeps."""
    return type(kind.__name__, (Mistaken,), {"KIND": kind, "__module__": __name__})


class WinsWithPhi(Activation):
    """At least Φ entries, instead of more than Φ."""

    def can_win(self, one: Candidate, other: Candidate, phi: int) -> bool:
        return super().can_win(one, other, phi - 1)

    def is_beaten(self, m: Candidate, phi: int) -> bool:
        return super().is_beaten(m, phi - 1)


class SkipsInternalStability(Activation):
    def is_internally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        return True


class SkipsExternalStability(Activation):
    def is_externally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        return True


class DoesNotAskHowManyFollowASource(Activation):
    """(DEL) 2 (a) without its second half."""

    def is_externally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        return any(s.nvt > phi for s in s_p) or self.ntail == len(self.heard)


class AnySourceIsFollowed(Activation):
    """(DEL) 2 (a) asks its second half of one source: the one of the first half has more than Φ ≥ n - Φ anyway."""

    def is_externally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        n = len(self.heard)
        return (any(s.nvt > phi for s in s_p) and any(s.ntail >= n - phi for s in s_p)) or self.ntail == n


class DoesNotAskWhetherASourceHasAMajority(Activation):
    """(DEL) 2 (a) without its first half."""

    def is_externally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        n = len(self.heard)
        return all(s.ntail >= n - phi for s in s_p) or self.ntail == n


class AnyPendingMessageIsACandidate(Activation):
    def receive(self, dag: Dag, m: Node) -> None:
        if m.service == "agreed":
            followed = [c for c in self.m_p.values() if dag.is_followed(c.node.name, m)]
            followed.append(self.add_candidate(m))
            place = dag.places[m.name.sender]
            for c in followed:
                c.ntail += not c.tail[place]
                c.tail[place] = True
            if not self.heard[place]:
                self.hear(place, m.name.number, followed)
        else:
            super().receive(dag, m)


class TailCountsWhateverCame(Activation):
    """A machine is in a message's Tail when it has sent anything, whether that follows the message or not."""

    def receive(self, dag: Dag, m: Node) -> None:
        super().receive(dag, m)
        place = dag.places[m.name.sender]
        for c in self.m_p.values():
            c.ntail += not c.tail[place]
            c.tail[place] = True


class LeavesTheFutureOut(Activation):
    """A source is what is not beaten now, though it may be yet."""

    def sources(self, phi: int) -> list[Candidate]:
        return [m for m in self.m_p.values() if not self.is_beaten(m, phi)]


class ANewCandidateIsNotBehind(Activation):
    """Those who were heard before it came are not counted against it."""

    def add_candidate(self, m: Node) -> Candidate:
        new = super().add_candidate(m)
        for c in self.m_p.values():
            if c is not new:
                c.wins[m.name] = 0
        return new


class EveryMessageOfAMachineCounts(Activation):
    """Not only its first that follows any candidate."""

    def receive(self, dag: Dag, m: Node) -> None:
        super().receive(dag, m)
        place = dag.places[m.name.sender]
        late = [c for c in self.m_p.values() if dag.is_followed(c.node.name, m) and not c.first[place]]
        for c in late:
            c.first[place] = True
            c.nvt += 1


class CalculatesAnewFromTheNewest(Activation):
    """After a delivery, the newest message of a machine is taken for its first."""

    def hear_again(self, dag: Dag, machine: ProcessId, place: int, before: int) -> None:
        super().hear_again(dag, machine, place, dag.counts[place] if before > 0 else before)


class DoesNotCalculateAnew(Activation):
    """After a delivery, those heard stay heard."""

    def remove(self, dag: Dag, s_p: list[Node]) -> None:
        super().remove(dag, s_p)
        for place, count in enumerate(dag.counts):
            if self.m_p and not self.heard[place] and count:
                self.heard[place] = count
                self.ntail += 1


class LeavesNewCandidatesBehind(Activation):
    """Where several wait, the last one to come is not looked at."""

    def remove(self, dag: Dag, s_p: list[Node]) -> None:
        last = max(self.waiting, key=lambda p: self.waiting[p][0].entered, default=None)
        kept = self.waiting.pop(last) if last is not None and len(self.waiting) > 1 else None
        super().remove(dag, s_p)
        if last is not None and kept is not None:
            self.waiting[last] = kept


class DeliversSourcesAsTheyCame(ToTo):
    def deliver_what_can(self) -> None:
        while s_p := self.activation.deliverable(self.phi):
            for m in sorted(s_p, key=lambda m: m.entered):
                self.deliver_next(m)
            self.activation.remove(self.graph.dag, s_p)
            self.deliver_held_back(s_p)


class DeliversOneSetAtATime(ToTo):
    """And looks again only when the next message comes."""

    def deliver_what_can(self) -> None:
        if s_p := self.activation.deliverable(self.phi):
            for m in sorted(s_p, key=lambda m: (self.graph.dag.places[m.name.sender], m.name.number)):
                self.deliver_next(m)
            self.activation.remove(self.graph.dag, s_p)
            self.deliver_held_back(s_p)


class AcknowledgementsDoNotCount(ToTo):
    def when_entered(self, m: Node) -> None:
        if m.service != "ack":
            super().when_entered(m)


class ForgetsTheActivationOnRestart(ToTo):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.activation = Activation.among(len(self.graph.machines))


MUTANTS = (
    PhiBelowHalf,
    *(
        mistaken(kind)
        for kind in (
            WinsWithPhi,
            SkipsInternalStability,
            SkipsExternalStability,
            DoesNotAskWhetherASourceHasAMajority,
            AnyPendingMessageIsACandidate,
            LeavesTheFutureOut,
            ANewCandidateIsNotBehind,
            EveryMessageOfAMachineCounts,
            CalculatesAnewFromTheNewest,
            DoesNotCalculateAnew,
            LeavesNewCandidatesBehind,
        )
    ),
    DeliversSourcesAsTheyCame,
    DeliversOneSetAtATime,
    AcknowledgementsDoNotCount,
    ForgetsTheActivationOnRestart,
    *chosen_wrongly(ToTo),
    *(
        with_parts(ToTo, kind)
        for kind in (
            *SERVICE_LOST,
            AcknowledgesNothing,
            EntersBeforeItsPredecessors,
            ForgetsBeforeStable,
            LosesWhatItFetched,
            NeverAcknowledges,
        )
    ),
)

# No promise can be broken by these: once some source has more than Φ entries, more than Φ machines were heard, so
# whatever is still to come has an infinite entry for each of them: that source beats it, and it beats nobody. An entry
# that a Crash makes infinite is so for all. tests/papers/test_toto.py sees that these do not wait as the paper says,
# and that they deliver the same.
UNSEEN = (DoesNotAskHowManyFollowASource, AnySourceIsFollowed, TailCountsWhateverCame)
