"""The wire format: whatever the bytes and wherever they are cut, a stream yields whole frames or refuses."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.channel import Transport
from antiphon.core.errors import BadFrame
from antiphon.runtime.net import FrameStream, ReceivedFrame
from antiphon.runtime.net import stream as module
from antiphon.runtime.net.frames import (
    HEADER,
    HELLO_BYTES_MAX,
    KIND_MAX,
    RECORD,
    Control,
    FrameKind,
    Hello,
    Oversized,
    ProgressAnswer,
    ProgressQuestion,
    Refused,
    RouteMarks,
    RouteNumber,
    Subscribe,
    Welcome,
    data_head,
    decode,
    decode_ack,
    decode_data,
    decode_records,
    decode_request,
    decode_taken,
    encode,
    encode_ack,
    encode_taken,
    request_head,
)

FRAMES = st.lists(st.tuples(st.integers(1, KIND_MAX), st.binary(max_size=300)), max_size=20)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ProgressQuestion, b"\x91\xdd" + (1 << 20).to_bytes(4, "big") + b"\x90" * (1 << 20)),  # a million empty sets
        (
            ProgressQuestion,
            b"\x91\x91\xdd" + (1 << 20).to_bytes(4, "big") + b"\xa1a" * (1 << 20),
        ),  # one of a million groups
        (RouteNumber, encode(FrameKind.ROUTE, RouteNumber(0, ["\1" * 10**6]))[HEADER.size :]),
        (RouteNumber, encode(FrameKind.ROUTE, RouteNumber(0, ["a"] * 10**6))[HEADER.size :]),
        (Subscribe, encode(FrameKind.SUBSCRIBE, Subscribe("\1" * 10**6, 0))[HEADER.size :]),
    ],
)
def test_of_a_frame_that_names_too_much_nothing_is_made(kind: type[Control], body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame) as refused:
            decode(kind, body)
        assert len(str(refused.value)) < 200
        assert tracemalloc.get_traced_memory()[1] < 2 * len(body), "at most a name was copied"
    finally:
        tracemalloc.stop()


class Listener(FrameStream):
    """Keeps what comes, as views, to see that nothing is written over them."""

    def __init__(self, limit: int = HELLO_BYTES_MAX) -> None:
        super().__init__(limit)
        self.found: list[ReceivedFrame] = []
        self.error: BadFrame | None = None

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        self.found += frames

    def on_bad_frame(self, error: BadFrame) -> None:
        self.error = error

    def feed(self, data: bytes) -> None:
        """As an event loop does it: as much as fits into the buffer, until all is in."""
        while data and self.error is None:
            buffer = self.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.buffer_updated(count)


def listening(work: Callable[[Listener], Any], limit: int = HELLO_BYTES_MAX) -> Listener:
    async def run() -> Listener:
        listener = Listener(limit)
        listener.connection_made(MagicMock())
        work(listener)
        return listener

    return asyncio.run(run())


def fed(*pieces: bytes, limit: int = HELLO_BYTES_MAX) -> Listener:
    return listening(lambda listener: [listener.feed(piece) for piece in pieces], limit)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def framed(kind: int, body: bytes) -> bytes:
    return HEADER.pack(len(body), kind) + body


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every test crosses from one receive buffer to the next."""
    monkeypatch.setattr(module, "_left", {1024: deque()})
    monkeypatch.setattr(module, "FIRST_CHUNK_BYTES", 256)
    monkeypatch.setattr(module.FrameStream, "chunk_bytes", 1024)
    monkeypatch.setattr(module, "ROOM_MIN", 100)
    monkeypatch.setattr(module, "VIEWS_MAX", 3)


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=30))
def test_frames_survive_any_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(framed(kind, body) for kind, body in frames)
    assert [(kind, bytes(body)) for kind, body in fed(*pieces(data, cuts)).found] == frames


def test_frames_much_longer_than_a_buffer_come_whole() -> None:
    frames = [(4, bytes([i]) * size) for i, size in enumerate((1, 5000, 0, 924, 1024, 100_000, 3, 919, 1019))]
    data = b"".join(framed(kind, body) for kind, body in frames)
    for step in (1, 7, 1000, len(data)):
        listener = fed(*(data[at : at + step] for at in range(0, len(data), step)), limit=1 << 20)
        assert [(kind, bytes(body)) for kind, body in listener.found] == frames


