"""Order keys: a protocol orders its messages by tuples; here they become bytes that sort as the tuples do.

Bytes are what a trace, a delivered log and Spark can compare without knowing the protocol.
"""

from __future__ import annotations

from functools import lru_cache

Key = tuple["int | str | Key", ...]

_INT, _TEXT, _OPEN = 0x10, 0x30, 0x50


@lru_cache(maxsize=1024)  # in a simulation, all addressees of a message ask for the same
def encode_key(key: Key) -> bytes:
    """Numbers (from 0 on) come before texts, texts before tuples; else all compare as in Python."""
    return b"".join([_text(part) if isinstance(part, str) else _number_or_tuple(part) for part in key])


def _number_or_tuple(part: int | Key) -> bytes:
    if isinstance(part, tuple):
        return b"%c%b\0" % (_OPEN, encode_key(part))
    assert part >= 0, "an order key has numbers from 0 on"
    length = (part.bit_length() + 7) // 8
    assert length < _TEXT - _INT, "an order key has numbers below 2**248"
    return b"%c%b" % (_INT + length, part.to_bytes(length, "big"))  # a longer number is a greater one


@lru_cache(maxsize=4096)
def _text(part: str) -> bytes:
    assert "\0" not in part, "a text in an order key has no NUL: NUL ends it"
    return bytes((_TEXT, *part.encode(), 0))


def first_number(key: bytes) -> int:
    """The number with which the tuple begins whose bytes these are."""
    length = key[0] - _INT if key else -1
    if not 0 <= length < _TEXT - _INT or len(key) <= length:
        raise ValueError("An order key begins with a number.")
    return int.from_bytes(key[1 : 1 + length], "big")
