"""Bytes beside an encoding: they come back as they went, uncopied where they are large; anything else is refused."""

from __future__ import annotations

import struct
import sys
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import Buffers
from antiphon.core.buffers import COPIED_MAX, decoder_beside, decoder_inside, encode_beside, encode_inside
from antiphon.core.errors import BadFrame


class Parcel(msgspec.Struct, array_like=True, frozen=True):
    name: str
    first: Buffers
    number: int
    rest: list[Buffers]


decode = decoder_beside(Parcel)
PIECES = st.lists(st.binary(max_size=40) | st.sampled_from([b"", bytes(COPIED_MAX), bytes(COPIED_MAX + 1)]), max_size=4)
PARCELS = st.builds(
    Parcel,
    st.text(max_size=5),
    PIECES.map(lambda pieces: Buffers(*pieces)),
    st.integers(0, 2**60),
    st.lists(PIECES.map(lambda pieces: Buffers(*pieces)), max_size=3),
)


def test_buffers_are_their_bytes_however_they_are_cut() -> None:
    whole, cut = Buffers(b"abc"), Buffers(b"a", memoryview(b"xbcx")[1:3])
    assert (whole, hash(whole), whole.size, cut.size) == (cut, hash(cut), 3, 3)
    assert bytes(cut) == cut.joined() == b"abc"
    assert whole.joined() is whole.pieces[0], "one piece is not copied"
    assert Buffers(b"abd") != whole


def test_pieces_are_gathered_as_they_are_unless_they_are_many_for_their_size() -> None:
    large, small = [bytes(2 * COPIED_MAX), b"small"], [b"small", b"smaller"]
    assert Buffers.gathered(large).pieces == tuple(large)
    assert Buffers.gathered(small).pieces == (b"smallsmaller",)


@given(PARCELS, st.binary(max_size=3))
def test_what_is_laid_beside_comes_back(parcel: Parcel, prefix: bytes) -> None:
    frame = encode_beside(prefix, parcel)
    assert frame.size == len(bytes(frame))
    assert decode(frame.joined(), len(prefix)) == parcel


def test_large_pieces_are_not_copied_on_either_side() -> None:
    large = bytes(COPIED_MAX + 1)
    frame = encode_beside(b"", Parcel("", Buffers(large), 0, []))
    assert any(piece is large for piece in frame.pieces)
    data = bytes(frame)
    (piece,) = decode(data, 0).first.pieces
    assert isinstance(piece, memoryview)
    assert piece.obj is data
    (piece,) = decode(bytes(encode_beside(b"", Parcel("", Buffers(b"small"), 0, []))), 0).first.pieces
    assert type(piece) is bytes, "a few bytes do not keep a large receive buffer alive"


@given(PARCELS, st.data())
def test_a_frame_that_was_cut_or_lengthened_is_refused(parcel: Parcel, data: st.DataObject) -> None:
    frame = bytes(encode_beside(b"", parcel))
    end = data.draw(st.integers(0, len(frame) - 1))
    for wrong in (frame[:end], frame + b"x"):
        with pytest.raises(BadFrame):
            decode(wrong, 0)


def frame_with_head(head: object, beside: bytes = b"") -> bytes:
    return with_length(msgspec.msgpack.encode(head)) + beside


def with_length(head: bytes) -> bytes:
    return struct.pack("<I", len(head)) + head


@pytest.mark.parametrize(
    "frame",
    [
        frame_with_head(["n", 5, 0, []], b"four"),  # announces more than follows
        frame_with_head(["n", 3, 0, []], b"four"),  # and less
        frame_with_head(["n", 3, 0, [2]], b"four"),
        frame_with_head(["n", -1, 0, []], b""),
        frame_with_head(["n", -1, 0, [1]], b""),
        frame_with_head(["n", b"four", 0, []], b""),  # inside instead of beside
        frame_with_head(["n", 2**40, 0, []], b""),
        frame_with_head(["n", True, 0, []], b"x"),
        frame_with_head(["n", 0, 0]),
        frame_with_head({"name": "n"}),
        frame_with_head(["n", 0, 0, []]).replace(b"n", b"\x80"),  # text that is not UTF-8
        # One field more, of lists in lists, for longer than anybody follows them.
        with_length(b"\x95" + msgspec.msgpack.encode(["n", 0, 0, []])[1:] + b"\x91" * 100_000),
        struct.pack("<I", 2**32 - 1) + b"x" * 100,
        b"",
        b"\x01\x00",
    ],
)
def test_a_hostile_head_is_refused_and_leaves_nothing_behind(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(frame, 0)
    parcel = Parcel("n", Buffers(b"four"), 1, [Buffers(b"x")])
    assert decode(encode_beside(b"", parcel).joined(), 0) == parcel


def test_an_encoding_that_fails_leaves_nothing_behind() -> None:
    with pytest.raises(NotImplementedError):
        encode_beside(b"", [Buffers(b"left over"), object()])
    parcel = Parcel("n", Buffers(b"four"), 1, [])
    assert decode(encode_beside(b"", parcel).joined(), 0) == parcel


@given(PARCELS)
def test_inside_a_snapshot_they_are_part_of_it(parcel: Parcel) -> None:
    assert decoder_inside(Parcel)(encode_inside(parcel)) == parcel


def test_threads_do_not_read_one_anothers_bytes() -> None:
    """A program may have a client in each of several threads, and all decode at once."""
    decode = decoder_beside(list[Buffers])
    wrong: list[object] = []

    def work(letter: bytes) -> None:
        for size in range(1, 3000):
            made = bytes(encode_beside(b"", [Buffers(letter * size), Buffers(letter)]))
            found = [bytes(each) for each in decode(made, 0)]
            if found != [letter * size, letter]:
                wrong.append(found)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(letter,)) for letter in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
