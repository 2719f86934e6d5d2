"""As much of HTTP/2 and gRPC as a client of etcd needs: unary calls side by side, and one long stream of answers."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4  # the setting
WINDOW = 65_535  # until told otherwise
WINDOW_MAX = (1 << 31) - 1
FRAME_MAX = 16_384
HEAD_SIZE = 9
MESSAGE = struct.Struct(">BI")  # not compressed, and how long


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(value: bytes) -> bytes:
    if len(value) > 126:
        raise ValueError("a header is too long")
    return bytes([len(value)]) + value


def _headers(path: str) -> bytes:
    """Of a call, with names and values as they are: nothing is remembered between calls."""
    named = b"".join(
        b"\x00" + _text(name) + _text(value)
        for name, value in ((b"content-type", b"application/grpc"), (b"te", b"trailers"))
    )
    post_http = b"\x83\x86"  # :method POST, :scheme http
    return post_http + b"\x04" + _text(path.encode()) + b"\x01" + _text(b"localhost") + named


class Http2Stream:
    """A call: the messages that answer it."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: it has ended
        self._buffer = bytearray()

    def received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= MESSAGE.size:
            _, length = MESSAGE.unpack_from(self._buffer)
            if len(self._buffer) < MESSAGE.size + length:
                return
            self.messages.put_nowait(bytes(self._buffer[MESSAGE.size : MESSAGE.size + length]))
            del self._buffer[: MESSAGE.size + length]


class Http2Connection(asyncio.Protocol):
    """A connection with any number of calls on it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._rest = b""
        self._streams: dict[int, Http2Stream] = {}
        self._paths: dict[str, bytes] = {}
        self._next = 1
        self._window, self._stream_window = WINDOW, WINDOW
        self._room = asyncio.Event()
        self._sending = asyncio.Lock()
        self._taken = 0  # bytes of data since the server was last told that there is room
        self._closing = False

    # Calls ------------------------------------------------------------------------------------------------------------

    async def call(self, path: str, message: bytes) -> bytes:
        """One message there, one back."""
        number = await self._open(path, message, END_STREAM)
        answer = await self._streams[number].messages.get()
        del self._streams[number]
        if answer is None:
            raise RuntimeError(f"{path} was refused")
        return answer

    async def stream(self, path: str, message: bytes) -> Http2Stream:
        """One message there, any number back."""
        return self._streams[await self._open(path, message, 0)]

    def close(self) -> None:
        self._closing = True
        self._transport.close()

    async def _open(self, path: str, message: bytes, flags: int) -> int:
        headers = self._paths.setdefault(path, _headers(path))
        body = MESSAGE.pack(0, len(message)) + message
        async with self._sending:  # streams are opened in the order of their numbers
            number, self._next = self._next, self._next + 2
            stream = self._streams[number] = Http2Stream(self._stream_window)
            frames = [frame(HEADERS, END_HEADERS, number, headers)]
            at = 0
            while at < len(body):
                size = min(len(body) - at, self._window, stream.window, FRAME_MAX)
                if size <= 0:
                    self._transport.writelines(frames)
                    frames = []
                    self._room.clear()
                    await self._room.wait()
                    continue
                self._window -= size
                stream.window -= size
                is_last = at + size == len(body)
                frames.append(frame(DATA, flags if is_last else 0, number, body[at : at + size]))
                at += size
            self._transport.writelines(frames)
        return number

    # Frames -----------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        settings = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, WINDOW_MAX))
        self._transport.write(PREFACE + settings + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_MAX - WINDOW)))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closing:
            raise RuntimeError("etcd has closed the connection")

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= HEAD_SIZE:
            length = int.from_bytes(data[at : at + 3], "big")
            end = at + HEAD_SIZE + length
            if end > len(data):
                break
            number = int.from_bytes(data[at + 5 : at + HEAD_SIZE], "big") & WINDOW_MAX
            self._frame(data[at + 3], data[at + 4], number, data[at + HEAD_SIZE : end])
            at = end
        self._rest = data[at:]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            self._data(number, payload)
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            (size,) = struct.unpack(">I", payload)
            if number == 0:
                self._window += size
            elif number in self._streams:
                self._streams[number].window += size
            self._room.set()
        elif kind == GOAWAY:
            raise RuntimeError(f"etcd ends the connection: {payload[8:]!r}")
        if (kind in (DATA, HEADERS) and flags & END_STREAM) or kind == RESET:
            stream = self._streams.get(number)
            if stream is not None:
                stream.messages.put_nowait(None)

    def _data(self, number: int, payload: bytes) -> None:
        self._taken += len(payload)
        if self._taken > WINDOW_MAX // 4:
            room = struct.pack(">I", self._taken)
            self._transport.write(frame(WINDOW_UPDATE, 0, 0, room) + frame(WINDOW_UPDATE, 0, number, room))
            self._taken = 0
        stream = self._streams.get(number)
        if stream is not None:
            stream.received(payload)

    def _settings(self, payload: bytes) -> None:
        for setting, value in struct.iter_unpack(">HI", payload):
            if setting == INITIAL_WINDOW:
                change, self._stream_window = value - self._stream_window, value
                for stream in self._streams.values():
                    stream.window += change
        self._transport.write(frame(SETTINGS, ACK, 0, b""))
        self._room.set()


async def connect(host: str, port: int) -> Http2Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Http2Connection, host, port)
    return connection
