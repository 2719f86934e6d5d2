"""The states of one process, and of the frames on their way to it, each kept once; and every step between them.

A process is deterministic, so that a step of one process from one state on one input is worked out once, however many
states of the world it occurs in. A state of the world is then a short tuple of numbers: by process, the number of its
``Slot``.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from antiphon.checks import Violation
from antiphon.core import inputs
from antiphon.core.component import OrderingProtocol
from antiphon.core.declaration import Promise
from antiphon.core.effects import AnyEffect, Deliver, Send
from antiphon.core.model import ProcessId, Topology
from antiphon.core.process import Process
from antiphon.simulation.explore_canonical import canonical, load, save, turned
from antiphon.simulation.explore_values import Move, MoveKind, Scope
from antiphon.simulation.run import INVARIANT

FRAMES_FROM = 1 << 10  # numbers of moves: first the multicasts, then frames as they are first sent, then all others;
OTHERS_FROM = 1 << 30  # this is the order in which moves are made where nothing deviates from it


class Local(NamedTuple):
    """What one process is, for its own future and for the checks."""

    process: int
    saved: bytes  # empty: it has crashed
    delivered: tuple[str, ...]
    made: int  # its own multicasts so far
    monitored: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    timers: tuple[tuple[str, int], ...] = ()

    @property
    def alive(self) -> bool:
        return bool(self.saved)


class Step(NamedTuple):
    """What one process does on one move."""

    after: int  # the number of a Local, or of a Slot
    sends: tuple[tuple[int, int], ...]  # (receiver, frame)
    delivers: bool
    inert: bool  # nothing changes and nothing is sent
    violation: Violation | None
    acts: tuple[tuple[int, int] | str, ...] = ()  # the same in order: sends, and names of messages delivered


class Slot(NamedTuple):
    """A process, and the frames on their way to it: sorted, or in the order of each channel."""

    local: int
    inbox: tuple[int, ...]


class Table:
    """Everything that was ever seen of single processes, numbered."""

    def __init__(self, scope: Scope, protocol: type[OrderingProtocol]) -> None:
        self.scope = scope
        self.protocol = protocol
        self.topology = Topology.sized(scope.groups)
        outside = (ProcessId(sender) for sender, _ in scope.plans)
        self.names = tuple(dict.fromkeys((*self.topology.processes, *outside)))
        self.index = {name: i for i, name in enumerate(self.names)}
        self.plans: list[list[tuple[str, ...]]] = [[] for _ in self.names]
        for sender, destinations in scope.plans:
            groups = self.topology.destinations(destinations)
            protocol.admit(self.topology, groups)
            self.plans[self.index[ProcessId(sender)]].append(groups)
        self.messages = {
            f"{name}:{k}": groups
            for name, plans in zip(self.names, self.plans, strict=True)
            for k, groups in enumerate(plans, 1)
        }
        self.concerned = {
            message: {message.partition(":")[0], *self.topology.addressees(self.topology.destinations(groups))}
            for message, groups in self.messages.items()
        }
        self.involved = frozenset().union(*self.concerned.values())
        self.promises = protocol.declaration.promises
        self.shuffle = False  # whether to take each step a second time from a state with its unordered dicts reversed
        self.processes = [self.fresh(i) for i in range(len(self.names))]
        self.moves: dict[int, Move] = {}
        self.move_ids: dict[Move, int] = {}
        self.target: dict[int, int] = {}  # by move: whom it happens to
        self._next_frame, self._next_other = FRAMES_FROM, OTHERS_FROM
        self.locals: list[Local] = []
        self.keys: list[bytes] = []  # by local: what tells it from all others
        self._local_ids: dict[bytes, int] = {}
        self.steps: list[dict[int, Step]] = []  # by local, by move
        self.slots: list[Slot] = []
        self._slot_ids: dict[Slot, int] = {}
        self.gone: list[bool] = []  # by slot: whether the process has crashed
        self.slot_steps: list[dict[int, Step]] = []  # by slot, by move
        self.additions: list[dict[int, int]] = []  # by slot: by frame, the slot to which it was added
        self.absorbed: dict[int, set[int]] = {}  # by local: the inert frames that were taken out of flight there
        for process, plans in enumerate(self.plans):
            for k in range(len(plans)):
                self.move_id(Move(MoveKind.MULTICAST, process, number=k), k * len(self.names) + process)

    # Numbers ----------------------------------------------------------------------------------------------------

    def move_id(self, move: Move, number: int | None = None) -> int:
        found = self.move_ids.get(move)
        if found is None:
            if number is None and move.kind is MoveKind.FRAME:
                found, self._next_frame = self._next_frame, self._next_frame + 1
            elif number is None:
                found, self._next_other = self._next_other, self._next_other + 1
            else:
                found = number
            self.move_ids[move] = found
            self.moves[found] = move
            self.target[found] = move.process
        return found

    def _local_id(self, local: Local, key: bytes) -> int:
        found = self._local_ids.get(key)
        if found is None:
            found = self._local_ids[key] = len(self.locals)
            self.locals.append(local)
            self.keys.append(key)
            self.steps.append({})
        return found

    def slot_id(self, local: int, inbox: Iterable[int]) -> int:
        if not self.locals[local].alive:
            inbox = ()
        elif self.scope.reduce:
            inbox = [frame for frame in inbox if not self._absorbs(local, frame)]
        slot = Slot(local, tuple(inbox))
        found = self._slot_ids.get(slot)
        if found is None:
            found = self._slot_ids[slot] = len(self.slots)
            self.slots.append(slot)
            self.gone.append(not self.locals[local].alive)
            self.slot_steps.append({})
            self.additions.append({})
        return found

    def _absorbs(self, local: int, frame: int) -> bool:
        if not self.step(local, frame).inert:
            return False
        self.absorbed.setdefault(local, set()).add(frame)
        return True

    # Steps of a slot ----------------------------------------------------------------------------------------------

    def beginning(self) -> tuple[list[int], list[tuple[int, int]]]:
        """The slot of every process after its first input, and what it sent."""
        slots: list[int] = []
        sends: list[tuple[int, int]] = []
        for i in range(len(self.names)):
            process = self.fresh(i)
            step = self._conclude(process, i, (), process.step(inputs.Begin(0)))
            slots.append(self.slot_id(step.after, ()))
            sends.extend(step.sends)
        return slots, sends

    def slot_step(self, slot: int, move: int) -> Step:
        found = self.slot_steps[slot].get(move)
        if found is None:
            local, inbox = self.slots[slot]
            step = self.step(local, move)
            if move in inbox:
                at = inbox.index(move)
                inbox = inbox[:at] + inbox[at + 1 :]
            found = step._replace(after=slot if step.violation else self.slot_id(step.after, inbox), acts=())
            self.slot_steps[slot][move] = found
        return found

    def add(self, slot: int, frame: int) -> int:
        """A frame is on its way to a process."""
        found = self.additions[slot].get(frame)
        if found is None:
            local, inbox = self.slots[slot]
            by_channel = (lambda f: self.moves[f].peer) if self.scope.fifo else None  # stable: a channel has its order
            found = self.additions[slot][frame] = self.slot_id(local, sorted((*inbox, frame), key=by_channel))
        return found

    def arrivals(self, slot: int) -> Iterator[int]:
        """The frames that may arrive next: any of them, or the first of each channel."""
        seen: set[int] = set()
        for frame in self.slots[slot].inbox:
            key = self.moves[frame].peer if self.scope.fifo else frame
            if key not in seen:
                seen.add(key)
                yield frame

    # Steps of a process -------------------------------------------------------------------------------------------

    def step(self, local: int, move: int) -> Step:
        found = self.steps[local].get(move)
        if found is None:
            found = self.steps[local][move] = self._step(local, self.moves[move])
        return found

    def _step(self, before: int, move: Move) -> Step:
        local = self.locals[before]
        if move.kind is MoveKind.CRASH:
            return self._crashed(local, (), 0)
        if move.kind is MoveKind.CUT:
            assert move.during is not None
            whole = self.step(before, self.move_id(move.during))
            return self._crashed(local, whole.acts[: move.number], move.during.kind is MoveKind.MULTICAST)
        process = self.processes[local.process]
        load(process, local.saved)
        try:
            if move.kind is MoveKind.RESTART:
                process, effects = self._restarted(local.process, process), []
            else:
                effects = process.step(self.input_of(move))
        except Exception as error:  # a protocol's own assertion, or any other way in which it breaks
            self.processes[local.process] = self.fresh(local.process)  # this one is half-way through something
            return Step(before, (), False, False, broken(process.me, error))
        step = self._conclude(process, local.process, local.delivered, effects)
        if self.shuffle and move.kind is not MoveKind.RESTART:
            self._compare(local, move, step)
        return step._replace(inert=step.after == before and not step.acts and step.violation is None)

    def _conclude(self, process: Process, index: int, before: tuple[str, ...], effects: list[AnyEffect]) -> Step:
        """Give numbers to what came of a step."""
        delivered, violation = before, None
        acts: list[tuple[int, int] | str] = []
        for effect in effects:
            if isinstance(effect, Send):
                to = self.index[effect.to]
                acts.append((to, self.move_id(Move(MoveKind.FRAME, to, index, effect.frame))))
                violation = violation or self.check_send(process.me, effect)
            elif isinstance(effect, Deliver):
                violation = violation or self.check_delivery(process.me, delivered, effect)
                delivered = (*delivered, effect.message.id)
                acts.append(effect.message.id)
        state = process.state
        local = Local(
            index,
            save(process),
            delivered,
            state.multicasts,
            tuple(self.index[p] for p in process.monitored()),
            tuple(self.index[p] for p in state.suspects),
            tuple(sorted(state.timers.items())),
        )
        key = _encoder.encode((index, delivered, canonical(process)))
        sends = tuple(act for act in acts if isinstance(act, tuple))
        return Step(self._local_id(local, key), sends, delivered != before, False, violation, tuple(acts))

    def _crashed(self, local: Local, acts: tuple[tuple[int, int] | str, ...], made: int) -> Step:
        """A process that is gone: only what it delivered and multicast still counts."""
        told = tuple(act for act in acts if isinstance(act, str))
        gone = Local(local.process, b"", local.delivered + told, local.made + made)
        key = _encoder.encode((gone.process, gone.delivered, gone.made))
        sends = tuple(act for act in acts if isinstance(act, tuple))
        return Step(self._local_id(gone, key), sends, bool(told), False, None, acts)

    def _restarted(self, index: int, process: Process) -> Process:
        """Here, unlike in ``load``, a protocol's own snapshots are used: nobody may notice that they were."""
        snapshot = process.snapshot()
        restarted = self.processes[index] = self.fresh(index)
        restarted.restore(snapshot)
        return restarted

    def input_of(self, move: Move) -> inputs.AnyInput:
        match move.kind:
            case MoveKind.FRAME:
                return inputs.Receive(0, self.names[move.peer], 0, move.frame)
            case MoveKind.MULTICAST:
                groups = self.topology.destinations(self.plans[move.process][move.number])
                return inputs.Multicast(0, groups, b"")
            case MoveKind.FIRE:
                return inputs.Fire(0, move.timer, move.number)
            case MoveKind.TRUST:
                return inputs.Trust(0, self.names[move.peer])
            case _:
                return inputs.Suspect(0, self.names[move.peer])

    def fresh(self, index: int) -> Process:
        process = Process(self.names[index], self.topology, self.protocol, self.scope.options)
        process.numbered = False  # the explorer carries each frame once: numbers would only tell equal states apart
        return process

    # Checks of one step -------------------------------------------------------------------------------------------

    def check_send(self, sender: ProcessId, send: Send) -> Violation | None:
        messages = (send.subject,) if send.subject else ()
        concerned = self.involved if send.subject is None else self.concerned.get(send.subject, set())
        strangers = tuple(p for p in (sender, send.to) if p not in concerned)
        if strangers and Promise.GENUINENESS in self.promises:
            about = send.subject or "no single message"
            detail = f"{sender} sends a frame about {about} to {send.to}, but {strangers[0]} has no part in it."
            return Violation(Promise.GENUINENESS, strangers, messages, detail)
        group_of = self.topology.group_of
        leaves = send.layer.endswith("/consensus") and group_of.get(sender) != group_of.get(send.to)
        if leaves and Promise.LOCALITY in self.promises:
            detail = f"{sender} sends a frame of {send.layer} to {send.to}, which is of another group."
            return Violation(Promise.LOCALITY, (sender, send.to), messages, detail)
        return None

    def check_delivery(self, process: ProcessId, before: tuple[str, ...], deliver: Deliver) -> Violation | None:
        message = deliver.message
        if message.id in before:
            detail = f"{process} delivers {message.id} again."
        elif self.messages.get(message.id) != message.destinations:
            detail = f"{process} delivers {message.id} to {message.destinations}, which nobody multicast."
        else:
            return None
        return Violation(Promise.INTEGRITY, (process,), (message.id,), detail)

    def _compare(self, local: Local, move: Move, expected: Step) -> None:
        """The order of an unordered dict must not show: not in the state after a step, nor in its effects."""
        process = self.fresh(local.process)
        load(process, local.saved)
        for part in process.parts:
            for name in part.contract.state.__struct_fields__:
                setattr(part, name, turned(getattr(part, name), name))
        step = self._conclude(process, local.process, local.delivered, process.step(self.input_of(move)))
        same = step.after == expected.after and sorted(step.sends) == sorted(expected.sends)
        assert same, f"the order of a dict in UNORDERED shows in {self.protocol.__name__} on {move}"

    def unstable(self) -> Violation | None:
        """Whether some frame that was taken out of flight as inert would have done something later on."""
        work = list(self.absorbed)
        while work:
            before = work.pop()
            frames = self.absorbed[before]
            for step in list(self.steps[before].values()):
                after = step.after
                if after == before or not self.locals[after].alive:
                    continue
                known = self.absorbed.setdefault(after, set())
                new = frames - known
                for frame in sorted(new):
                    if not self.step(after, frame).inert:
                        move = self.moves[frame]
                        detail = f"A frame to {self.names[move.process]} is inert, and later it is not: {move.frame!r}."
                        return Violation("reduction", (self.names[move.process],), (), detail)
                known |= new
                if new:
                    work.append(after)
        return None


def broken(process: ProcessId, error: Exception) -> Violation:
    where = traceback.extract_tb(error.__traceback__)[-1]
    detail = f"{type(error).__name__} at {process} in {where.name}: {error} ({where.line})"
    return Violation(INVARIANT, (process,), (), detail)


_encoder = msgspec.msgpack.Encoder()