def test_a_connection_with_frames_longer_than_a_buffer_goes_on_in_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_CHUNK_BYTES", 16 << 10)
    short = fed(*[framed(4, b"x" * 900)] * 4).found
    assert {len(body.obj) for _, body in short} == {1024}  # type: ignore[arg-type]
    (_, first), (_, second), *_ = fed(*[framed(4, b"x" * 6000)] * 4, limit=1 << 20).found
    assert len(first.obj) == 16 << 10  # type: ignore[arg-type]
    assert first.obj is second.obj, "not a buffer for each"


def test_what_is_kept_of_a_short_frame_holds_no_more_than_itself() -> None:
    kept = fed(*[framed(4, b"short")] * 1000).found
    assert {len(body.obj) for _, body in kept} == {len(b"short")}  # type: ignore[arg-type]
    (long,) = fed(framed(4, b"x" * 342)).found
    assert len(long[1].obj) == 1024, "a long one is a view of what was received"  # type: ignore[arg-type]


def test_what_is_held_of_a_long_frame_is_not_written_over_by_short_ones_that_come_alone() -> None:
    found = fed(framed(4, b"L" * 400), framed(4, b"short"), framed(4, b"s" * 200), framed(4, b"M" * 300)).found
    assert [bytes(body) for _, body in found] == [b"L" * 400, b"short", b"s" * 200, b"M" * 300]


def test_a_connection_that_says_little_or_is_lost_holds_little() -> None:
    quiet = fed(*[framed(4, b"short")] * 1000)
    assert len(quiet._chunk) == 256
    busy = fed(framed(4, b"x" * 500))
    assert len(busy._chunk) == 1024
    busy.connection_lost(None)
    assert len(busy._chunk) == 0


@given(st.binary(max_size=5000), st.lists(st.integers(0, 10_000), max_size=30))
def test_random_bytes_yield_frames_or_are_refused(data: bytes, cuts: list[int]) -> None:
    listener = fed(*pieces(data, cuts))
    assert all(1 <= kind <= KIND_MAX for kind, _ in listener.found)
    assert sum(HEADER.size + len(body) for _, body in listener.found) <= len(data)


@given(st.sampled_from([Hello, Welcome, RouteNumber, Refused, ProgressAnswer]), st.binary(max_size=200))
def test_random_bodies_decode_or_are_refused(kind: type[Hello], body: bytes) -> None:
    try:
        message = decode(kind, body)
    except BadFrame:
        return
    assert decode(kind, encode(FrameKind.HELLO, message)[HEADER.size :]) == message


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come() -> None:
    assert fed(HEADER.pack(100, FrameKind.DATA), limit=100).error is None
    assert isinstance(fed(HEADER.pack(101, FrameKind.DATA), limit=100).error, Oversized)


def test_each_kind_has_a_number_of_its_own() -> None:
    numbers = [number for name, number in vars(FrameKind).items() if name.isupper()]
    assert sorted(numbers) == list(range(1, KIND_MAX + 1))


def test_an_unknown_kind_is_refused() -> None:
    for kind in (0, KIND_MAX + 1, 255):
        assert isinstance(fed(HEADER.pack(0, kind)).error, BadFrame)


