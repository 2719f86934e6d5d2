"""What a client's user gets: receipts, deliveries, and the batches in which deliveries come."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise

import msgspec

from antiphon.core.events import Delivered
from antiphon.core.requests import Request
from antiphon.runtime.net.frames import ReceiptKind


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The payloads are on disk, and will be delivered in all their destination groups, in this order.

    ``kind``: at a "majority" of each of these groups, so that no minority can lose them; or at one "member", and the
    client sends them again if that one is lost.
    """

    client: str
    destinations: tuple[str, ...]
    number: int  # of the first payload, among those of this client for this set of groups
    count: int
    member: str  # that answered
    kind: ReceiptKind = "member"
    timestamp: int = 0  # of a majority's: the payloads are not ordered behind it

    @property
    def name(self) -> str:
        """The first payload's name; unique among those with the same destinations."""
        return f"{self.client}:{self.number}"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A payload, as the ``position``-th that its group delivered."""

    position: int
    client: str
    number: int
    destinations: tuple[str, ...]
    payload: bytes

    @property
    def name(self) -> str:
        """The name that its receipt has; unique among those with the same destinations."""
        return f"{self.client}:{self.number}"


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What one message brought: payloads at consecutive positions. They are cut out of its bytes when asked for."""

    position: int  # of the first payload
    destinations: tuple[str, ...]
    key: bytes | None  # sorts as the group's protocol orders its messages, where it has such an order
    at: int  # when the member that serves the subscription delivered it, in nanoseconds on its clock
    requests: tuple[Request, ...]
    count: int
    skipped: int = 0  # payloads of the requests that lie before ``position``

    def __len__(self) -> int:
        return self.count

    @property
    def payloads(self) -> list[bytes]:
        if len(self.requests) == 1:
            return self._wanted(_cut(self.requests[0]))
        return self._wanted([payload for request in self.requests for payload in _cut(request)])

    def __iter__(self) -> Iterator[Delivery]:
        position, index = self.position - self.skipped, 0
        for request in self.requests:
            if index >= self.skipped + self.count:
                return
            client, number = request.client, request.first
            for payload in _cut(request):
                if self.skipped <= index < self.skipped + self.count:
                    yield Delivery(position + index, client, number, self.destinations, payload)
                index += 1
                number += 1

    def between(self, start: int, stop: int | None = None) -> Batch:
        """The part of it at positions from ``start`` up to, not including, ``stop``."""
        end = self.position + self.count
        if start <= self.position and (stop is None or stop >= end):
            return self
        start = max(start, self.position)
        end = end if stop is None else min(stop, end)
        skipped = self.skipped + start - self.position
        return Batch(start, self.destinations, self.key, self.at, self.requests, max(0, end - start), skipped)

    def _wanted(self, payloads: list[bytes]) -> list[bytes]:
        whole = len(payloads) == self.count
        return payloads if whole else payloads[self.skipped : self.skipped + self.count]


def batch_of(event: Delivered) -> Batch:
    return Batch(event.position, event.destinations, event.key, event.at, event.requests, event.count)


def _cut(request: Request) -> list[bytes]:
    """One copy of the whole, and slices of that: quicker than slices of a view."""
    data = bytes(request.data)
    lengths = struct.unpack_from(f"<{request.count}I", data, request.table)
    begin = request.table + 4 * request.count
    return [data[start:end] for start, end in pairwise(accumulate(lengths, initial=begin))]
