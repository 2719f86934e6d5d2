"""One member on a disk that may forget: the real host, stepped by hand, and what it lets out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from antiphon.core.buffers import Buffers
from antiphon.core.channel import ChannelId
from antiphon.core.effects import Assured, CancelTimer, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame
from antiphon.core.events import Delivered, Event
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import AnyInput, Begin, Confirmed, Fire, Foretold, Receive, Recover
from antiphon.core.model import ProcessId, Topology
from antiphon.core.process import Process
from antiphon.simulation.disk import Disk
from antiphon.simulation.forgetting.values import (
    Arrives,
    ArriveTogether,
    Crashes,
    ForgettingScope,
    OnWire,
    Returns,
    Rings,
    SeenAt,
    Step,
    Syncs,
)


class LetOut:
    """What one host lets out."""

    def __init__(self) -> None:
        self.out: list[tuple[ProcessId, OnWire]] = []
        self.shown: list[SeenAt] = []
        self.log: list[SeenAt] = []
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


class ForgetfulMember:
    """One member, after the steps that it has taken."""

    def __init__(self, scope: ForgettingScope, topology: Topology, me: ProcessId) -> None:
        self.scope, self.topology, self.me = scope, topology, me
        self.disk, self.outside = Disk(0), LetOut()
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
        host.process.checks.frame(frame)
        if is_copy:
            host.take(Foretold(0, step.sender, transport, number, frame))
        elif host.is_new(channel, number):
            if host.process.is_foretold(channel, number, frame.checksum):
                host.take(Confirmed(0, step.sender, transport, number))
            else:
                host.take(Receive(0, step.sender, transport, number, frame))
