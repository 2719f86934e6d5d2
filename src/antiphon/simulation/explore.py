"""A search through all states of a small world, in place of random seeds: whatever can happen next does.

A state of the world is every process's own state and the frames in flight. docs/exploration.md says what is searched,
in which order, and why the reduction hides nothing.
"""

from __future__ import annotations

import gc
import random
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from antiphon.checks import Violation
from antiphon.core.component import OrderingProtocol
from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named
from antiphon.simulation.explore_judge import Judge
from antiphon.simulation.explore_state import Table
from antiphon.simulation.explore_values import Exploration, Move, MoveKind, Scope

World = tuple[int, ...]  # by process: the number of its slot; at last, the wrong suspicions still to come
Held = tuple[int, ...]  # frames that wait until nothing else is left to do


def explore(scope: Scope, protocol: type[OrderingProtocol] | None = None) -> Exploration:
    """Visit the states of a scope, all of them if they are not more than ``states_max``, until a promise is broken."""
    protocol = protocol or protocol_named(scope.protocol)
    protocol.check(parse_options(protocol, scope.options), scope.model)
    search = Search(scope, Table(scope, protocol))
    collecting = gc.isenabled()
    gc.disable()  # millions of tuples of numbers are made, and none is part of a cycle
    try:
        return search.run()
    finally:
        if collecting:
            gc.enable()


