"""A few processes on disks that sync when a test says so, and forget the rest in a crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from antiphon.core import Host, OrderingProtocol, Process, ProcessId, Topology
from antiphon.core.buffers import Buffers
from antiphon.core.channel import NO_FRAMES, NUMBERED, ChannelId
from antiphon.core.effects import Assured, CancelTimer, Record, Reply, Send, SetTimer
from antiphon.core.events import Delivered, Event
from antiphon.core.host import Turn
from antiphon.core.inputs import (
    AnyInput,
    Begin,
    Confirmed,
    Fire,
    Foretold,
    Multicast,
    Receive,
    Recover,
    Submit,
    Suspect,
)
from antiphon.core.requests import encode_request
from antiphon.simulation.disk import Disk

BACK = 5  # the time when a process is back; all else happens at 0


class Never(random.Random):
    """Of what was not durable, nothing survives."""

    def randint(self, a: int, b: int) -> int:
        return a


class Machine:
    """The outside of one host."""

    def __init__(self, world: Machines, name: ProcessId) -> None:
        self.world, self.name = world, name
        self.disk = Disk(0)
        self.delivered: list[str] = []
        self.payloads: list[bytes] = []
        self.told: list[Record] = []  # rows of the trace
        self.assured: list[Assured] = []
        self.shown: list[Event] = []  # before it was durable
        self.frames = self.copies = 0  # that it sent
        self.host = Host(self.world.fresh(name), self.disk, self)

    def on_send(self, send: Send, note: Any) -> None:
        self.frames += len(send.to)
        self._send(send, is_copy=False)

    def on_foretell(self, send: Send, note: Any) -> None:
        self.copies += len(send.to)
        self._send(send, is_copy=True)

    def _send(self, send: Send, *, is_copy: bool) -> None:
        for peer, channel, number in zip(send.to, send.channels, send.numbers, strict=True):
            back = ChannelId(self.name, channel.transport)
            self.world.under_way.setdefault((self.name, peer), []).append((is_copy, back, number, send.frame))

    def on_event(self, event: Event) -> None:
        if isinstance(event, Delivered) and event.position == len(self.payloads):
            self.delivered.append(str(event.id))
            self.payloads += [bytes(payload) for request in event.requests for payload in request.payloads()]

    def on_event_early(self, event: Event) -> None:
        self.shown.append(event)

    def on_record(self, record: Record) -> None:
        self.told.append(record)

    def on_assured(self, assured: Assured) -> None:
        self.assured.append(assured)

    def on_reply(self, reply: Reply) -> None: ...
    def on_set_timer(self, timer: SetTimer) -> None: ...
    def on_cancel_timer(self, timer: CancelTimer) -> None: ...
    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None: ...
    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None: ...


class Machines:
    """The members of some groups."""

    def __init__(
        self, kind: type[OrderingProtocol], groups: Mapping[str, int], options: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.options = kind, options or {}
        self.topology = Topology.sized(dict(groups))
        self.under_way: dict[tuple[str, str], list[tuple[bool, ChannelId, int, Buffers]]] = {}
        self.machines = {str(p): Machine(self, p) for p in self.topology.processes}
        for name in self.machines:
            self.take(name, Begin(0, self.topology.roster))
            self.sync(name)

    def fresh(self, name: ProcessId) -> Process:
        return Process(name, self.topology, self.kind, self.options)

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def protocol(self, name: str) -> Any:
        return self[name].host.process.protocol

    # What happens ---------------------------------------------------------------------------------------------------

    def take(self, at: str, happened: AnyInput) -> None:
        host = self[at].host
        host.take(happened)
        host.end_turn(0)
        host.release_early()

    def multicast(self, at: str, *groups: str, payload: bytes = b"x", now: int = 0) -> None:
        self.take(at, Multicast(now, self.topology.destinations(groups), (payload,)))

    def submit(self, at: str, *groups: str, payload: bytes = b"x") -> None:
        request = Buffers(encode_request("client", 0, 0, (payload,)))
        self.take(at, Submit(0, self.topology.destinations(groups), request))

    def suspect(self, at: str, whom: str) -> None:
        self.take(at, Suspect(0, ProcessId(whom)))

    def sync(self, at: str, inputs: int | None = None) -> None:
        """Of all that waits, or of the first so many."""
        disk = self[at].disk
        disk.begin_sync()
        if inputs is not None:
            disk.syncing = disk.durable + inputs
        self[at].host.durable(disk.sync_done())

    def arrive(self, source: str, target: str, now: int = 0) -> int:
        """All that is under way between the two. Returns how much that was."""
        return self._arrive(source, target, self.take, now)

    def arrive_together(self, target: str, *sources: str) -> None:
        """The same from each of these, in one turn."""
        host = self[target].host
        for source in sources:
            self._arrive(source, target, lambda _, happened: host.take(happened), 0)
        host.end_turn(0)
        host.release_early()

    def _arrive(self, source: str, target: str, take: Callable[[str, AnyInput], None], now: int) -> int:
        coming = self.under_way.pop((source, target), [])
        host = self[target].host
        for is_foretold, channel, number, frame in coming:
            if is_foretold:
                take(target, Foretold(now, *channel, number, frame))
            elif host.is_new(channel, number):
                told = host.process.is_foretold(channel, number, frame.checksum)
                take(target, Confirmed(now, *channel, number) if told else Receive(now, *channel, number, frame))
        return len(coming)

    def drain(self, *names: str) -> None:
        """All between these, and nobody else, until nothing more comes of it."""
        names = names or tuple(self.machines)
        while True:
            for name in names:
                self.sync(name)
            if not sum(self.arrive(one, two) for one in names for two in names):
                return

    def ring(self, *names: str) -> None:
        """Every timer that they have set."""
        for name in names:
            for (part, timer), due in sorted(self[name].host.process.state.timers.items()):
                self.take(name, Fire(due, part, timer, due))

    # Crashes --------------------------------------------------------------------------------------------------------

    def crash(self, at: str) -> None:
        """What is under way from it arrives, unless a test drops it."""
        self[at].disk.crash(Never())

    def drop(self, source: str, *targets: str) -> None:
        for target in targets or self.machines:
            self.under_way.pop((source, target), None)

    def restart(self, at: str) -> None:
        machine = self[at]
        machine.host = Host(self.fresh(machine.name), machine.disk, machine)
        machine.host.replay(machine.disk.replay())
        machine.host.go_on()
        for other in self.machines:
            if other != at:
                self.reconnect(at, other)
                self.reconnect(other, at)
        self.take(at, Recover(BACK, 0))

    def reconnect(self, source: str, target: str) -> None:
        """What is held is told, and the rest is sent again, as real links do it. JournalBehind: see there."""
        one, two = self[source], self[target]
        for transport in NUMBERED:
            channel, back = ChannelId(two.name, transport), ChannelId(one.name, transport)
            box, held = one.host.outbox(channel), two.host.received.get(back, NO_FRAMES)
            one.host.check_peer(channel, held=held)
            two.host.check_peer(back, forgotten=box.acknowledged)
            box.acknowledge(held.frames)
            waiting = self.under_way.setdefault((source, target), [])
            waiting += [(False, back, number, frame) for number, frame in box.frames_from(held.frames + 1)]
