"""A client's request as bytes: any number of payloads of one client for one set of groups.

A message's body is a row of these, joined as they came. So between the caller's bytes and the reader's there is no
object per payload and no second encoding: what is per payload is a length in a table.

```
u64 settled | u32 size | u24 count | u8 service | u64 first | u8 length of name | name
            '- of all that follows             | [u64 floor | u64 turn] | u32 x count lengths | payloads
```

``service`` is 0 where the client leaves it to the protocol how its payloads are delivered. As it is among the bytes
that a request keeps for life, it comes through retries and journals; a message has that of its requests.

A client that sends to one set of groups and then to another, and wants its own order kept across them, counts its
*turns*: from the second one on, which the highest bit of ``service`` tells, its requests have the turn's number, and a
*floor*: their place in the order begins with a number that is not below it (core/floors.py).

``settled`` is the client's word at the time of sending (core/sessions.py) and may differ when the request is sent
again. Everything behind it, the *request*, keeps its bytes for life; its digest is taken of these.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import countOf
from struct import unpack_from

import msgspec

from antiphon.core.buffers import Buffers, Origin, Piece
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.model import Message, Service

PAYLOAD_BYTES_MAX = 1 << 20
REQUEST_BYTES_MAX = 4 << 20
PAYLOADS_MAX = 1 << 16  # in one request
NUMBER_MAX = 1 << 62  # a client's numbers are below this
CLIENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

_SERVICES: tuple[Service | None, ...] = (None, "agreed", "causal")  # a request has the place of its own
_SERVICE_BITS = {service: place << 24 for place, service in enumerate(_SERVICES)}
_COUNT_MASK = (1 << 24) - 1
_TURNED = 1 << 31
FLOOR_MAX = 1 << 60  # clocks have to get by with what is left up to the end of their range

_SETTLED = struct.Struct("<Q")
_PREFIX = struct.Struct("<QIIQB")
_PREFIX_BYTES, _unpack_prefix = _PREFIX.size, _PREFIX.unpack_from
_REQUEST_AT = _SETTLED.size  # where the request begins, whose bytes never change
_SIZED_AT = _SETTLED.size + 4  # what ``size`` counts begins here
_FIXED = _PREFIX.size - _SIZED_AT
_TURN = struct.Struct("<QQ")
_PLAIN = {bytes}  # what nearly all payloads are


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request, read from its bytes. ``data`` is all of it, as it came."""

    client: str
    first: int  # the number of its first payload, among those of this client for this set of groups
    count: int
    settled: int
    data: Piece
    table: int  # where in data the lengths begin
    service: Service | None = None  # what its client asks for; None: whatever the protocol does
    floor: int = 0  # with which number its place in the order may begin at the least
    turn: int = 0  # of its client
    origin: Origin | None = None  # in which it lies, if a log may refer to it there ...
    offset: int = 0  # ... and where

    @property
    def end(self) -> int:
        """The number after its last payload."""
        return self.first + self.count

    def goes_on(self, before: Request) -> bool:
        """Whether it says what another request of its client says, and begins where that one ends."""
        same = self.settled == before.settled and self.service == before.service
        return self.first == before.end and same and self.turn == before.turn and self.floor == before.floor

    @property
    def digest(self) -> int:
        return zlib.crc32(memoryview(self.data)[_REQUEST_AT:])

    def payloads(self, start: int = 0) -> Iterator[bytes]:
        """The payloads, from the ``start``-th on; cut when asked for."""
        view = memoryview(self.data)
        at = self.table + 4 * self.count
        for index, length in enumerate(view[self.table : at].cast("I")):
            if index >= start:
                yield bytes(view[at : at + length])
            at += length


def encode_request(
    client: str,
    first: int,
    settled: int,
    payloads: Sequence[bytes],
    service: Service | None = None,
    floor: int = 0,
    turn: int = 0,
) -> bytes:
    """The bytes of a request. The caller has checked it (`check_payloads`, `check_service`)."""
    packed = _pack(payloads)
    return encode_head(client, first, settled, len(payloads), len(packed), service, floor, turn) + packed


