"""The causal graph of Transis (toto.txt, section 2), on datagrams that are lost, doubled and overtaken.

D1-D38 are the lines of docs/protocols/causal_graph.md; the graph itself is services/dag.py. Every message names those
that it directly follows. It enters the graph when they have, so the graph grows in causal order; what is missing is
known by name, and anybody may have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec

from antiphon.core import Component, Message, MessageId, ProcessId, Timer, Transport, Wire
from antiphon.core.errors import BadFrame
from antiphon.core.sessions import Mark
from antiphon.services.dag import FIRST_VIEW, Ack, Cast, Dag, Name, Node, NodeService, Note
from antiphon.services.label import check_numbers

MISSING_MAX = 64  # messages that are asked for at a time
HELD_MAX = 4096  # how far ahead of its predecessors a machine's message may come; a later one is fetched in its time
MARKS_MAX = 256  # in one note: it is to come through where datagrams get lost
SERVICES: tuple[NodeService, ...] = ("agreed", "causal")  # of the messages that bring something


class Missing(Wire, frozen=True, tag=3):
    """To all: I miss these; whoever has them, send them."""

    names: list[Name]
    view: int = FIRST_VIEW


class Have(Wire, frozen=True, tag=4):
    """To all: so many messages of each machine are in my graph."""

    counts: list[int]
    view: int = FIRST_VIEW


class Idle(Timer, frozen=True):
    """Nothing of one's own went out for a while, and others have sent something."""


class Fetch(Timer, frozen=True):
    """Something is still missing."""


class Answer(Timer, frozen=True):
    """Nobody else has sent what somebody misses."""


class Watch(Timer, frozen=True):
    """Time to see whether all is everywhere."""


class SayWhatExists(Timer, frozen=True):
    """Nobody else has said what exists."""


class GraphOptions(msgspec.Struct, frozen=True):
    idle: Annotated[int, msgspec.Meta(ge=1)] = 5  # milliseconds until an idle machine acknowledges
    membership: bool = False  # whether the configuration changes, with the machines that are connected


