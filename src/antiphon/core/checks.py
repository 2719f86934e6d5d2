"""What no honest process or client sends: bytes from outside count only when they have passed here.

Whatever is wrong is refused before it is journaled, with BadFrame for a peer that does not keep to the rules, and with
a sentence for a client that asked for what it cannot have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from antiphon.core.buffers import Buffers, Origin, Piece
from antiphon.core.contract import Contract, Wire
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.floors import check_floor
from antiphon.core.model import GroupId, Message, ProcessId, Service, Topology
from antiphon.core.requests import CLIENT_NAME, NUMBER_MAX, Request, parse_request, requests_in
from antiphon.core.sessions import STANDING_MAX, Mark, SessionId, Sessions, Standing

AHEAD_MAX = 3_600_000_000  # how far behind the present time, in microseconds, a client may ask for a place in the order


class Checkable(Protocol):
    """What is needed of a component: it knows which of its messages are sound."""

    contract: Contract

    def validate(self, message: Wire) -> None: ...


class Admitting(Protocol):
    """What is needed of a protocol."""

    options: Any
    services: Sequence[Service]

    def can_advance(self, options: Any) -> bool: ...
    def admit(self, topology: Topology, destinations: tuple[GroupId, ...]) -> None: ...
    def admit_service(self, service: Service | None) -> None: ...
    def newest_timestamp(self) -> int: ...


class HasSessions(Protocol):
    sessions: Sessions


class Checked(Protocol):
    """What is needed of the process."""

    me: ProcessId
    now: int
    topology: Topology
    heeds_floors: bool
    with_views: bool

    @property
    def state(self) -> HasSessions: ...
    @property
    def protocol(self) -> Admitting: ...
    def decode_frame(self, frame: Buffers) -> tuple[Checkable, Wire]: ...


class Checks:
    """Of what comes to one process."""

    def __init__(self, process: Checked) -> None:
        self._process = process

    def frame(self, frame: Buffers) -> None:
        """Raise BadFrame for bytes that no component of ours sent; call before the frame is journaled."""
        part, message = self._process.decode_frame(frame)
        self.message(part, message)

    def message(self, part: Checkable, message: Wire) -> None:
        """The same of a message of a component."""
        part.validate(message)
        field = part.contract.messages[type(message)]
        if field is not None:
            self.body(getattr(message, field))

    def body(self, m: Message) -> None:
        """Raise BadFrame for a message whose body is anything but as many payloads as it says."""
        process = self._process
        if not process.topology.is_destination_set(m.destinations):
            raise BadFrame(f"There is no such set of groups: {', '.join(m.destinations)}.")
        if not 0 < m.id.number <= NUMBER_MAX or not CLIENT_NAME.fullmatch(m.id.origin):
            raise BadFrame("A message is named after its sender, with a number from 1 on.")
        if m.count == 0 and process.protocol.can_advance(process.protocol.options):
            check_floor(m)
            return
        count, services, turns = 0, set(), 0
        for request in requests_in(m.body):
            count += request.count
            services.add(request.service)
            turns |= request.turn
        if count != m.count or not count:
            raise BadFrame("A message has at least one payload, and as many as it says.")
        if services != {None} and (len(services) > 1 or not services.issubset(process.protocol.services)):
            raise BadFrame("All requests of a message ask for one service, and for one that the protocol offers.")
        if turns and not process.heeds_floors:
            raise BadFrame(_NO_TURNS)

    def mark(self, mark: Mark) -> None:
        known = CLIENT_NAME.fullmatch(mark.client) and self._process.topology.is_destination_set(mark.destinations)
        if not known or not 0 <= mark.number <= NUMBER_MAX:
            raise BadFrame("A mark is a number of a client to a set of groups.")

    def standing(self, piece: Standing) -> None:
        """Raise BadFrame for what no process hands out as where clients are."""
        if len(piece.delivered) > STANDING_MAX or len(piece.waiting) > 1:
            raise BadFrame(f"Of {STANDING_MAX} clients, or of one request, is told at a time where they are.")
        for mark in piece.delivered:
            self.mark(mark)
        for destinations, data in piece.waiting:
            request = parse_request(data.joined())
            if len(request.data) != data.size or not self._process.topology.is_destination_set(destinations):
                raise BadFrame("What waits is one request to a set of groups.")

    def destinations(self, destinations: Iterable[str]) -> tuple[GroupId, ...]:
        """Refuse a set of groups for which this member cannot take requests."""
        process = self._process
        wanted = process.topology.destinations(destinations)
        process.protocol.admit(process.topology, wanted)
        if process.topology.group_of.get(process.me) not in wanted:
            raise UsageError(
                f"{process.me} is in none of the destination groups {', '.join(wanted)}: ask one of their members."
            )
        return wanted

    def request(
        self, client: str, destinations: tuple[GroupId, ...], data: Piece, before: Request | None = None, at: int = 0
    ) -> Request:
        """Refuse a client's request that may not be taken; call before it is journaled.

        ``before``: the one that came right before it, with it, and may be taken: they lie together. ``at``: the time.
        """
        process = self._process
        if before is None:
            request = parse_request(data, 0, Origin())
        else:
            request = parse_request(data, 0, before.origin, before.offset + len(before.data))
        if len(request.data) != len(data) or request.client != client:
            raise BadFrame("A request is longer than it says, or of another client.")
        if before is not None and request.goes_on(before):
            return request  # what is asked below was asked of that one
        process.protocol.admit_service(request.service)
        if request.turn and not process.heeds_floors:
            raise UsageError(_NO_TURNS)
        latest = max(max(at, process.now) // 1000 + AHEAD_MAX, process.protocol.newest_timestamp() + 1)
        if request.floor > latest:
            raise UsageError("The client asks for a place behind a timestamp that this cluster cannot have given it.")
        mixed = bool(process.protocol.services)
        session = SessionId(client, destinations)
        expected = None if before is None else before.end
        process.state.sessions.check(session, request, expected, with_views=process.with_views, mixed=mixed)
        return request


_NO_TURNS = "This protocol does not keep a client's order across sets of groups, so clients do not count turns with it."
