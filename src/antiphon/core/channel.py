"""The two ends of a channel: numbers that make resending harmless. The host keeps them, drivers move the frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.checksum import crc32
from antiphon.core.model import ProcessId


class Transport(IntEnum):
    """How a part's messages travel. Between two processes, each of the first two is a numbered channel of its own."""

    FIFO = 0  # what is sent between two correct processes arrives, once, in the order in which it was sent
    RELIABLE = 1  # the same, in any order
    DATAGRAM = 2  # may be lost, doubled and overtaken; nothing is numbered

    __hash__ = int.__hash__  # the one that Enum brings is slow, and channels are looked up by it


NUMBERED = (Transport.FIFO, Transport.RELIABLE)


class ChannelId(NamedTuple):
    """One numbered channel of a process, seen from its own end."""

    peer: ProcessId
    transport: Transport


@lru_cache(maxsize=1 << 16)
def channel_to(peer: ProcessId, transport: Transport) -> ChannelId:
    return ChannelId(peer, transport)


class Prefix(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first frames of a channel: how many, and a digest of them all.

    What a receiver holds is a prefix of what its sender sent. If the digests differ, the sender has forgotten what it
    said, and has said something else since.
    """

    frames: int = 0
    digest: int = 0


NO_FRAMES = Prefix()


def digest_with(digest: int, checksums: bytes) -> int:
    """The digest of some frames and of those that follow them, which have these checksums."""
    return crc32(checksums, digest)


def checksums_of(frames: Iterable[Buffers]) -> bytes:
    return b"".join([frame.known_checksum or frame.checksum for frame in frames])


class Inbox(msgspec.Struct, array_like=True):
    """Which numbers of a stream were taken: all up to ``received``, and some beyond where they have no order."""

    received: int = 0
    early: set[int] = msgspec.field(default_factory=set)

    def is_new(self, number: int) -> bool:
        return number > self.received and number not in self.early

    def take(self, number: int) -> None:
        if number != self.received + 1:
            assert self.is_new(number), "the host discards what was taken before"
            self.early.add(number)
            return
        self.received = number
        while self.early and self.received + 1 in self.early:
            self.received += 1
            self.early.remove(self.received)


class FrameInbox(Inbox, array_like=True):
    """The same of a channel, with a digest of the frames up to ``received``."""

    digest: int = 0
    early_checksums: dict[int, bytes] = msgspec.field(default_factory=dict)
    undigested: list[Buffers] = msgspec.field(default_factory=list)  # the last ones, if the digest is not of them yet

    @property
    def prefix(self) -> Prefix:
        if self.undigested:
            self.settle()
        return Prefix(self.received, self.digest)

    def settle(self) -> None:
        """Have the digest be one of all frames up to ``received``."""
        self.digest = digest_with(self.digest, checksums_of(self.undigested))
        self.undigested.clear()

    def take_frame(self, number: int, frame: Buffers) -> None:
        if self.undigested:
            self.settle()
        following = self.received + 1
        if number == following and not self.early:  # most come in order, and nothing waits for them
            self.received = number
            self.digest = crc32(frame.known_checksum or frame.checksum, self.digest)
            return
        self.take(number)
        self.early_checksums[number] = frame.checksum
        taken = range(following, self.received + 1)
        self.digest = digest_with(self.digest, b"".join([self.early_checksums.pop(n) for n in taken]))


class Outbox:
    """Frames for one channel that were let out, from the first that the peer has not acknowledged."""

    __slots__ = ("acknowledged", "digest", "frames", "sent", "size", "spilled")

    def __init__(self, sent: int = 0, acknowledged: int = 0) -> None:
        self.sent = sent  # the number of the newest frame
        self.acknowledged = acknowledged
        self.frames: deque[Buffers] = deque()  # the newest ones, up to ``sent``
        self.size = 0  # of the frames kept, in bytes
        self.spilled = acknowledged  # frames up to this one are no longer kept here: acknowledged, or on disk
        self.digest = 0  # of these

    def push(self, number: int, frame: Buffers) -> None:
        assert number == self.sent + 1, "a channel's frames are let out in the order of their numbers"
        self.sent = number
        self.frames.append(frame)
        self.size += frame.size

    @property
    def first_kept(self) -> int:
        return self.spilled + 1

    def acknowledge(self, number: int) -> None:
        """Forget what the peer holds durably: everything up to ``number``."""
        assert number <= self.sent, "a peer cannot hold what was never sent"
        self.acknowledged = max(self.acknowledged, number)
        self.let_go(number)

    def let_go(self, number: int) -> None:
        """Keep nothing up to ``number`` in memory: it was acknowledged, or is on disk."""
        if number <= self.spilled:
            return
        popleft = self.frames.popleft
        if number == self.spilled + 1:  # as where each is acknowledged by itself
            frame = popleft()
            self.size -= frame.size
            self.digest = crc32(frame.known_checksum or frame.checksum, self.digest)
            self.spilled = number
            return
        gone = [popleft() for _ in range(self.spilled, number)]
        self.size -= sum([frame.size for frame in gone])
        self.digest = digest_with(self.digest, checksums_of(gone))
        self.spilled = number

    def digest_up_to(self, number: int) -> int | None:
        """Of the first ``number`` frames; None if it cannot be told from what is kept here."""
        if not self.spilled <= number <= self.sent:
            return None
        return digest_with(self.digest, checksums_of(islice(self.frames, number - self.spilled)))

    def frames_from(self, number: int) -> Iterator[tuple[int, Buffers]]:
        """The frames kept here from ``number`` on, with their numbers."""
        start = max(number, self.first_kept)
        for at in range(start, self.sent + 1):
            yield at, self.frames[at - self.first_kept]