class CausalGraph(Component):
    """``entered`` gets each message as it enters the graph: in causal order, the own ones too.

    A graph belongs to one view (services/membership.py), and so does a message: one of another view is not for this
    graph. Before the view ends the graph stands still: what comes is held, for ``complete`` to enter as much of it as
    all are to have. ``came`` is told when something did.
    """

    Options = GraphOptions
    options: GraphOptions
    entered: Callable[[Node], None]
    came: Callable[[], None]

    transport = Transport.DATAGRAM
    FETCH_NS: ClassVar[int] = 4_000_000  # until what is missing, and not only overtaken, is asked for
    WATCH_NS: ClassVar[int] = 20_000_000  # and twice the time after which an idle machine acknowledges
    SOON_NS: ClassVar[int] = 500_000
    TURN_NS: ClassVar[int] = 2_000_000  # machines that could do the same thing do it one after the other
    DOUBLINGS_MAX: ClassVar[int] = 6
    PATIENCE_NS_MAX: ClassVar[int] = 1_280_000_000
    VIEW_NS_MAX: ClassVar[int] = 160_000_000  # with a membership service
    ENDING_NS_MAX: ClassVar[int] = 32_000_000  # and where a new view waits for what is missing

    view: int  # the number of the one that this graph is of
    still: bool  # whether nothing enters any more, because the view is about to end
    dag: Dag
    reach: list[
        int
    ]  # while still, for each machine: how many of its messages have entered, or could, with what is held
    held: dict[ProcessId, dict[int, Cast | Ack | Note]]  # what came before its predecessors, by sender and number
    known: list[int]  # for each machine: the newest of its messages that exists, as far as anybody said
    sought: list[int]  # for each machine: up to this number its messages have come, or are requested
    requested: dict[Name, int]  # what is missing, and when to ask for it
    answers: dict[Name, int]  # what somebody misses and is here, and when to send it
    unacknowledged: bool  # whether something came that no message of this machine follows
    watching: bool
    telling: bool
    moved: bool  # whether anything entered since the last look
    fruitless: int  # how often in a row something was asked, and nothing entered

    def initialise(self) -> None:
        machines = self.topology.processes
        self.still = False
        self.begin_view(FIRST_VIEW, machines, [0] * len(machines))

    def begin_view(self, number: int, machines: tuple[ProcessId, ...], starts: list[int]) -> None:
        """An empty graph, in which each machine's messages count on."""
        self.view, self.dag = number, Dag.among(machines, starts)
        self.held, self.known, self.sought, self.reach = {}, [*starts], [*starts], [*starts]
        self.requested, self.answers = {}, {}
        self.unacknowledged = self.watching = self.telling = self.moved = False
        self.fruitless = 0

    def validate(self, message: Wire) -> None:
        machines = self.topology.group_of
        if self.me not in machines:
            raise BadFrame(f"{self.me} is in no group, and has no graph.")
        if isinstance(message, Cast | Ack):
            named = (message.name, *message.follows)
            if len(message.follows) > len(machines):
                raise BadFrame("A message directly follows at most one of each machine.")
            if message.name in message.follows:
                raise BadFrame("A message does not name itself.")
            if isinstance(message, Cast) and message.service not in SERVICES:  # ack is none of these
                raise BadFrame("An acknowledgement brings nothing.")
            if isinstance(message, Note):
                self.validate_marks(message)
        elif isinstance(message, Missing):
            named = tuple(message.names)
            if len(named) > MISSING_MAX:
                raise BadFrame(f"At most {MISSING_MAX} messages are asked for at a time.")
        else:
            assert isinstance(message, Have)
            named = ()
            check_numbers(message.counts)
            if not self.is_vector(message.counts) and message.view == self.view:
                raise BadFrame("There is a count for each machine.")
        places = self.dag.places if message.view == self.view else machines  # of another view: it will be dropped
        if not all(name.sender in places and name.number >= 1 for name in named):
            raise BadFrame("The messages of a machine in the configuration count from 1.")
        check_numbers((message.view, *(name.number for name in named)))

    def validate_marks(self, note: Note) -> None:
        if len(note.marks) > MARKS_MAX:
            raise BadFrame(f"A note has at most {MARKS_MAX} marks.")
        for mark in note.marks:
            self.process.checks.mark(mark)

    def is_vector(self, counts: Sequence[int]) -> bool:
        return len(counts) == len(self.machines) and min(counts) >= 0

    @property
    def machines(self) -> tuple[ProcessId, ...]:
        return self.dag.machines

    @property
    def others(self) -> tuple[ProcessId, ...]:
        return tuple(p for p in self.dag.machines if p != self.me)

    def turn(self, after: ProcessId) -> int:
        """How many machines are between that one and this one, in the order of the configuration."""
        places = self.dag.places
        return (places[self.me] - places[after]) % len(places)

    # A message on its way -------------------------------------------------------------------------------------------

    def multicast(self, service: NodeService, m: Message) -> None:  # D1
        self.emit(Cast(self.next_name(), service, tuple(self.dag.leaves), m, self.view))  # D2

    def note(self, marks: tuple[Mark, ...], *, more: bool = False) -> None:
        """An acknowledgement at once, with marks."""
        self.emit(Note(self.next_name(), tuple(self.dag.leaves), self.view, marks, more))  # D38

    def next_name(self) -> Name:
        return Name(self.me, self.dag.counts[self.dag.places[self.me]] + 1)

    def emit(self, cast: Cast | Ack) -> None:
        assert not self.still, "what a machine sends when its view is about to end, it sends in the next one"
        self.send(self.others, cast)  # D3
        self.unacknowledged = False  # it follows all that is here
        self.cancel_timer(Idle())
        self.enter(cast)

    def on_cast(self, sender: ProcessId, cast: Cast) -> None:  # D4
        self.receive(cast)

    def on_ack(self, sender: ProcessId, ack: Ack) -> None:
        self.receive(ack)

    def on_note(self, sender: ProcessId, note: Note) -> None:
        self.receive(note)

    def receive(self, cast: Cast | Ack) -> None:
        if cast.view != self.view:  # D33
            return
        self.answers.pop(cast.name, None)  # D5
        for name in (cast.name, *cast.follows):
            self.hear_of(name)  # D6
        machine, number = cast.name
        place = self.dag.places[machine]
        beyond = number - self.dag.counts[place]
        if 0 < beyond <= self.room(place) and number not in self.held.get(machine, {}):  # D7
            self.held.setdefault(machine, {})[number] = cast
            self.requested.pop(cast.name, None)
            if self.still:
                self.fruitless = 0
                self.extend_reach()
                self.came()  # D35
                return
            self.enter_what_can()
        self.fetch_soon()

    def room(self, place: int) -> int:
        """How far ahead of what has entered a machine's message may be, to be held: what is settled is, all of it."""
        return max(HELD_MAX, self.known[place] - self.dag.counts[place]) if self.still else HELD_MAX

    def hear_of(self, name: Name) -> None:
        if not self.still:  # else it is settled what has to be here before the view ends
            self.exists(name)

    def exists(self, name: Name) -> None:
        place = self.dag.places[name.sender]
        if name.number > self.known[place]:  # noqa: PLR1730 - max is slow
            self.known[place] = name.number

    def enter_what_can(self, up_to: list[int] | None = None) -> None:
        """``up_to``: for each machine, the number of its last message that may."""
        may = dict(zip(self.machines, up_to, strict=True)) if up_to else None
        while (ready := next((cast for cast in self.next_held(may) if self.is_ready(cast)), None)) is not None:
            machine, number = ready.name
            del self.held[machine][number]
            if not self.held[machine]:
                del self.held[machine]
            self.enter(ready)

    def next_held(self, may: dict[ProcessId, int] | None = None) -> Iterator[Cast | Ack]:
        """Of each machine from which something is held, the message that would be its next."""
        for machine, row in self.held.items():
            following = row.get(self.dag.counts[self.dag.places[machine]] + 1)
            if following is not None and (may is None or following.name.number <= may[machine]):
                yield following

    def is_ready(self, cast: Cast | Ack) -> bool:  # D8
        return all(self.dag.has(earlier) for earlier in cast.follows)

    def enter(self, cast: Cast | Ack) -> None:
        node = self.dag.enter(cast)  # D9
        regular = node.is_regular
        self.exists(cast.name)
        self.moved, self.fruitless = True, 0
        if regular and cast.name.sender != self.me and not self.unacknowledged:
            self.unacknowledged = True
            self.set_timer(Idle(), self.options.idle * 1_000_000)  # D10
        if regular and not self.watching and len(self.machines) > 1:
            self.watching = True
            self.set_timer(Watch(), self.watch_ns)  # D11
        self.record(node)
        self.entered(node)  # D12
        if self.dag.entered % len(self.machines) == 0:
            self.dag.forget_stable()  # D13

    def record(self, m: Node) -> None:
        """The trace has every entry; what a message follows stands there once, where it was sent."""
        message = None if m.message is None else m.message.id
        follows = tuple(MessageId(*f) for f in m.follows) if m.name.sender == self.me else None
        self.process.record_entry(f"{self.layer}/{m.service}", MessageId(*m.name), message, follows)

    def on_idle(self, timer: Idle) -> None:  # D14
        if self.unacknowledged and not self.still:
            self.emit(Ack(self.next_name(), tuple(self.dag.leaves), self.view))  # D15

    # What is missing ------------------------------------------------------------------------------------------------

    def fetch_soon(self) -> None:
        """Each number is looked at once: what is neither here nor held is missing. What could not be held when it came
        is not asked for yet: it must not keep anything away for which the rest may wait."""
        if self.known == self.dag.counts:
            return
        idle = not self.requested
        for place, machine in enumerate(self.machines):
            if self.known[place] <= self.sought[place] or self.known[place] <= self.dag.counts[place]:
                continue
            first = max(self.sought[place], self.dag.counts[place]) + 1
            last = min(self.known[place], self.dag.counts[place] + self.room(place))
            for number in range(first, last + 1):
                if len(self.requested) == MISSING_MAX:
                    break
                if number not in self.held.get(machine, {}):
                    turn = self.turn(after=machine) * self.TURN_NS
                    self.requested[Name(machine, number)] = self.now + self.FETCH_NS + turn  # D16
                self.sought[place] = number
        if idle and self.requested:
            self.set_timer(Fetch(), min(self.requested.values()) - self.now)

    def on_fetch(self, timer: Fetch) -> None:  # D17
        for name in [name for name in self.requested if self.is_here(name)]:
            del self.requested[name]
        due = [name for name, at in self.requested.items() if at <= self.now]
        if due:
            self.send(self.others, Missing(due, self.view))  # D18
            self.fruitless += 1
            self.requested.update(dict.fromkeys(due, self.now + self.patience(self.FETCH_NS)))  # D19
        self.fetch_soon()
        if self.requested:
            self.set_timer(Fetch(), max(min(self.requested.values()) - self.now, 0))

    def patience(self, base_ns: int) -> int:
        """Twice as long each time that nothing has come of it, up to some limit."""
        longest = self.PATIENCE_NS_MAX
        if self.options.membership:  # who does not answer is soon no longer in the view
            longest = self.ENDING_NS_MAX if self.still else self.VIEW_NS_MAX
        return max(base_ns, min(base_ns << min(self.fruitless, self.DOUBLINGS_MAX), longest))

    def is_here(self, name: Name) -> bool:
        return self.dag.has(name) or name.number in self.held.get(name.sender, {})

    def kept(self, name: Name) -> Cast | Ack | None:
        """What can be sent to somebody who misses it, whether its predecessors are here or not."""
        node = self.dag.rows[name.sender].get(name.number)
        if node is None:
            return self.held.get(name.sender, {}).get(name.number)
        if node.note is not None:
            return node.note
        if node.message is None:
            return Ack(name, node.follows, self.view)
        return Cast(name, node.service, node.follows, node.message, self.view)

    def on_missing(self, sender: ProcessId, missing: Missing) -> None:  # D20
        if missing.view != self.view:
            return
        for name in missing.names:
            if name in self.requested:
                self.requested[name] = self.now + self.patience(self.FETCH_NS)  # D21
            elif self.kept(name) is not None and name not in self.answers:
                self.answers[name] = self.now + self.SOON_NS + self.turn(after=name.sender) * self.TURN_NS  # D22
            self.hear_of(name)
        self.fetch_soon()
        self.answer_later()

    def answer_later(self) -> None:
        if self.answers:
            self.set_timer(Answer(), max(min(self.answers.values()) - self.now, 0))

    def on_answer(self, timer: Answer) -> None:
        for name in [name for name, at in self.answers.items() if at <= self.now]:
            del self.answers[name]
            if (cast := self.kept(name)) is not None:
                self.send(self.others, cast)  # D23
        self.answer_later()

    # What is everywhere ---------------------------------------------------------------------------------------------

    def on_watch(self, timer: Watch) -> None:  # D24
        self.dag.forget_stable()
        self.watching = self.is_restless() and not self.still  # D25
        if not self.watching:
            return
        if not self.moved:
            self.fruitless += 1
            self.send(self.others, Have([*self.dag.counts], self.view))  # D26
        self.moved = False
        self.set_timer(Watch(), self.patience(self.watch_ns))  # D27

    @property
    def watch_ns(self) -> int:
        return self.WATCH_NS + 2_000_000 * self.options.idle

    def is_restless(self) -> bool:
        """Whether this machine has to see to it that something goes on."""
        return bool(self.dag.unstable or self.held or self.requested)

    def on_have(self, sender: ProcessId, have: Have) -> None:  # D28
        if have.view != self.view or self.still or sender not in self.dag.places:
            return
        for place, count in enumerate(have.counts):
            self.known[place] = max(self.known[place], count)  # D29
        self.fetch_soon()
        behind = any(there < here for there, here in zip(have.counts, self.dag.counts, strict=True))
        if behind and not self.telling:
            self.telling = True
            self.set_timer(SayWhatExists(), self.SOON_NS + self.turn(after=sender) * self.TURN_NS)  # D30
        elif not behind and self.telling:
            self.telling = False
            self.cancel_timer(SayWhatExists())  # D31

    def on_say_what_exists(self, timer: SayWhatExists) -> None:
        self.telling = False
        if not self.still:
            self.send(self.others, Have([*self.dag.counts], self.view))  # D32

    # The end of a view ----------------------------------------------------------------------------------------------

    def stand_still(self) -> None:
        """Nothing is sent or enters any more, until it is settled what belongs to the view."""
        if not self.still:
            self.still = True  # D34
            self.cancel_timer(Idle())
            self.known, self.requested = [*self.dag.counts], {}
            self.reach = [*self.dag.counts]
            self.extend_reach()

    def extend_reach(self) -> None:
        """Each message is passed once: what is within reach stays so. All that it follows is among it."""
        reach, places = self.reach, self.dag.places
        moved = True
        while moved:
            moved = False
            for machine, row in self.held.items():
                place = places[machine]
                while (following := row.get(reach[place] + 1)) is not None and all(
                    earlier.number <= reach[places[earlier.sender]] for earlier in following.follows
                ):
                    reach[place] += 1
                    moved = True

    def seek(self, counts: list[int]) -> None:
        """So many messages of each machine, and no others, have to be here before the view ends: fetch them."""
        self.known, self.sought, self.requested = [*counts], [*self.dag.counts], {}  # D36
        self.fruitless = 0  # what was in vain before says nothing: those who have it are there, and wait for this one
        self.fetch_soon()

    def has_all(self, counts: list[int]) -> bool:
        return all(here >= wanted for here, wanted in zip(self.reach, counts, strict=True)) and self.can_end_at(counts)

    def can_end_at(self, counts: list[int]) -> bool:
        """Whether what has entered is among so many messages of each machine, and what they follow, too. That is so
        whatever an honest leader settles: it is not for ``complete`` to find out."""
        places, entered = self.dag.places, self.dag.counts
        return all(here <= wanted for here, wanted in zip(entered, counts, strict=True)) and all(
            earlier.number <= counts[places[earlier.sender]]
            for machine, row in self.held.items()
            for number in range(entered[places[machine]] + 1, counts[places[machine]] + 1)
            for earlier in row[number].follows
        )

    def complete(self, counts: list[int]) -> None:
        """Let so many messages of each machine enter: the same everywhere."""
        self.enter_what_can(counts)  # D37
        assert self.dag.counts == counts, "what is not to be delivered in this view has not entered"

    def renew(self, number: int, machines: tuple[ProcessId, ...], starts: list[int]) -> None:
        """The next view begins."""
        for timer in (Idle(), Fetch(), Answer(), Watch(), SayWhatExists()):
            self.cancel_timer(timer)
        self.begin_view(number, machines, starts)

    # What the owner asks --------------------------------------------------------------------------------------------

    def pending(self) -> int:
        """How many messages have come that cannot enter yet."""
        return sum(len(row) for row in self.held.values())

    def missed_senders(self) -> tuple[ProcessId, ...]:
        return tuple(p for place, p in enumerate(self.machines) if self.known[place] > self.dag.counts[place])
