"""The states of members, numbered. What comes of a step is worked out once for each of them, and then looked up.

A member is a deterministic function of what happened to it: a state is known by the shortest history that led to it,
and is made again from that one when it takes a step that it has not taken before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from antiphon.core.errors import BadFrame
from antiphon.core.host import Host
from antiphon.core.inputs import AnyInput, TurnEnd, encode_input
from antiphon.core.model import Topology
from antiphon.core.process import Process
from antiphon.simulation.disk import Disk
from antiphon.simulation.forgetting.member import ForgetfulMember, LetOut
from antiphon.simulation.forgetting.values import Broken, ForgettingScope, MemberState, Step, StepTaken


def _turn(waiting: Sequence[AnyInput]) -> int:
    return 1 + (len(waiting) > 1 and type(waiting[1]) is TurnEnd) if waiting else 0


def _digest(whole: object) -> bytes:
    return hashlib.blake2b(repr(whole).encode(), digest_size=16).digest()


class MemberTable:
    def __init__(self, scope: ForgettingScope) -> None:
        self.scope = scope
        self.topology = Topology.sized(dict(scope.groups))
        self.names = list(self.topology.processes)
        self.states: list[MemberState] = []
        self._histories: list[tuple[int, tuple[Step, ...]]] = []  # of each state: whose it is, and how it came about
        self._numbers: dict[bytes, int] = {}
        self._known: dict[tuple[int, type, Step], StepTaken] = {}  # tuples of other types may be equal
        self._replayed: dict[bytes, bytes] = {}

    def beginning(self) -> tuple[int, ...]:
        """The states of all members before anything happens."""
        fresh = (ForgetfulMember(self.scope, self.topology, name) for name in self.names)
        return tuple(self._number(place, member, ()) for place, member in enumerate(fresh))

    def after(self, number: int, step: Step) -> StepTaken:
        """What a member in this state does."""
        taken = self._known.get((number, type(step), step))
        if taken is None:
            member = self._made(number)
            place, history = self._histories[number]
            try:
                member.step(step)
            except BadFrame:
                pass  # it came without those before it, and comes again with them
            except Exception as error:
                raise Broken(f"{self.names[place]}: {type(error).__name__}: {error}") from error
            out = tuple((self.names.index(to), what) for to, what in member.outside.out)
            taken = StepTaken(self._number(place, member, (*history, step)), out)
            self._known[number, type(step), step] = taken
        return taken

    def _made(self, number: int) -> ForgetfulMember:
        place, history = self._histories[number]
        member = ForgetfulMember(self.scope, self.topology, self.names[place])
        for step in history:
            member.step(step)
        member.outside.out.clear()
        return member

    def _number(self, place: int, member: ForgetfulMember, history: tuple[Step, ...]) -> int:
        host, disk = member.host, member.disk
        inputs = [bytes(encode_input(each)) for each in disk.inputs]
        durable = self._state_after(place, inputs[: disk.durable])
        begun = [turn.is_begun for turn in host.waiting] if member.is_up else []
        state = self._seen_of(member)
        now = host.process.now if member.is_up else 0
        whole = (place, durable, inputs[disk.durable :], begun, now, host._foretold if member.is_up else 0, state)
        key = _digest(whole)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.states)
            self.states.append(state._replace(number=number))
            self._histories.append((place, history))
        return number

    def _seen_of(self, member: ForgetfulMember) -> MemberState:
        """What the others, its readers and its clients have of it, or may have."""
        seen, host, disk = member.outside, member.host, member.disk
        held = tuple(sorted((c, p.frames) for c, p in host.received.items())) if member.is_up else ()
        boxes = sorted(host.outboxes.items()) if member.is_up else ()
        return MemberState(
            number=0,
            is_up=member.is_up,
            waiting=disk.next_index - disk.durable,
            turn=_turn(disk.inputs[disk.durable :]),
            pending=host.process.protocol.pending() if member.is_up else 0,
            held=held,
            sent=tuple((channel, tuple(bytes(frame) for frame in box.frames)) for channel, box in boxes),
            shown=tuple(sorted({*seen.shown})),
            log=tuple(seen.log),
            requests=tuple(sorted(seen.requests.items())),
            promised=tuple(sorted(seen.promised.items())),
        )

    def _state_after(self, place: int, inputs: list[bytes]) -> bytes:
        """What a member is that remembers these. Amid a turn it is known by what it took."""
        key = _digest((place, inputs))
        found = self._replayed.get(key)
        if found is None:
            process = Process(self.names[place], self.topology, self.scope.protocol, self.scope.options)
            host = Host(process, Disk(0), LetOut())
            host.replay(enumerate(inputs))
            found = self._replayed[key] = key if process.turn_is_open else self._closed(host)
        return found

    def _closed(self, host: Host) -> bytes:
        state = host.process.state
        left = (dict(state.turn), len(state.gathering.messages))  # of a turn that is over
        state.turn.clear()
        return _digest((left, host.snapshot()))
