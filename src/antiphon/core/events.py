"""What the application gets: a log of events at positions, and the bytes in which disks and subscribers have it."""

from __future__ import annotations

import msgspec

from antiphon.core.buffers import Buffers, Piece, decoder_beside, encode_beside
from antiphon.core.model import GroupId, MessageId
from antiphon.core.requests import Request, trusted_requests_in


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message at its place in the order: what it brings to the application, as one run of consecutive positions.

    ``requests`` are those admitted with it (core/sessions.py): none where all of them were delivered before or have to
    wait, more than its own where others have waited for one of them.
    """

    id: MessageId
    destinations: tuple[GroupId, ...]
    position: int  # of its first payload, among all that this group's log holds
    count: int
    requests: tuple[Request, ...]
    key: bytes | None  # sorts as the protocol orders its messages
    at: int  # when, on the clock of the process


Event = Delivered  # orders with gaps and views will add theirs


class _Head(msgspec.Struct, frozen=True, array_like=True, tag="delivered", gc=False):
    id: MessageId
    destinations: tuple[GroupId, ...]
    position: int
    count: int
    key: bytes | None
    at: int
    requests: Buffers


_decode = decoder_beside(_Head)


def encode_event(event: Event) -> Buffers:
    """A record of the delivered log: a small head, and the requests as they came."""
    requests = Buffers(*[request.data for request in event.requests])
    head = _Head(event.id, event.destinations, event.position, event.count, event.key, event.at, requests)
    return encode_beside(b"", head)


def decode_event(record: Piece) -> Event:
    """Raises BadFrame for bytes that are no event. Payloads are not looked at: a member checked them when they came."""
    head = _decode(record, 0)
    requests = tuple(trusted_requests_in(head.requests))
    return Delivered(head.id, head.destinations, head.position, head.count, requests, head.key, head.at)