class Search:
    def __init__(self, scope: Scope, table: Table) -> None:
        self.scope = scope
        self.table = table
        self.judge = Judge(table)
        self.crashable = [table.index[name] for name in table.names if name in scope.may_crash]
        self.visited: set[World] = set()
        self.worlds: list[World] = []
        self.held: dict[int, Held] = {}  # by state, where any is held
        self.parents = array("I")
        self.causes = array("I")
        self.depths = array("I")
        self.transitions = self.terminal = 0
        self.level = 0  # of deviations, in the search at present
        self.violations: list[Violation] = []
        self.path: list[int] = []
        self._moves: dict[tuple[int, int, bool], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def run(self) -> Exploration:
        started = time.perf_counter()
        slots, sends = self.table.beginning()
        for to, frame in sends:
            slots[to] = self.table.add(slots[to], frame)
        self._visit((*slots, self.scope.wrong_suspicions), 0, 0, 0)
        finished = self._by_steps() if self.scope.breadth == "steps" else self._by_deviations()
        if finished and not self.violations and self.scope.reduce:
            unstable = self.table.unstable()
            self.violations.extend([unstable] if unstable else [])
        moves = [self.table.moves[cause] for cause in self.path]
        return Exploration(
            scope=self.scope,
            states=len(self.worlds),
            transitions=self.transitions,
            depth=max(self.depths),
            deviations=self.level,
            complete=finished and not self.violations,
            terminal=self.terminal,
            seconds=time.perf_counter() - started,
            violations=self.violations,
            path=moves,
            story=[self.tell(move) for move in moves],
        )

    # The order of the search --------------------------------------------------------------------------------------

    def _by_steps(self) -> bool:
        """States by the number of moves behind them. Whether the search came to its end."""
        state = 0
        while state < len(self.worlds):
            world = self.worlds[state]
            must, may = self.moves(world)
            for move in (*must, *may):
                self._follow(state, world, move)
                if self.violations:
                    return False
            if len(self.worlds) >= self.scope.states_max:
                return False
            state += 1
        return True

    def _by_deviations(self) -> bool:
        """States by the number of times that something else than the default move was made on the way to them.

        The default move is the first in the order of their numbers. To deviate is to hold that one back until nothing
        else is left, and to make any other one instead. So even the first states are those of whole runs, to their end.
        """
        latest = list(self._run_on(0, ()))
        if self.violations:
            return False
        while latest:
            self.level += 1
            following: list[int] = []
            random.Random(self.level).shuffle(latest)  # so that a level of which only a part is seen is seen all over
            for state in latest:
                for new, held in self._deviate(state):
                    following.extend(self._run_on(new, held))
                if self.violations or len(self.worlds) >= self.scope.states_max:
                    return False
            latest = following
        self.level -= 1  # the last one brought nothing new
        return True

    def _deviate(self, state: int) -> Iterator[tuple[int, Held]]:
        world, held = self.worlds[state], self.held.get(state, ())
        must, may = self.moves(world)
        default = self._default(must, held)
        holding = held if default is None else (*held, default)
        for move in must:
            if move != default and (new := self._follow(state, world, move)) is not None:
                yield new, holding
        for move in may:
            if (new := self._follow(state, world, move)) is not None:
                yield new, held

    def _run_on(self, state: int | None, held: Held) -> Iterator[int]:
        """Make default moves until nothing is left to do, or the rest is known."""
        while state is not None and not self.violations and len(self.worlds) < self.scope.states_max:
            yield state
            if held:
                self.held[state] = held
            world = self.worlds[state]
            default = self._default(self.moves(world)[0], held)
            if default is None:
                return
            if default in held:
                held = tuple(move for move in held if move != default)
            state = self._follow(state, world, default)

    @staticmethod
    def _default(must: tuple[int, ...], held: Held) -> int | None:
        for move in must:
            if move not in held:
                return move
        return next((move for move in held if move in must), None)

    # One move -----------------------------------------------------------------------------------------------------

    def _follow(self, state: int, world: World, move: int) -> int | None:
        """Make a move. Returns the number of the state behind it, if it is new."""
        table = self.table
        self.transitions += 1
        process = table.target[move]
        slot = world[process]
        step = table.slot_steps[slot].get(move) or table.slot_step(slot, move)
        if step.violation is not None:
            self._report(step.violation, state, move)
            return None
        slots = list(world)
        slots[process] = step.after
        for to, frame in step.sends:
            slot = slots[to]
            more = table.additions[slot].get(frame)
            slots[to] = table.add(slot, frame) if more is None else more
        if table.moves[move].kind is MoveKind.WRONG:
            slots[-1] -= 1
        return self._visit(tuple(slots), state, move, self.depths[state] + 1, step.delivers)

    def _visit(self, world: World, parent: int, cause: int, depth: int, delivers: bool = False) -> int | None:
        before = len(self.visited)
        self.visited.add(world)
        if len(self.visited) == before:
            return None
        self.worlds.append(world)
        self.parents.append(parent)
        self.causes.append(cause)
        self.depths.append(depth)
        violation = self.judge.order(world) if delivers else None
        if violation is None and not self.moves(world)[0]:
            self.terminal += 1
            violation = self.judge.end(world)
        if violation is not None:
            self._report(violation, before, None)
            return None
        return before

    def _report(self, violation: Violation, state: int, move: int | None) -> None:
        if self.violations:
            return  # the path belongs to the first
        self.violations.append(violation)
        states = [state]
        while states[-1]:
            states.append(self.parents[states[-1]])
        states.reverse()
        for before, after in pairwise(states):
            self.path.append(self.causes[after])
            self.path.extend(self._absorbed(self.worlds[before], self.causes[after], self.worlds[after]))
        self.path.extend([] if move is None else [move])

    def _absorbed(self, before: World, move: int, after: World) -> Iterator[int]:
        """The inert frames that were taken out of flight with a move: on a path, they arrive."""
        table = self.table
        process = table.target[move]
        sends = table.slot_step(before[process], move).sends
        for to, slot in enumerate(after[:-1]):
            frames = Counter(table.slots[before[to]].inbox)
            frames.update(frame for receiver, frame in sends if receiver == to)
            frames.subtract([move] if to == process and move in frames else [])
            frames.subtract(table.slots[slot].inbox)
            if not table.gone[slot]:
                yield from (frame for frame in frames.elements())

    # What can happen ----------------------------------------------------------------------------------------------

    def moves(self, world: World) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The moves that must be made sooner or later, in the order of their numbers, and those that may be made."""
        gone = 0
        if self.scope.crashes:
            for process in self.crashable:
                gone |= self.table.gone[world[process]] << process
        must: list[int] = []
        may: list[int] = []
        wrong = world[-1] > 0
        for slot in world[:-1]:
            found = self._moves.get((slot, gone, wrong))
            if found is None:
                found = self._moves[slot, gone, wrong] = self._moves_of(slot, gone, wrong)
            must.extend(found[0])
            may.extend(found[1])
        if gone.bit_count() < self.scope.crashes:
            for process in self.crashable:
                if not gone & 1 << process:
                    may.extend(self._crashes(process, world[process], gone))
        must.sort()
        return tuple(must), tuple(may)

    def _moves_of(self, slot: int, gone: int, wrong: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        table = self.table
        local = table.locals[table.slots[slot].local]
        if not local.alive:
            return (), ()
        me = local.process
        must, may = [], []
        if self.scope.restarts:
            may.append(table.move_id(Move(MoveKind.RESTART, me)))
        if local.made < len(table.plans[me]):
            must.append(table.move_id(Move(MoveKind.MULTICAST, me, number=local.made)))
        for frame in table.arrivals(slot):
            # What a process sent before it crashed may arrive, and may as well be lost.
            lost = gone & 1 << table.moves[frame].peer and not self.scope.sent_survives
            (may if lost else must).append(frame)
        for timer, due in local.timers:
            must.append(table.move_id(Move(MoveKind.FIRE, me, timer=timer, number=due)))
        for peer in local.monitored:
            # ◇S: in the end it suspects all who crashed, and of the others those whom it must for progress no more.
            if gone & 1 << peer and peer not in local.suspects:
                must.append(table.move_id(Move(MoveKind.SUSPECT, me, peer)))
            elif not gone & 1 << peer and peer in local.suspects:
                must.append(table.move_id(Move(MoveKind.TRUST, me, peer)))
            elif not gone & 1 << peer and wrong:
                may.append(table.move_id(Move(MoveKind.WRONG, me, peer)))
        return tuple(must), tuple(may)

    def _crashes(self, process: int, slot: int, gone: int) -> Iterator[int]:
        """Where what was sent can be lost, a crash between two inputs is the same as one amid the earlier one."""
        table = self.table
        yield table.move_id(Move(MoveKind.CRASH, process))
        if self.scope.sent_survives:
            for move in self._moves_of(slot, gone, False)[0]:
                acts = table.step(table.slots[slot].local, move).acts
                for number in range(1, len(acts)):
                    yield table.move_id(Move(MoveKind.CUT, process, number=number, during=table.moves[move]))

    # Words --------------------------------------------------------------------------------------------------------

    def tell(self, move: Move) -> str:
        """A move, for people."""
        table = self.table
        me = table.names[move.process]
        match move.kind:
            case MoveKind.MULTICAST:
                return (
                    f"{me} multicasts {me}:{move.number + 1} to {' and '.join(table.plans[move.process][move.number])}"
                )
            case MoveKind.FRAME:
                part = table.processes[move.process].parts[move.frame[0]]
                return f"{me} receives {part.contract.decode(memoryview(move.frame)[1:])} from {table.names[move.peer]}"
            case MoveKind.FIRE:
                return f"{me}'s timer {move.timer} fires"
            case MoveKind.CRASH | MoveKind.RESTART:
                return f"{me} {move.kind}"
            case MoveKind.CUT if move.during is not None:
                return f"{me} crashes after {move.number} of what it does as {self.tell(move.during)}"
            case _:
                return f"{me} {move.kind} {table.names[move.peer]}"
