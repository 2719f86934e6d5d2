"""The port of a process: finds out who is calling, and turns away whoever has no business here.

Whatever comes in before a valid Hello is hostile until proved otherwise: small frames only, five seconds, and not too
many such connections at once. Every connection that is turned away is counted, by reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from antiphon.core.errors import AntiphonError, BadFrame
from antiphon.runtime.frames import (
    HELLO_BYTES_MAX,
    MAGIC,
    VERSION,
    Hello,
    Kind,
    Oversized,
    Parser,
    Rejected,
    decode,
    encode,
)

HELLO_SECONDS = 5.0
STRANGERS_MAX = 64  # connections that have not said who they are
CONNECTIONS_MAX = 800  # of all kinds; a process has about a thousand file descriptors


class Rejection(AntiphonError):
    """This connection is not wanted."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Session(Protocol):
    """What a connection becomes once it has said who it is."""

    frame_bytes_max: int

    def on_frames(self, frames: list[tuple[int, bytes]]) -> None: ...
    def on_writable(self, writable: bool) -> None: ...
    def on_closed(self) -> None: ...


class Port:
    """Makes a connection for every caller; ``greet`` turns a checked Hello into a session, or raises Rejection."""

    def __init__(self, cluster: str, greet: Callable[[Hello, Any], Session]) -> None:
        self.cluster = cluster
        self.greet = greet
        self.strangers = 0
        self.refused: Counter[str] = Counter()
        self.connections: set[Connection] = set()

    def connection(self) -> Connection:
        return Connection(self)

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


class Connection(asyncio.Protocol):
    """One accepted connection, from its first byte on."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._parser = Parser(HELLO_BYTES_MAX)
        self._session: Session | None = None
        self._transport: Any = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        port = self._port
        port.connections.add(self)
        port.strangers += 1
        if port.strangers > STRANGERS_MAX or len(port.connections) > CONNECTIONS_MAX:
            self._refuse("too many connections")
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HELLO_SECONDS, self._refuse, "no hello in time")

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            frames = self._parser.feed(data)
            if self._session is None:
                if not frames:
                    return
                self._on_hello(*frames.pop(0))
            if frames and self._session is not None:
                self._session.on_frames(frames)
        except Oversized:
            self._refuse("oversized frame")
        except BadFrame:
            self._refuse("bad frame")
        except Rejection as rejection:
            self._transport.write(encode(Kind.REJECTED, Rejected(rejection.reason, str(rejection))))
            self._port.refused[rejection.reason] += 1
            self._transport.close()

    def _on_hello(self, kind: int, body: bytes) -> None:
        if kind != Kind.HELLO:
            raise BadFrame("The first frame is no Hello.")
        hello = decode(Hello, body)
        self._port.check(hello)
        self._session = self._port.greet(hello, self._transport)
        self._parser.limit = self._session.frame_bytes_max
        self._no_stranger()

    def _no_stranger(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._port.strangers -= 1

    def _refuse(self, reason: str) -> None:
        self._port.refused[reason] += 1
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.connections.discard(self)
        if self._session is not None:
            self._session.on_closed()
        elif self._deadline is None:
            self._port.strangers -= 1  # it was one too many, and never had a deadline
        self._no_stranger()

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.on_writable(False)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.on_writable(True)
