"""A host without a journal: nothing waits for a disk, so what comes of an input can leave at once.

The contract is the host's (core/host.py). As nearly all inputs of a simulation are frames that are taken so, that way
is written out, and what somebody may ask for is worked out when somebody does: what is held of each channel, and which
frames no peer has acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from antiphon.core.buffers import Buffers
from antiphon.core.channel import ChannelId, Outbox, Prefix
from antiphon.core.effects import AnyEffect
from antiphon.core.errors import BadFrame
from antiphon.core.host import Host, Outside, Turn
from antiphon.core.inputs import AnyInput, Receive, TurnEnd
from antiphon.core.model import ProcessId
from antiphon.core.process import Process

# What one input led to: whose it was; when it was let out; the seq beyond which its rows are new; its effects; the
# driver's note; and of a frame: the seq of its row, the sender, and the frame itself.
Seen = tuple[Process, int, int, list[AnyEffect], Any, int, ProcessId | None, Buffers | None]


class Attentive(Outside, Protocol):
    """Where the effects of such a host go."""

    @property
    def on_received(self) -> Callable[[Seen], None]:
        """Called when a frame was taken at once, and what came of it let out: instead of ``on_turns``."""


class PromptHost(Host):
    outside: Attentive

    def __init__(self, process: Process, outside: Attentive) -> None:
        super().__init__(process, None, outside)
        self._is_behind = False  # whether more is held of some channels than ``_received`` says
        self._let_out: list[list[AnyEffect]] = []  # of whose frames the outboxes do not know yet
        self._keep = self._let_out.append  # type: ignore[method-assign, assignment]

    # Inputs -----------------------------------------------------------------------------------------------------

    def take(self, happened: AnyInput, note: Any = None) -> None:
        self._catch_up()
        super().take(happened, note)

    def take_at_once(self, happened: AnyInput, note: Any = None) -> None:
        """``take``, ``end_turn`` and ``durable`` in one, where nothing is held."""
        turn = self._handle(happened, note)
        if turn.channel is not None:
            self._is_behind = True
        self._end_at_once(turn)

    def receive_at_once(self, channel: ChannelId, at: int, number: int, frame: Buffers, note: Any = None) -> bool:
        """``take_at_once`` of a frame on a numbered channel, if it may be taken: if it is new, and none before it is
        missing. Returns whether it was."""
        process = self.process
        state = process.state
        inbox = state.inboxes.get(channel) or process.inbox(channel)
        if number == inbox.received + 1 and not inbox.early:  # as inbox.take_frame does, but for the digest
            inbox.received = number
            inbox.undigested.append(frame)
        elif self._may_take(channel, number):
            inbox.take_frame(number, frame)
        else:
            return False
        self._is_behind = True
        state.seq = seq = state.seq + 1
        sender = channel[0]
        effects = process.receive(at, sender, frame)
        if state.turn or state.gathering.messages:
            happened = Receive(at, *channel, number, frame)
            self._end_at_once(Turn(self._index, happened, seq, state.seq, effects, note, channel))
            return True
        try:
            if effects:
                self._release_effects(effects, note)
        finally:
            self.outside.on_received((process, at, 0, effects, note, seq, sender, frame))
        return True

    def _may_take(self, channel: ChannelId, number: int) -> bool:
        try:
            return self.is_new(channel, number)
        except BadFrame:
            return False  # those before it will be resent, and it will be with them

    def _end_at_once(self, turn: Turn) -> None:
        if self.process.turn_is_open:
            self._hold(turn)
            super().take(TurnEnd(turn.happened.at), turn.note)
            self.durable(self.next_index)
            return
        try:
            if turn.effects:
                self._release_turn(turn)
        finally:
            self.outside.on_turns((turn,), replayed=False)

    @property
    def released_seq(self) -> int:
        """Of the newest traced event that was let out, unless that was interrupted."""
        return self._held[0].seq - 1 if self._held else self.process.state.seq

    # Channels ---------------------------------------------------------------------------------------------------

    @property
    def outboxes(self) -> dict[ChannelId, Outbox]:
        for effects in self._let_out:
            super()._keep(effects)
        self._let_out.clear()
        return self._outboxes

    @property
    def received(self) -> dict[ChannelId, Prefix]:
        self._catch_up()
        return self._received

    def take_fresh(self) -> Iterable[ChannelId]:
        self._catch_up()
        return super().take_fresh()

    def _catch_up(self) -> None:
        """Of what was taken at once, all is held. Said before anything waits, or when somebody asks."""
        if not self._is_behind:
            return
        self._is_behind = False
        for channel, inbox in self.process.state.inboxes.items():
            held = inbox.prefix
            if self._received.get(channel) != held:
                self._received[channel] = held
                self.fresh[channel] = None

    def close(self) -> None:
        self._let_out.clear()
        super().close()
