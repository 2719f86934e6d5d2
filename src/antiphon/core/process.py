"""One process: inputs in, effects out, and a snapshot in between. Both drivers run exactly this."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from antiphon.core import inputs
from antiphon.core.channel import Endpoints
from antiphon.core.component import Component, OrderingProtocol, Wire
from antiphon.core.declaration import Channels, Promise
from antiphon.core.effects import AnyEffect, CancelTimer, Deliver, Monitor, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.model import PAYLOAD_BYTES_MAX, GroupId, Message, MessageId, ProcessId, Topology
from antiphon.core.options import parse_options
from antiphon.core.sessions import REQUESTS_MAX, Sessions

CLIENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SNAPSHOT_VERSION = 1


class ProcessState(msgspec.Struct, array_like=True):
    """Everything a process is, beside its wiring. A snapshot is this, encoded."""

    version: int = SNAPSHOT_VERSION
    now: int = 0
    seq: int = 0  # of the newest traced event
    multicasts: int = 0  # made by this process on its own behalf
    position: int = 0  # of the next delivery
    timers: dict[str, int] = {}
    monitored: dict[int, tuple[ProcessId, ...]] = {}  # by part
    suspects: list[ProcessId] = []
    channels: Endpoints = msgspec.field(default_factory=Endpoints)
    sessions: Sessions = msgspec.field(default_factory=Sessions)
    parts: list[bytes] = []


class Process:
    """The root of a protocol's components, and the only thing that a driver talks to."""

    def __init__(
        self,
        me: ProcessId,
        topology: Topology,
        protocol: type[OrderingProtocol],
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.me = me
        self.topology = topology
        self.now = 0
        self.parts: list[Component] = []
        self.state = ProcessState()
        self.channels = self.state.channels
        self.sessions = self.state.sessions
        self.numbered = protocol.declaration.assumes.channels is Channels.RELIABLE
        # Without total order a copy may come after a later request that calls it settled: then nothing is forgotten.
        self.ordered = Promise.TOTAL_ORDER in protocol.declaration.promises
        self.traced = True  # whether anybody reads the records; events are numbered all the same
        self._checked: tuple[bytes, tuple[Component, Wire]] | None = None  # the newest frame, so as to decode it once
        self._local: deque[tuple[Component, Wire]] = deque()
        self._effects: list[AnyEffect] = []
        self._handlers: dict[type[inputs.Input], Any] = {
            inputs.Receive: self._on_receive,
            inputs.Multicast: self._on_multicast,
            inputs.Submit: self._on_submit,
            inputs.Fire: self._on_fire,
            inputs.Suspect: self._on_suspect,
            inputs.Trust: self._on_trust,
            inputs.Begin: self._on_begin,
            inputs.Recover: self._on_recover,
        }
        parsed = parse_options(protocol, options or {})
        self.protocol = protocol(self, protocol.declaration.name, parsed, {})

    # The driver's side ------------------------------------------------------------------------------------------

    def step(self, happened: inputs.AnyInput) -> list[AnyEffect]:
        """Handle one input. The effects are to be released, in order, once the input is durable."""
        effects: list[AnyEffect] = []
        self._effects = effects
        self.now = max(self.now, happened.at)  # a clock that was set back must not take the process with it
        self._handlers[type(happened)](happened)
        while self._local:
            part, message = self._local.popleft()
            part.handlers[type(message)](self.me, message)
        return effects

    def check_frame(self, frame: bytes) -> None:
        """Raise BadFrame for bytes that no component of ours sent; call before the frame is journaled."""
        part, message = self.decode(frame)
        part.validate(message)
        self._checked = (frame, (part, message))

    def check_request(
        self, client: str, number: int, settled: int, destinations: Iterable[str], payload: bytes
    ) -> None:
        """Refuse a client's request that this member cannot serve; call before it is journaled."""
        wanted = self.check_multicast(destinations, payload)
        if not CLIENT_NAME.fullmatch(client):
            raise UsageError("A client's name is 1 to 64 letters, digits, '_' or '-'.")
        if self.topology.group_of.get(self.me) not in wanted:
            raise UsageError(
                f"{self.me} is in none of the destination groups {', '.join(wanted)}: ask one of their members."
            )
        if not 0 <= settled <= number < settled + REQUESTS_MAX:
            raise UsageError(f"Request {number} is not within {REQUESTS_MAX} of the settled mark {settled}.")

    def check_multicast(self, destinations: Iterable[str], payload: bytes) -> tuple[GroupId, ...]:
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise UsageError(f"A payload has at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}.")
        wanted = self.topology.destinations(destinations)
        self.protocol.admit(self.topology, wanted)
        return wanted

    def snapshot(self) -> bytes:
        self.state.now = self.now
        self.state.parts = [part.snapshot() for part in self.parts]
        return _encoder.encode(self.state)

    def restore(self, data: bytes) -> None:
        """Become the process that took the snapshot. Only for a process that has seen no input."""
        state = msgspec.msgpack.decode(data, type=ProcessState)
        if state.version != SNAPSHOT_VERSION or len(state.parts) != len(self.parts):
            raise UsageError("This snapshot was taken by another version of the program or with other options.")
        self.state = state
        self.channels = state.channels
        self.sessions = state.sessions
        self.now = state.now
        for part, part_state in zip(self.parts, state.parts, strict=True):
            part.restore(part_state)

    # The components' side ---------------------------------------------------------------------------------------

    def register(self, part: Component) -> int:
        self.parts.append(part)
        assert len(self.parts) <= 255, "a part's index must fit into the first byte of a frame"
        return len(self.parts) - 1

    def send_for(self, part: Component, to: Iterable[ProcessId], message: Wire) -> None:
        frame = self.encode(part, message)
        find = part.contract.subjects[type(message)]
        subject = find(message) if find is not None else None
        state, effects, me, layer = self.state, self._effects, self.me, part.layer
        for process in to:
            if process == me:
                self.send_to_self(part, message)
                continue
            number = self.channels.outbox(process).push(frame) if self.numbered else 0
            state.seq += 1
            effects.append(Send(state.seq, process, number, frame, layer, subject))

    def encode(self, part: Component, message: Wire) -> bytes:
        """A frame: the index of the part that will handle it, and the message."""
        return bytes((part.index,)) + _encoder.encode(message)

    def handle(self, sender: ProcessId, frame: bytes) -> None:
        """Give a frame to its part."""
        part, message = self.decode(frame)
        part.handlers[type(message)](sender, message)

    def send_to_self(self, part: Component, message: Wire) -> None:
        self._local.append((part, message))

    def deliver(self, message: Message, order_key: str | None) -> None:
        assert self.topology.group_of.get(self.me) in message.destinations, "only addressees deliver"
        name, copied, _ = message.id.partition("@")
        if copied:
            client, _, number = name.rpartition(":")
            if not self.sessions.admit(client, int(number), message.settled):
                return
        state = self.state
        state.seq += 1
        self._effects.append(Deliver(state.seq, message, state.position, order_key))
        state.position += 1

    def set_timer(self, timer: str, due: int) -> None:
        self.state.timers[timer] = due
        self._effects.append(SetTimer(timer, due))

    def cancel_timer(self, timer: str) -> None:
        if self.state.timers.pop(timer, None) is not None:
            self._effects.append(CancelTimer(timer))

    def monitor(self, index: int, processes: Iterable[ProcessId]) -> None:
        before = self.monitored()
        self.state.monitored[index] = tuple(processes)
        after = self.monitored()
        if after != before:
            self.state.suspects = [p for p in self.state.suspects if p in after]
            self._effects.append(Monitor(after))

    def monitored(self) -> tuple[ProcessId, ...]:
        """Everybody whom some part asks about, once, in one order."""
        wanted = {p for processes in self.state.monitored.values() for p in processes}
        return tuple(sorted(wanted - {self.me}))

    # Inputs -----------------------------------------------------------------------------------------------------

    def _on_begin(self, _: inputs.Begin) -> None:
        for part in self.parts:
            part.begin()

    def _on_receive(self, received: inputs.Receive) -> None:
        if self.numbered:
            self.channels.inbox(received.sender).take(received.number)
        frame, checked = received.frame, self._checked
        part, message = checked[1] if checked is not None and checked[0] is frame else self.decode(frame)
        find = part.contract.subjects[type(message)]
        subject = find(message) if find is not None else None
        self._record("receive", subject, None, received.sender, part.layer, len(received.frame))
        part.handlers[type(message)](received.sender, message)

    def _on_multicast(self, wanted: inputs.Multicast) -> None:
        self.state.multicasts += 1
        name = MessageId(f"{self.me}:{self.state.multicasts}")
        self._multicast(Message(name, wanted.destinations, wanted.payload))

    def _on_submit(self, request: inputs.Submit) -> None:
        if self.sessions.accept(request.client, request.number):
            name = MessageId(f"{request.client}:{request.number}@{self.me}")
            settled = request.settled if self.ordered else 0
            self._multicast(Message(name, request.destinations, request.payload, settled))
        self._effects.append(Reply(request.client, request.number))

    def _multicast(self, message: Message) -> None:
        self._record("multicast", message.id, message.destinations)
        self.protocol.multicast(message)

    def _on_fire(self, fired: inputs.Fire) -> None:
        if self.state.timers.get(fired.timer) != fired.due:
            return  # it was set anew or cancelled after it had come due
        del self.state.timers[fired.timer]
        index, _, name = fired.timer.partition(".")
        getattr(self.parts[int(index)], f"on_{name}_timer")()

    def _on_suspect(self, suspect: inputs.Suspect) -> None:
        if suspect.process in self.state.suspects or suspect.process not in self.monitored():
            return  # the detector spoke before it heard that nobody asks any more
        self.state.suspects.append(suspect.process)
        self._record("suspect", peer=suspect.process)
        for part in self.parts:
            part.on_suspect(suspect.process)

    def _on_trust(self, trust: inputs.Trust) -> None:
        if trust.process not in self.state.suspects:
            return
        self.state.suspects.remove(trust.process)
        self._record("trust", peer=trust.process)
        for part in self.parts:
            part.on_trust(trust.process)

    def _on_recover(self, recover: inputs.Recover) -> None:
        self._record("crash", time_ns=recover.crashed_at)
        self._record("recover", time_ns=recover.at)

    # ------------------------------------------------------------------------------------------------------------

    def decode(self, frame: bytes) -> tuple[Component, Wire]:
        try:
            part = self.parts[frame[0]]
            return part, part.contract.decode(memoryview(frame)[1:])
        except (IndexError, msgspec.DecodeError):
            raise BadFrame("A frame is not a message of this protocol.") from None

    def _record(
        self,
        kind: str,
        message: MessageId | None = None,
        destinations: tuple[str, ...] | None = None,
        peer: ProcessId | None = None,
        layer: str | None = None,
        size: int | None = None,
        time_ns: int | None = None,
    ) -> None:
        state = self.state
        state.seq += 1
        if self.traced:
            self._effects.append(Record(state.seq, kind, message, destinations, peer, layer, size, time_ns))


_encoder = msgspec.msgpack.Encoder()
