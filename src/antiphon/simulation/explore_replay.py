"""Walk a path that a search found with plain processes: nothing is remembered, merged or reduced here."""

from __future__ import annotations

from antiphon.checks import Violation
from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import AnyEffect, Deliver, Send
from antiphon.core.inputs import Begin
from antiphon.protocols import protocol_named
from antiphon.simulation.explore_judge import Judge
from antiphon.simulation.explore_state import Local, Table, broken
from antiphon.simulation.explore_values import Move, MoveKind, Scope


def replay(scope: Scope, path: list[Move], protocol: type[OrderingProtocol] | None = None) -> list[Violation]:
    """Make the moves of a path with plain processes, none of whose steps is remembered; and let the rest happen."""
    protocol = protocol or protocol_named(scope.protocol)
    return Replay(Table(scope, protocol)).run(path)


class Replay:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.processes = [table.fresh(i) for i in range(len(table.names))]
        self.alive = [True] * len(table.names)
        self.delivered: list[tuple[str, ...]] = [()] * len(table.names)
        self.flight: list[Move] = []
        self.violations: list[Violation] = []

    def run(self, path: list[Move]) -> list[Violation]:
        for i, process in enumerate(self.processes):
            self._release(i, process.step(Begin(0)))
        for move in path:
            self._make(move)
        judge = Judge(self.table)
        order = judge.order_of(tuple(self.delivered))
        while not self.violations and order is None:  # inert frames are not on the path
            arriving = next((f for f in self.flight if self.alive[f.process] and self.alive[f.peer]), None)
            if arriving is None:
                break
            self._make(arriving)
        if not self.violations and order is None:
            locals = [
                Local(i, b"up" if self.alive[i] else b"", self.delivered[i], process.state.multicasts)
                for i, process in enumerate(self.processes)
            ]
            order = judge.end_of(locals)
        return [*self.violations, *([order] if order else [])]

    def _make(self, move: Move) -> None:
        cut = move.number if move.kind is MoveKind.CUT else None
        whole = move.during or move
        me = move.process
        if whole.kind is MoveKind.FRAME:
            self.flight.remove(whole)
        try:
            if whole.kind is MoveKind.RESTART:
                snapshot, self.processes[me] = self.processes[me].snapshot(), self.table.fresh(me)
                self.processes[me].restore(snapshot)
            elif whole.kind is not MoveKind.CRASH:
                self._release(me, self.processes[me].step(self.table.input_of(whole)), cut)
        except Exception as error:  # a protocol's own assertion
            self.violations.append(broken(self.table.names[me], error))
        if move.kind in (MoveKind.CRASH, MoveKind.CUT):
            self.alive[me] = False

    def _release(self, me: int, effects: list[AnyEffect], cut: int | None = None) -> None:
        name = self.table.names[me]
        for effect in [e for e in effects if isinstance(e, (Send, Deliver))][:cut]:
            if isinstance(effect, Send):
                found = self.table.check_send(name, effect)
                self.flight.append(Move(MoveKind.FRAME, self.table.index[effect.to], me, effect.frame))
            else:
                found = self.table.check_delivery(name, self.delivered[me], effect)
                self.delivered[me] += (effect.message.id,)
            self.violations.extend([found] if found else [])
