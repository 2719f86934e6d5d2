"""The handshake between two processes, and the incoming half of their channels: frames in, acknowledgements out.

Every connection begins with a handshake in which both sides say what they hold, with a digest: that trims the outboxes,
and it uncovers a process whose journal lacks what it once did.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from antiphon.core import ProcessId
from antiphon.core.buffers import COPIED_MAX, Buffers
from antiphon.core.channel import NO_FRAMES, NUMBERED, ChannelId, Transport
from antiphon.core.errors import BadFrame, JournalFull
from antiphon.core.inputs import Confirmed, Foretold, Receive
from antiphon.runtime.net import FrameStream, ReceivedFrame
from antiphon.runtime.net.frames import PEER_BYTES_MAX, ChannelMarks, FrameKind, decode_data, encode, encode_ack
from antiphon.runtime.node.alarms import FULL_RETRY_SECONDS
from antiphon.runtime.node.driver import Driver

HEARTBEAT = encode(FrameKind.HEARTBEAT)
ACK_SECONDS = 0.05  # acknowledgements may wait this long for company ...
ACK_BYTES = 1 << 20  # ... but not when the peer keeps this much for us
PEER_SILENCE_SECONDS = 4.0  # a connection on which nothing moves for so long, though something should, is broken


def marks(driver: Driver, peer: ProcessId) -> list[ChannelMarks]:
    """What a handshake says of both numbered channels with a peer."""
    host = driver.host
    found = []
    for transport in NUMBERED:
        channel = ChannelId(peer, transport)
        box = host.outbox(channel)
        found.append(ChannelMarks(transport, box.sent, box.acknowledged, host.received.get(channel, NO_FRAMES)))
    return found


def check_marks(driver: Driver, peer: ProcessId, channels: list[ChannelMarks]) -> None:
    """Raise JournalBehind if the peer's numbers prove that this process has forgotten something."""
    if [mark.transport for mark in channels] != list(NUMBERED):
        raise BadFrame("A handshake names every numbered channel once.")
    for mark in channels:
        channel = ChannelId(peer, mark.transport)
        driver.host.check_peer(
            channel,
            held=mark.held,
            forgotten=mark.forgotten,
            digest_on_disk=partial(driver.spills.digest_up_to, channel),
        )