def own_request(client: str, first: int, payloads: Sequence[bytes], service: Service | None) -> Request:
    """A request that a process makes of itself: what it would read from the bytes that it makes."""
    data = encode_request(client, first, 0, payloads, service)
    table = _PREFIX_BYTES + len(client)
    return Request(client, first, len(payloads), 0, data, table, service)


def encode_head(
    client: str,
    first: int,
    settled: int,
    count: int,
    packed_bytes: int,
    service: Service | None = None,
    floor: int = 0,
    turn: int = 0,
) -> bytes:
    """All that comes before the packed payloads."""
    name = client.encode()
    bits = count | _SERVICE_BITS[service]
    if turn:
        bits |= _TURNED
        return _PREFIX.pack(settled, _FIXED + len(name) + _TURN.size + packed_bytes, bits, first, len(name)) + (
            name + _TURN.pack(floor, turn)
        )
    return _PREFIX.pack(settled, _FIXED + len(name) + packed_bytes, bits, first, len(name)) + name


def check_service(service: object) -> None:
    """Refuse what is no service. For the caller's side."""
    if not isinstance(service, str) or service not in _SERVICE_BITS:
        raise UsageError(f"A service is agreed or causal, not {service!r}.")


def join_payloads(payloads: Sequence[bytes]) -> tuple[array[int], bytes]:
    """The lengths of payloads, and all of them in one piece: a copy, whatever becomes of the caller's. UsageError: they
    make no request."""
    count = len(payloads)
    try:
        joined = b"".join(payloads)  # which takes bytes and the like only
        is_plain = countOf(map(type, payloads), bytes) == count
    except (TypeError, ValueError, BufferError):
        is_plain = False
    if not (is_plain and 0 < count <= PAYLOADS_MAX and len(joined) <= PAYLOAD_BYTES_MAX):
        check_payloads(payloads)
        payloads = [bytes(payload) for payload in payloads]
        joined = b"".join(payloads)
    length = len(payloads[0])
    if countOf(map(len, payloads), length) == count:  # most programs send payloads of one length
        return array("I", [length]) * count, joined
    return array("I", list(map(len, payloads))), joined


def unpack_payloads(packed: bytes, count: int) -> list[bytes]:
    edges = list(accumulate(unpack_from(f"<{count}I", packed), initial=4 * count))
    return list(map(packed.__getitem__, map(slice, edges, edges[1:])))


def _pack(payloads: Sequence[bytes]) -> bytes:
    return b"".join((array("I", map(len, payloads)), *payloads))


def with_settled(data: bytes, settled: int) -> tuple[bytes, memoryview]:
    """A request to be sent again, with what is settled by now; as two pieces."""
    return _SETTLED.pack(settled), memoryview(data)[_REQUEST_AT:]


def check_payloads(payloads: Sequence[bytes]) -> int:
    """Refuse payloads that make no request; returns their size. For the caller's side."""
    if not payloads:
        raise UsageError("A batch needs at least one payload.")
    if len(payloads) > PAYLOADS_MAX:
        raise UsageError(f"A batch has at most {PAYLOADS_MAX} payloads, not {len(payloads)}.")
    kinds = set(map(type, payloads))
    lengths = list(map(len, payloads)) if kinds == _PLAIN else _lengths(kinds, payloads)
    if max(lengths) > PAYLOAD_BYTES_MAX:
        raise UsageError(f"A payload has at most {PAYLOAD_BYTES_MAX} bytes, not {max(lengths)}.")
    size = sum(lengths)
    taken = size + 4 * len(payloads)
    if taken > REQUEST_BYTES_MAX:
        raise UsageError(f"A batch has at most {REQUEST_BYTES_MAX} bytes, 4 for each payload included, not {taken}.")
    return size


def _lengths(kinds: set[type], payloads: Sequence[bytes]) -> list[int]:
    for kind in kinds:
        if not issubclass(kind, (bytes, bytearray, memoryview)):
            raise UsageError(f"A payload must be bytes, not {kind.__name__}.")
    try:
        return [memoryview(payload).nbytes for payload in payloads]
    except ValueError:
        raise UsageError("A payload must be bytes, not a view that was released.") from None


