"""Reliable FIFO channels over TCP: each process dials every peer for what it sends; acknowledgements come back there.

The numbers are core's (Outbox, Inbox). A reconnect begins with a handshake in which both sides say what they hold:
that trims the outbox, and it uncovers a process whose journal lacks what it once did.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from antiphon.core import ProcessId
from antiphon.core.errors import BadFrame, JournalBehind, JournalFull
from antiphon.runtime.frames import (
    HELLO_BYTES_MAX,
    MAGIC,
    PEER_BYTES_MAX,
    VERSION,
    Hello,
    Kind,
    Parser,
    Rejected,
    Welcome,
    decode,
    decode_ack,
    decode_data,
    encode,
    encode_ack,
    encode_data,
)

if TYPE_CHECKING:
    from antiphon.runtime.driver import Driver

BACKOFF_SECONDS = (0.02, 1.0)  # first, longest
HANDSHAKE_SECONDS = 5.0
WRITE_BYTES = 256 << 10  # handed to the transport in one piece
WRITE_BUFFER_BYTES = 1 << 20  # above this the transport pushes back
ACK_SECONDS = 0.02  # acknowledgements may wait this long for company ...
ACK_BYTES = 256 << 10  # ... but not when the peer keeps this much for us
STALLED_SECONDS = 2.0  # a peer that acknowledges nothing for so long no longer slows the clients down
FULL_SECONDS = 0.2  # between two attempts to go on when the disk was full


def judge(me: ProcessId, peer: ProcessId, driver: Driver, other: Hello | Welcome) -> None:
    """Raise JournalBehind if the peer's numbers prove that this process has forgotten something."""
    sent = driver.process.channels.outbox(peer).sent
    held = driver.received.get(peer, 0)
    if other.held > sent:
        raise JournalBehind(
            f"{peer} holds {other.held} frames of {me}, whose journal knows of only {sent}: "
            f"it was cut, is an old copy, or was never kept, so {me} must not run on it."
        )
    if other.forgotten > held:
        raise JournalBehind(
            f"{me} once acknowledged {other.forgotten} frames of {peer}, but its journal holds only {held}: "
            f"it was cut, is an old copy, or was never kept, so {me} must not run on it."
        )