@given(st.sampled_from(Transport), st.integers(0, 2**64 - 1), st.binary(min_size=1, max_size=100))
def test_channel_frames_and_acknowledgements_come_back_as_they_were(
    transport: Transport, number: int, frame: bytes
) -> None:
    ((kind, body),) = fed(data_head(transport, number, len(frame)) + frame).found
    found, count, view = decode_data(body)
    assert (kind, found, count, bytes(view)) == (FrameKind.DATA, transport, number, frame)
    ((kind, body),) = fed(encode_ack(transport, number)).found
    assert (kind, decode_ack(body)) == (FrameKind.ACK, (transport, number))


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=100))
def test_requests_and_receipts_come_back_as_they_were(route: int, number: int, request: bytes) -> None:
    ((kind, body),) = fed(request_head(route, len(request)) + request).found
    found, view = decode_request(body)
    assert (kind, found, bytes(view)) == (FrameKind.REQUEST, route, request)
    marks = RouteMarks(number, number // 2, number // 3, number // 4)
    ((kind, body),) = fed(encode_taken(route, marks)).found
    assert (kind, decode_taken(body)) == (FrameKind.TAKEN, (route, marks))


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(0, 500))
def test_records_come_back_as_they_were_or_are_refused(records: list[bytes], cut: int) -> None:
    data = b"".join(RECORD.pack(len(record)) + record for record in records)
    ((kind, body),) = fed(HEADER.pack(len(data), FrameKind.EVENTS) + data).found
    assert (kind, [bytes(record) for record in decode_records(body)]) == (FrameKind.EVENTS, records)
    try:
        found = decode_records(memoryview(data[: cut % (len(data) + 1)]))
    except BadFrame:
        return
    assert [bytes(record) for record in found] == records[: len(found)]


@pytest.mark.parametrize("size", [0, 8, 10])
def test_a_mangled_acknowledgement_is_refused(size: int) -> None:
    with pytest.raises(BadFrame):
        decode_ack(memoryview(bytes(size)))


def test_a_channel_frame_without_content_or_of_no_transport_is_refused() -> None:
    for body in (bytes(9), b"\x09" + bytes(8) + b"x", b"\0\0"):
        with pytest.raises(BadFrame):
            decode_data(memoryview(body))


@pytest.mark.parametrize("waiting", [0, 7])
@pytest.mark.parametrize("is_closing", [False, True])
def test_what_is_written_goes_to_the_socket_unless_something_waits_and_the_transport_gets_the_rest(
    waiting: int, is_closing: bool
) -> None:
    """In order, and each byte once. To write past what waits, or when the number may be another's, is a mistake."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    pieces_out = [bytes([number]) * size for number, size in enumerate((3, 0, 1 << 20, 100, 5 << 20, 1))]

    def write(listener: Listener) -> None:
        transport: Any = MagicMock()
        transport.get_extra_info = {"socket": ours}.get
        transport.get_write_buffer_size = lambda: waiting
        transport.is_closing = lambda: is_closing
        listener.connection_made(transport)
        listener.add(*pieces_out)
        listener.flush()
        handed = [bytes(piece) for call in transport.writelines.call_args_list for piece in call.args[0]]
        read = bytearray()
        with suppress(BlockingIOError):
            while part := theirs.recv(1 << 20):
                read += part
        if is_closing and not waiting:
            assert not read
            assert not handed
        else:
            assert bytes(read) + b"".join(handed) == b"".join(pieces_out)
            assert bool(read) == (not waiting), "what waits comes first"
            assert handed, "the socket does not take six mebibytes"

    listening(write)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_much_that_is_written_to_a_slow_reader_comes_whole_and_in_order(run: Callable[[Any], None]) -> None:
    frames = [(4, bytes([number % 251]) * (number * 37 % 5000)) for number in range(1, 1500)]

    async def write() -> None:
        done = asyncio.get_running_loop().create_future()
        reader = Listener(1 << 20)

        def took(found: list[ReceivedFrame]) -> None:
            reader.found += found
            reader.pause_reading()
            reader.loop.call_soon(reader.resume_reading)
            if len(reader.found) == len(frames) and not done.done():
                done.set_result(None)

        reader.handler = took
        server = await asyncio.get_running_loop().create_server(lambda: reader, "127.0.0.1", 0)
        _, writer = await asyncio.get_running_loop().create_connection(
            Listener, "127.0.0.1", server.sockets[0].getsockname()[1]
        )
        for number, frame in enumerate(frames):
            writer.add(framed(*frame))
            if number % 3 == 0:
                writer.flush()
        writer.flush()
        async with asyncio.timeout(20):
            await done
        writer.abort()
        server.close()
        assert [(kind, bytes(body)) for kind, body in reader.found] == frames

    run(write())
