"""What a client of the soak was promised, in a file of its own that outlives its kill -9.

Each line is one `write` to a file opened for appending: what was told is with the system when the next multicast
begins. A payload's bytes follow from who sent it and its serial, so a line need not hold them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

SMALL_BYTES_MAX, LARGE_BYTES_MAX = 1500, 60_000
LARGE_ONE_IN = 200


def payload_of(tag: str, serial: int) -> bytes:
    """The bytes of the client's payload with this serial: a head that names it, and some that nobody can guess."""
    chance = random.Random(f"{tag} {serial}")
    size = chance.randrange(LARGE_BYTES_MAX if chance.randrange(LARGE_ONE_IN) == 0 else SMALL_BYTES_MAX)
    return b"%s %d\n" % (tag.encode(), serial) + chance.randbytes(size)


def name_of(payload: bytes) -> tuple[str, int] | None:
    """The tag and the serial that a payload's head names; None if it has no such head."""
    tag, space, serial = payload.partition(b"\n")[0].partition(b" ")
    if not space or not serial.isdigit():
        return None
    return tag.decode(errors="replace"), int(serial)


class RecordLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of a record: a multicast, and what came of it."""

    at: float  # on the machine's monotonic clock
    destinations: tuple[str, ...]
    serial: int  # of the first payload, among all that the client sent
    count: int
    client: str = ""  # the name that its receipt has; empty without a receipt
    number: int = -1


_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(RecordLine).decode


class RecordWriter:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, line: RecordLine) -> None:
        os.write(self._fd, _encode(line) + b"\n")


class RecordReader:
    """Reads on in a record while its client writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def news(self) -> Iterator[RecordLine]:
        """What was written since the last look; a line that a kill has cut short is none."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for text in whole.splitlines():
            yield _decode(text)
