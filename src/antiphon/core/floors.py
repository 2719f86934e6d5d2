"""Floors: up to which key everything is delivered, and how a group that is idle is asked to raise its own.

Every process delivers in the order of the keys. So the key of what it delivered last is its *floor*: whatever comes has
a greater one. As the members of a group deliver the same messages, it is also its group's.

A message can ask for a key that begins with a number which is not below a given one. All that a protocol does for it is
to raise its clock to that number when it gives the message a timestamp; all else, through crashes and restarts, is as
with every message. Two have a use for it:

- Nothing raises the floor of a group to which nobody sends. So a member can be asked to multicast a message to its own
  group that brings no payload, and such a number.
- A client whose requests to one set of groups are assured up to a timestamp, and who goes on with another set, says so
  with its requests (core/requests.py). What it sends then comes later wherever both are delivered.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.contract import Command
from antiphon.core.errors import BadFrame
from antiphon.core.keys import encode_key
from antiphon.core.model import Message
from antiphon.core.requests import FLOOR_MAX, requests_of

LEAST_MAX = FLOOR_MAX

_BYTES = 8


class Advance(Command, frozen=True):
    """Raise the floor of your group: have it deliver something whose key begins with such a number, or a greater."""

    floor: Annotated[int, msgspec.Meta(ge=1, le=LEAST_MAX)]


def floor_body(least: int) -> Buffers:
    """The body of a message that raises a floor; its count is 0."""
    return Buffers(least.to_bytes(_BYTES, "big"))


def least_number(m: Message) -> int:
    """Where the key of m may begin at the least: at what the greatest of its requests' floors says, 0 as a rule; or at
    what it is there for."""
    if not m.count:
        return int.from_bytes(m.body.joined(), "big")
    requests = requests_of(m)
    return requests[0].floor if len(requests) == 1 else max([request.floor for request in requests])


def least_key(m: Message) -> bytes:
    """The same, as a key that sorts before all that it may have."""
    least = least_number(m)
    return encode_key((least,)) if least else b""


def check_floor(m: Message) -> None:
    """Raise BadFrame for a message without payloads that is none of these."""
    if m.body.size != _BYTES or not 1 <= least_number(m) <= LEAST_MAX:
        raise BadFrame("A message has at least one payload, and as many as it says, unless it raises a floor.")
