"""A client's connection to one member: the handshake, frames in, coalesced writes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.core.errors import BadFrame, Unavailable, UsageError
from antiphon.runtime.frames import (
    MAGIC,
    VERSION,
    WELCOME_BYTES_MAX,
    Directory,
    Hello,
    Kind,
    Parser,
    Rejected,
    decode,
    encode,
)

CONNECT_SECONDS = 3.0


class MemberConnection(asyncio.Protocol):
    """Frames go to ``on_frame``; ``on_lost`` is called once, when the connection ends for whatever reason."""

    def __init__(self, cluster: str, client: str) -> None:
        self.on_frame: Callable[[int, bytes], None] = lambda kind, body: None
        self.on_lost: Callable[[], None] = lambda: None
        self.is_open = False
        self.is_writable = True
        self.heard_at = 0.0
        self.directory: Directory
        self._hello = encode(Kind.HELLO, Hello(MAGIC, VERSION, cluster, "client", client))
        self._loop = asyncio.get_running_loop()
        self._parser = Parser(WELCOME_BYTES_MAX)
        self._welcomed: asyncio.Future[Directory] = self._loop.create_future()
        self._buffers: list[bytes] = []
        self._transport: Any = None

    @classmethod
    async def dial(cls, address: tuple[str, int], cluster: str, client: str) -> MemberConnection:
        """Connect and exchange names. Unavailable: nobody there; UsageError: somebody else's process."""
        loop = asyncio.get_running_loop()
        connection = cls(cluster, client)
        host, port = address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: connection, host, port)
                connection.directory = await connection._welcomed
        except (OSError, TimeoutError) as error:
            connection.close()
            raise Unavailable(f"Nobody answers at {host}:{port}: {str(error) or 'it takes too long'}.") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=1 << 20)
        self._transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        try:
            for kind, body in self._parser.feed(data):
                if self.is_open:
                    self.on_frame(kind, body)
                else:
                    self._on_answer(kind, body)
        except BadFrame:
            self._transport.abort()

    def _on_answer(self, kind: int, body: bytes) -> None:
        if self._welcomed.done():
            return
        if kind == Kind.WELCOME:
            self.is_open = True
            self._welcomed.set_result(decode(Directory, body))
        elif kind == Kind.REJECTED:
            self._welcomed.set_exception(UsageError(decode(Rejected, body).sentence))
        else:
            raise BadFrame("The first answer is neither a welcome nor a rejection.")

    def connection_lost(self, exc: Exception | None) -> None:
        was_open, self.is_open = self.is_open, False
        if not self._welcomed.done():
            self._welcomed.set_exception(Unavailable("The connection was closed before it was welcome."))
            self._welcomed.exception()  # whoever dialled may have given up waiting
        if was_open:
            self.on_lost()

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self.on_frame(Kind.BUSY, b"")  # there is room again

    def pause_reading(self) -> None:
        if self.is_open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open:
            self._transport.resume_reading()

    def send(self, kind: Kind, message: msgspec.Struct) -> None:
        """Everything sent in one turn of the event loop leaves in one write."""
        if not self._buffers:
            self._loop.call_soon(self._flush)
        self._buffers.append(encode(kind, message))

    def _flush(self) -> None:
        buffers, self._buffers = self._buffers, []
        if self.is_open:
            self._transport.write(b"".join(buffers))

    def close(self) -> None:
        """End the connection; nobody is told."""
        self.on_frame = lambda kind, body: None
        self.on_lost = lambda: None
        if self._transport is not None:
            self._transport.abort()