class PeerCaller:
    """A peer that called, and with it the incoming half of its channels: frames in, acknowledgements out."""

    frame_bytes_max = PEER_BYTES_MAX

    def __init__(self, driver: Driver, peer: ProcessId, incarnation: int, stream: FrameStream) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self._driver = driver
        self._stream = stream
        self._channels = {transport: ChannelId(peer, transport) for transport in NUMBERED}
        self._acknowledged = {c: driver.host.received.get(c, NO_FRAMES).frames for c in self._channels.values()}
        self._takes = {
            FrameKind.DATA: self._receive,
            FrameKind.FORETOLD: self._hear,
            FrameKind.CONFIRMED: self._confirm,
        }
        self._bytes = 0  # taken since the last acknowledgement
        self._timer: asyncio.TimerHandle | None = None
        self._refused: deque[ReceivedFrame] = deque()  # frames that found the disk full
        self._read_since = 0.0  # silence before this does not count
        self._spoke_at = 0.0  # when a frame last came: to connect is not yet to take part
        self._looked_at = 0.0

    @property
    def heard_at(self) -> float:
        """When the peer last spoke; now, while it is not read because the disk is full."""
        return self._stream.loop.time() if self._refused else self._spoke_at

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        if not self._driver.begun:
            raise BadFrame("A peer sends nothing before it is read.")
        self._spoke_at = self._stream.heard_at
        if self._refused:
            self._refused.extend(frames)
            return
        for at, (kind, body) in enumerate(frames):
            take = self._takes.get(kind)
            if take is not None:
                try:
                    take(body)
                except JournalFull:
                    self._refused.extend(frames[at:])
                    self._wait_for_room()
                    return
            elif kind != FrameKind.HEARTBEAT:
                raise BadFrame(f"A frame of kind {kind} is out of place.")

    def _receive(self, body: memoryview) -> None:
        """Take a frame, unless it was taken before. BadFrame, JournalFull: nothing has happened."""
        transport, number, view = decode_data(body)
        driver, channel = self._driver, self._channels.get(transport)
        if channel is None:
            raise BadFrame("Datagrams do not come over a connection.")
        if not driver.host.is_new(channel, number):
            return
        size = len(view)
        frame = Buffers(bytes(view) if size < COPIED_MAX else view)
        driver.process.checks.frame(frame)
        driver.take(Receive(driver.clock(), self.peer, transport, number, frame))
        self._bytes += size

    def _hear(self, body: memoryview) -> None:
        """A frame is foretold. BadFrame, JournalFull: nothing has happened."""
        transport, number, view = decode_data(body)
        driver = self._driver
        if transport is not Transport.FIFO:
            raise BadFrame("Only what keeps its order is foretold.")
        if number <= driver.process.inbox(self._channels[transport]).received:
            return
        frame = Buffers(bytes(view) if len(view) < COPIED_MAX else view)
        driver.process.checks.frame(frame)
        driver.take(Foretold(driver.clock(), self.peer, transport, number, frame))

    def _confirm(self, body: memoryview) -> None:
        """What was foretold on this connection has come. BadFrame, JournalFull: nothing has happened."""
        transport, number, checksum = decode_data(body)
        driver, channel = self._driver, self._channels.get(transport)
        if channel is None:
            raise BadFrame("Datagrams do not come over a connection.")
        if not driver.host.is_new(channel, number):
            return
        if not driver.process.is_foretold(channel, number, bytes(checksum)):
            raise BadFrame(f"Frame {number} of {self.peer} was never foretold.")
        size = driver.process.state.foretold[channel][number].size
        driver.take(Confirmed(driver.clock(), self.peer, transport, number))
        self._bytes += size

    def _wait_for_room(self) -> None:
        self._stream.pause_reading()
        self._stream.loop.call_later(FULL_RETRY_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if not self._stream.is_open:
            return
        frames, self._refused = list(self._refused), deque()
        self.set_reading()
        try:
            self.on_frames(frames)
        except BadFrame as error:
            self._stream.on_bad_frame(error)

    def set_reading(self) -> None:
        """Read on, or not: before the process has begun, and while too much waits for the disk."""
        if self._refused or self._driver.congested or not self._driver.begun:
            self._stream.pause_reading()
        else:
            self._read_since = self._stream.loop.time()
            self._stream.resume_reading()

    def acknowledge(self) -> None:
        """More of these channels is durable: say so soon, and at once when it is much."""
        if self._bytes >= ACK_BYTES:
            self._send_acks()
        elif self._timer is None:
            self._timer = self._stream.loop.call_later(ACK_SECONDS, self._send_acks)

    def _send_acks(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._bytes = 0
        for channel, before in self._acknowledged.items():
            held = self._driver.host.received.get(channel, NO_FRAMES).frames
            if held > before:
                self._acknowledged[channel] = held
                self._stream.write(encode_ack(channel.transport, held))

    def look(self) -> None:
        """Tell the peer that what it sends arrives, also while a large frame takes long. An open connection on which
        nothing comes is broken, unless nothing is read from it: every peer that takes part beats."""
        stream = self._stream
        if stream.heard_at > self._looked_at:
            stream.write(HEARTBEAT)
        self._looked_at = stream.heard_at
        is_read = self._driver.begun and not self._driver.congested and not self._refused
        if is_read and stream.loop.time() - max(stream.heard_at, self._read_since) > PEER_SILENCE_SECONDS:
            stream.abort()

    def on_writable(self, writable: bool) -> None:
        """Acknowledgements are small and cumulative: there is nothing to hold back."""

    def on_closed(self) -> None:
        self._refused.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._stream.abort()