def parse_request(data: Piece, at: int = 0, origin: Origin | None = None, offset: int = 0) -> Request:
    """The request at an offset. Strict: raises BadFrame for bytes that `encode_request` does not make.

    ``offset``: where in its origin it begins.
    """
    request = _read_request(data, at, origin, offset)
    table, count, size = request.table, request.count, len(request.data)
    if not 1 <= count <= PAYLOADS_MAX or table + 4 * count > size:
        raise BadFrame(f"A request has 1 to {PAYLOADS_MAX} payloads and a length for each; {count} is wrong.")
    if request.first > NUMBER_MAX or request.settled > request.first:
        raise BadFrame("A request's number is out of range, or calls itself settled.")
    total, longest = _sum_and_max(bytes(memoryview(request.data)[table : table + 4 * count]), count)
    if table + 4 * count + total != size:
        raise BadFrame("A request's count does not fit its bytes.")
    if longest > PAYLOAD_BYTES_MAX:
        raise BadFrame(f"A payload has at most {PAYLOAD_BYTES_MAX} bytes.")
    return request


def _sum_and_max(table: bytes, count: int) -> tuple[int, int]:
    """Of the lengths in a table. Most programs send payloads of one length: those need not be looked at one by one."""
    (first,) = unpack_from("<I", table)
    if table == table[:4] * count:
        return first * count, first
    lengths = memoryview(table).cast("I")
    return sum(lengths), max(lengths)


def _read_request(data: Piece, at: int, origin: Origin | None, offset: int) -> Request:
    """The head of a request, and where its bytes end; what is per payload is not looked at."""
    view = data if type(data) is memoryview else memoryview(data)
    length = len(view)
    if length - at < _PREFIX_BYTES:
        raise BadFrame("A request is shorter than its head.")
    settled, size, count, first, name_length = _unpack_prefix(view, at)
    service, turned = None, 0
    if count > _COUNT_MASK:
        turned, place = count & _TURNED, count >> 24 & 0x7F
        if place >= len(_SERVICES):
            raise BadFrame("A request asks for a service that there is not.")
        count, service = count & _COUNT_MASK, _SERVICES[place]
    end = at + _SIZED_AT + size
    name_at = at + _PREFIX_BYTES
    table = name_at + name_length
    if end > length or table > end or size > REQUEST_BYTES_MAX + 512:
        raise BadFrame("A request announces more bytes than it has, or may have.")
    client = _client(bytes(view[name_at:table]))
    if not turned:
        return Request(client, first, count, settled, view[at:end], table - at, service, 0, 0, origin, offset)
    if table + _TURN.size > end:
        raise BadFrame("A request announces more bytes than it has, or may have.")
    floor, turn = _TURN.unpack_from(view, table)
    if not turn or floor > FLOOR_MAX or turn > NUMBER_MAX:
        raise BadFrame("A request's turn or floor is out of range.")
    table += _TURN.size
    return Request(client, first, count, settled, view[at:end], table - at, service, floor, turn, origin, offset)


@lru_cache(maxsize=4096)
def _client(name: bytes) -> str:
    client = name.decode("ascii", "replace")
    if not CLIENT_NAME.fullmatch(client):
        raise BadFrame("A client's name must be 1 to 64 letters, digits, '.', '_' or '-'.")
    return client


def requests_in(body: Buffers) -> list[Request]:
    """All requests of a message's body; raises BadFrame where it is anything but whole requests."""
    body.decoded = found = _all_in(body, parse_request)
    return found


def trusted_requests_in(body: Buffers) -> list[Request]:
    """The same, of a body that was checked when it came: nothing is done per payload, and it is read once."""
    found: list[Request] | None = body.decoded
    if found is None:
        found = body.decoded = _all_in(body, _read_request)
    return found


def requests_of(m: Message) -> list[Request]:
    """What a message brings that was checked when it came; nothing, if it only raises a floor (core/floors.py)."""
    if not m.count:
        return []
    found: list[Request] | None = m.body.decoded
    return trusted_requests_in(m.body) if found is None else found


def _all_in(body: Buffers, read: Callable[[Piece, int, Origin | None, int], Request]) -> list[Request]:
    found = []
    origin = body.origin
    offset = 0 if origin is None else body.offset
    for piece in body.pieces:
        at, size = 0, len(piece)
        while at < size:
            request = read(piece, at, origin, offset)
            found.append(request)
            length = len(request.data)
            at += length
            if origin is not None:
                offset += length
    return found
