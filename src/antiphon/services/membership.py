"""The membership service of Transis (toto.txt, section 5.1): which machines are connected, and what all of them have.

M1-M33 are the lines of docs/protocols/membership.md. The paper says what the stages Initiate, Agree and Flush are for;
how machines agree is ours. A machine that nobody smaller is connected with leads. It invites all whom it can reach,
gathers what each has of its old view, says what all are to have of it, and has the new view installed when they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import msgspec

from antiphon.core import Component, ProcessId, Timer, Transport, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.causal_graph import CausalGraph
from antiphon.services.dag import FIRST_VIEW
from antiphon.services.label import check_numbers

HISTORY_MAX = 64  # views that a machine remembers to have installed, or to have been ready for


class MachineView(msgspec.Struct, frozen=True, array_like=True):
    """CCS: the machines that are connected."""

    number: int
    machines: tuple[ProcessId, ...]
    meets: bool = False  # whether they come from different views


class Goal(msgspec.Struct, frozen=True, array_like=True):
    """What those who come from the same view, and go on together, are to have of it."""

    view: int
    machines: tuple[ProcessId, ...]
    counts: list[int]  # for each machine of that view: so many of its messages


class Word(Wire, frozen=True, tag=1):
    """To all: whom I suspect, and whom I take for the leader."""

    suspects: tuple[ProcessId, ...]
    leader: ProcessId
    promised: int  # the number of the newest view that I was invited to


class Invite(Wire, frozen=True, tag=2):
    """The leader to all whom it can reach: let us be a view."""

    number: int


class State(Wire, frozen=True, tag=3):
    """The answer: from where I come."""

    number: int
    view: int
    counts: list[int]  # for each machine of that view: so many of its messages I have
    sent: int  # my own messages, in all views
    ready: tuple[int, ...]  # the views that I was ready for, and did not install
    history: tuple[int, ...]  # the views that I installed


class Settle(Wire, frozen=True, tag=4):
    """The leader to all of the new view: what has to be there before it can begin."""

    number: int
    machines: tuple[ProcessId, ...]
    starts: list[int]  # for each machine: how many messages it has sent before
    goals: list[Goal]


class Ready(Wire, frozen=True, tag=5):
    """The answer: I have it all."""

    number: int


class Install(Wire, frozen=True, tag=6):
    """The leader to all of the new view: so has everybody. Or to one of them, later: that is how it went."""

    number: int


class Attempt(msgspec.Struct, array_like=True):
    """What the leader has heard of those whom it invited."""

    number: int
    machines: tuple[ProcessId, ...]
    states: dict[ProcessId, State]
    ready: dict[ProcessId, None]


class Patience(Timer, frozen=True):
    """Somebody still takes another one for the leader."""


class Membership(Component):
    """``flush`` is told, of the old view, who is gone and who goes on: of none of them will anything more come. Then
    ``begun`` is told that the new view has begun."""

    flush: Callable[[tuple[ProcessId, ...], tuple[ProcessId, ...]], None]
    begun: Callable[[MachineView], None]
    graph: Callable[[], CausalGraph]

    transport = Transport.FIFO
    PATIENCE_NS: ClassVar[int] = 60_000_000  # more than machines differ in when they notice the same thing

    view: MachineView
    history: list[int]
    promised: int  # the newest number under which this machine was invited
    seen: int  # the newest number of all
    settle: Settle | None  # of the view that it was invited to
    ready: dict[int, Settle]  # the views that it was ready for since it installed the present one
    attempt: Attempt | None  # of a leader
    words: dict[ProcessId, Word]
    said: Word
    given_up: dict[ProcessId, None]  # who follows another one, for too long
    patient: bool

    def initialise(self) -> None:
        machines = self.topology.processes
        self.view = MachineView(FIRST_VIEW, machines)
        self.history = [FIRST_VIEW]
        self.promised = self.seen = FIRST_VIEW
        self.settle, self.ready, self.attempt = None, {}, None
        self.said = Word((), machines[0], 0)
        self.words = {machine: self.said for machine in machines if machine != self.me}
        self.given_up = {}
        self.patient = False

    def begin(self) -> None:
        if self.me in self.topology.group_of:
            self.monitor(self.words)  # M1

    def validate(self, message: Wire) -> None:
        machines = self.topology.group_of
        if self.me not in machines:
            raise BadFrame(f"{self.me} is in no group, and in no view.")
        named: Iterable[ProcessId] = ()
        numbers: Iterable[int]
        if isinstance(message, Word):
            named, numbers = (*message.suspects, message.leader), (message.promised,)
        elif isinstance(message, State):
            numbers = (message.number, message.view, message.sent, *message.counts, *message.ready, *message.history)
            if len(message.counts) > len(machines) or max(len(message.history), len(message.ready)) > HISTORY_MAX:
                raise BadFrame("A view has no more machines than there are.")
        elif isinstance(message, Settle):
            named = (*message.machines, *(p for goal in message.goals for p in goal.machines))
            numbers = (message.number, *message.starts, *(n for goal in message.goals for n in goal.counts))
            if len(message.starts) != len(message.machines) or self.me not in message.machines:
                raise BadFrame("A view says from where each of its machines goes on.")
            if not all(self.is_in_order(each) for each in (message.machines, *(g.machines for g in message.goals))):
                raise BadFrame("The machines of a view are named once, in the order of the configuration.")
        else:
            assert isinstance(message, Invite | Ready | Install)
            numbers = (message.number,)
        if not all(p in machines for p in named):
            raise BadFrame("A view is of machines in the configuration.")
        check_numbers(numbers)

    def is_in_order(self, machines: tuple[ProcessId, ...]) -> bool:
        return machines == tuple(p for p in self.topology.processes if p in machines)

    # Who is connected -----------------------------------------------------------------------------------------------

    @property
    def reach(self) -> tuple[ProcessId, ...]:
        """Those who are connected with this machine, as both see it, and are not given up."""
        gone = {*self.suspects, *self.given_up}
        gone |= {p for p, word in self.words.items() if self.me in word.suspects}  # M3
        return tuple(p for p in self.topology.processes if p not in gone)

    def leader_of(self, number: int) -> ProcessId:
        """Every machine has numbers of its own."""
        machines = self.topology.processes
        return machines[number % len(machines)]

    def on_suspect(self, process: ProcessId) -> None:  # M2
        self.given_up.pop(process, None)  # it is out of reach, and may come back
        self.consider()

    def on_trust(self, process: ProcessId) -> None:
        self.consider()

    def on_word(self, sender: ProcessId, word: Word) -> None:
        self.words[sender] = word
        self.seen = max(self.seen, word.promised)
        self.given_up.pop(sender, None)  # M4
        self.consider()

    def consider(self) -> None:
        """Whether there is a new view to be agreed on, and by whom: whatever was heard last may have changed it."""
        reach = self.reach
        leader = reach[0]  # M5
        word = Word(tuple(sorted(self.suspects)), leader, self.promised)
        if (word.suspects, word.leader) != (self.said.suspects, self.said.leader):
            self.said = word
            self.send(tuple(self.words), word)  # M6
        astray = self.astray(reach)
        if not astray:
            self.patient = False
            self.cancel_timer(Patience())
        elif not self.patient:
            self.patient = True
            self.set_timer(Patience(), self.PATIENCE_NS)  # M7
        if leader != self.me:
            self.attempt = None
            return
        if self.attempt is not None and any(p not in reach or p in astray for p in self.attempt.machines):
            self.attempt = None  # M9
        if not astray and self.is_called_for(reach):
            self.invite(reach)  # M10

    def astray(self, reach: tuple[ProcessId, ...]) -> list[ProcessId]:
        """Those who would have to take another one for the leader: all others for a leader, else the leader."""
        leader = reach[0]
        asked = [p for p in reach if p != self.me] if leader == self.me else [leader]
        return [p for p in asked if self.words[p].leader != leader]

    def on_patience(self, timer: Patience) -> None:
        self.patient = False
        self.given_up.update(dict.fromkeys(self.astray(self.reach)))  # M8
        self.consider()

    def is_called_for(self, reach: tuple[ProcessId, ...]) -> bool:
        """Whether the newest view, agreed on or about to be, is of others, or somebody was invited to a later one."""
        if self.attempt is not None:
            newest, machines = self.attempt.number, self.attempt.machines
        else:
            newest, machines = self.view.number, self.view.machines
        others = [self.words[p].promised for p in reach if p != self.me]
        return machines != reach or max([self.promised, *others]) > newest

    # Initiate -------------------------------------------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether this machine was invited to leave its view."""
        return self.promised > self.view.number

    def invite(self, machines: tuple[ProcessId, ...]) -> None:
        n, place = len(self.topology.processes), self.topology.processes.index(self.me)
        number = self.seen + 1 + (place - self.seen - 1) % n  # M11
        self.seen = number
        self.attempt = Attempt(number, machines, {}, {})
        self.send(machines, Invite(number))  # M12

    def on_invite(self, sender: ProcessId, invite: Invite) -> None:  # M13
        self.seen = max(self.seen, invite.number)
        if self.leader_of(invite.number) != sender or self.said.leader != sender:
            return  # M14: it will hear so
        if invite.number <= self.promised:
            return  # M15: it will hear of that one, since this machine followed another leader then
        self.promised, self.settle = invite.number, None  # M16
        graph = self.graph()
        graph.stand_still()
        sent = graph.dag.counts[graph.dag.places[self.me]]
        state = State(invite.number, self.view.number, [*graph.reach], sent, tuple(self.ready), tuple(self.history))
        self.send(sender, state)  # M17

    # Agree ----------------------------------------------------------------------------------------------------------

    def on_state(self, sender: ProcessId, state: State) -> None:  # M18
        attempt = self.attempt
        if attempt is None or attempt.number != state.number or sender not in attempt.machines:
            return
        attempt.states[sender] = state
        if len(attempt.states) < len(attempt.machines):
            return
        behind = self.behind(attempt)
        if behind:
            for machine, number in behind.items():
                self.send(machine, Install(number))  # M20
            self.invite(attempt.machines)
            return
        starts = [attempt.states[p].sent for p in attempt.machines]
        self.send(attempt.machines, Settle(attempt.number, attempt.machines, starts, self.goals(attempt)))  # M23

    def behind(self, attempt: Attempt) -> dict[ProcessId, int]:
        """Who was ready for a view that another one installed, and did not install it itself: and which."""
        installed = {number for state in attempt.states.values() for number in state.history}
        late = {p: [n for n in attempt.states[p].ready if n in installed] for p in attempt.machines}  # M19
        return {p: min(numbers) for p, numbers in late.items() if numbers}

    def goals(self, attempt: Attempt) -> list[Goal]:
        """Of each old view: all that any of those has who come from it."""
        goals = []
        for view in sorted({state.view for state in attempt.states.values()}):
            together = tuple(p for p in attempt.machines if attempt.states[p].view == view)  # M21
            vectors = [attempt.states[p].counts for p in together]
            goals.append(Goal(view, together, [max(of_one) for of_one in zip(*vectors, strict=False)]))  # M22
        return goals

    def on_settle(self, sender: ProcessId, settle: Settle) -> None:  # M24
        goal = self.goal_of(settle)
        is_awaited = self.is_ending and settle.number == self.promised and self.leader_of(settle.number) == sender
        if not is_awaited or goal is None:
            return
        self.settle = settle
        self.graph().seek(goal.counts)  # M25
        self.look_whether_ready()

    def goal_of(self, settle: Settle) -> Goal | None:
        """What it says of this machine's view."""
        view = self.view
        goals = (g for g in settle.goals if g.view == view.number and self.me in g.machines)
        fits = (g for g in goals if len(g.counts) == len(view.machines) and {*g.machines} <= {*view.machines})
        return next(fits, None)

    def look_whether_ready(self) -> None:
        """Called whenever something came that the graph did not have."""
        settle = self.settle
        if settle is None or settle.number in self.ready:
            return
        goal = self.goal_of(settle)
        if goal is not None and self.graph().has_all(goal.counts):
            self.ready[settle.number] = settle  # M26
            if len(self.ready) > HISTORY_MAX:
                del self.ready[next(iter(self.ready))]
            self.send(self.leader_of(settle.number), Ready(settle.number))

    def on_ready(self, sender: ProcessId, ready: Ready) -> None:  # M27
        attempt = self.attempt
        if attempt is None or attempt.number != ready.number or sender not in attempt.machines:
            return
        attempt.ready[sender] = None
        if len(attempt.ready) == len(attempt.machines):
            self.send(attempt.machines, Install(attempt.number))  # M28

    # Flush ----------------------------------------------------------------------------------------------------------

    def on_install(self, sender: ProcessId, install: Install) -> None:  # M29
        settle = self.ready.get(install.number)
        if settle is None or sender != self.leader_of(self.promised):
            return
        goal = self.goal_of(settle)
        assert goal is not None, "a machine forgets what it was ready for when it leaves its view"
        graph = self.graph()
        graph.complete(goal.counts)  # M30
        gone = tuple(p for p in self.view.machines if p not in goal.machines)
        self.flush(gone, goal.machines)  # M31
        self.view = MachineView(settle.number, settle.machines, len(settle.goals) > 1)
        self.history = [*self.history, settle.number][-HISTORY_MAX:]
        self.ready, self.settle = {}, None
        if self.attempt is not None and self.attempt.number <= settle.number:
            self.attempt = None
        graph.renew(settle.number, settle.machines, settle.starts)  # M32
        graph.still = self.is_ending
        self.begun(self.view)  # M33
        self.consider()
