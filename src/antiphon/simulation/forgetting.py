"""Every schedule of a few members whose disks may forget: frames in every order, syncs and crashes at every point.

The search in search/ knows no disk. Here an input is taken, and later it is durable, or forgotten; what leaves before
that (core/host.py) is seen by others all the same. A member is a deterministic function of what happened to it, so what
comes of a step is worked out once for each of its states; a configuration is then a few numbers, and the frames on
their way.

After each step, what readers saw and clients were told must agree with the rest. And from each configuration the run
is brought to its end, once with all members back and once without those who are down: then everybody who is there has
delivered all of that, at the same places.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

from antiphon.core.buffers import Buffers
from antiphon.core.channel import NUMBERED, ChannelId, Transport
from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import Assured, CancelTimer, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame
from antiphon.core.events import Delivered, Event
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import (
    AnyInput,
    Begin,
    Confirmed,
    Fire,
    Foretold,
    Receive,
    Recover,
    Submit,
    Suspect,
    TurnEnd,
    encode_input,
)
from antiphon.core.model import ProcessId, Topology
from antiphon.core.process import Process
from antiphon.core.requests import encode_request
from antiphon.simulation.disk import Disk

CLIENT = "client"  # and the number of its request: each has one
LAST = "last"  # a client of the end
ROUNDS = 8  # of timers, in which a run has to come to its end

Place = tuple[int, str]  # a position, and the message that is there
Promised = tuple[str, int]  # a client, and up to where it was told that its requests are safe
Wires = tuple[tuple["OnWire", ...], ...]  # from each member to each other, in their order


class OnWire(NamedTuple):
    """A frame on its way."""

    is_copy: bool  # it was foretold
    transport: Transport
    number: int
    frame: bytes


class Arrives(NamedTuple):
    """From a peer."""

    sender: ProcessId
    what: OnWire


class ArriveTogether(NamedTuple):
    """One after the other, in one turn."""

    frames: tuple[Arrives, ...]


class Syncs(NamedTuple):
    """So many more inputs are durable, and it hears so."""

    inputs: int


class Crashes(NamedTuple):
    """What is not durable is forgotten, but for the first few inputs, of which it had not heard yet."""

    keeps: int


class Returns(NamedTuple):
    """From its journal."""


class Rings(NamedTuple):
    """All its timers do, in their order."""


Step = Arrives | ArriveTogether | Syncs | Crashes | Returns | Rings | Submit | Suspect


class MemberState(NamedTuple):
    """A member, as far as anybody can tell it from another."""

    number: int
    is_up: bool
    waiting: int  # inputs that are not durable
    turn: int  # so many of them are what it took first, with the end of that turn
    pending: int  # messages that it knows of and has not delivered
    held: tuple[tuple[ChannelId, int], ...]  # frames of each channel that it holds durably
    sent: tuple[tuple[ChannelId, tuple[bytes, ...]], ...]  # all that it ever let out on each
    shown: tuple[Place, ...]  # to readers, whatever became of it
    log: tuple[Place, ...]
    requests: tuple[Promised, ...]  # that it has delivered: of each client, up to here
    promised: tuple[Promised, ...]


class StepTaken(NamedTuple):
    """What came of a step."""

    after: int
    out: tuple[tuple[int, OnWire], ...]  # frames, each with the place of its receiver


class Broken(Exception):
    """A promise, or an assertion."""


class Configuration(NamedTuple):
    members: tuple[int, ...]  # their states
    wires: Wires
    submitted: int  # requests that were made
    crashes: int
    suspicions: tuple[tuple[int, int], ...]


class ForgettingScope(NamedTuple):
    """What a search may do."""

    protocol: type[OrderingProtocol]
    groups: Mapping[str, int]
    options: Mapping[str, str]
    requests: Sequence[tuple[str, tuple[str, ...]]]  # at which member each is handed in, and for which groups
    crashes: int = 1
    crashing: tuple[str, ...] = ()  # who may crash; anybody
    suspicions: bool = False  # whether those who crashed may be suspected before the end
    together: bool = False  # whether two frames may come in one turn


class SearchResult(NamedTuple):
    configurations: int
    steps: int
    is_complete: bool
    states: int  # of members
    violation: str | None
    path: tuple[str, ...] = ()


class _Outside:
    """What one host lets out."""

    def __init__(self) -> None:
        self.out: list[tuple[ProcessId, OnWire]] = []
        self.shown: list[Place] = []
        self.log: list[Place] = []
        self.requests: dict[str, int] = {}
        self.promised: dict[str, int] = {}

    def _add(self, send: Send, *, is_copy: bool) -> None:
        for peer, number in zip(send.to, send.numbers, strict=True):
            self.out.append((peer, OnWire(is_copy, send.transport, number, bytes(send.frame))))

    def on_send(self, send: Send, note: Any) -> None:
        self._add(send, is_copy=False)

    def on_foretell(self, send: Send, note: Any) -> None:
        self._add(send, is_copy=True)

    def on_event(self, event: Event) -> None:
        if isinstance(event, Delivered) and event.count and event.position == len(self.log):
            self.log.append((event.position, str(event.id)))
            for request in event.requests:
                self.requests[request.client] = request.end

    def on_event_early(self, event: Event) -> None:
        if isinstance(event, Delivered) and event.count:
            self.shown.append((event.position, str(event.id)))

    def on_assured(self, assured: Assured) -> None:
        self.promised[assured.client] = max(assured.assured, self.promised.get(assured.client, 0))

    def on_record(self, record: Record) -> None: ...
    def on_reply(self, reply: Reply) -> None: ...
    def on_set_timer(self, timer: SetTimer) -> None: ...
    def on_cancel_timer(self, timer: CancelTimer) -> None: ...
    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None: ...
    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None: ...


def _turn(waiting: Sequence[AnyInput]) -> int:
    return 1 + (len(waiting) > 1 and type(waiting[1]) is TurnEnd) if waiting else 0


class _Member:
    """One member, after the steps that it has taken."""

    def __init__(self, scope: ForgettingScope, topology: Topology, me: ProcessId) -> None:
        self.scope, self.topology, self.me = scope, topology, me
        self.disk, self.outside = Disk(0), _Outside()
        self.host = Host(self._fresh(), self.disk, self.outside)
        self.is_up = True
        self.take(Begin(0, topology.roster))
        self.sync(self.host.held)
        self.outside.out.clear()

    def _fresh(self) -> Process:
        return Process(self.me, self.topology, self.scope.protocol, self.scope.options)

    def take(self, happened: AnyInput) -> None:
        self.host.take(happened)
        self._end_turn()

    def _end_turn(self) -> None:
        self.host.end_turn(0)
        self.host.release_early()

    def sync(self, inputs: int) -> None:
        self.disk.durable += inputs
        self.host.durable(self.disk.durable)

    def step(self, step: Step) -> None:
        host = self.host
        if isinstance(step, Arrives):
            self._arrive(step)
            self._end_turn()
        elif isinstance(step, ArriveTogether):
            for each in step.frames:
                with suppress(BadFrame):  # it came without those before it, and comes again with them
                    self._arrive(each)
            self._end_turn()
        elif isinstance(step, Syncs):
            self.sync(step.inputs)
        elif isinstance(step, Crashes):
            del self.disk.inputs[self.disk.durable + step.keeps :]
            self.disk.durable = self.disk.next_index
            self.is_up = False
        elif isinstance(step, Returns):
            self.host = Host(self._fresh(), self.disk, self.outside)
            self.host.replay(self.disk.replay())
            self.host.go_on()
            self.is_up = True
            self.take(Recover(0, 0))
        elif isinstance(step, Rings):
            for (part, timer), due in sorted(host.process.state.timers.items()):
                self.take(Fire(due, part, timer, due))
        else:
            self.take(step)

    def _arrive(self, step: Arrives) -> None:
        host, (is_copy, transport, number, data) = self.host, step.what
        channel, frame = ChannelId(step.sender, transport), Buffers(data)
        host.process.check_frame(frame)
        if is_copy:
            host.take(Foretold(0, step.sender, transport, number, frame))
        elif host.is_new(channel, number):
            if host.process.is_foretold(channel, number, frame.checksum):
                host.take(Confirmed(0, step.sender, transport, number))
            else:
                host.take(Receive(0, step.sender, transport, number, frame))


class ForgettingSearch:
    """Breadth first, and each configuration once: what it finds, it finds by the fewest steps."""

    def __init__(self, scope: ForgettingScope, configurations: int) -> None:
        self.scope, self.limit = scope, configurations
        self.topology = Topology.sized(dict(scope.groups))
        self.names = list(self.topology.processes)
        self.pairs = [(s, t) for s in range(len(self.names)) for t in range(len(self.names))]
        self._histories: list[tuple[int, tuple[Step, ...]]] = []  # of each state: whose it is, and how it came about
        self._states: list[MemberState] = []
        self._numbers: dict[bytes, int] = {}
        self._known: dict[tuple[int, type, Step], StepTaken] = {}  # tuples of other types may be equal
        self._replayed: dict[bytes, bytes] = {}
        self._ended: set[tuple[Configuration, bool]] = set()
        self.steps = 0

    # Members --------------------------------------------------------------------------------------------------------

    def _number(self, place: int, member: _Member, history: tuple[Step, ...]) -> int:
        seen, host, disk = member.outside, member.host, member.disk
        inputs = [bytes(encode_input(each)) for each in disk.inputs]
        durable = self._state_after(place, inputs[: disk.durable])
        begun = [turn.is_begun for turn in host.waiting] if member.is_up else []
        held = tuple(sorted((c, p.frames) for c, p in host.received.items())) if member.is_up else ()
        boxes = sorted(host.outboxes.items()) if member.is_up else ()
        sent = tuple((channel, tuple(bytes(frame) for frame in box.frames)) for channel, box in boxes)
        state = MemberState(
            0,
            member.is_up,
            disk.next_index - disk.durable,
            _turn(disk.inputs[disk.durable :]),
            host.process.protocol.pending() if member.is_up else 0,
            held,
            sent,
            tuple(sorted({*seen.shown})),
            tuple(seen.log),
            tuple(sorted(seen.requests.items())),
            tuple(sorted(seen.promised.items())),
        )
        now = host.process.now if member.is_up else 0
        whole = (place, durable, inputs[disk.durable :], begun, now, host._foretold if member.is_up else 0, state)
        key = hashlib.blake2b(repr(whole).encode(), digest_size=16).digest()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._states)
            self._states.append(state._replace(number=number))
            self._histories.append((place, history))
        return number

    def _state_after(self, place: int, inputs: list[bytes]) -> bytes:
        """What a member is that remembers these."""
        key = hashlib.blake2b(repr((place, inputs)).encode(), digest_size=16).digest()
        found = self._replayed.get(key)
        if found is None:
            process = Process(self.names[place], self.topology, self.scope.protocol, self.scope.options)
            disk = Disk(0)
            host = Host(process, disk, _Outside())
            host.replay(enumerate(inputs))
            open_turn = (dict(process.state.turn), len(process.state.gathering.messages))
            process.state.turn.clear()
            whole = (open_turn, host.snapshot() if not process.turn_is_open else b"")
            found = self._replayed[key] = hashlib.blake2b(repr(whole).encode(), digest_size=16).digest()
            if process.turn_is_open:
                found = self._replayed[key] = key
        return found

    def _made(self, number: int) -> _Member:
        place, history = self._histories[number]
        member = _Member(self.scope, self.topology, self.names[place])
        for step in history:
            member.step(step)
        member.outside.out.clear()
        return member

    def _take(self, number: int, step: Step) -> StepTaken:
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
            taken = self._known[number, type(step), step] = StepTaken(
                self._number(place, member, (*history, step)), out
            )
        return taken

    # Configurations -------------------------------------------------------------------------------------------------

    def _begin(self) -> Configuration:
        members = tuple(
            self._number(place, _Member(self.scope, self.topology, name), ()) for place, name in enumerate(self.names)
        )
        return Configuration(members, ((),) * len(self.pairs), 0, 0, ())

    def _after(self, at: Configuration, place: int, step: Step, wires: Wires | None = None) -> Configuration:
        """A step of one member. What goes to one that is down is lost, and comes again when that is back."""
        after, out = self._take(at.members[place], step)
        changed = list(at.wires if wires is None else wires)
        for to, what in out:
            if self._states[at.members[to]].is_up:
                changed[self._pair(place, to)] += (what,)
        members = (*at.members[:place], after, *at.members[place + 1 :])
        return at._replace(members=members, wires=tuple(changed))

    def _pair(self, source: int, target: int) -> int:
        return source * len(self.names) + target

    def moves(self, at: Configuration) -> Iterator[tuple[str, Configuration]]:
        scope = self.scope
        if at.submitted < len(scope.requests):
            name, groups = scope.requests[at.submitted]
            place = self.names.index(ProcessId(name))
            if self._states[at.members[place]].is_up:
                data = Buffers(encode_request(f"{CLIENT}{at.submitted}", 0, 0, (b"x",)))
                submit = Submit(0, self.topology.destinations(groups), data)
                yield f"{name} takes a request", self._after(at, place, submit)._replace(submitted=at.submitted + 1)
        for source, target in self.pairs:
            if at.wires[self._pair(source, target)] and self._states[at.members[target]].is_up:
                yield f"{self.names[target]} hears {self.names[source]}", self._arrive(at, source, target)
        if scope.together:
            yield from self._pairs(at)
        for place, name in enumerate(self.names):
            state = self._states[at.members[place]]
            if not state.is_up:
                yield f"{name} returns", self._return(at, place)
                continue
            if state.waiting:
                yield f"{name} syncs", self._after(at, place, Syncs(state.turn))
            if at.crashes < scope.crashes and (not scope.crashing or name in scope.crashing):
                for keeps in range(state.waiting + 1):
                    for is_lost in (False, True):
                        yield f"{name} crashes", self._crash(at, place, keeps, is_lost=is_lost)
            if scope.suspicions and at.crashes:
                yield from self._suspicions(at, place)

    def _pairs(self, at: Configuration) -> Iterator[tuple[str, Configuration]]:
        """Two frames in one turn, from one member or from two."""
        places = range(len(self.names))
        for target, one, two in product(places, places, places):
            first, second = at.wires[self._pair(one, target)], at.wires[self._pair(two, target)]
            if not (self._states[at.members[target]].is_up and first and len(second) > (one == two)):
                continue
            wires = list(at.wires)
            frames = []
            for source in (one, two):
                pair = self._pair(source, target)
                frames.append(Arrives(self.names[source], wires[pair][0]))
                wires[pair] = wires[pair][1:]
            after = self._after(at, target, ArriveTogether(tuple(frames)), tuple(wires))
            yield f"{self.names[target]} hears {self.names[one]} and {self.names[two]}", after

    def _suspicions(self, at: Configuration, place: int) -> Iterator[tuple[str, Configuration]]:
        for other, name in enumerate(self.names):
            if name in self.scope.crashing and other != place and (place, other) not in at.suspicions:
                after = self._after(at, place, Suspect(0, name))
                told = tuple(sorted((*at.suspicions, (place, other))))
                yield f"{self.names[place]} suspects {name}", after._replace(suspicions=told)

    def _arrive(self, at: Configuration, source: int, target: int) -> Configuration:
        wires, pair = list(at.wires), self._pair(source, target)
        what, wires[pair] = wires[pair][0], wires[pair][1:]
        return self._after(at, target, Arrives(self.names[source], what), tuple(wires))

    def _crash(self, at: Configuration, place: int, keeps: int, *, is_lost: bool) -> Configuration:
        wires = list(at.wires)
        for other in range(len(self.names)):
            wires[self._pair(other, place)] = ()
            if is_lost:
                wires[self._pair(place, other)] = ()
        after = self._after(at, place, Crashes(keeps), tuple(wires))
        return after._replace(crashes=at.crashes + 1)

    def _return(self, at: Configuration, place: int) -> Configuration:
        """What is under way is lost with its connection; what either end lacks is sent again."""
        at = self._after(at, place, Returns())
        wires = list(at.wires)
        for other in range(len(self.names)):
            if other != place:
                wires[self._pair(place, other)] = self._lacking(at, place, other)
                wires[self._pair(other, place)] = self._lacking(at, other, place)
        return at._replace(wires=tuple(wires))

    def _lacking(self, at: Configuration, source: int, target: int) -> tuple[OnWire, ...]:
        one, two = self._states[at.members[source]], self._states[at.members[target]]
        if not (one.is_up and two.is_up):
            return ()
        found: list[OnWire] = []
        for transport in NUMBERED:
            sent = dict(one.sent).get(ChannelId(self.names[target], transport), ())
            held = dict(two.held).get(ChannelId(self.names[source], transport), 0)
            if held > len(sent):
                raise Broken(f"{two} holds {held} frames of {self.names[source]}, which knows of {len(sent)}.")
            found += [OnWire(False, transport, number, frame) for number, frame in enumerate(sent[held:], held + 1)]
        return tuple(found)

    # Verdicts -------------------------------------------------------------------------------------------------------

    def check(self, at: Configuration) -> None:
        """What anybody saw, at a place of the group's log, is what all see there; and groups agree on an order."""
        logs: dict[str, dict[int, str]] = {}
        for name, number in zip(self.names, at.members, strict=True):
            state, log = self._states[number], logs.setdefault(self.topology.group_of[name], {})
            for position, id in (*state.log, *state.shown):
                if log.setdefault(position, id) != id:
                    raise Broken(f"{name} has {id} at {position}, where {log[position]} was seen.")
        orders = [[id for _, id in sorted(log.items())] for log in logs.values()]
        for one in orders:
            for two in orders:
                if [id for id in one if id in two] != [id for id in two if id in one]:
                    raise Broken(f"Two groups have other orders: {one}, {two}.")

    def end(self, at: Configuration, *, with_all: bool) -> None:
        """Bring the run to its end, and see whether everybody who is there has what anybody saw or was promised."""
        if (at, with_all) in self._ended:
            return
        self._ended.add((at, with_all))
        down = [place for place, number in enumerate(at.members) if not self._states[number].is_up]
        if not with_all and self._is_stuck(down):
            return
        if with_all:
            for place in down:
                at = self._return(at, place)
        at = self._go_on(at, [] if with_all else down)
        self._check_end(at)
        # And whoever is there goes on: also those who have forgotten what there was to lead.
        place = self._up(at)[-1]
        data = Buffers(encode_request(LAST, 0, 0, (b"x",)))
        at = self._go_on(self._after(at, place, Submit(0, (self.topology.group_of[self.names[place]],), data)), [])
        for member in self.topology.members(self.topology.group_of[self.names[place]]):
            state = self._states[at.members[self.names.index(member)]]
            if state.is_up and LAST not in dict(state.requests):
                raise Broken(f"{member} does not go on.")

    def _go_on(self, at: Configuration, gone: list[int]) -> Configuration:
        """Until nothing happens but by timers, and then by these, a few times."""
        for turn in range(ROUNDS):
            at = self._settle(at)
            for place in self._up(at):
                for other in gone if not turn else ():
                    at = self._after(at, place, Suspect(0, self.names[other]))
                at = self._after(at, place, Rings())
        at = self._settle(at)
        self.check(at)
        return at

    def _is_stuck(self, down: list[int]) -> bool:
        """Whether a group has lost too many of its members to go on."""
        groups = [self.topology.group_of[self.names[place]] for place in down]
        return any(2 * groups.count(group) >= len(self.topology.members(group)) for group in groups)

    def _up(self, at: Configuration) -> list[int]:
        return [place for place, number in enumerate(at.members) if self._states[number].is_up]

    def _settle(self, at: Configuration) -> Configuration:
        """All that is under way arrives, and all is durable."""
        while True:
            before = at
            for place in self._up(at):
                if waiting := self._states[at.members[place]].waiting:
                    at = self._after(at, place, Syncs(waiting))
            for source, target in self.pairs:
                while at.wires[self._pair(source, target)]:
                    at = self._arrive(at, source, target)
            if at == before:
                return at

    def _check_end(self, at: Configuration) -> None:
        for group in self.topology.groups:
            places = [self.names.index(name) for name in self.topology.members(group)]
            states = [self._states[at.members[place]] for place in places]
            seen = {each for state in states for each in (*state.log, *state.shown)}
            for place, state in zip(places, states, strict=True):
                if state.is_up and {*state.log} != seen:
                    raise Broken(f"{self.names[place]} has {[*state.log]} at the end, and others saw {sorted(seen)}.")
                if state.is_up and state.pending:
                    raise Broken(f"{self.names[place]} never delivers what it knows of.")
                had = dict(state.requests)
                for number in at.members:
                    for client, end in self._states[number].promised:
                        _, groups = self.scope.requests[int(client.removeprefix(CLIENT))]
                        if state.is_up and group in groups and had.get(client, 0) < end:
                            raise Broken(f"{self.names[place]} never delivers what {client} has a receipt for.")

    # The search -----------------------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        begun = self._begin()
        came: dict[Configuration, tuple[Configuration, str] | None] = {begun: None}
        waiting = deque([begun])
        at, last = begun, ""
        try:
            while waiting and len(came) < self.limit:
                at, last = waiting.popleft(), ""
                self.check(at)
                for with_all in (True, False) if at.crashes else ():
                    last = "at the end, with all back" if with_all else "at the end, without those who are down"
                    self.end(at, with_all=with_all)
                last = ""
                for label, after in self.moves(at):
                    self.steps += 1
                    if after not in came:
                        came[after] = (at, label)
                        waiting.append(after)
        except Broken as broken:
            path = [last] if last else []
            known: Configuration | None = at
            while known is not None and (before := came[known]) is not None:
                known, label = before
                path.append(label)
            return self._result(came, str(broken), tuple(reversed(path)))
        return self._result(came, None, (), is_complete=not waiting)

    def _result(
        self, came: Sized, violation: str | None, path: tuple[str, ...], *, is_complete: bool = False
    ) -> SearchResult:
        return SearchResult(len(came), self.steps, is_complete, len(self._states), violation, path)


def search_forgetting(scope: ForgettingScope, configurations: int = 1_000_000) -> SearchResult:
    return ForgettingSearch(scope, configurations).run()
