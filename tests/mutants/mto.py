"""MTO with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antiphon.core import Message, MessageId, ProcessId
from antiphon.protocols.mto import Mto, RecTs
from antiphon.services.consensus import Consensus
from antiphon.services.label import Label, has_qualified_majority
from antiphon.services.matrix import Carried, MatrixOrder
from mutants.parts import (
    CtDecidesItsOwnValueOnSuspicion,
    CtDecidesOnOneAcknowledgement,
    HrDecidesItsOwnValueOnSuspicion,
    HrDecidesWithoutAMajority,
    HrVotesWithItsOwnEstimate,
    over_consensus,
    with_parts,
)
from mutants.services import under


class Opened(Mto):
    """MTO itself, with its conditions where a mutant can reach them."""

    def has_enough(self, who: set[ProcessId], label: Label) -> bool:
        return has_qualified_majority(who, label.groups, self.topology)

    def proposal(self, received: list[int]) -> int:
        return max(received)

    def start(self, id: MessageId) -> None:
        entry, received = self.entries.get(id), self.rec_ts.get(id, {})
        if entry is None or id in self.proposed or entry.sn is not None:
            return
        if self.has_enough(set(received), entry.label):
            self.proposed.add(id)
            self.agree(id, entry.label, self.proposal(list(received.values())))

    def agree(self, id: MessageId, label: Label, sn: int) -> None:
        self.consensus.propose(label, msgspec.msgpack.encode((id, sn)))


class SimpleForQualifiedQuorums(Mto):
    """In the consensus: a majority of all addressees may hold only one process of a group.

    The suite's seeds do not show it; tests/papers/test_scalatom.py has a run that does.
    """

    def make_consensus(self, decided: Callable[[Label, bytes], None], *, qualified: bool = False) -> Consensus:
        return super().make_consensus(decided, qualified=False)


class TakesTheMinimumForTheMaximum(Opened):
    def proposal(self, received: list[int]) -> int:
        return min(received)


class DeliversOnTheProposal(Opened):
    def agree(self, id: MessageId, label: Label, sn: int) -> None:
        self.number(id, sn)


class DoesNotRaiseTheClockOnMessages(Mto):
    """The suite's seeds do not show it; tests/papers/test_scalatom.py has a run that does."""

    def when_ticked(self, time: int) -> None:
        pass


class DoesNotAdvanceTheClock(Mto):
    def when_r_delivered(self, m: Message, label: Label) -> None:
        self.ts -= 1
        super().when_r_delivered(m, label)


class DeliversWithoutItsPredecessors(Mto):
    def may_precede(self, other: MessageId, label: Label, key: tuple[int, MessageId]) -> bool:
        return False


class WaitsOnlyForNumberedPredecessors(Mto):
    def may_precede(self, other: MessageId, label: Label, key: tuple[int, MessageId]) -> bool:
        return self.sn(other) is not None and super().may_precede(other, label, key)


class CountsOnlyWhatItRDelivered(Mto):
    """Takes for pending what was R-delivered here, not what a timestamp shows to be R-delivered elsewhere.

    The suite's seeds do not show it; tests/papers/test_scalatom.py has runs that do.
    """

    def potential_predecessors(self) -> list[tuple[MessageId, Label]]:
        return [(id, label) for id, label in super().potential_predecessors() if id in self.entries]


class DoesNotWaitForWhatIsNotHere(Mto):
    """Leaves out of PPS what is decided and not R-delivered here yet.

    The suite's seeds do not show it; tests/papers/test_scalatom.py has a run that does.
    """

    def potential_predecessors(self) -> list[tuple[MessageId, Label]]:
        return list(self.heard_of.items())


class ForgetsWhatIsPendingOnRestart(Mto):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        for entry in self.entries.values():
            entry.predecessors = []


class TellsTimestampsToItsOwnGroupOnly(Mto):
    def on_rec_ts(self, sender: ProcessId, message: RecTs) -> None:
        if self.topology.group_of[sender] == self.group:
            super().on_rec_ts(sender, message)


class AnyOrder(MatrixOrder):
    """The suite's seeds do not show it, nor the next one; tests/papers/test_scalatom.py has a run that does."""

    def is_ready(self, sender: ProcessId, carried: Carried) -> bool:
        return True


class FifoOrder(MatrixOrder):
    """Only what the sender itself sent before is waited for, not what its past sent."""

    def is_ready(self, sender: ProcessId, carried: Carried) -> bool:
        index_of = self.topology.index_of
        if sender not in index_of:
            return True
        there = index_of[sender]
        return self.handed[there] >= carried.matrix[there * len(self.handed) + index_of[self.me]]


class ForgetsWhatCameOnRestart(MatrixOrder):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.handed = [0] * len(self.handed)


def over_causal(kind: type[MatrixOrder]) -> type[Mto]:
    return with_parts(Mto, kind)


class ProposesItsOwnTimestamp(Mto):
    """And not the highest that it received."""

    def start(self, id: MessageId) -> None:
        received = self.rec_ts.get(id)
        own = self.entries[id].rec_ts if id in self.entries else None
        before = dict(received or {})
        if received is not None and own is not None:
            for process in received:
                received[process] = own
        super().start(id)
        if received is not None:
            received.update(before)


class DoesNotRaiseTheClockToItsNumber(Mto):
    def number(self, id: MessageId, sn: int) -> None:
        ts = self.ts
        super().number(id, sn)
        self.ts = ts


class LooksForPredecessorsTooEarly(Mto):
    """The potential predecessors are those of the moment at which m came, and not at which it was decided."""

    early: dict[MessageId, list[tuple[MessageId, Label]]]

    def initialise(self) -> None:
        super().initialise()
        self.early = {}
        self.wanted: MessageId | None = None

    def when_r_delivered(self, m: Message, label: Label) -> None:
        self.early[m.id] = super().potential_predecessors()
        super().when_r_delivered(m, label)

    def number(self, id: MessageId, sn: int) -> None:
        self.wanted = id
        super().number(id, sn)

    def potential_predecessors(self) -> list[tuple[MessageId, Label]]:
        assert self.wanted is not None
        return self.early.pop(self.wanted, [])


class LetsAnEqualNumberPass(Mto):
    """Equal numbers: whoever comes first, and not the lower id."""

    def may_precede(self, other: MessageId, label: Label, key: tuple[int, MessageId]) -> bool:
        sn = self.sn(other)
        return super().may_precede(other, label, key) and (sn is None or sn < key[0])


MUTANTS = (
    TakesTheMinimumForTheMaximum,
    DeliversOnTheProposal,
    DoesNotAdvanceTheClock,
    DeliversWithoutItsPredecessors,
    WaitsOnlyForNumberedPredecessors,
    ForgetsWhatIsPendingOnRestart,
    TellsTimestampsToItsOwnGroupOnly,
    over_causal(ForgetsWhatCameOnRestart),
    over_consensus(Mto, CtDecidesItsOwnValueOnSuspicion, HrDecidesItsOwnValueOnSuspicion),
    over_consensus(Mto, CtDecidesOnOneAcknowledgement, HrDecidesWithoutAMajority),
    over_consensus(Mto, HrVotesWithItsOwnEstimate),
    *under(Mto),
    ProposesItsOwnTimestamp,
    LooksForPredecessorsTooEarly,
)
