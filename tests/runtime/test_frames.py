"""The wire format: whatever the bytes and wherever they are cut, the parser yields whole frames or refuses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.errors import BadFrame
from antiphon.runtime.frames import (
    HEADER,
    HELLO_BYTES_MAX,
    Accepted,
    Delivered,
    Hello,
    Kind,
    Oversized,
    Parser,
    Request,
    decode,
    decode_ack,
    decode_data,
    encode,
    encode_ack,
    encode_data,
)

FRAMES = st.lists(st.tuples(st.integers(1, max(Kind)), st.binary(max_size=300)), max_size=20)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(FRAMES, st.lists(st.integers(0, 10_000), max_size=30))
def test_frames_survive_any_cut(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(HEADER.pack(len(body), kind) + body for kind, body in frames)
    parser = Parser(HELLO_BYTES_MAX)
    found = [frame for piece in pieces(data, cuts) for frame in parser.feed(piece)]
    assert found == frames


@given(st.binary(max_size=5000), st.lists(st.integers(0, 10_000), max_size=30))
def test_random_bytes_yield_frames_or_are_refused(data: bytes, cuts: list[int]) -> None:
    parser = Parser(HELLO_BYTES_MAX)
    found = 0
    try:
        for piece in pieces(data, cuts):
            for kind, body in parser.feed(piece):
                assert kind in list(Kind)
                found += HEADER.size + len(body)
    except BadFrame:
        return
    assert found <= len(data)
    assert parser._size == len(data) - found <= HELLO_BYTES_MAX + HEADER.size


@given(st.sampled_from([Hello, Request, Accepted, Delivered]), st.binary(max_size=200))
def test_random_bodies_decode_or_are_refused(kind: type[Hello], body: bytes) -> None:
    try:
        message = decode(kind, body)
    except BadFrame:
        return
    assert decode(kind, encode(Kind.HELLO, message)[HEADER.size :]) == message


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_come() -> None:
    parser = Parser(100)
    assert parser.feed(HEADER.pack(100, Kind.DATA)) == []
    with pytest.raises(Oversized):
        Parser(100).feed(HEADER.pack(101, Kind.DATA))


def test_an_unknown_kind_is_refused() -> None:
    for kind in (0, max(Kind) + 1, 255):
        with pytest.raises(BadFrame):
            Parser(100).feed(HEADER.pack(0, kind))


@given(st.integers(0, 2**64 - 1), st.binary(min_size=1, max_size=100))
def test_channel_frames_and_acknowledgements_come_back_as_they_were(number: int, frame: bytes) -> None:
    ((kind, body),) = Parser(200).feed(b"".join(encode_data(number, frame)))
    assert (kind, decode_data(body)) == (Kind.DATA, (number, frame))
    ((kind, body),) = Parser(200).feed(encode_ack(number))
    assert (kind, decode_ack(body)) == (Kind.ACK, number)


@pytest.mark.parametrize("size", [0, 7, 9])
def test_a_mangled_acknowledgement_is_refused(size: int) -> None:
    with pytest.raises(BadFrame):
        decode_ack(bytes(size))


def test_a_channel_frame_without_content_is_refused() -> None:
    with pytest.raises(BadFrame):
        decode_data(bytes(8))
