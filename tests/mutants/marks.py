"""Where clients are, with one mistake each, to be put under transis: no order hides anything there."""

from __future__ import annotations

from antiphon.core import OrderingProtocol, ProcessId
from antiphon.core.sessions import Mark
from antiphon.protocols.transis import Transis
from antiphon.services.dag import Node, Note
from antiphon.services.marks import Marks
from antiphon.services.membership import MachineView
from mutants.parts import with_parts


class SaysNothingWhereSidesMeet(Marks):
    """What was common on its side is taken for common."""

    def begin_view(self, view: MachineView) -> None:
        self.unheard = {}
        super().begin_view(MachineView(view.number, view.machines))


class DoesNotWaitForWhereTheOthersAre(Marks):
    """Tells, but messages go out at once."""

    def begin_view(self, view: MachineView) -> None:
        super().begin_view(view)
        if self.unheard and not self.graph().still:
            self.unheard = {}
            self.opened()


class ForgetsThatAMeetingWasInterrupted(Marks):
    def begin_view(self, view: MachineView) -> None:
        self.unheard = {}
        super().begin_view(view)


class KeepsWhatWasCommon(Marks):
    """Hears where the others are, and goes on as before."""

    def meet(self, sender: ProcessId, note: Note) -> None:
        super().meet(sender, Note(note.name, note.follows, note.view, (), note.more))
        for session, known in self.process.state.sessions.known.items():
            known.common = max(known.common, self.process.state.sessions.progress(session))


class TakesSilenceForConsent(Marks):
    """Who says nothing of a client is where the others are."""

    def meet(self, sender: ProcessId, note: Note) -> None:
        told = self.process.state.sessions.told
        super().meet(sender, note)
        for session, (_, least) in told.items():
            if not self.unheard and session in self.process.state.sessions.known:
                self.process.state.sessions.known[session].common = least


class LeavesOutWithoutAWord(Marks):
    """Believes what the client says is settled."""

    def ask(self, mark: Mark) -> None:
        if not self.graph().still and not self.unheard:
            self.process.in_views.heard_by_all(mark)


class DoesNotWaitUntilAllHaveHeard(Marks):
    def hand_on_what_all_heard(self) -> None:
        for number in [*self.asked]:
            self.process.in_views.heard_by_all(self.asked.pop(number))


class WaitsForOneToHear(Marks):
    def hand_on_what_all_heard(self) -> None:
        dag = self.graph().dag
        place = dag.places[self.me]
        heard = [clock[place] for p, clock in zip(dag.machines, dag.newest, strict=True) if p != self.me]
        for number in [number for number in self.asked if number <= max(heard, default=number)]:
            self.process.in_views.heard_by_all(self.asked.pop(number))


class DoesNotHeedMarks(Marks):
    """Goes on handing on what is below."""

    def look_at(self, m: Node) -> None:
        if m.note is None or m.name.sender in self.unheard or m.name.sender == self.me:
            super().look_at(m)
        elif self.asked:
            self.hand_on_what_all_heard()


KINDS = (
    SaysNothingWhereSidesMeet,
    DoesNotWaitForWhereTheOthersAre,
    ForgetsThatAMeetingWasInterrupted,
    KeepsWhatWasCommon,
    TakesSilenceForConsent,
    LeavesOutWithoutAWord,
    DoesNotWaitUntilAllHaveHeard,
    WaitsForOneToHear,
    DoesNotHeedMarks,
)
MUTANTS: tuple[type[OrderingProtocol], ...] = tuple(with_parts(Transis, kind) for kind in KINDS)
