"""What is searched, as a value that prints as code; the moves of a search, and what comes of it."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from antiphon.checks import Violation
from antiphon.core.commands import parse_command
from antiphon.core.component import OrderingProtocol
from antiphon.core.declaration import FaultModel
from antiphon.core.events import Delivered, Event, Gap, View
from antiphon.core.model import GroupId, MessageId, ProcessId, Service, Topology
from antiphon.core.options import parse_options
from antiphon.core.requests import encode_request, parse_request
from antiphon.simulation.values import Value


class Scope(Value, frozen=True, kw_only=True):
    """A small world, of which all states are wanted."""

    protocol: str
    options: dict[str, str] = {}  # noqa: RUF012 - a struct copies it
    groups: dict[str, int]
    plans: tuple[tuple[str, tuple[str, ...]], ...]  # sender and destinations; a sender makes its own in this order
    causal: tuple[int, ...] = ()  # those of them, by their places, that ask for the causal service
    after: tuple[tuple[int, int], ...] = ()  # by their places: the first is made when anybody has delivered the second
    commands: tuple[tuple[str, str], ...] = ()  # process and command; a process is told its own in this order
    may_crash: tuple[str, ...] = ()  # for good, at any moment
    crashes: int = 0  # at most so many of them
    wrong_suspicions: int = 0  # at most so many, each of which ends
    distrusted: tuple[str, ...] = ()  # whom all others come to suspect, and for ever: all but one, if ◇S is to hold
    restarts: bool = False  # whether processes may also stop and go on from a snapshot, at any moment
    sent_survives: bool = False  # whether what a process sent arrives though it then crashes
    fifo: bool = False  # whether every channel keeps the order of what is sent, and not only those of FIFO parts
    late_timers: bool = False  # whether a timer fires only when nothing else has to happen: time passes, but slowly
    long_turns: bool = False  # whether several inputs may come in one turn of a process
    states_max: int = 1_000_000
    breadth: Literal["steps", "deviations"] = "steps"  # what is counted: see docs/exploration.md
    reduce: bool = True  # whether inert frames are taken out of flight at once
    shuffle: bool = False  # whether what is declared to be unordered is put to the test, move by move

    @property
    def model(self) -> FaultModel:
        return FaultModel(bool(self.crashes), self.sent_survives)


GAP = MessageId(ProcessId("a gap"), 0)  # among what a process delivers: it announces that messages may be missing


class Planned(NamedTuple):
    """A message that is multicast at some moment."""

    id: MessageId
    destinations: tuple[GroupId, ...]
    payload: bytes  # another one for each message
    service: Service | None
    request: tuple[str, int, int, int]  # the one in its body: client, first number, payloads, digest

    @property
    def mark(self) -> MessageId:
        """Stands for its multicast, among what its sender delivers."""
        return MessageId(ProcessId(f"{self.id.origin} multicasts"), self.id.number)


class Players:
    """Who takes part in a scope, and what they multicast."""

    def __init__(self, scope: Scope, protocol: type[OrderingProtocol]) -> None:
        self.topology = Topology.sized(scope.groups)
        outside = (ProcessId(sender) for sender, _ in scope.plans)
        self.names = tuple(dict.fromkeys((*self.topology.processes, *outside)))
        self.index = {name: i for i, name in enumerate(self.names)}
        self.plans: list[list[Planned]] = [[] for _ in self.names]  # by process
        for place, (sender, groups) in enumerate(scope.plans):
            destinations = self.topology.destinations(groups)
            service: Service | None = "causal" if place in scope.causal else None
            protocol.admit(self.topology, destinations)
            protocol.admit_service(service)
            plans = self.plans[self.index[ProcessId(sender)]]
            plans.append(_planned(MessageId(ProcessId(sender), len(plans) + 1), destinations, service))
        self.commands: list[list[bytes]] = [[] for _ in self.names]  # by process
        options = parse_options(protocol, scope.options)
        for process, command in scope.commands:
            self.commands[self.index[ProcessId(process)]].append(parse_command(protocol, options, command.split()))
        self.messages = {planned.id: planned for plans in self.plans for planned in plans}
        self.addressees = {m.id: self.topology.addressees(m.destinations) for m in self.messages.values()}
        self.concerned = {id: frozenset((id.origin, *who)) for id, who in self.addressees.items()}
        self.causal = frozenset(id for id, planned in self.messages.items() if planned.service == "causal")
        places = self._places(scope)
        self.awaits = {places[later]: places[earlier] for later, earlier in scope.after}
        self.marks = {planned.mark: planned for planned in self.messages.values()}
        self.views: dict[MessageId, View] = {}  # by how they stand among what processes deliver

    @staticmethod
    def _places(scope: Scope) -> list[MessageId]:
        """The messages in the order of the scope."""
        made: Counter[str] = Counter()
        found = []
        for sender, _ in scope.plans:
            made[sender] += 1
            found.append(MessageId(ProcessId(sender), made[sender]))
        return found

    def logged(self, event: Event) -> MessageId:
        """How an event stands among what a process delivers."""
        if isinstance(event, Delivered):
            return event.id
        if isinstance(event, Gap):
            return GAP
        assert isinstance(event, View), "nobody is replaced in a search"
        view = MessageId(ProcessId(f"view {event.id} of {', '.join(event.members)}"), 0)
        self.views[view] = event
        return view


def _planned(id: MessageId, destinations: tuple[GroupId, ...], service: Service | None) -> Planned:
    payload = str(id).encode()
    request = parse_request(encode_request(id.origin, id.number - 1, 0, (payload,), service))  # each has one payload
    return Planned(id, destinations, payload, service, (request.client, request.first, request.count, request.digest))


class MoveKind(StrEnum):
    MULTICAST = "multicasts"  # the next of its planned ones
    TELL = "is told"  # the next of its commands
    FRAME = "receives"
    TURN_END = "ends its turn"
    FIRE = "timer"
    SUSPECT = "suspects"  # a process that has crashed
    WRONG = "wrongly suspects"
    TRUST = "trusts"
    CRASH = "crashes"
    RESTART = "restarts"
    CUT = "crashes amid"  # after ``number`` of the sends and deliveries of the move ``during``


class Move(NamedTuple):
    """One thing that happens to one process. Processes are numbered as in the topology, then the other senders."""

    kind: MoveKind
    process: int
    peer: int = -1
    frame: bytes = b""
    number: int = 0  # of a multicast or command, of acts before a cut; when a timer is due
    part: int = -1  # whose timer it is
    timer: bytes = b""
    during: Move | None = None


class LocalState(NamedTuple):
    """What one process is, for its own future and for the checks."""

    process: int
    saved: bytes  # empty: it has crashed
    delivered: tuple[MessageId, ...]  # with gaps, views, and marks of its multicasts where these are judged
    made: int  # its own multicasts so far
    monitored: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    timers: tuple[tuple[int, bytes, int], ...] = ()  # part, timer, when it is due
    turn_is_open: bool = False
    told: int = 0  # commands so far

    @property
    def alive(self) -> bool:
        return bool(self.saved)


class Exploration(msgspec.Struct, kw_only=True):
    """What a search found."""

    scope: Scope
    states: int  # distinct ones
    transitions: int
    depth: int  # the most moves behind a state
    deviations: int  # the most deviations behind a state; 0 where steps are counted
    complete: bool  # every state was visited, and the reduction is known to have hidden none
    terminal: int  # states in which nothing more has to happen
    seconds: float
    violations: list[Violation]
    path: list[Move]  # to the first violation
    story: list[str]  # the path in words
