"""The outgoing half of the channels to a peer: what is released goes out, and what is missing goes again.

Each process dials every peer for what it sends; acknowledgements come back there. The numbers and the frames that are
not acknowledged are the host's. A peer that lags is served from the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from antiphon.core import ProcessId
from antiphon.core.buffers import Buffers, Piece
from antiphon.core.channel import NUMBERED, ChannelId, Transport
from antiphon.core.errors import BadFrame, JournalBehind, JournalError
from antiphon.runtime.net import Address, FrameStream, ReceivedFrame, dial
from antiphon.runtime.net.backoff import Backoff
from antiphon.runtime.net.frames import (
    MAGIC,
    VERSION,
    FrameKind,
    Hello,
    Rejected,
    Welcome,
    data_head,
    decode,
    decode_ack,
    encode,
    encode_confirmed,
    foretold_head,
)
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.ending import EXIT_REFUSED
from antiphon.runtime.node.peers import HEARTBEAT, PEER_SILENCE_SECONDS, check_marks, marks

REDIAL_SECONDS = 0.02  # at first
SETTLED_SECONDS = 1.0  # a connection that ends sooner is no success, though it began with one
HANDSHAKE_SECONDS = 3.0
PUMP_BYTES = 1 << 20  # written at once of what a peer has missed
LIVE_BYTES_MAX = 32 << 20  # kept in memory for one channel to a peer that is there
STALLED_SECONDS = 2.0  # a peer that acknowledges nothing for so long no longer slows the clients down
MARK_BYTES = 64 << 10  # how finely a lag is known


class Lag:
    """How many bytes of a channel the peer has not acknowledged, wherever they are kept; to some 64 KiB."""

    __slots__ = ("_marked_at", "_marks", "acknowledged", "sent")

    def __init__(self) -> None:
        self.sent = 0  # bytes
        self.acknowledged = 0  # of these
        self._marked_at = MARK_BYTES  # when so many are sent, the frame is marked
        self._marks: deque[tuple[int, int]] = deque()  # (frame, bytes up to it)

    def add(self, number: int, size: int) -> bool:
        """Whether there are some 64 KiB more since this was last so."""
        self.sent = sent = self.sent + size
        if sent < self._marked_at:
            return False
        self._marked_at = sent + MARK_BYTES
        self._marks.append((number, sent))
        return True

    def acknowledge(self, number: int, *, is_all: bool) -> None:
        marks = self._marks
        while marks and marks[0][0] <= number:
            self.acknowledged = marks.popleft()[1]
        if is_all:
            self.acknowledged = self.sent

    @property
    def bytes(self) -> int:
        return self.sent - self.acknowledged


class OutgoingChannel:
    """One numbered channel of a link: which frame goes next."""

    def __init__(self, driver: Driver, channel: ChannelId) -> None:
        self.id = channel
        self.box = driver.host.outbox(channel)
        self.next = 0
        self.lag = Lag()
        self._spills = driver.spills
        self._history: Iterator[bytes] = iter(())  # what is read from the disk, as it is asked for
        self._history_next = 0

    def next_on_disk(self) -> bytes | None:
        """The next frame of a peer that has been away or slow for long; None if it is not there."""
        number = self.next
        frame = next(self._history, None) if self._history_next == number else None
        if frame is None:  # begin, or go on with what was written since
            self._history = self._spills.read(self.id, number, self.box.spilled)
            frame = next(self._history, None)
        self._history_next = number + 1
        return frame


class PeerLink:
    """The outgoing half of the channels to one peer, over one connection after the other."""

    def __init__(
        self,
        driver: Driver,
        identity: tuple[str, int],
        peer: ProcessId,
        address: Address,
        on_met: Callable[[ProcessId], None] = lambda peer: None,
        on_stranger: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_met`` is told of every handshake in which the peer's numbers fit ours; ``on_stranger`` when the peer
        has not heard that this process is a member."""
        self.peer = peer
        self.newest_incarnation = 0  # of the peer, as it said at its own address
        self.ready = False  # connected, and past the handshake
        self.absent_since: float | None = None  # when dialling first found nobody there: a hint that it crashed
        self.lost_at = time.time()  # when the last connection broke, on the wall's clock
        self.driver = driver
        self.cluster, self.incarnation = identity
        self.channels = {transport: OutgoingChannel(driver, ChannelId(peer, transport)) for transport in NUMBERED}
        self._address = address
        self._on_met = on_met
        self.on_stranger = on_stranger
        self._stream: LinkStream | None = None
        self._progress_at = 0.0
        self._is_pumping = False
        self._foretold: dict[tuple[Transport, int], Buffers] = {}  # on this connection, and not confirmed
        self._is_heavier = False  # by some 64 KiB since it was last relieved
        self._awake = asyncio.Event()

    async def run(self) -> None:
        """Dial, and dial again, for as long as the process lives."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(REDIAL_SECONDS)
        while True:
            began = loop.time()
            try:
                stream = await dial(self._address, lambda: LinkStream(self))
                if await stream.closed:
                    if loop.time() - began < SETTLED_SECONDS:
                        await backoff.wait()  # whoever wakes this link now may be woken by it in turn, without end
                        continue
                    backoff.reset()
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) and self.absent_since is None:
                    self.absent_since = loop.time()
            self._awake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.seconds()):
                    await self._awake.wait()

    def wake(self) -> None:
        """The peer is surely there: dial now."""
        self._awake.set()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def retire(self) -> None:
        """The peer was replaced: nothing more goes to it."""
        self.ready = False
        self.close()

    # What the connection tells ------------------------------------------------------------------------------------

    def opened(self, stream: LinkStream) -> None:
        self._stream = stream
        self._foretold.clear()

    def lost(self) -> None:
        self._stream = None
        self._foretold.clear()
        if self.ready:
            self.ready = False
            self.lost_at = time.time()

    def welcomed(self, welcome: Welcome) -> None:
        if welcome.process != self.peer or welcome.incarnation < self.newest_incarnation:
            raise BadFrame(f"At the address of {self.peer} is {welcome.process}, or an old copy of it.")
        try:
            check_marks(self.driver, self.peer, welcome.channels)
        except JournalBehind as error:
            self.driver.refuse(str(error))
            return
        for mark in welcome.channels:
            channel = self.channels[mark.transport]
            self._acknowledge(channel, mark.held.frames)
            channel.next = max(mark.held.frames, channel.box.acknowledged) + 1
        self.newest_incarnation = welcome.incarnation
        self.ready = True
        self.absent_since = None
        self.pump()
        self._on_met(self.peer)

    def acknowledged(self, transport: Transport, number: int) -> None:
        channel = self.channels.get(transport)
        if channel is None or number > channel.box.sent:
            raise BadFrame(f"{self.peer} acknowledges frame {number}, which it was never sent.")
        self._acknowledge(channel, number)

    def _acknowledge(self, channel: OutgoingChannel, number: int) -> None:
        box = channel.box
        box.acknowledge(number)
        channel.next = max(channel.next, number + 1)  # it may have come over the connection before this one
        channel.lag.acknowledge(number, is_all=box.acknowledged == box.sent)
        self.driver.spills.acknowledged(channel.id, box)
        self._progress_at = asyncio.get_running_loop().time()

    # Frames -----------------------------------------------------------------------------------------------------

    def send(self, transport: Transport, number: int, frame: Buffers) -> None:
        """A frame is durable and may go out: with `flush`, if the peer has all before it; else `pump` sends it."""
        channel, stream, size = self.channels[transport], self._stream, frame.size
        lag = channel.lag
        if lag.sent == lag.acknowledged and stream is not None:
            self._progress_at = stream.loop.time()  # until now there was nothing to acknowledge
        if lag.add(number, size):
            self._is_heavier = True
        if channel.next == number and self.ready and stream is not None and stream.is_writable:
            stream.pieces += self._pieces(transport, number, frame)
            channel.next = number + 1

    def foretell(self, transport: Transport, number: int, frame: Buffers) -> None:
        """A frame leaves ahead of its time, where the peer has been sent all that was released before it."""
        channel, stream = self.channels[transport], self._stream
        if self.ready and stream is not None and stream.is_writable and channel.next == channel.box.sent + 1:
            stream.pieces += (foretold_head(transport, number, frame.size), *frame.pieces)
            self._foretold[transport, number] = frame
            stream.flush()

    def _pieces(self, transport: Transport, number: int, frame: Buffers) -> tuple[Piece, ...]:
        """What has gone ahead over this very connection need not go again."""
        if self._foretold and self._foretold.pop((transport, number), None) is frame:
            return (encode_confirmed(transport, number, frame.checksum),)
        return (data_head(transport, number, frame.size), *frame.pieces)

    def flush(self) -> None:
        """What was sent leaves now; and where it was much, it is seen whether all that is kept may stay in memory."""
        if self._stream is not None:
            self._stream.flush()
        if self._is_heavier:
            self.relieve()

    def heartbeat(self) -> None:
        """Say that this process lives. A peer that takes nothing of what waits for it has to be dialled again."""
        stream = self._stream
        if stream is None or not self.ready:
            return
        if stream.is_writable:
            stream.write(HEARTBEAT)
        last = max(self._progress_at, stream.heard_at)
        if self.unacknowledged and stream.loop.time() - last > PEER_SILENCE_SECONDS:
            stream.abort()

    def pump(self) -> None:
        """Hand over what the peer has missed, piece by piece, as far as the connection takes it."""
        stream = self._stream
        if not self.ready or stream is None or not stream.is_writable or self._is_pumping:
            return
        size = 0
        try:
            for channel in self.channels.values():
                size += self._pump(stream, channel, PUMP_BYTES - size)
        except JournalError as error:
            self.driver.fail(EXIT_REFUSED, str(error))
            return
        stream.flush()
        if size >= PUMP_BYTES:
            self._is_pumping = True  # the others have their turn first
            stream.loop.call_soon(self._pump_on)

    def _pump_on(self) -> None:
        self._is_pumping = False
        self.pump()

    def _pump(self, stream: FrameStream, channel: OutgoingChannel, limit: int) -> int:
        transport, size = channel.id.transport, 0
        while size < limit and channel.next <= channel.box.spilled:
            frame = channel.next_on_disk()
            if frame is None:
                self.driver.spills.check(channel.id, channel.box)
                self.close()  # there is no room to open the log: it is tried again
                return size
            stream.add(data_head(transport, channel.next, len(frame)), frame)
            channel.next += 1
            size += len(frame)
        for number, kept in channel.box.frames_from(channel.next):
            if size >= limit:
                break
            stream.add(*self._pieces(transport, number, kept))
            channel.next = number + 1
            size += kept.size
        return size

    # How the peer is doing ----------------------------------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        """In bytes, about; 0 only if the peer holds everything."""
        return sum(
            max(channel.lag.bytes, channel.box.size, channel.box.sent - channel.box.acknowledged)
            for channel in self.channels.values()
        )

    @property
    def is_live(self) -> bool:
        """Whether the peer is there and takes what it is sent."""
        is_stalled = asyncio.get_running_loop().time() - self._progress_at > STALLED_SECONDS
        return self.ready and not (is_stalled and self.unacknowledged)

    def relieve(self) -> None:
        """Move to disk what fills the memory; for a peer that takes what it is sent, only when it is very much."""
        self._is_heavier = False
        for channel in self.channels.values():
            size = channel.box.size
            if size > self.driver.spills.spill_bytes and (size > LIVE_BYTES_MAX or not self.is_live):
                self.driver.spills.relieve(channel.id, channel.box)


class LinkStream(FrameStream):
    """One connection of a link."""

    def __init__(self, link: PeerLink) -> None:
        super().__init__()
        self._link = link
        self.closed: asyncio.Future[bool] = self.loop.create_future()  # with whether it got past the handshake
        self._deadline: asyncio.TimerHandle | None = None

    def on_open(self) -> None:
        link = self._link
        link.opened(self)
        me = link.driver.process.me
        channels = marks(link.driver, link.peer)
        hello = Hello(MAGIC, VERSION, link.cluster, "peer", me, link.peer, link.incarnation, channels)
        self.write(encode(FrameKind.HELLO, hello))
        self._deadline = self.loop.call_later(HANDSHAKE_SECONDS, self.abort)

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        link = self._link
        for kind, body in frames:
            if kind == FrameKind.ACK and link.ready:
                link.acknowledged(*decode_ack(body))
            elif kind == FrameKind.HEARTBEAT and link.ready:
                pass  # what is sent arrives
            elif kind == FrameKind.WELCOME and not link.ready:
                self._cancel_deadline()
                link.welcomed(decode(Welcome, body))
            elif kind == FrameKind.REJECTED:
                rejected = decode(Rejected, body)
                if rejected.reason == "old incarnation":
                    link.driver.refuse(rejected.sentence)
                elif rejected.reason == "replaced":
                    link.driver.fail(EXIT_REFUSED, rejected.sentence)
                elif rejected.reason == "stranger":
                    link.on_stranger()
                self.abort()
            else:
                raise BadFrame(f"A frame of kind {kind} is out of place.")

    def on_writable(self) -> None:
        self._link.pump()

    def on_lost(self) -> None:
        was_ready = self._link.ready
        self._link.lost()
        self._cancel_deadline()
        if not self.closed.done():
            self.closed.set_result(was_ready)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
