"""The causal graph of Transis with one mistake each, to be put under any protocol that stands on it."""

from __future__ import annotations

from antiphon.core import Component, Message, ProcessId
from antiphon.services.causal_graph import Answer, CausalGraph, Fetch, Have, Idle, Missing, Watch
from antiphon.services.dag import Ack, Cast, NodeService


class EntersBeforeItsPredecessors(CausalGraph):
    def is_ready(self, cast: Cast | Ack) -> bool:
        return True


class NamesOneOfThoseItFollows(CausalGraph):
    def multicast(self, service: NodeService, m: Message) -> None:
        self.emit(Cast(self.next_name(), service, tuple(self.dag.leaves)[-1:], m))


class NamesWhatItFollowedBefore(CausalGraph):
    """And not what came since: a message follows only its sender's own."""

    def multicast(self, service: NodeService, m: Message) -> None:
        own = tuple(leaf for leaf in self.dag.leaves if leaf.sender == self.me)
        self.emit(Cast(self.next_name(), service, own, m))


class DoesNotFetch(CausalGraph):
    def on_fetch(self, timer: Fetch) -> None:
        pass


class FetchesOnce(CausalGraph):
    def on_fetch(self, timer: Fetch) -> None:
        super().on_fetch(timer)
        self.cancel_timer(Fetch())


class AnswersNobody(CausalGraph):
    def on_answer(self, timer: Answer) -> None:
        pass


class LosesWhatItFetched(CausalGraph):
    def receive(self, cast: Cast | Ack) -> None:
        if self.requested.pop(cast.name, None) is None:
            super().receive(cast)


class ForgetsBeforeStable(CausalGraph):
    """Whatever one other machine follows is thought to be everywhere."""

    def enter(self, cast: Cast | Ack) -> None:
        super().enter(cast)
        for machine, of_all in zip(self.machines, zip(*self.dag.newest, strict=True), strict=True):
            reached = sorted(of_all)[-2:][0]
            self.dag.rows[machine] = {n: node for n, node in self.dag.rows[machine].items() if n > reached}


class NeverAcknowledges(CausalGraph):
    def on_idle(self, timer: Idle) -> None:
        pass


class AcknowledgesNothing(CausalGraph):
    """Says that it is there, and not what it has."""

    def on_idle(self, timer: Idle) -> None:
        if self.unacknowledged:
            self.emit(Ack(self.next_name(), ()))


class AcknowledgesAcknowledgements(CausalGraph):
    """So that there is no end to them."""

    def on_ack(self, sender: ProcessId, ack: Ack) -> None:
        super().on_ack(sender, ack)
        self.unacknowledged = True
        self.set_timer(Idle(), 1_000_000)


class DoesNotSayWhatExists(CausalGraph):
    """The last message of a burst that is lost is lost."""

    def on_watch(self, timer: Watch) -> None:
        self.moved = True
        super().on_watch(timer)


class DoesNotHearWhatExists(CausalGraph):
    def on_have(self, sender: ProcessId, have: Have) -> None:
        super().on_have(sender, Have([min(pair) for pair in zip(have.counts, self.known, strict=True)]))


class TellsNobodyWhatExists(CausalGraph):
    def on_have(self, sender: ProcessId, have: Have) -> None:
        super().on_have(sender, Have([max(pair) for pair in zip(have.counts, self.dag.counts, strict=True)]))


class StopsWatchingTooEarly(CausalGraph):
    def is_restless(self) -> bool:
        return bool(self.held or self.requested)


class ForgetsTheLeavesOnRestart(CausalGraph):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.dag.leaves = {}


class ForgetsItsGraphOnRestart(CausalGraph):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        for row in self.dag.rows.values():
            row.clear()


class ForgetsItsNumberOnRestart(CausalGraph):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        if self.me in self.dag.places and self.dag.counts[self.dag.places[self.me]] > 0:
            self.dag.counts[self.dag.places[self.me]] -= 1


class TakesDoublesForNew(CausalGraph):
    """Enters once more what has just entered."""

    def receive(self, cast: Cast | Ack) -> None:
        place = self.dag.places[cast.name.sender]
        if isinstance(cast, Cast) and cast.name.number == self.dag.counts[place] and cast.name.sender != self.me:
            self.enter(cast)
        else:
            super().receive(cast)


class PostponesForEver(CausalGraph):
    """Whoever sees that another asks asks no more."""

    def on_missing(self, sender: ProcessId, missing: Missing) -> None:
        super().on_missing(sender, missing)
        for name in missing.names:
            if name in self.requested:
                self.requested[name] = 1 << 62


# Under transis; what has to do with acknowledgements shows where an order waits for them, under allack and toto.
GRAPH_MUTANTS: tuple[type[Component], ...] = (
    EntersBeforeItsPredecessors,
    NamesOneOfThoseItFollows,
    NamesWhatItFollowedBefore,
    DoesNotFetch,
    FetchesOnce,
    AnswersNobody,
    LosesWhatItFetched,
    ForgetsBeforeStable,
    DoesNotSayWhatExists,
    DoesNotHearWhatExists,
    StopsWatchingTooEarly,
    ForgetsItsGraphOnRestart,
    ForgetsItsNumberOnRestart,
    TakesDoublesForNew,
    PostponesForEver,
)

# It takes a coincidence to break a promise by these, or a long run: tests/services/test_dag.py has a run of each.
RARE = (ForgetsTheLeavesOnRestart, TellsNobodyWhatExists, AcknowledgesAcknowledgements)
