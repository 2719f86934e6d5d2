"""One process: inputs in, effects out, and a snapshot in between. The host (core/host.py) is all that talks to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from antiphon.core import inputs
from antiphon.core.assurances import Assurance
from antiphon.core.buffers import UNDECODABLE, Buffers, Piece, decoder_inside, encode_beside, encode_inside
from antiphon.core.channel import ChannelId, FrameInbox, Transport, channel_to
from antiphon.core.checks import Checks
from antiphon.core.component import Component, OrderingProtocol
from antiphon.core.contract import Wire
from antiphon.core.effects import AnyEffect, Assured, CancelTimer, Forget, Log, Monitor, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.events import Adopted, Delivered, Gap, View
from antiphon.core.floors import floor_body, least_key
from antiphon.core.gather import Gather, Gathering
from antiphon.core.in_views import ClientsInViews
from antiphon.core.inputs import Receive
from antiphon.core.keys import Key, encode_key
from antiphon.core.model import SETS_MAX, GroupId, Message, MessageId, ProcessId, Topology, ViewId, without
from antiphon.core.options import parse_options
from antiphon.core.promises import Promise
from antiphon.core.requests import (
    Request,
    check_payloads,
    own_request,
    requests_of,
    trusted_requests_in,
)
from antiphon.core.sessions import SessionId, Standing
from antiphon.core.state import SNAPSHOT_VERSION, Life, ProcessState

LIFE = 1 << 32  # messages have so many numbers in each of a process's lives, where it may forget what it said

_DATAGRAM = Transport.DATAGRAM  # looking a member up in its class is slow

Receivers = tuple[tuple[ProcessId, ...], tuple[ChannelId, ...], bool]  # see ``_receivers``
Subjects = Mapping[type[Wire], Callable[[Any], tuple[MessageId, ...]]]


class Process:
    """The root of a protocol's components."""

    def __init__(
        self,
        me: ProcessId,
        topology: Topology,
        protocol: type[OrderingProtocol],
        options: Mapping[str, str] | None = None,
        gather: Gather | None = None,
    ) -> None:
        self.me = me
        self.topology = topology
        self.now = 0
        self.parts: list[Component] = []
        self._known: dict[Transport, dict[ProcessId | tuple[ProcessId, ...], Receivers]] = {t: {} for t in Transport}
        self._decoders: list[Callable[[Piece, int, Buffers], Wire]] = []  # of the frames of each
        self._subjects: list[Subjects] = []  # ``about`` of each, by kind of message: it is asked of every frame
        self.state = ProcessState()
        self.gather = gather or Gather()
        self.traced = True  # whether anybody reads the records; events are numbered all the same
        self._local: deque[tuple[Component, Wire]] = deque()
        self._delivered: deque[SessionId] = deque()  # with views: of which something was, in this step
        self._effects: list[AnyEffect] = []
        self.is_hearsay = False  # whether what just came only brought the word of others; the host sets it back
        self._remembered = 0  # the time of the input before this one
        self._handlers: dict[type[inputs.Input], Any] = {
            inputs.Multicast: self._on_multicast,
            inputs.Submit: self._on_submit,
            inputs.TurnEnd: self._on_turn_end,
            inputs.Tell: self._on_tell,
            inputs.NewRoster: self._on_new_roster,
            inputs.Fire: self._on_fire,
            inputs.Suspect: self._on_suspect,
            inputs.Trust: self._on_trust,
            inputs.Begin: self._on_begin,
            inputs.Recover: self._on_recover,
            inputs.Foretold: self._on_foretold,
        }
        parsed = parse_options(protocol, options or {})
        self.promises = protocol.promises(parsed)
        total = Promise.TOTAL_ORDER in self.promises
        self.alike = total and not protocol.services  # whether all members of a group have one log
        self.ordered = total or Promise.REQUEST_ORDER in self.promises
        self.with_views = Promise.VIRTUAL_SYNCHRONY in self.promises
        self.heeds_floors = Promise.CLIENT_TURN_ORDER in self.promises  # those of clients' requests
        self.assures = Promise.DURABLE_RECEIPTS in self.promises  # whether the protocol says what is decided on
        self.foretells = protocol.foretells(parsed)
        self.in_views = ClientsInViews(self)
        self.checks = Checks(self)
        self.protocol = protocol(self, protocol.declaration.name, parsed, {})

    # The host's side --------------------------------------------------------------------------------------------

    def step(self, happened: inputs.AnyInput) -> list[AnyEffect]:
        """Handle one input. The effects are to be released, in order, once the input is durable."""
        if type(happened) is inputs.Confirmed:
            happened = self.received(happened)
        if type(happened) is Receive:
            if happened.transport is not _DATAGRAM:
                channel = ChannelId(happened.sender, happened.transport)
                self.inbox(channel).take_frame(happened.number, happened.frame)
                if self.state.foretold:
                    self.settle_foretold(channel, happened.number)
            self.state.seq += 1
            return self.receive(happened.at, happened.sender, happened.frame)
        effects: list[AnyEffect] = []
        self._effects = effects
        self._remembered = self.now
        if happened.at > self.now:  # noqa: PLR1730 - max is slow; a clock set back must not take the process with it
            self.now = happened.at
        self._handlers[type(happened)](happened)
        if self._local or self._delivered:
            self._handle_local()
        return effects

    def receive(self, at: int, sender: ProcessId, frame: Buffers) -> list[AnyEffect]:
        """Handle a frame: its own event was counted (its row is made of the input), and if it came on a numbered
        channel, the channel's inbox has taken it."""
        effects: list[AnyEffect] = []
        self._effects = effects
        if at > self.now:  # noqa: PLR1730 - as above
            self.now = at
        index, message = frame.decoded or self._decode_once(frame)
        self.parts[index].handlers[type(message)](sender, message)
        if self._local or self._delivered:
            self._handle_local()
        return effects

    def _handle_local(self) -> None:
        """What a process sends to itself arrives at once; and clients may be next, of whom something was delivered.

        That may have the protocol multicast, and so deliver: never while it is amid a delivery.
        """
        while self._local or self._delivered:
            if self._local:
                part, message = self._local.popleft()
                part.handlers[type(message)](self.me, message)
            else:
                self.in_views.delivered(self._delivered.popleft())
        self.is_hearsay = False  # more came of it than others said

    @property
    def sends_datagrams(self) -> bool:
        """Whether any part of the protocol travels so."""
        return any(part.transport is _DATAGRAM for part in self.parts)

    @property
    def turn_is_open(self) -> bool:
        """Whether something is to be done when all that came together is handled."""
        state = self.state
        return bool(state.turn or state.gathering.messages)

    def snapshot(self) -> bytes:
        assert not self.turn_is_open, "a snapshot is taken between two turns"
        self.state.now = self.now
        for inbox in self.state.inboxes.values():
            if inbox.undigested:
                inbox.settle()
        self.state.parts = [part.snapshot() for part in self.parts]
        return encode_inside(self.state)

    def restore(self, data: bytes) -> None:
        """Become the process that took the snapshot. Only for a process that has seen no input."""
        try:
            state = _decode_state(data)
        except UNDECODABLE:
            raise UsageError("This snapshot was taken by another version of the program.") from None
        if state.version != SNAPSHOT_VERSION or len(state.parts) != len(self.parts):
            raise UsageError("This snapshot was taken by another version of the program or with other options.")
        self.state = state
        self.now = state.now
        if state.roster is not None and state.roster.epoch != self.topology.epoch:
            self.topology = Topology.of(state.roster)
        for part, part_state in zip(self.parts, state.parts, strict=True):
            part.restore(part_state)

    # Frames that were foretold ----------------------------------------------------------------------------------

    def _on_foretold(self, told: inputs.Foretold) -> None:
        """The frame has no event of its own: that is the one which it is to be."""
        channel = ChannelId(told.sender, told.transport)
        if told.number <= self.inbox(channel).received:
            return
        self.state.foretold.setdefault(channel, {})[told.number] = told.frame
        part, message = self.decode_frame(told.frame)
        part.foretold(told.sender, message)

    def is_foretold(self, channel: ChannelId, number: int, checksum: bytes) -> bool:
        """Whether a frame with this number and this checksum was foretold."""
        frame = self.state.foretold.get(channel, _NO_FRAMES).get(number)
        return frame is not None and frame.checksum == checksum

    def received(self, confirmed: inputs.Confirmed) -> Receive:
        """The same with the frame itself."""
        at, sender, transport, number = msgspec.structs.astuple(confirmed)
        return Receive(at, sender, transport, number, self.state.foretold[ChannelId(sender, transport)][number])

    def settle_foretold(self, channel: ChannelId, number: int) -> None:
        """This frame has come: of those up to it nothing need be known any more."""
        waiting = self.state.foretold.get(channel)
        if waiting is not None:
            for told in [told for told in waiting if told <= number]:
                del waiting[told]
            if not waiting:
                del self.state.foretold[channel]

    def inbox(self, channel: ChannelId) -> FrameInbox:
        found = self.state.inboxes.get(channel)
        if found is None:
            found = self.state.inboxes[channel] = FrameInbox()
        return found

    def peers(self) -> set[ProcessId]:
        """Those with whom it has exchanged numbered frames."""
        state = self.state
        return {channel.peer for channel in (*state.sent, *(c for c, box in state.inboxes.items() if box.received))}

    # The components' side ---------------------------------------------------------------------------------------

    @property
    def suspects(self) -> list[ProcessId]:
        return self.state.suspects

    def register(self, part: Component) -> int:
        self.parts.append(part)
        self._decoders.append(part.contract.decode)
        own = type(part).about is not Component.about  # few have one
        self._subjects.append(dict.fromkeys(part.contract.handlers, part.about) if own else part.contract.subjects)
        assert len(self.parts) <= 255, "a part's index must fit into the first byte of a frame"
        return len(self.parts) - 1

    def send_for(
        self, part: Component, to: ProcessId | tuple[ProcessId, ...], message: Wire, *, foretold: bool = False
    ) -> None:
        state, transport = self.state, part.transport
        others, channels, is_to_self = self._known[transport].get(to) or self._receivers(to, transport)
        if is_to_self:
            self.send_to_self(part, message)
        if not others:
            return
        sent = state.sent
        numbers: list[int] = []
        for channel in channels:
            sent[channel] = number = sent.get(channel, 0) + 1
            numbers.append(number)
        state.seq = seq = state.seq + 1
        about = self._subjects[part.index][type(message)](message) if self.traced else ()
        frame = encode_beside(_PART[part.index], message)
        self._effects.append(Send(seq, others, channels, tuple(numbers), transport, frame, part.layer, about, foretold))

    def _receivers(self, to: ProcessId | tuple[ProcessId, ...], transport: Transport) -> Receivers:
        """To one or several: the others among them, the channels to them, and whether this process is one of them."""
        all_of_them = (to,) if isinstance(to, str) else to
        others = without(self.me, all_of_them)
        channels = () if transport is _DATAGRAM else tuple([channel_to(peer, transport) for peer in others])
        known = self._known[transport]
        if len(known) == SETS_MAX:
            known.clear()
        known[to] = found = others, channels, self.me in all_of_them
        return found

    def encode(self, part: Component, message: Wire) -> Buffers:
        """A frame: the index of the part that will handle it, and the message."""
        return encode_beside(_PART[part.index], message)

    def decode(self, frame: Piece) -> tuple[Component, Wire]:
        index, message = self._decode_once(Buffers(frame))
        return self.parts[index], message

    def decode_frame(self, frame: Buffers) -> tuple[Component, Wire]:
        """The same, worked out once for each frame."""
        index, message = frame.decoded or self._decode_once(frame)
        return self.parts[index], message

    def _decode_once(self, frame: Buffers) -> tuple[int, Wire]:
        pieces = frame.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            index = data[0]
            decode = self._decoders[index]
        except IndexError:
            raise BadFrame("A frame is for no part of this protocol.") from None
        frame.decoded = found = (index, decode(data, 1, frame))
        return found

    def handle(self, sender: ProcessId, frame: Buffers) -> None:
        """Give a frame to its part."""
        part, message = self.decode_frame(frame)
        part.handlers[type(message)](sender, message)

    def send_to_self(self, part: Component, message: Wire) -> None:
        self._local.append((part, message))

    def deliver(self, m: Message, key: Key | None, *, early: bool = False) -> None:
        """Append to the application's log what of the message's requests is admitted now."""
        assert self.topology.group_of.get(self.me) in m.destinations, "only addressees deliver"
        state = self.state
        admitted: list[Request] = []
        count = 0
        id, destinations = m.id, m.destinations
        for request in requests_of(m):
            if request.client == id.origin:  # a process's own multicast has the order of the protocol, and no other
                admitted.append(request)
                count += request.count
            else:
                session = SessionId(request.client, destinations)
                some = state.sessions.admit(session, request, ordered=self.ordered, with_views=self.with_views)
                admitted += some
                count += sum([each.count for each in some])
                if self.with_views:
                    self._delivered.append(session)
        state.seq = seq = state.seq + 1
        order = None if key is None else encode_key(key)
        if self.heeds_floors or not m.count:
            assert order is None or order >= least_key(m), "a message that raises a floor has a key that does"
        event = Delivered(id, destinations, state.position, count, tuple(admitted), order, self.now)
        self._effects.append(Log(seq, event, early))
        state.position += count
        if self.assures:
            timestamp = None if key is None else key[0]
            assert isinstance(timestamp, int), "what is decided on has a timestamp"
            self.tell_assured(state.assurances.when_delivered(destinations, admitted, timestamp), early=early)

    def assure(self, m: Message, timestamp: int, *, early: bool = False) -> None:
        """A majority of each destination group holds m, which this process multicast, for good."""
        told = self.state.assurances.when_decided(m.destinations, requests_of(m), timestamp)
        self.tell_assured(told, early=early)

    def tell_assured(self, told: Iterable[Assurance], *, early: bool = False) -> None:
        for session, requests, timestamp in told:
            self.state.seq += 1
            end = requests[-1].end
            self._effects.append(Assured(self.state.seq, *session, end, timestamp, tuple(requests), early))

    def raise_floor(self, least: int) -> None:
        """Multicast to the own group, or to all where the protocol knows no other set, what brings nothing but a key
        that begins with such a number, or a greater one."""
        everybody = self.protocol.assumes(self.protocol.options).all_groups
        own = (self.topology.group_of[self.me],)
        self._multicast(tuple(self.topology.groups) if everybody else own, 0, floor_body(least))

    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None:
        """Say in the application's log that messages may be missing here.

        ``behind``: where clients are behind it, as another process has it there; None: nobody knows.
        """
        state = self.state
        state.seq = seq = state.seq + 1
        if behind is None:
            state.sessions.begin_gap()
        else:
            state.sessions.adopt(behind)
        self._effects.append(Log(seq, Gap(state.position, self.now)))
        state.position += 1

    def announce_view(self, view: ViewId, members: tuple[ProcessId, ...]) -> None:
        """Say in the application's log with whom the process is together from here on."""
        assert self.me in members, "a process is in each view that it delivers"
        state = self.state
        state.seq = seq = state.seq + 1
        self.in_views.announce()
        self._effects.append(Log(seq, View(view, members, state.position, self.now)))
        state.position += 1

    def standing(self) -> tuple[Standing, ...]:
        """Where clients are, for a process that goes on behind what was delivered here (`announce_gap`)."""
        return tuple(self.state.sessions.standing())

    @property
    def position(self) -> int:
        """Of the next delivery, among all payloads."""
        return self.state.position

    def adopt(self, donor: ProcessId, last: MessageId | None, position: int, standing: Iterable[Standing]) -> None:
        """Go on behind what another process has delivered, up to its message ``last``, with which its log came to
        ``position``."""
        state = self.state
        assert not state.position, "whoever has delivered anything goes on behind that"
        state.position = position
        state.sessions.adopt(standing)
        state.seq = seq = state.seq + 1
        self._effects.append(Log(seq, Adopted(donor, last, position, self.now)))

    def record_entry(
        self, layer: str, node: MessageId, message: MessageId | None, follows: tuple[MessageId, ...] | None
    ) -> None:
        """Say in the trace that a message entered a causal graph: there it is ``node``."""
        state = self.state
        state.seq = seq = state.seq + 1
        if self.traced:
            entry = Record(seq, "enter", message, peer=node.origin, about=follows, layer=layer, position=node.number)
            self._effects.append(entry)

    def set_timer(self, part: int, timer: bytes, due: int) -> None:
        self.state.timers[part, timer] = due
        self._effects.append(SetTimer(part, timer, due))

    def cancel_timer(self, part: int, timer: bytes) -> None:
        if self.state.timers.pop((part, timer), None) is not None:
            self._effects.append(CancelTimer(part, timer))

    def at_turn_end(self, part: int) -> None:
        self.state.turn[part] = None

    def monitor(self, index: int, processes: Iterable[ProcessId]) -> None:
        wanted = tuple(processes)
        if wanted == self.state.monitored.get(index):
            return
        before = self.monitored()
        self.state.monitored[index] = wanted
        after = self.monitored()
        if after != before:
            self.state.suspects = [p for p in self.state.suspects if p in after]
            self._effects.append(Monitor(after))

    def monitored(self) -> tuple[ProcessId, ...]:
        """Everybody whom some part asks about, once, in one order."""
        wanted = {p for processes in self.state.monitored.values() for p in processes}
        return tuple(sorted(wanted - {self.me}))

    # Inputs -----------------------------------------------------------------------------------------------------

    def _on_begin(self, begin: inputs.Begin) -> None:
        if begin.roster is not None:
            self.state.roster = begin.roster
            if begin.roster.epoch != self.topology.epoch:
                self.topology = Topology.of(begin.roster)
        for part in self.parts:
            part.begin()

    def _on_multicast(self, wanted: inputs.Multicast) -> None:
        """The process is its own client."""
        check_payloads(wanted.payloads)
        request = own_request(self.me, self.state.own_payloads, wanted.payloads, wanted.service)
        self.state.own_payloads += request.count
        body = Buffers(request.data)
        body.decoded = [request]
        self._multicast(wanted.destinations, request.count, body)

    def _on_submit(self, submitted: inputs.Submit) -> None:
        state, destinations = self.state, submitted.destinations
        requests = trusted_requests_in(submitted.requests)
        session = SessionId(requests[0].client, destinations)
        taken = fresh = 0
        for request in requests:
            taken, is_new = state.sessions.take(session, request)
            if is_new:
                fresh += 1
                if not self.with_views or self.in_views.takes(session, request):
                    state.gathering.add(destinations, request, self.gather)
        if requests[0].turn != requests[-1].turn:
            self._reply_by_turns(session, requests, fresh, taken)
        else:
            state.seq += 1
            self._effects.append(Reply(state.seq, session.client, destinations, taken, tuple(requests), fresh))
        if self.assures:
            known = state.sessions.known.get(session)
            delivered = 0 if known is None else known.next
            self.tell_assured(state.assurances.when_taken(session, requests, fresh, taken, delivered))

    def _reply_by_turns(self, session: SessionId, requests: list[Request], fresh: int, taken: int) -> None:
        """Of several turns of a client: one answer for each, so that the trace can tell."""
        old = len(requests) - fresh
        for turn in dict.fromkeys(request.turn for request in requests):
            places = [place for place, request in enumerate(requests) if request.turn == turn]
            new = sum(place >= old for place in places)
            self.state.seq += 1
            some = tuple(requests[place] for place in places)
            self._effects.append(Reply(self.state.seq, *session, taken, some, new))

    def _on_turn_end(self, _: inputs.TurnEnd) -> None:
        state = self.state
        while state.gathering.messages or state.turn:  # what is done at it may give a part something to do at it
            if state.gathering.messages:
                self.multicast_gathered()
                self._handle_local()
            wanting, state.turn = state.turn, {}
            for index in sorted(wanting):
                self.parts[index].on_turn_end()
            self._handle_local()

    def multicast_gathered(self) -> None:
        """What clients asked for in this turn."""
        if self.with_views and any(self.protocol.must_wait(m.destinations) for m in self.state.gathering.messages):
            self.in_views.hold_gathered()
        gathered, self.state.gathering = self.state.gathering, Gathering()
        for message in gathered.messages:
            if message.requests:
                self._multicast(message.destinations, message.count, message.body())

    def _multicast(self, destinations: tuple[GroupId, ...], count: int, body: Buffers) -> None:
        self.state.multicasts += 1
        message = Message(MessageId(self.me, self.state.multicasts), destinations, count, body)
        self._record_multicast(message, self.now if self.foretells else None)
        self.protocol.multicast(message)

    def _record_multicast(self, m: Message, time_ns: int | None = None) -> None:
        self.state.seq += 1
        if self.traced:
            requests = tuple(requests_of(m))
            service = requests[0].service if requests else None
            row = Record(self.state.seq, "multicast", m.id, m.destinations, requests, time_ns=time_ns, layer=service)
            self._effects.append(row)

    def _on_fire(self, fired: inputs.Fire) -> None:
        if self.state.timers.get((fired.part, fired.timer)) != fired.due:
            return  # it was set anew or cancelled after it had come due
        del self.state.timers[fired.part, fired.timer]
        self.parts[fired.part].fire(fired.timer)

    def _on_tell(self, told: inputs.Tell) -> None:
        self.protocol.obey(told.command)

    def _on_new_roster(self, new: inputs.NewRoster) -> None:
        before, topology = self.topology, Topology.of(new.roster)
        if topology.epoch <= before.epoch or self.me in topology.gone_since(before):
            return  # who was replaced can do nothing in the new one
        self.topology = topology
        state = self.state
        state.roster = new.roster
        gone = self.topology.gone_since(before)
        for channels in (state.sent, state.inboxes, state.foretold):
            for channel in [channel for channel in channels if channel.peer in gone]:
                del channels[channel]
        self._effects.append(Forget(gone))
        for part in self.parts:
            part.on_topology(before)

    def _on_suspect(self, suspect: inputs.Suspect) -> None:
        if suspect.process in self.state.suspects or suspect.process not in self.monitored():
            return  # the detector spoke before it heard that nobody asks any more
        self.state.suspects.append(suspect.process)
        self._record("suspect", suspect.process)
        for part in self.parts:
            part.on_suspect(suspect.process)

    def _on_trust(self, trust: inputs.Trust) -> None:
        if trust.process not in self.state.suspects:
            return
        self.state.suspects.remove(trust.process)
        self._record("trust", trust.process)
        for part in self.parts:
            part.on_trust(trust.process)

    def _on_recover(self, recover: inputs.Recover) -> None:
        self._record("crash", time_ns=recover.crashed_at)
        self._record("recover", time_ns=recover.at)
        for part in self.parts:
            part.on_recover()

    def begin_life(self) -> None:
        """This process may have said more than it remembers: give nothing a name again that it may have given."""
        state = self.state
        state.lives.append(Life(state.multicasts, self._remembered))
        state.multicasts = state.own_payloads = len(state.lives) * LIFE

    def recall(self, m: Message) -> None:
        """A message is new to this process. If it is its own, it has forgotten that it multicast it: it says so again.

        When that was it has forgotten, too; not before the last input that it remembers.
        """
        if m.id.origin == self.me:
            life = m.id.number // LIFE
            lives = self.state.lives
            if life < len(lives) and m.id.number > lives[life].multicasts:
                self._record_multicast(m, lives[life].ended)

    def _record(self, kind: str, peer: ProcessId | None = None, time_ns: int | None = None) -> None:
        self.state.seq += 1
        if self.traced:
            self._effects.append(Record(self.state.seq, kind, peer=peer, time_ns=time_ns))


_NO_FRAMES: dict[int, Buffers] = {}
_PART = [bytes((index,)) for index in range(256)]
_decode_state = decoder_inside(ProcessState)
