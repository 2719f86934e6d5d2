"""The host: the contract between a process and its driver, written once, pure, for simulation and real processes alike.

1. Append the input to the journal, the bytes as they came.
2. Run the handler; hold its effects back.
3. Release the effects, in order, when the journal is durable up to that input. One sync serves all that waited.
   What is true though its own input be forgotten, a receipt or a delivery (``early``), waits only for the inputs
   before that one; and of these not for such as only bring the word of others, who will say it again.
4. On restart: restore the newest snapshot, replay the rest, go on.

A driver gives inputs to ``take``, says ``end_turn`` when all that came together is handled and ``durable`` when the
journal has become so, and carries out what the host tells its ``Outside``. Only inputs move the process. What peers
have not acknowledged belongs to the host; it is part of a snapshot, and a replay makes it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeGuard

import msgspec

from antiphon.core.buffers import UNDECODABLE, Buffers, Piece, decoder_inside, encode_inside
from antiphon.core.channel import NO_FRAMES, ChannelId, FrameInbox, Outbox, Prefix, Transport
from antiphon.core.effects import AnyEffect, Assured, CancelTimer, Forget, Log, Monitor, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, JournalBehind, UsageError
from antiphon.core.events import Event
from antiphon.core.inputs import AnyInput, Begin, Confirmed, Receive, Recover, TurnEnd, decode_input, lay
from antiphon.core.model import ProcessId
from antiphon.core.process import Process

_DATAGRAM = Transport.DATAGRAM  # looking a member up in its class is slow
_NOBODY = (ChannelId(ProcessId(""), _DATAGRAM), FrameInbox())  # a channel on which nothing comes


class Journal(Protocol):
    """What a host needs of a disk."""

    @property
    def next_index(self) -> int:
        """The index of the record that comes next."""
        ...

    def append(self, happened: AnyInput) -> int:
        """Take an input as a record (core/inputs.py); returns its bytes, where somebody counts them.

        JournalFull: nothing has happened.
        """
        ...


class Turn(msgspec.Struct, gc=False):
    """One input, and what came of it. ``note`` is the driver's own, as it was given with the input."""

    index: int
    happened: AnyInput
    seq: int  # of the first traced event that came of it
    seq_last: int
    effects: list[AnyEffect]
    note: Any = None
    channel: ChannelId | None = None  # on which a frame came
    held: Prefix = NO_FRAMES  # where it waits for the disk: all frames of the channel that are held with it
    is_hearsay: bool = False  # the input only brings the word of others: to forget it harms nothing
    is_begun: bool = False  # what may leave before it is durable has left


class Outside(Protocol):
    """Where effects go. Every method but ``on_turns`` may be called several times in one release."""

    def on_send(self, send: Send, note: Any) -> None:
        """To all its receivers. If the process ends amid them, the send is left with those who got it (`cut_to`)."""

    def on_foretell(self, send: Send, note: Any) -> None:
        """A copy, to all to whom it may go now: it is lost on the way, or forgotten here, without harm."""

    def on_event(self, event: Event) -> None: ...
    def on_event_early(self, event: Event) -> None:
        """Readers may see it. It comes again, as `on_event`, when it is durable; or it is forgotten, and made anew."""

    def on_record(self, record: Record) -> None: ...
    def on_reply(self, reply: Reply) -> None: ...
    def on_assured(self, assured: Assured) -> None: ...
    def on_set_timer(self, timer: SetTimer) -> None: ...
    def on_cancel_timer(self, timer: CancelTimer) -> None: ...
    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None: ...
    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
        """A summary of all that was just released, for whoever observes: trace, metrics."""


class HostState(msgspec.Struct, array_like=True):
    """A snapshot: the process, and the frames that its peers have not acknowledged, each kept once."""

    process: bytes
    frames: list[Buffers]
    # For each channel: sent, acknowledged, spilled, the digest of what was spilled, places in ``frames``.
    outboxes: list[tuple[ChannelId, int, int, int, int, list[int]]]


