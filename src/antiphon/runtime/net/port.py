"""The one place that listens: finds out who is calling, and turns away whoever has no business here.

Whatever comes in before a valid Hello is hostile until proved otherwise: small frames only, five seconds, and not too
many such connections at once. Strangers, clients, commands and peers have shares of their own of the files that a
process may open, and the disk has one too: no crowd of one kind keeps out another. Every connection that is turned away
is counted, by reason.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from antiphon.core.errors import AntiphonError, BadFrame
from antiphon.runtime.net.dial import Address
from antiphon.runtime.net.frames import MAGIC, VERSION, FrameKind, Hello, Oversized, Rejected, decode, encode
from antiphon.runtime.net.stream import LARGE_CHUNK_BYTES, FrameStream, ReceivedFrame

HELLO_SECONDS = 5.0
BACKLOG = 4096  # connections that the kernel keeps until they are accepted
OPEN_FILES_MAX = 1 << 16  # that a process asks the system for
DISK_FILES = 128  # logs, snapshots, readers of these, the event loop's own
FILES_PER_PEER = 8  # its connection and ours, one of each being replaced, and what is spilled for it
COMMANDS_MAX = 16  # `status` and its like, which ask something and go
STRANGERS_SHARE = 8  # a part of one in eight


class Shares(NamedTuple):
    """How many connections of each kind there may be at once. Peers need no number: each has one."""

    strangers: int  # who have not said who they are; one more, and the oldest has to go
    clients: int  # one more is refused
    commands: int = COMMANDS_MAX  # one more, and the oldest has to go: it had its answer, or asks again


def shares_of(files: int, peers: int) -> Shares:
    """Divide the files that a process may open."""
    rest = max(files - DISK_FILES - FILES_PER_PEER * peers - COMMANDS_MAX, 2 * STRANGERS_SHARE)
    strangers = rest // STRANGERS_SHARE
    return Shares(strangers, rest - strangers)


def files_allowed() -> int:
    """How many files this process may open, after asking for as many as it can get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, OPEN_FILES_MAX) if hard != resource.RLIM_INFINITY else OPEN_FILES_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else min(soft, OPEN_FILES_MAX)


class Rejection(AntiphonError):
    """This connection is not wanted."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Caller(Protocol):
    """Whoever is at the other end of a connection, once it has said who it is: a peer, a client or a command."""

    frame_bytes_max: int

    def on_frames(self, frames: list[ReceivedFrame]) -> None: ...
    def on_writable(self, writable: bool) -> None: ...
    def on_closed(self) -> None: ...


class Port:
    """Makes a connection for every caller; ``greet`` turns a checked Hello into a Caller, or raises Rejection."""

    def __init__(self, cluster: str, greet: Callable[[Hello, FrameStream], Caller], *, peers: int = 0) -> None:
        self.cluster = cluster
        self.greet = greet
        self.shares = shares_of(files_allowed(), peers)
        self.refused: Counter[str] = Counter()
        self.strangers: dict[Connection, None] = {}  # the oldest is first
        self.connections: set[Connection] = set()
        self.clients: set[Connection] = set()
        self.commands: dict[Connection, None] = {}  # the oldest is first

    async def listen(self, address: Address) -> asyncio.Server:
        """OSError: that is not possible there."""
        host, port = address
        return await asyncio.get_running_loop().create_server(lambda: Connection(self), host, port, backlog=BACKLOG)

    def check(self, hello: Hello) -> None:
        if hello.magic != MAGIC:
            raise Rejection("no antiphon", "The caller does not speak Antiphon's protocol.")
        if hello.version != VERSION:
            raise Rejection("wrong version", f"The caller speaks version {hello.version}, this process {VERSION}.")
        if hello.cluster != self.cluster and (hello.role != "client" or hello.cluster):
            raise Rejection("wrong cluster", f"The caller belongs to cluster {hello.cluster!r}, not to this one.")
        if hello.role == "client" and len(self.clients) >= self.shares.clients:
            sentence = f"This process takes no more clients: it has {len(self.clients)} already."
            raise Rejection("too many clients", sentence)

    def enter(self, connection: Connection, hello: Hello) -> None:
        """Somebody is no stranger any more."""
        if hello.role == "client":
            self.clients.add(connection)
        elif hello.role == "command":
            self.commands[connection] = None
            if len(self.commands) > self.shares.commands:
                sentence = f"More than {self.shares.commands} commands asked this process at the same time."
                next(iter(self.commands)).turn_away(Rejection("too many commands", sentence))

    def leave(self, connection: Connection) -> None:
        self.clients.discard(connection)
        self.commands.pop(connection, None)

    def make_room(self) -> None:
        """Of too many strangers the oldest goes: whoever has business here says so at once."""
        while len(self.strangers) > self.shares.strangers:
            next(iter(self.strangers)).refuse("too many strangers")

    def close(self) -> None:
        for connection in list(self.connections):
            connection.abort()


class Connection(FrameStream):
    """One accepted connection, from its first byte on."""

    def __init__(self, port: Port) -> None:
        super().__init__()
        self._port = port
        self._caller: Caller | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_refused = False

    def on_open(self) -> None:
        port = self._port
        port.connections.add(self)
        port.strangers[self] = None
        self._deadline = self.loop.call_later(HELLO_SECONDS, self.refuse, "no hello in time")
        port.make_room()

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        """Those that come before anybody is known to be the caller; the caller gets the others."""
        if self._is_refused:
            return
        try:
            self._on_hello(*frames.pop(0))
        except Rejection as rejection:
            self.turn_away(rejection)
        else:
            if frames:
                self.handler(frames)

    def turn_away(self, rejection: Rejection) -> None:
        """Say why, and end it; also when nobody reads that."""
        self._is_refused = True
        self.handler = self.on_frames
        self._port.leave(self)
        self._port.refused[rejection.reason] += 1
        self.write(encode(FrameKind.REJECTED, Rejected(rejection.reason, str(rejection))))
        self.close()
        if self._deadline is None:
            self._deadline = self.loop.call_later(HELLO_SECONDS, self.abort)

    def _on_hello(self, kind: int, body: memoryview) -> None:
        if kind != FrameKind.HELLO:
            raise BadFrame("The first frame is not a Hello.")
        port, hello = self._port, decode(Hello, body)
        port.check(hello)
        self._caller = port.greet(hello, self)
        self.handler = self._caller.on_frames
        self.limit = self._caller.frame_bytes_max
        if hello.role == "peer":
            self.chunk_bytes = LARGE_CHUNK_BYTES
        self._no_stranger()
        port.enter(self, hello)

    def on_bad_frame(self, error: BadFrame) -> None:
        self.refuse("oversized frame" if isinstance(error, Oversized) else "bad frame")

    def _no_stranger(self) -> None:
        self._port.strangers.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def refuse(self, reason: str) -> None:
        """End it now, also one that was told why and does not go."""
        self._no_stranger()
        if not self._is_refused:
            self._is_refused = True
            self.handler = self.on_frames
            self._port.refused[reason] += 1
        self.abort()

    def on_lost(self) -> None:
        self._port.connections.discard(self)
        self._no_stranger()
        self._port.leave(self)
        if self._caller is not None:
            self._caller.on_closed()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._caller is not None:
            self._caller.on_writable(False)

    def on_writable(self) -> None:
        if self._caller is not None:
            self._caller.on_writable(True)
