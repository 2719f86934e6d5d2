"""Everything that can happen to a process. A journal is a sequence of these, and nothing else moves a process."""

from __future__ import annotations

import msgspec

from antiphon.core.errors import BadFrame
from antiphon.core.model import GroupId, ProcessId


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: int  # nanoseconds on the driver's clock: the only time a process ever sees


class Begin(Input, frozen=True, tag=0):
    """The first input of every process."""


class Receive(Input, frozen=True, tag=1):
    """A frame from a peer, as it came off the channel; ``number`` counts the channel's frames from 1."""

    sender: ProcessId
    number: int
    frame: bytes


class Multicast(Input, frozen=True, tag=2):
    """This process itself is the paper's sender."""

    destinations: tuple[GroupId, ...]
    payload: bytes


class Submit(Input, frozen=True, tag=3):
    """A client's request: this member becomes the paper's sender, once per (client, number)."""

    client: str
    number: int
    settled: int
    destinations: tuple[GroupId, ...]
    payload: bytes


class Fire(Input, frozen=True, tag=4):
    """A timer is due. A timer that was set anew or cancelled meanwhile has another ``due`` and is ignored."""

    timer: str
    due: int


class Suspect(Input, frozen=True, tag=5):
    process: ProcessId


class Trust(Input, frozen=True, tag=6):
    process: ProcessId


class Recover(Input, frozen=True, tag=7):
    """The driver replayed the journal after a crash at about ``crashed_at``."""

    crashed_at: int


AnyInput = Begin | Receive | Multicast | Submit | Fire | Suspect | Trust | Recover

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyInput] = msgspec.msgpack.Decoder(AnyInput)


def encode_input(value: AnyInput) -> bytes:
    return _encoder.encode(value)


def decode_input(data: bytes) -> AnyInput:
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadFrame(f"This journal record is not an input: {error}.") from None