class Host:
    def __init__(self, process: Process, journal: Journal | None, outside: Outside) -> None:
        self.process = process
        self.journal = journal
        self.outside = outside
        self._outboxes: dict[ChannelId, Outbox] = {}
        self.fresh: dict[ChannelId, None] = {}  # channels of which more is held than was last asked for
        self._received: dict[ChannelId, Prefix] = {}
        self._asked: tuple[ChannelId, FrameInbox] = _NOBODY  # the channel of the last ``is_new``: its frame comes next
        self._held: deque[Turn] = deque()
        self._awaited = 0  # the world is to see something that waits for an input below this index to be durable
        self._heard = 0  # all inputs below this index are durable or hearsay, and what may leave early of them has left
        self._early = 0  # below this index something may leave early, as soon as `_heard` has come so far
        self._beginning = -1  # the input with which this life began
        self._foretold = 0  # of all that waits below this index a copy has left, where that may leave early
        self._index = 0  # where there is no journal
        self.journaled_bytes = 0  # since the last snapshot
        self.state_bytes = 0  # of the last snapshot

    # Inputs -----------------------------------------------------------------------------------------------------

    def take(self, happened: AnyInput, note: Any = None) -> None:
        """Journal an input and handle it. JournalFull: nothing has happened."""
        self._hold(self._handle(happened, note))

    def _hold(self, turn: Turn) -> None:
        """What was just handled waits for the disk."""
        if turn.channel is not None:
            turn.held = self.process.state.inboxes[turn.channel].prefix
        self._held.append(turn)
        if turn.effects:
            if turn.is_hearsay:
                self._early = turn.index + 1
            else:
                self._awaited = turn.index + 1
        if type(turn.happened) in _BEGINNINGS:
            self._beginning = turn.index

    def _handle(self, happened: AnyInput, note: Any) -> Turn:
        journal = self.journal
        if journal is not None:
            index = journal.next_index
            self.journaled_bytes += journal.append(happened)
        else:
            index = self._index
            self._index = index + 1
        process = self.process
        state = process.state
        seq = state.seq + 1
        process.is_hearsay = False
        if type(happened) is Confirmed:
            happened = process.received(happened)
        if type(happened) is not Receive or happened.transport is _DATAGRAM:
            effects = process.step(happened)
            return Turn(index, happened, seq, state.seq, effects, note, is_hearsay=self._is_hearsay(effects))
        channel, inbox = self._asked
        if channel[0] != happened.sender or channel[1] is not happened.transport:
            channel = ChannelId(happened.sender, happened.transport)
            inbox = process.inbox(channel)
        inbox.take_frame(happened.number, happened.frame)
        if state.foretold:
            process.settle_foretold(channel, happened.number)
        state.seq = seq
        effects = process.receive(happened.at, happened.sender, happened.frame)
        is_hearsay = self._is_hearsay(effects)
        return Turn(index, happened, seq, state.seq, effects, note, channel, is_hearsay=is_hearsay)

    def _is_hearsay(self, effects: list[AnyEffect]) -> bool:
        """Of the input that was just handled. Nothing overtakes what the process says itself, nor a receipt or a
        delivery that waits for its input. Where nothing waits for a disk, nobody asks."""
        if self.journal is None or not self.process.is_hearsay:
            return False
        return all(type(effect) in _UNHURRIED or _is_early(effect) for effect in effects)

    def is_new(self, channel: ChannelId, number: int) -> bool:
        """Whether a frame was not taken before. BadFrame: frames before it on a FIFO channel are missing."""
        inbox = self.process.state.inboxes.get(channel) or self.process.inbox(channel)
        self._asked = (channel, inbox)
        if number == inbox.received + 1:
            return True
        if number <= inbox.received:
            return False
        if channel.transport is Transport.FIFO:
            raise BadFrame(f"Frame {number} of {channel.peer} came after frame {inbox.received}.")
        return inbox.is_new(number)

    def end_turn(self, at: int, note: Any = None) -> None:
        """All that came together is handled."""
        if self.process.turn_is_open:
            self.take(TurnEnd(at), note)

    # Release ----------------------------------------------------------------------------------------------------

    @property
    def next_index(self) -> int:
        return self.journal.next_index if self.journal is not None else self._index

    @property
    def held(self) -> int:
        """How many inputs wait for the disk."""
        return len(self._held)

    @property
    def waiting(self) -> Iterable[Turn]:
        """What came of the inputs that wait for the disk: some of it may have left early."""
        return self._held

    @property
    def is_awaited(self) -> bool:
        """Whether the world is to see anything that came of the inputs that wait for the disk."""
        held = self._held
        if not held:
            return False
        return held[0].index < self._awaited or held[0].index <= self._heard < self._early

    def releasable(self, index: int) -> Iterator[AnyEffect]:
        """What ``durable(index)`` will let out."""
        for turn in self._held:
            is_durable = turn.index < index
            for effect in turn.effects:
                if not turn.is_begun if _is_early(effect) else is_durable:
                    yield effect
            if not (is_durable or turn.is_hearsay):
                break
        yield from (send for turn, send in self._to_foretell(index))

    def durable(self, index: int) -> None:
        """The journal is durable below ``index``: let the world see what came of it, in the order in which it came."""
        held = self._held
        released: list[Turn] = []
        try:
            while held and held[0].index < index:
                turn = held.popleft()
                released.append(turn)
                if (channel := turn.channel) is not None:
                    self._received[channel] = turn.held
                    self.fresh[channel] = None
                if turn.effects:
                    self._release_turn(turn)
        finally:
            if released:
                self.outside.on_turns(released, replayed=False)
        self.release_early()

    def release_early(self) -> bool:
        """Let out what waits only for inputs that are durable, and for such as only bring the word of others. Returns
        whether there was anything.

        The trace has it with the rest of its turn. If that is forgotten, so is the receipt, but only here: it was true,
        and comes again with whatever brought it.
        """
        held = self._held
        if self.journal is None or not held:
            return False
        self._foretell()
        is_any = False
        for turn in islice(held, max(self._heard - held[0].index, 0), None):
            is_any |= self._begin_turn(turn)
            if not turn.is_hearsay:
                self._heard = turn.index
                break
            self._heard = turn.index + 1
        return is_any

    def _begin_turn(self, turn: Turn) -> bool:
        """Let out of it what may be early, once. Returns whether there was anything."""
        if turn.is_begun:
            return False
        outside = self.outside
        for effect in turn.effects:
            if _is_early(effect):
                turn.is_begun = True
                if type(effect) is Assured:
                    outside.on_assured(effect)
                elif type(effect) is Log:
                    outside.on_event_early(effect.event)
        return turn.is_begun

    def _foretell(self) -> None:
        for turn, send in self._to_foretell(0):
            self.outside.on_foretell(send, turn.note)
        self._foretold = self.next_index

    def _to_foretell(self, index: int) -> Iterator[tuple[Turn, Send]]:
        """What may leave now of the inputs from ``index`` on, which are not durable yet. Nothing does in a life that
        might be forgotten itself: the next one would say other things by the same names."""
        held = self._held
        if not (held and self.process.foretells) or held[0].index <= self._beginning:
            return
        first = max(self._foretold, index) - held[0].index
        for turn in islice(held, max(first, 0), None):
            for effect in turn.effects:
                if type(effect) is Send and effect.foretold:
                    yield turn, effect

    def _release_turn(self, turn: Turn) -> None:
        effects = turn.effects
        if turn.is_begun:
            effects = [effect for effect in effects if not (type(effect) is Assured and effect.early)]
        try:
            self._release_effects(effects, turn.note)
        except BaseException:
            if turn.is_begun:
                turn.effects = [e for e in turn.effects if _is_early(e) or any(e is left for left in effects)]
            turn.seq_last = max((seq for e in turn.effects if (seq := getattr(e, "seq", 0))), default=turn.seq - 1)
            if type(turn.happened) is Receive:
                turn.seq_last = max(turn.seq_last, turn.seq)
            raise

    def _release_effects(self, effects: list[AnyEffect], note: Any) -> None:
        """If the process ends in the middle, what was done is all that anybody saw, and all that is left of them."""
        outside = self.outside
        try:
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    outside.on_send(effect, note)  # type: ignore[arg-type]
                elif kind is Log:
                    outside.on_event(effect.event)  # type: ignore[union-attr]
                elif kind is Record:
                    outside.on_record(effect)  # type: ignore[arg-type]
                elif kind is Reply:
                    outside.on_reply(effect)  # type: ignore[arg-type]
                elif kind is SetTimer:
                    outside.on_set_timer(effect)  # type: ignore[arg-type]
                elif kind is CancelTimer:
                    outside.on_cancel_timer(effect)  # type: ignore[arg-type]
                elif kind is Monitor:
                    outside.on_monitor(effect.processes)  # type: ignore[union-attr]
                elif kind is Assured:
                    outside.on_assured(effect)  # type: ignore[arg-type]
        except BaseException:
            done = next(place for place, each in enumerate(effects) if each is effect)
            del effects[done + (type(effect) is Send and bool(effect.to)) :]
            raise
        finally:
            self._keep(effects)

    def _keep(self, effects: list[AnyEffect]) -> None:
        """Frames that were let out are kept until their receivers have acknowledged them."""
        outboxes = self._outboxes
        for send in effects:
            if type(send) is not Send:
                if type(send) is Forget:
                    self._forget(send.processes)
                continue
            frame = send.frame
            for channel, number in zip(send.channels, send.numbers):  # noqa: B905 - saying how to compare is slow
                box = outboxes.get(channel)
                if box is None:
                    box = outboxes[channel] = Outbox()
                assert number == box.sent + 1, "a channel's frames are let out in the order of their numbers"
                box.sent = number  # as box.push does: there are many
                box.frames.append(frame)
                box.size += frame.size

    def _forget(self, gone: tuple[ProcessId, ...]) -> None:
        """Nobody of that name ever comes again."""
        for channels in (self._outboxes, self._received, self.fresh):
            for channel in [channel for channel in channels if channel.peer in gone]:
                del channels[channel]
        if self._asked[0].peer in gone:
            self._asked = _NOBODY

    # Channels ---------------------------------------------------------------------------------------------------

    @property
    def outboxes(self) -> dict[ChannelId, Outbox]:
        return self._outboxes

    def outbox(self, channel: ChannelId) -> Outbox:
        outboxes = self.outboxes
        found = outboxes.get(channel)
        if found is None:
            found = outboxes[channel] = Outbox()
        return found

    @property
    def received(self) -> dict[ChannelId, Prefix]:
        """What is held, durably, of each channel: what may be acknowledged."""
        return self._received

    def take_fresh(self) -> Iterable[ChannelId]:
        """The channels of which more has become durable since this was last asked."""
        fresh, self.fresh = self.fresh, {}
        return fresh

    def close(self) -> None:
        """Nobody will ask for a frame any more."""
        self._outboxes.clear()

    def check_peer(
        self,
        channel: ChannelId,
        *,
        held: Prefix = NO_FRAMES,
        forgotten: int = 0,
        digest_on_disk: Callable[[int], int | None] = lambda number: None,
    ) -> None:
        """What the peer holds of this process, and what it no longer keeps for it, as it says in a handshake.

        JournalBehind: that proves that this process has forgotten something. ``digest_on_disk`` is that of the first
        frames of the channel where only the disk knows it. What neither has was acknowledged to this same journal.
        """
        me, peer = self.process.me, channel.peer
        box = self.outbox(channel)
        mine = self.process.inbox(channel).received
        if held.frames > box.sent:
            raise JournalBehind(
                f"{peer} holds {held.frames} frames of {me}, whose journal knows of only {box.sent}: "
                f"it was cut, is an old copy, or was never kept, so {me} must not run on it."
            )
        if held.frames > box.acknowledged:
            digest = box.digest_up_to(held.frames)
            if digest is None:
                digest = digest_on_disk(held.frames)
            if digest not in (None, held.digest):
                raise JournalBehind(
                    f"{peer} holds {held.frames} frames of {me}, which has sent others according to its journal: "
                    f"it was cut, is an old copy, or was never kept, and went on; {me} must not run on it."
                )
        if forgotten > mine:
            raise JournalBehind(
                f"{me} once acknowledged {forgotten} frames of {peer}, but its journal holds only {mine}: "
                f"it was cut, is an old copy, or was never kept, so {me} must not run on it."
            )

    # Snapshot and replay ------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The state as of ``next_index``. Only when nothing is held: it holds only what was released."""
        assert not self._held, "a snapshot holds only what was released"
        places: dict[int, int] = {}
        frames: list[Buffers] = []
        outboxes: list[tuple[ChannelId, int, int, int, int, list[int]]] = []
        for channel, box in self.outboxes.items():
            kept = []
            for frame in box.frames:
                place = places.get(id(frame))
                if place is None:
                    place = places[id(frame)] = len(frames)
                    frames.append(frame)
                kept.append(place)
            outboxes.append((channel, box.sent, box.acknowledged, box.spilled, box.digest, kept))
        state = encode_inside(HostState(self.process.snapshot(), frames, outboxes))
        self.journaled_bytes, self.state_bytes = 0, len(state)
        return state

    def restore(self, data: bytes) -> None:
        try:
            state = _decode_state(data)
        except UNDECODABLE:
            raise UsageError("This snapshot was taken by another version of the program.") from None
        self.state_bytes = len(data)
        self.process.restore(state.process)
        self._asked = _NOBODY  # inboxes are others now
        for channel, sent, acknowledged, spilled, digest, kept in state.outboxes:
            box = self._outboxes[channel] = Outbox(sent, acknowledged)
            box.spilled, box.digest = spilled, digest
            box.frames.extend(state.frames[place] for place in kept)
            box.size = sum(frame.size for frame in box.frames)

    def replay(self, records: Iterator[tuple[int, Piece]]) -> None:
        """Become what the journal says. Outside hears again of what it may have lost: events, and the trace's turns."""
        for index, record in records:
            self.journaled_bytes += len(record)
            happened = decode_input(record)
            lay(happened, index, len(record))
            if type(happened) is Confirmed:
                happened = self.process.received(happened)
            state = self.process.state
            seq = state.seq + 1
            effects = self.process.step(happened)
            turn = Turn(index, happened, seq, state.seq, effects)
            self._keep(effects)
            for effect in effects:
                if type(effect) is Log:
                    self.outside.on_event(effect.event)
            self.outside.on_turns((turn,), replayed=True)
        self._received = {channel: inbox.prefix for channel, inbox in self.process.state.inboxes.items()}

    def go_on(self) -> None:
        """The process is what it was: arm its timers, and watch whom it watches."""
        for (part, timer), due in self.process.state.timers.items():
            self.outside.on_set_timer(SetTimer(part, timer, due))
        self.outside.on_monitor(self.process.monitored())


def _is_early(effect: AnyEffect) -> TypeGuard[Assured | Log]:
    return (type(effect) is Log or type(effect) is Assured) and effect.early


_UNHURRIED = (Record, SetTimer, CancelTimer)  # that come a little late harm nobody
_BEGINNINGS = (Begin, Recover)  # of a life
_decode_state = decoder_inside(HostState)
