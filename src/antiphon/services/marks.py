"""Where clients are, told among the machines of a view (core/sessions.py says what for, and why it is right).

S1-S10 are the lines of docs/protocols/marks.md. A mark travels in the causal graph, so who delivers a message has
heard of all marks that its sender had heard of.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.core import Component, ProcessId
from antiphon.core.sessions import Mark
from antiphon.services.causal_graph import MARKS_MAX, CausalGraph
from antiphon.services.dag import Node, Note
from antiphon.services.membership import MachineView


class Marks(Component):
    """``opened`` is told when messages may go out in a view."""

    graph: Callable[[], CausalGraph]
    opened: Callable[[], None]

    unheard: dict[ProcessId, None]  # who has yet to say where it is, since the view began
    asked: dict[int, Mark]  # by the number of the note in which this machine told it; until all follow that

    def initialise(self) -> None:
        self.unheard, self.asked = {}, {}

    def begin_view(self, view: MachineView) -> None:
        """Who come from one view have had the same notes in it: so they agree on whether all were heard."""
        meets = view.meets or bool(self.unheard)  # S1
        self.unheard = dict.fromkeys(view.machines) if meets else {}
        self.asked = {}
        if self.graph().still:
            return  # the next view is under way
        if not meets:
            self.opened()  # S2
            return
        marks = self.process.in_views.marks()
        for at in range(0, len(marks) or 1, MARKS_MAX):
            end = at + MARKS_MAX
            self.graph().note(tuple(marks[at:end]), more=end < len(marks))  # S3

    def look_at(self, m: Node) -> None:
        """It has entered the graph."""
        if m.note is not None and m.name.sender in self.unheard:
            self.meet(m.name.sender, m.note)
        elif m.note is not None:
            for mark in m.note.marks:
                self.process.in_views.hear_mark(mark)  # S8
        if self.asked:
            self.hand_on_what_all_heard()

    def meet(self, sender: ProcessId, note: Note) -> None:
        self.process.in_views.meet(note.marks)  # S4
        if note.more:
            return
        del self.unheard[sender]  # S5
        if not self.unheard:
            self.process.in_views.met(self.graph().machines)  # S6
            if not self.graph().still:
                self.opened()

    def ask(self, mark: Mark) -> None:
        """Have all hear of it."""
        graph = self.graph()
        if not graph.still and not self.unheard:  # else it is asked for again when a view has begun
            self.asked[graph.next_name().number] = mark
            graph.note((mark,))  # S7

    def hand_on_what_all_heard(self) -> None:
        dag = self.graph().dag
        place = dag.places[self.me]
        heard = min(clock[place] for clock in dag.newest)  # S9: all have sent something that follows it
        ready = [number for number in self.asked if number <= heard]
        for mark in [self.asked.pop(number) for number in ready]:  # all of them first: S10 may lead back here
            self.process.in_views.heard_by_all(mark)  # S10
