"""What can happen next to a few members: from each configuration to those that may follow it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from antiphon.core.buffers import Buffers
from antiphon.core.channel import NUMBERED, ChannelId
from antiphon.core.inputs import Submit, Suspect
from antiphon.core.model import GroupId, ProcessId
from antiphon.core.requests import encode_request
from antiphon.simulation.forgetting.table import MemberTable
from antiphon.simulation.forgetting.values import (
    CLIENT,
    Arrives,
    ArriveTogether,
    Broken,
    Crashes,
    ForgettingScope,
    MemberState,
    OnWire,
    Returns,
    Step,
    Syncs,
    WholeState,
    Wires,
)


def request_of(client: str, destinations: tuple[GroupId, ...]) -> Submit:
    """The one request of a client."""
    return Submit(0, destinations, Buffers(encode_request(client, 0, 0, (b"x",))))


class Schedule:
    def __init__(self, scope: ForgettingScope, table: MemberTable) -> None:
        self.scope, self.table = scope, table
        self.names = table.names
        self.pairs = [(s, t) for s in range(len(self.names)) for t in range(len(self.names))]

    def beginning(self) -> WholeState:
        return WholeState(self.table.beginning(), ((),) * len(self.pairs), 0, 0, ())

    def states(self, at: WholeState) -> list[MemberState]:
        return [self.table.states[number] for number in at.members]

    def up(self, at: WholeState) -> list[int]:
        return [place for place, state in enumerate(self.states(at)) if state.is_up]

    def moves(self, at: WholeState) -> Iterator[tuple[str, WholeState]]:
        states = self.states(at)
        yield from self._requests(at, states)
        for source, target in self.pairs:
            if at.wires[self.pair(source, target)] and states[target].is_up:
                yield f"{self.names[target]} hears {self.names[source]}", self.arrive(at, source, target)
        if self.scope.together:
            yield from self._pairs(at, states)
        for place, name in enumerate(self.names):
            if not states[place].is_up:
                yield f"{name} returns", self.bring_back(at, place)
                continue
            if states[place].waiting:
                yield f"{name} syncs", self.after(at, place, Syncs(states[place].turn))
            yield from self._crashes(at, place, states[place].waiting)
            if self.scope.suspicions and at.crashes:
                yield from self._suspicions(at, place)

    def _requests(self, at: WholeState, states: list[MemberState]) -> Iterator[tuple[str, WholeState]]:
        if at.submitted == len(self.scope.requests):
            return
        name, groups = self.scope.requests[at.submitted]
        place = self.names.index(ProcessId(name))
        if states[place].is_up:
            request = request_of(f"{CLIENT}{at.submitted}", self.table.topology.destinations(groups))
            yield f"{name} takes a request", self.after(at, place, request)._replace(submitted=at.submitted + 1)

    def _pairs(self, at: WholeState, states: list[MemberState]) -> Iterator[tuple[str, WholeState]]:
        """Two frames in one turn, from one member or from two."""
        places = range(len(self.names))
        for target, one, two in product(places, places, places):
            first, second = at.wires[self.pair(one, target)], at.wires[self.pair(two, target)]
            if not (states[target].is_up and first and len(second) > (one == two)):
                continue
            wires = list(at.wires)
            frames = []
            for source in (one, two):
                pair = self.pair(source, target)
                frames.append(Arrives(self.names[source], wires[pair][0]))
                wires[pair] = wires[pair][1:]
            after = self.after(at, target, ArriveTogether(tuple(frames)), tuple(wires))
            yield f"{self.names[target]} hears {self.names[one]} and {self.names[two]}", after

    def _crashes(self, at: WholeState, place: int, waiting: int) -> Iterator[tuple[str, WholeState]]:
        scope, name = self.scope, self.names[place]
        if at.crashes == scope.crashes or (scope.crashing and name not in scope.crashing):
            return
        for keeps in range(waiting + 1):
            for is_lost in (False, True):
                yield f"{name} crashes", self._crash(at, place, keeps, is_lost=is_lost)

    def _suspicions(self, at: WholeState, place: int) -> Iterator[tuple[str, WholeState]]:
        for other, name in enumerate(self.names):
            if name in self.scope.crashing and other != place and (place, other) not in at.suspicions:
                after = self.after(at, place, Suspect(0, name))
                told = tuple(sorted((*at.suspicions, (place, other))))
                yield f"{self.names[place]} suspects {name}", after._replace(suspicions=told)

    # Steps ----------------------------------------------------------------------------------------------------------

    def after(self, at: WholeState, place: int, step: Step, wires: Wires | None = None) -> WholeState:
        """A step of one member. What goes to one that is down is lost, and comes again when that is back."""
        after, out = self.table.after(at.members[place], step)
        changed = list(at.wires if wires is None else wires)
        for to, what in out:
            if self.table.states[at.members[to]].is_up:
                changed[self.pair(place, to)] += (what,)
        members = (*at.members[:place], after, *at.members[place + 1 :])
        return at._replace(members=members, wires=tuple(changed))

    def pair(self, source: int, target: int) -> int:
        return source * len(self.names) + target

    def arrive(self, at: WholeState, source: int, target: int) -> WholeState:
        wires, pair = list(at.wires), self.pair(source, target)
        what, wires[pair] = wires[pair][0], wires[pair][1:]
        return self.after(at, target, Arrives(self.names[source], what), tuple(wires))

    def _crash(self, at: WholeState, place: int, keeps: int, *, is_lost: bool) -> WholeState:
        wires = list(at.wires)
        for other in range(len(self.names)):
            wires[self.pair(other, place)] = ()
            if is_lost:
                wires[self.pair(place, other)] = ()
        after = self.after(at, place, Crashes(keeps), tuple(wires))
        return after._replace(crashes=at.crashes + 1)

    def bring_back(self, at: WholeState, place: int) -> WholeState:
        """What is under way is lost with its connection; what either end lacks is sent again."""
        at = self.after(at, place, Returns())
        wires = list(at.wires)
        for other in range(len(self.names)):
            if other != place:
                wires[self.pair(place, other)] = self._lacking(at, place, other)
                wires[self.pair(other, place)] = self._lacking(at, other, place)
        return at._replace(wires=tuple(wires))

    def _lacking(self, at: WholeState, source: int, target: int) -> tuple[OnWire, ...]:
        one, two = self.table.states[at.members[source]], self.table.states[at.members[target]]
        if not (one.is_up and two.is_up):
            return ()
        sender, receiver = self.names[source], self.names[target]
        found: list[OnWire] = []
        for transport in NUMBERED:
            sent = dict(one.sent).get(ChannelId(receiver, transport), ())
            held = dict(two.held).get(ChannelId(sender, transport), 0)
            if held > len(sent):
                raise Broken(f"{receiver} holds {held} frames of {sender}, which knows of {len(sent)}.")
            found += [OnWire(False, transport, number, frame) for number, frame in enumerate(sent[held:], held + 1)]
        return tuple(found)
