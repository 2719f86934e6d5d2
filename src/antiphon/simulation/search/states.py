"""The states of one process, and of the frames on their way to it, each kept once; and every reaction between them.

A process is deterministic, so that what it does from one state on one move is worked out once, however many
configurations it occurs in. A configuration is then a short tuple of numbers: by process, that of its ``Situation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from antiphon.checks import Violation
from antiphon.core import inputs
from antiphon.core.buffers import Buffers, encode_inside
from antiphon.core.channel import Transport
from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import AnyEffect, Log, Send
from antiphon.core.events import Delivered
from antiphon.core.model import MessageId
from antiphon.core.process import Process
from antiphon.simulation.search.canonical import canonical, load, save, turn_round
from antiphon.simulation.search.judge import Judge, broken
from antiphon.simulation.search.values import LocalState, Move, MoveKind, Players, Scope
from antiphon.simulation.search.words import tell

DISTRUST_FROM = 1 << 9  # numbers of moves: first the multicasts, then suspicions for ever,
FRAMES_FROM = 1 << 10  # then frames as they are first sent, then all others;
OTHERS_FROM = 1 << 30  # this is the order in which moves are made where nothing deviates from it

UNORDERED = "unordered"  # the name under which an order that shows, though it was declared not to, is reported
REDUCTION = "reduction"  # the same for a frame that was called inert, but is not


class Sent(NamedTuple):
    """A frame to one receiver."""

    to: int
    frame: int  # the number of a move


Act = Sent | MessageId  # what a process does, as far as others can see: it sends, or it delivers


class Reaction(NamedTuple):
    """What one process does on one move."""

    after: int  # the number of a LocalState, or of a Situation
    sends: tuple[Sent, ...]
    delivers: bool
    inert: bool  # nothing changes and nothing is sent
    violation: Violation | None
    acts: tuple[Act, ...] = ()  # sends and deliveries in their order


class Situation(NamedTuple):
    """A process, and the frames on their way to it: sorted, or in the order of each channel."""

    local: int
    inbox: tuple[int, ...]


class StateTable:
    """Everything that was ever seen of single processes, numbered."""

    def __init__(self, scope: Scope, protocol: type[OrderingProtocol]) -> None:
        self.scope = scope
        self.protocol = protocol
        self.players = Players(scope, protocol)
        self.names, self.index = self.players.names, self.players.index
        self.processes = [self.fresh(i) for i in range(len(self.names))]
        self.judge = Judge(self.players, self.processes[0].promises)
        self.moves: dict[int, Move] = {}
        self.move_ids: dict[Move, int] = {}
        self.target: dict[int, int] = {}  # by move: whom it happens to
        self.channel: dict[int, int | None] = {}  # by frame: the channel whose order it keeps, as a number below 0
        self.lossy: set[int] = set()  # the frames that may be lost
        self._next_frame, self._next_other = FRAMES_FROM, OTHERS_FROM
        self.locals: list[LocalState] = []
        self.keys: list[bytes] = []  # by local: what tells it from all others
        self._local_ids: dict[bytes, int] = {}
        self.reactions: list[dict[int, Reaction]] = []  # by local, by move
        self.situations: list[Situation] = []
        self._situation_ids: dict[Situation, int] = {}
        self.gone: list[bool] = []  # by situation: whether the process has crashed
        self.changes: list[dict[int, Reaction]] = []  # by situation, by move
        self.additions: list[dict[int, int]] = []  # by situation: by frame, the situation to which it was added
        self.merged: dict[
            tuple[int, bytes], None
        ] = {}  # a local, and another state that was taken for it: to be tested
        self.absorbed: dict[int, set[int]] = {}  # by local: the inert frames that were taken out of flight there
        for process, plans in enumerate(self.players.plans):
            for k in range(len(plans)):
                self.move_id(Move(MoveKind.MULTICAST, process, number=k), k * len(self.names) + process)

    # Numbers ----------------------------------------------------------------------------------------------------------

    def move_id(self, move: Move, number: int | None = None) -> int:
        found = self.move_ids.get(move)
        if found is None:
            if number is not None:
                found = number
            elif move.kind is MoveKind.FRAME:
                found, self._next_frame = self._next_frame, self._next_frame + 1
                self._note_channel(found, move)
            else:
                found, self._next_other = self._next_other, self._next_other + 1
            self.move_ids[move] = found
            self.moves[found] = move
            self.target[found] = move.process
        return found

    def _note_channel(self, frame: int, move: Move) -> None:
        """Between two processes, each kind of transport is a channel of its own."""
        transport = self.processes[move.process].parts[move.frame[0]].transport
        ordered = transport is Transport.FIFO or (self.scope.fifo and transport is Transport.RELIABLE)
        self.channel[frame] = -1 - (move.peer * len(Transport) + transport) if ordered else None
        if transport is Transport.DATAGRAM:
            self.lossy.add(frame)

    def _local_id(self, local: LocalState, key: bytes) -> int:
        found = self._local_ids.get(key)
        if found is None:
            found = self._local_ids[key] = len(self.locals)
            self.locals.append(local)
            self.keys.append(key)
            self.reactions.append({})
        elif self.scope.shuffle and self.locals[found].saved != local.saved:
            self.merged[found, local.saved] = None
        return found

    def situation_id(self, local: int, inbox: Iterable[int]) -> int:
        if not self.locals[local].alive:
            inbox = ()
        elif self.scope.reduce:
            inbox = self._unabsorbed(local, inbox)
        situation = Situation(local, tuple(inbox))
        found = self._situation_ids.get(situation)
        if found is None:
            found = self._situation_ids[situation] = len(self.situations)
            self.situations.append(situation)
            self.gone.append(not self.locals[local].alive)
            self.changes.append({})
            self.additions.append({})
        return found

    def _unabsorbed(self, local: int, inbox: Iterable[int]) -> Iterator[int]:
        """What is left of the frames in flight. Of a channel that keeps its order, one that is not the first cannot
        arrive now, whatever it would do."""
        waiting: set[int] = set()
        for frame in inbox:
            channel = self.channel[frame]
            if channel in waiting or not self._absorbs(local, frame):
                waiting.update(() if channel is None else (channel,))
                yield frame

    def _absorbs(self, local: int, frame: int) -> bool:
        if not self.reaction(local, frame).inert:
            return False
        self.absorbed.setdefault(local, set()).add(frame)
        return True

    def local_of(self, situation: int) -> LocalState:
        return self.locals[self.situations[situation].local]

    # Changes of a situation -------------------------------------------------------------------------------------------

    def beginning(self) -> tuple[list[int], list[Sent], Violation | None]:
        """The situation of every process after its first input, what it sent, and what was wrong about that."""
        situations: list[int] = []
        sends: list[Sent] = []
        violation = None
        for i in range(len(self.names)):
            process = self.fresh(i)
            reaction = self._conclude(process, i, (), self.step(process, inputs.Begin(0)))
            situations.append(self.situation_id(reaction.after, ()))
            sends.extend(reaction.sends)
            violation = violation or reaction.violation
        return situations, sends, violation

    def change(self, situation: int, move: int) -> Reaction:
        found = self.changes[situation].get(move)
        if found is None:
            local, inbox = self.situations[situation]
            reaction = self.reaction(local, move)
            if move in inbox:
                at = inbox.index(move)
                inbox = inbox[:at] + inbox[at + 1 :]
            after = situation if reaction.violation else self.situation_id(reaction.after, inbox)
            found = self.changes[situation][move] = reaction._replace(after=after, acts=())
        return found

    def add(self, situation: int, frame: int) -> int:
        """A frame is on its way to a process."""
        found = self.additions[situation].get(frame)
        if found is None:
            local, inbox = self.situations[situation]
            inbox = tuple(sorted((*inbox, frame), key=self._in_inbox))  # stable: a channel keeps its order
            found = self.additions[situation][frame] = self.situation_id(local, inbox)
        return found

    def _in_inbox(self, frame: int) -> int:
        channel = self.channel[frame]
        return frame if channel is None else channel

    def arrivals(self, situation: int) -> Iterator[int]:
        """The frames that may arrive next: any of them, but of a channel that keeps its order only the first."""
        seen: set[int] = set()
        for frame in self.situations[situation].inbox:
            key = self._in_inbox(frame)
            if key not in seen:
                seen.add(key)
                yield frame

    # Reactions of a process -------------------------------------------------------------------------------------------

    def reaction(self, local: int, move: int) -> Reaction:
        found = self.reactions[local].get(move)
        if found is None:
            found = self.reactions[local][move] = self._reaction(local, self.moves[move])
        return found

    def _reaction(self, before: int, move: Move) -> Reaction:
        local = self.locals[before]
        if move.kind is MoveKind.CRASH:
            return self._crashed(local)
        if move.kind is MoveKind.CUT:
            assert move.during is not None
            whole = self.reaction(before, self.move_id(move.during))
            return self._crashed(local, whole.acts[: move.number], move.during)
        reaction = self._made(local, move)
        if self.scope.shuffle and reaction.violation is None:
            reaction = reaction._replace(violation=self._compare(local, move, reaction, turned=True))
        return reaction._replace(inert=reaction.after == before and not reaction.acts and reaction.violation is None)

    def _made(self, local: LocalState, move: Move, *, turned: bool = False) -> Reaction:
        process = self.processes[local.process]
        load(process, local.saved)
        if turned:
            turn_round(process)
        try:
            if move.kind is MoveKind.RESTART:
                process, effects = self._restarted(local.process, process), []
            else:
                effects = self.take(process, move)
        except Exception as error:  # a protocol's own assertion, or any other way in which it breaks
            self.processes[local.process] = self.fresh(local.process)  # this one is half-way through something
            return Reaction(-1, (), False, False, broken(process.me, error))
        told = local.told + (move.kind is MoveKind.TELL)
        return self._conclude(process, local.process, local.delivered + self.marks(move), effects, told)

    def _conclude(
        self, process: Process, index: int, before: tuple[MessageId, ...], effects: list[AnyEffect], told: int = 0
    ) -> Reaction:
        """Give numbers to what came of a move."""
        delivered, violation = before, None
        acts: list[Act] = []
        for effect in effects:
            if isinstance(effect, Send):
                frame = bytes(effect.frame)
                for name in effect.to:
                    to = self.index[name]
                    acts.append(Sent(to, self.move_id(Move(MoveKind.FRAME, to, index, frame))))
                    violation = violation or self.judge.send(process.me, effect, name)
            elif isinstance(effect, Log):
                if isinstance(effect.event, Delivered):
                    violation = violation or self.judge.event(process.me, delivered, effect.event)
                delivered = (*delivered, self.players.logged(effect.event))
                acts.append(delivered[-1])
        state = process.state
        local = LocalState(
            index,
            save(process),
            delivered,
            state.multicasts,
            tuple(self.index[p] for p in process.monitored()),
            tuple(self.index[p] for p in state.suspects),
            tuple(sorted((part, timer, due) for (part, timer), due in state.timers.items())),
            process.turn_is_open,
            told,
        )
        key = encode_inside((index, delivered, told, canonical(process)))
        sends = tuple(act for act in acts if isinstance(act, Sent))
        return Reaction(self._local_id(local, key), sends, delivered != before, False, violation, tuple(acts))

    def _crashed(self, local: LocalState, acts: tuple[Act, ...] = (), during: Move | None = None) -> Reaction:
        """A process that is gone: only what it delivered and multicast still counts."""
        told = tuple(act for act in acts if isinstance(act, MessageId))
        made = during is not None and during.kind is MoveKind.MULTICAST
        marks = self.marks(during) if during is not None else ()
        gone = LocalState(local.process, b"", local.delivered + marks + told, local.made + made)
        key = encode_inside((gone.process, gone.delivered, gone.made))
        sends = tuple(act for act in acts if isinstance(act, Sent))
        return Reaction(self._local_id(gone, key), sends, bool(told), False, None, acts)

    def _restarted(self, index: int, process: Process) -> Process:
        """Here, unlike in ``load``, a protocol's own snapshots are used: nobody may notice that they were."""
        snapshot = process.snapshot()
        restarted = self.processes[index] = self.fresh(index)
        restarted.restore(snapshot)
        return restarted

    # Processes --------------------------------------------------------------------------------------------------------

    def fresh(self, index: int) -> Process:
        return Process(self.names[index], self.players.topology, self.protocol, self.scope.options)

    def marks(self, move: Move) -> tuple[MessageId, ...]:
        """What stands for a move among what its process delivers, before all that comes of it."""
        if move.kind is not MoveKind.MULTICAST or not self.judge.as_runs:
            return ()
        return (self.players.plans[move.process][move.number].mark,)

    def take(self, process: Process, move: Move) -> list[AnyEffect]:
        """Let a move happen to a process. A frame that its own kind refuses is as bad as a failed assertion."""
        happened = self.input_of(move)
        if isinstance(happened, inputs.Receive):
            process.checks.frame(happened.frame)
        return self.step(process, happened)

    def step(self, process: Process, happened: inputs.AnyInput) -> list[AnyEffect]:
        effects = process.step(happened)
        if process.turn_is_open and not self.scope.long_turns:
            effects += process.step(inputs.TurnEnd(0))
        return effects

    def input_of(self, move: Move) -> inputs.AnyInput:
        """Frames come as datagrams, which have no number: each is carried once, and this is nobody's concern."""
        match move.kind:
            case MoveKind.FRAME:
                return inputs.Receive(0, self.names[move.peer], Transport.DATAGRAM, 0, Buffers(move.frame))
            case MoveKind.MULTICAST:
                planned = self.players.plans[move.process][move.number]
                return inputs.Multicast(0, planned.destinations, (planned.payload,), planned.service)
            case MoveKind.TELL:
                return inputs.Tell(0, self.players.commands[move.process][move.number])
            case MoveKind.TURN_END:
                return inputs.TurnEnd(0)
            case MoveKind.FIRE:
                return inputs.Fire(0, move.part, move.timer, move.number)
            case MoveKind.TRUST:
                return inputs.Trust(0, self.names[move.peer])
            case _:
                return inputs.Suspect(0, self.names[move.peer])

    # What is taken on trust, put to the test --------------------------------------------------------------------------

    def _compare(self, local: LocalState, move: Move, expected: Reaction, *, turned: bool = False) -> Violation | None:
        """The order of what is declared to have none must not show: not in the state after a move, nor in its acts."""
        found = self._made(local, move, turned=turned)
        if (found.after, found.acts, found.violation) == (expected.after, expected.acts, expected.violation):
            return None
        me = self.names[local.process]
        detail = f"The order of a Table, a Heap or a set of {self.protocol.__name__} shows at {me}: {self.tell(move)}."
        return Violation(UNORDERED, (me,), (), detail)

    def differing(self, *, complete: bool) -> Violation | None:
        """Whether two states of a process that were taken for one differ in what comes of a move.

        What comes of two such states may be two that were taken for one in turn: where the search is ``complete``, all
        of these are compared as well, so that no difference is left anywhere.
        """
        tried: set[tuple[int, bytes]] = set()
        while untried := [pair for pair in self.merged if pair not in tried]:
            for number, saved in untried:
                local = self.locals[number]._replace(saved=saved)
                for move, expected in list(self.reactions[number].items()):
                    if self.moves[move].kind in (MoveKind.CRASH, MoveKind.CUT) or expected.violation is not None:
                        continue
                    violation = self._compare(local, self.moves[move], expected)
                    if violation is not None:
                        return violation
            if not complete:
                break
            tried.update(untried)
        return None

    def unstable(self) -> Violation | None:
        """Whether some frame that was taken out of flight as inert would have done something later on."""
        work = list(self.absorbed)
        while work:
            before = work.pop()
            frames = self.absorbed[before]
            for reaction in list(self.reactions[before].values()):
                after = reaction.after
                if after == before or reaction.violation is not None or not self.locals[after].alive:
                    continue
                known = self.absorbed.setdefault(after, set())
                new = frames - known
                for frame in sorted(new):
                    if not self.reaction(after, frame).inert:
                        me = self.names[self.target[frame]]
                        detail = f"A frame is inert at {me}, and later it is not: {self.tell(self.moves[frame])}."
                        return Violation(REDUCTION, (me,), (), detail)
                known |= new
                if new:
                    work.append(after)
        return None

    def tell(self, move: Move) -> str:
        return tell(self.players, self.processes[move.process], move)
