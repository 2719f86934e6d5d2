"""The one place that listens: finds out who is calling, and turns away whoever has no business here.

Whatever comes in before a valid Hello is hostile until proved otherwise: small frames only, five seconds, and not too
many such connections at once. Every connection that is turned away is counted, by reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from antiphon.core.errors import AntiphonError, BadFrame, UsageError
from antiphon.runtime.net.dial import Address
from antiphon.runtime.net.frames import MAGIC, VERSION, FrameKind, Hello, Oversized, Rejected, decode, encode
from antiphon.runtime.net.stream import FrameStream, ReceivedFrame

HELLO_SECONDS = 5.0
STRANGERS_MAX = 64  # connections that have not said who they are
CONNECTIONS_MAX = 800  # of all kinds; a process has about a thousand file descriptors


class Rejection(AntiphonError):
    """This connection is not wanted."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Caller(Protocol):
    """Whoever is at the other end of a connection, once it has said who it is: a peer or a client."""

    frame_bytes_max: int

    def on_frames(self, frames: list[ReceivedFrame]) -> None: ...
    def on_writable(self, writable: bool) -> None: ...
    def on_closed(self) -> None: ...


class Port:
    """Makes a connection for every caller; ``greet`` turns a checked Hello into a Caller, or raises Rejection."""

    def __init__(self, cluster: str, greet: Callable[[Hello, FrameStream], Caller]) -> None:
        self.cluster = cluster
        self.greet = greet
        self.strangers = 0
        self.refused: Counter[str] = Counter()
        self.connections: set[Connection] = set()

    async def listen(self, address: Address) -> asyncio.Server:
        host, port = address
        try:
            return await asyncio.get_running_loop().create_server(lambda: Connection(self), host, port, backlog=512)
        except OSError as error:
            raise UsageError(f"Nobody can listen on {host}:{port}: {error.strerror or error}.") from None

    def check(self, hello: Hello) -> None:
        if hello.magic != MAGIC:
            raise Rejection("no antiphon", "The caller does not speak Antiphon's protocol.")
        if hello.version != VERSION:
            raise Rejection("wrong version", f"The caller speaks version {hello.version}, this process {VERSION}.")
        if hello.cluster != self.cluster and (hello.role == "peer" or hello.cluster):
            raise Rejection("wrong cluster", f"The caller belongs to cluster {hello.cluster!r}, not to this one.")

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
        port.strangers += 1
        if port.strangers > STRANGERS_MAX or len(port.connections) > CONNECTIONS_MAX:
            self._refuse("too many connections")
            return
        self._deadline = self.loop.call_later(HELLO_SECONDS, self._refuse, "no hello in time")

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        if self._is_refused:
            return
        try:
            if self._caller is None:
                self._on_hello(*frames.pop(0))
            if frames and self._caller is not None:
                self._caller.on_frames(frames)
        except Rejection as rejection:
            self._is_refused = True
            self._port.refused[rejection.reason] += 1
            self.write(encode(FrameKind.REJECTED, Rejected(rejection.reason, str(rejection))))
            self.close()

    def _on_hello(self, kind: int, body: memoryview) -> None:
        if kind != FrameKind.HELLO:
            raise BadFrame("The first frame is not a Hello.")
        hello = decode(Hello, body)
        self._port.check(hello)
        self._caller = self._port.greet(hello, self)
        self.limit = self._caller.frame_bytes_max
        self._no_stranger()

    def on_bad_frame(self, error: BadFrame) -> None:
        self._refuse("oversized frame" if isinstance(error, Oversized) else "bad frame")

    def _no_stranger(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._port.strangers -= 1

    def _refuse(self, reason: str) -> None:
        if not self._is_refused:
            self._is_refused = True
            self._port.refused[reason] += 1
            self.abort()

    def on_lost(self) -> None:
        self._port.connections.discard(self)
        if self._caller is not None:
            self._caller.on_closed()
        elif self._deadline is None:
            self._port.strangers -= 1  # it was one too many, and never had a deadline
        self._no_stranger()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._caller is not None:
            self._caller.on_writable(False)

    def on_writable(self) -> None:
        if self._caller is not None:
            self._caller.on_writable(True)
