"""Walk a path that a search found with plain processes: nothing is remembered, merged or reduced here."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.checks import Violation
from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import AnyEffect, Log, Send
from antiphon.core.events import Delivered, Event
from antiphon.core.inputs import Begin
from antiphon.core.model import MessageId, ProcessId
from antiphon.protocols import protocol_named
from antiphon.simulation.search.judge import broken
from antiphon.simulation.search.states import StateTable
from antiphon.simulation.search.values import LocalState, Move, MoveKind, Scope


def replay(scope: Scope, path: list[Move], protocol: type[OrderingProtocol] | None = None) -> list[Violation]:
    """Make the moves of a path with plain processes, none of whose steps is remembered; and let the rest happen."""
    protocol = protocol or protocol_named(scope.protocol)
    return Replay(StateTable(scope, protocol)).run(path)


class Replay:
    def __init__(self, table: StateTable) -> None:
        self.table = table
        self.judge = table.judge
        self.processes = [table.fresh(i) for i in range(len(table.names))]
        self.alive = [True] * len(table.names)
        self.delivered: list[tuple[MessageId, ...]] = [()] * len(table.names)
        self.flight: list[Move] = []
        self.violations: list[Violation] = []

    def run(self, path: list[Move]) -> list[Violation]:
        self.begin()
        for move in path:
            self.make(move)
        order = self.judge.order(tuple(self.delivered))
        while not self.violations and order is None:  # inert frames are not on the path
            arriving = next((f for f in self.flight if self.alive[f.process] and self.alive[f.peer]), None)
            if arriving is None:
                break
            self.make(arriving)
        if not self.violations and order is None:
            locals = [
                LocalState(i, b"up" if self.alive[i] else b"", self.delivered[i], process.state.multicasts)
                for i, process in enumerate(self.processes)
            ]
            order = self.judge.end(locals)
        return [*self.violations, *([order] if order else [])]

    def begin(self) -> None:
        for i, process in enumerate(self.processes):
            self._release(i, self.table.step(process, Begin(0)))

    def make(self, move: Move) -> None:
        cut = move.number if move.kind is MoveKind.CUT else None
        whole = move.during or move
        me = move.process
        self.delivered[me] += self.table.marks(whole)
        if whole.kind is MoveKind.FRAME:
            self.flight.remove(whole)
        try:
            if whole.kind is MoveKind.RESTART:
                snapshot, self.processes[me] = self.processes[me].snapshot(), self.table.fresh(me)
                self.processes[me].restore(snapshot)
            elif whole.kind is not MoveKind.CRASH:
                self._release(me, self.table.take(self.processes[me], whole), cut)
        except Exception as error:  # a protocol's own assertion
            self.violations.append(broken(self.table.names[me], error))
        if move.kind in (MoveKind.CRASH, MoveKind.CUT):
            self.alive[me] = False

    def _release(self, me: int, effects: list[AnyEffect], cut: int | None = None) -> None:
        name = self.table.names[me]
        for done, act in enumerate(_acts(effects)):
            if done == cut:
                break
            if isinstance(act, Event):
                found = self.judge.event(name, self.delivered[me], act) if isinstance(act, Delivered) else None
                self.delivered[me] += (self.table.players.logged(act),)
            else:
                send, to = act
                found = self.judge.send(name, send, to)
                self.flight.append(Move(MoveKind.FRAME, self.table.index[to], me, bytes(send.frame)))
            self.violations.extend([found] if found else [])


def _acts(effects: list[AnyEffect]) -> Iterator[Event | tuple[Send, ProcessId]]:
    """What others can see, one receiver after the other."""
    for effect in effects:
        if isinstance(effect, Send):
            for to in effect.to:
                yield effect, to
        elif isinstance(effect, Log):
            yield effect.event