class Link(asyncio.Protocol):
    """The outgoing half of the channel to one peer, over one connection after the other."""

    def __init__(self, driver: Driver, identity: tuple[str, int], peer: ProcessId, address: tuple[str, int]) -> None:
        self.peer = peer
        self.ready = False  # connected, and past the handshake
        self.absent_since: float | None = None  # when dialling first found nobody there: a hint that it crashed
        self.lost_at = time.time()  # when the last connection broke, on the wall's clock
        self.dropped = 0  # frames of a lossy channel that found no connection
        self._driver = driver
        self._cluster, self._incarnation = identity
        self._address = address
        self._outbox = driver.process.channels.outbox(peer)
        self._released = self._outbox.sent
        self._next = 0
        self._lossy: deque[bytes] = deque()
        self._paused = False
        self._transport: Any = None
        self._parser = Parser(HELLO_BYTES_MAX)
        self._closed: asyncio.Future[bool]  # with whether the connection got past the handshake
        self._deadline: asyncio.TimerHandle | None = None
        self._progress_at = 0.0
        self._awake = asyncio.Event()

    async def run(self) -> None:
        """Dial, and dial again, for as long as the process lives."""
        loop = asyncio.get_running_loop()
        first, longest = BACKOFF_SECONDS
        delay = first
        while True:
            self._closed = loop.create_future()
            try:
                await loop.create_connection(lambda: self, *self._address)
                was_ready = await self._closed
            except OSError as error:
                was_ready = False
                if isinstance(error, ConnectionRefusedError) and self.absent_since is None:
                    self.absent_since = loop.time()
            delay = first if was_ready else min(longest, delay * 2)
            self._awake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay * random.uniform(0.5, 1.0)):
                    await self._awake.wait()

    def wake(self) -> None:
        """The peer is surely there: dial now."""
        self._awake.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The connection ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._parser = Parser(HELLO_BYTES_MAX)
        self._paused = False
        self._lossy.clear()
        outbox, me = self._outbox, self._driver.process.me
        held = self._driver.received.get(self.peer, 0)
        hello = Hello(
            MAGIC,
            VERSION,
            self._cluster,
            "peer",
            me,
            self.peer,
            self._incarnation,
            outbox.sent,
            outbox.acknowledged,
            held,
        )
        self._transport.write(encode(Kind.HELLO, hello))
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HANDSHAKE_SECONDS, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        was_ready, self.ready, self._transport = self.ready, False, None
        if was_ready:
            self.lost_at = time.time()
        self._cancel_deadline()
        if not self._closed.done():
            self._closed.set_result(was_ready)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        try:
            for kind, body in self._parser.feed(data):
                self._on_frame(kind, body)
        except BadFrame:
            self._transport.abort()

    def _on_frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.ACK and self.ready:
            number = decode_ack(body)
            if number > self._released:
                raise BadFrame(f"{self.peer} acknowledges frame {number}, which it was never sent.")
            self._acknowledge(number)
        elif kind == Kind.WELCOME and not self.ready:
            self._on_welcome(decode(Welcome, body))
        elif kind == Kind.REJECTED:
            rejected = decode(Rejected, body)
            if rejected.reason == "old incarnation":
                self._driver.fail(3, rejected.sentence)
            self._transport.abort()
        else:
            raise BadFrame(f"A frame of kind {kind} is out of place.")

    def _on_welcome(self, welcome: Welcome) -> None:
        try:
            judge(self._driver.process.me, self.peer, self._driver, welcome)
        except JournalBehind as error:
            self._driver.fail(3, str(error))
            return
        self._cancel_deadline()
        self._acknowledge(welcome.held)
        self._next = max(welcome.held, self._outbox.acknowledged) + 1
        self.ready = True
        self.absent_since = None
        self.pump()

    def _acknowledge(self, number: int) -> None:
        outbox = self._outbox
        had_spilled = outbox.acknowledged < outbox.spilled
        outbox.acknowledge(number)
        self._next = max(self._next, number + 1)  # it may have come over the connection before this one
        if had_spilled and outbox.acknowledged >= outbox.spilled:
            self._driver.spills.forget(self.peer)
        self._progress_at = asyncio.get_running_loop().time()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    # Frames -----------------------------------------------------------------------------------------------------

    def release(self, number: int, frame: bytes) -> None:
        """A frame is durable and may go out; `pump` sends it."""
        if number:
            self._released = number
        elif self.ready and not self._paused:
            self._lossy.append(frame)
        else:
            self.dropped += 1

    def heartbeat(self) -> None:
        if self.ready and not self._paused:
            self._transport.write(encode(Kind.HEARTBEAT))

    def pump(self) -> None:
        """Hand everything that may go out to the transport, in few large writes."""
        if not self.ready:
            return
        buffers: list[bytes] = []
        while self._lossy:
            buffers += encode_data(0, self._lossy.popleft())
        size = 0
        for frame in self._unsent_frames():
            buffers += encode_data(self._next, frame)
            self._next += 1
            size += len(frame)
            if size >= WRITE_BYTES:
                self._transport.write(b"".join(buffers))
                buffers.clear()
                size = 0
                if self._paused:
                    return
        if buffers:
            self._transport.write(b"".join(buffers))

    def _unsent_frames(self) -> Iterator[bytes]:
        """From the next one on: first those on disk, if the peer has been away for long."""
        if self._paused:
            return
        outbox = self._outbox
        if self._next <= outbox.spilled:
            yield from self._driver.spills.read(self.peer, self._next, outbox.spilled)
            if self._next <= outbox.spilled:
                # They were acknowledged once and are gone; the peer is the one that has forgotten them.
                self._transport.abort()
                return
        for number in range(self._next, self._released + 1):
            yield outbox.frames[number]

    @property
    def unacknowledged(self) -> int:
        return self._outbox.sent - self._outbox.acknowledged

    @property
    def backlog_bytes(self) -> int:
        """What clients must wait for: nothing, if the peer is dead or does not answer."""
        if not self.ready or asyncio.get_running_loop().time() - self._progress_at > STALLED_SECONDS:
            return 0
        return self._outbox.size


class PeerSession:
    """The incoming half of the channel from one peer: frames in, acknowledgements out."""

    frame_bytes_max = PEER_BYTES_MAX

    def __init__(self, driver: Driver, peer: ProcessId, incarnation: int, transport: Any) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self.heard_at = asyncio.get_running_loop().time()
        self._driver = driver
        self._transport = transport
        self._acknowledged = driver.received.get(peer, 0)
        self._bytes = 0  # taken since the last acknowledgement
        self._timer: asyncio.TimerHandle | None = None
        self._refused: deque[tuple[int, bytes]] = deque()  # frames that found the disk full

    def on_frames(self, frames: list[tuple[int, bytes]]) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        if self._refused:
            self._refused.extend(frames)
            return
        for at, (kind, body) in enumerate(frames):
            if kind == Kind.DATA:
                number, frame = decode_data(body)
                try:
                    self._driver.receive(self.peer, number, frame)
                except JournalFull:
                    self._refused.extend(frames[at:])
                    self._wait_for_room()
                    return
                self._bytes += len(frame)
            elif kind != Kind.HEARTBEAT:
                raise BadFrame(f"A frame of kind {kind} is out of place.")

    def _wait_for_room(self) -> None:
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(FULL_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._transport.is_closing():
            return
        frames, self._refused = list(self._refused), deque()
        self._transport.resume_reading()
        try:
            self.on_frames(frames)
        except BadFrame:
            self._transport.abort()

    def acknowledge(self) -> None:
        """More of this channel is durable: say so soon, and at once when it is much."""
        if self._bytes >= ACK_BYTES:
            self._send_ack()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_SECONDS, self._send_ack)

    def _send_ack(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held = self._driver.received.get(self.peer, 0)
        if held > self._acknowledged and not self._transport.is_closing():
            self._acknowledged = held
            self._bytes = 0
            self._transport.write(encode_ack(held))

    def on_writable(self, writable: bool) -> None:
        """Acknowledgements are small and cumulative: there is nothing to hold back."""

    def on_closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._transport.abort()
