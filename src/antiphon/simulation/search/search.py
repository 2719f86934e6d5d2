"""The search itself: whatever can happen next does, and no configuration is visited twice.

A configuration is every process's own state and the frames in flight. docs/exploration.md says what is searched, in
which order, and why the reduction hides nothing.
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
from antiphon.core.model import MessageId
from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named
from antiphon.simulation.search.states import DISTRUST_FROM, StateTable
from antiphon.simulation.search.values import Exploration, Move, MoveKind, Scope

Configuration = tuple[int, ...]  # by process: the number of its situation; at last, the wrong suspicions still to come
Postponed = tuple[int, ...]  # moves that wait until nothing else is left to do


def explore(scope: Scope, protocol: type[OrderingProtocol] | None = None) -> Exploration:
    """Visit the states of a scope, all of them if they are not more than ``states_max``, until a promise is broken."""
    protocol = protocol or protocol_named(scope.protocol)
    protocol.check(parse_options(protocol, scope.options), scope.model)
    search = Search(scope, StateTable(scope, protocol))
    collecting = gc.isenabled()
    gc.disable()  # millions of tuples of numbers are made, and none is part of a cycle
    try:
        return search.run()
    finally:
        if collecting:
            gc.enable()


class Search:
    def __init__(self, scope: Scope, table: StateTable) -> None:
        self.scope = scope
        self.table = table
        self.judge = table.judge
        self.crashable = [table.index[name] for name in table.names if name in scope.may_crash]
        self.distrusted = {table.index[name] for name in table.names if name in scope.distrusted}
        self.visited: set[Configuration] = set()
        self.configurations: list[Configuration] = []
        self.postponed: dict[int, Postponed] = {}  # by state, where any are
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
        situations, sends, violation = self.table.beginning()
        for to, frame in sends:
            situations[to] = self.table.add(situations[to], frame)
        self._visit((*situations, self.scope.wrong_suspicions), 0, 0, 0)
        if violation is not None:
            self._report(violation, 0, None)
        finished = self._by_steps() if self.scope.breadth == "steps" else self._by_deviations()
        if not self.violations:
            unstable = self.table.unstable() if finished and self.scope.reduce else None
            unsound = unstable or (self.table.differing(complete=finished) if self.scope.shuffle else None)
            self.violations.extend([unsound] if unsound else [])
        moves = [self.table.moves[cause] for cause in self.path]
        return Exploration(
            scope=self.scope,
            states=len(self.configurations),
            transitions=self.transitions,
            depth=max(self.depths),
            deviations=self.level,
            complete=finished and not self.violations,
            terminal=self.terminal,
            seconds=time.perf_counter() - started,
            violations=self.violations,
            path=moves,
            story=[self.table.tell(move) for move in moves],
        )

    # The order of the search --------------------------------------------------------------------------------------

    def _by_steps(self) -> bool:
        """States by the number of moves behind them. Whether the search came to its end."""
        state = 0
        while state < len(self.configurations):
            configuration = self.configurations[state]
            must, may = self.moves(configuration)
            for move in (*must, *may):
                self._follow(state, configuration, move)
                if self.violations:
                    return False
            if len(self.configurations) >= self.scope.states_max:
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
                for new, postponed in self._deviate(state):
                    following.extend(self._run_on(new, postponed))
                if self.violations or len(self.configurations) >= self.scope.states_max:
                    return False
            latest = following
        self.level -= 1  # the last one brought nothing new
        return True

    def _deviate(self, state: int) -> Iterator[tuple[int, Postponed]]:
        configuration, postponed = self.configurations[state], self.postponed.get(state, ())
        must, may = self.moves(configuration)
        default = self._default(must, postponed)
        holding = postponed if default is None else (*postponed, default)
        for move in must:
            if move != default and (new := self._follow(state, configuration, move)) is not None:
                yield new, holding
        for move in may:
            if (new := self._follow(state, configuration, move)) is not None:
                yield new, postponed

    def _run_on(self, state: int | None, postponed: Postponed) -> Iterator[int]:
        """Make default moves until nothing is left to do, or the rest is known."""
        while state is not None and not self.violations and len(self.configurations) < self.scope.states_max:
            yield state
            if postponed:
                self.postponed[state] = postponed
            configuration = self.configurations[state]
            default = self._default(self.moves(configuration)[0], postponed)
            if default is None:
                return
            if default in postponed:
                postponed = tuple(move for move in postponed if move != default)
            state = self._follow(state, configuration, default)

    @staticmethod
    def _default(must: tuple[int, ...], postponed: Postponed) -> int | None:
        for move in must:
            if move not in postponed:
                return move
        return next((move for move in postponed if move in must), None)

    # One move -----------------------------------------------------------------------------------------------------

    def _follow(self, state: int, configuration: Configuration, move: int) -> int | None:
        """Make a move. Returns the number of the state behind it, if it is new."""
        table = self.table
        self.transitions += 1
        process = table.target[move]
        situation = configuration[process]
        reaction = table.changes[situation].get(move) or table.change(situation, move)
        if reaction.violation is not None:
            self._report(reaction.violation, state, move)
            return None
        situations = list(configuration)
        situations[process] = reaction.after
        for to, frame in reaction.sends:
            situation = situations[to]
            more = table.additions[situation].get(frame)
            situations[to] = table.add(situation, frame) if more is None else more
        if table.moves[move].kind is MoveKind.WRONG:
            situations[-1] -= 1
        return self._visit(tuple(situations), state, move, self.depths[state] + 1, reaction.delivers)

    def _visit(
        self, configuration: Configuration, parent: int, cause: int, depth: int, delivers: bool = False
    ) -> int | None:
        before = len(self.visited)
        self.visited.add(configuration)
        if len(self.visited) == before:
            return None
        self.configurations.append(configuration)
        self.parents.append(parent)
        self.causes.append(cause)
        self.depths.append(depth)
        violation = self._judge_order(configuration) if delivers else None
        if violation is None and not self.moves(configuration)[0]:
            self.terminal += 1
            violation = self.judge.end([self.table.local_of(situation) for situation in configuration[:-1]])
        if violation is not None:
            self._report(violation, before, None)
            return None
        return before

    def _judge_order(self, configuration: Configuration) -> Violation | None:
        situations, locals = self.table.situations, self.table.locals
        return self.judge.order(tuple([locals[situations[number].local].delivered for number in configuration[:-1]]))

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
            self.path.extend(
                self._absorbed(self.configurations[before], self.causes[after], self.configurations[after])
            )
        self.path.extend([] if move is None else [move])

    def _absorbed(self, before: Configuration, move: int, after: Configuration) -> Iterator[int]:
        """The inert frames that were taken out of flight with a move: on a path, they arrive."""
        table = self.table
        process = table.target[move]
        sends = table.change(before[process], move).sends
        for to, situation in enumerate(after[:-1]):
            frames = Counter(table.situations[before[to]].inbox)
            frames.update(frame for receiver, frame in sends if receiver == to)
            frames.subtract([move] if to == process and move in frames else [])
            frames.subtract(table.situations[situation].inbox)
            if not table.gone[situation]:
                yield from (frame for frame in frames.elements())

    # What can happen ----------------------------------------------------------------------------------------------

    def moves(self, configuration: Configuration) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The moves that must be made sooner or later, in the order of their numbers, and those that may be made."""
        gone = 0
        if self.scope.crashes:
            for process in self.crashable:
                gone |= self.table.gone[configuration[process]] << process
        must: list[int] = []
        may: list[int] = []
        wrong = configuration[-1] > 0
        for situation in configuration[:-1]:
            found = self._moves.get((situation, gone, wrong))
            if found is None:
                found = self._moves[situation, gone, wrong] = self._moves_of(situation, gone, wrong)
            must.extend(found[0])
            may.extend(found[1])
        if gone.bit_count() < self.scope.crashes:
            for process in self.crashable:
                if not gone & 1 << process:
                    may.extend(self._crashes(process, configuration[process], gone))
        if self.table.players.awaits:
            delivered = {message for number in configuration[:-1] for message in self.table.local_of(number).delivered}
            must = [move for move in must if self._is_due(move, delivered)]
            may = [move for move in may if self._is_due(move, delivered)]
        if self.scope.late_timers:
            moves = self.table.moves
            must = [move for move in must if moves[move].kind is not MoveKind.FIRE] or must
        must.sort()
        return tuple(must), tuple(may)

    def _is_due(self, move: int, delivered: set[MessageId]) -> bool:
        """Whether what a multicast waits for has been delivered."""
        made = self.table.moves[move]
        made = made.during or made
        if made.kind is not MoveKind.MULTICAST:
            return True
        planned = self.table.players.plans[made.process][made.number]
        return self.table.players.awaits.get(planned.id, planned.id) in (planned.id, *delivered)

    def _moves_of(self, situation: int, gone: int, wrong: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        table = self.table
        local = table.local_of(situation)
        if not local.alive:
            return (), ()
        me = local.process
        must, may = [], []
        if self.scope.restarts and not local.turn_is_open:
            may.append(table.move_id(Move(MoveKind.RESTART, me)))
        if local.made < len(table.players.plans[me]):
            must.append(table.move_id(Move(MoveKind.MULTICAST, me, number=local.made)))
        if local.told < len(table.players.commands[me]):
            must.append(table.move_id(Move(MoveKind.TELL, me, number=local.told)))
        for frame in table.arrivals(situation):
            # What a process sent before it crashed may arrive, and may as well be lost. So may any datagram.
            lost = gone & 1 << table.moves[frame].peer and not self.scope.sent_survives
            (may if lost or frame in table.lossy else must).append(frame)
        if local.turn_is_open:
            must.append(table.move_id(Move(MoveKind.TURN_END, me)))
        for part, timer, due in local.timers:
            must.append(table.move_id(Move(MoveKind.FIRE, me, number=due, part=part, timer=timer)))
        for peer in local.monitored:
            # ◇S: in the end it suspects all who crashed, and of the others only those whom it may suspect for ever.
            suspicious = gone & 1 << peer or peer in self.distrusted
            if suspicious and peer not in local.suspects:
                must.append(self._suspicion(me, peer))
            elif not suspicious and peer in local.suspects:
                must.append(table.move_id(Move(MoveKind.TRUST, me, peer)))
            elif not suspicious and wrong:
                may.append(table.move_id(Move(MoveKind.WRONG, me, peer)))
        return tuple(must), tuple(may)

    def _suspicion(self, me: int, peer: int) -> int:
        """Distrust comes before any frame where nothing deviates from the order of moves: else it comes too late."""
        number = DISTRUST_FROM + me * len(self.table.names) + peer if peer in self.distrusted else None
        return self.table.move_id(Move(MoveKind.SUSPECT, me, peer), number)

    def _crashes(self, process: int, situation: int, gone: int) -> Iterator[int]:
        """Where what was sent can be lost, a crash between two inputs is the same as one amid the earlier one."""
        table = self.table
        yield table.move_id(Move(MoveKind.CRASH, process))
        if self.scope.sent_survives:
            for move in self._moves_of(situation, gone, False)[0]:
                acts = table.reaction(table.situations[situation].local, move).acts
                for number in range(1, len(acts)):
                    yield table.move_id(Move(MoveKind.CUT, process, number=number, during=table.moves[move]))
