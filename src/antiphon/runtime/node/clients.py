"""One client of a process, on one connection: its requests go in, what became of them goes out, and what it reads."""

from __future__ import annotations

from typing import Protocol

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.effects import Assured, Reply
from antiphon.core.errors import BadFrame, JournalFull, Unavailable, UsageError
from antiphon.core.inputs import Submit
from antiphon.core.model import GroupId
from antiphon.core.requests import Request, parse_request
from antiphon.core.sessions import OutOfTurn, SessionId
from antiphon.runtime.net import FrameStream, ReceivedFrame
from antiphon.runtime.net.frames import (
    CLIENT_BYTES_MAX,
    ROUTES_MAX,
    FrameKind,
    ProgressAnswer,
    ProgressQuestion,
    Refused,
    RouteMarks,
    RouteNumber,
    Subscribe,
    Subscribed,
    decode,
    decode_request,
    encode,
    encode_taken,
)
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.subscribers import Shelf, Subscriber

WAITING_BYTES = 256 << 10  # that a connection takes before the client has to read on
OWED_MAX = 64  # questions of one client that wait for the disk; then it is not heard


class AllClients(Protocol):
    """What a client's connection needs of what all clients of a process have in common (gateway.py)."""

    driver: Driver
    shelf: Shelf
    subscribers: dict[ClientCaller, Subscriber]
    overloaded: bool

    @property
    def draining(self) -> bool: ...
    def set_stalled(self, caller: ClientCaller, is_stalled: bool) -> None: ...
    def closed(self, caller: ClientCaller) -> None: ...


class ClientRoute(msgspec.Struct):
    """A set of groups, as one connection calls it."""

    number: int
    destinations: tuple[GroupId, ...]
    error: str = ""  # why nothing can be sent there
    refusal: str = ""  # why nothing more is taken on it: what the client sent behind a refused request must not be
    prompt: bool = True  # whether the client waits to hear what is taken
    taken: int = 0
    assured: int = 0
    delivered: int = 0


class ClientCaller:
    """A client that has said who it is, on one connection: requests, or one subscription, or both."""

    frame_bytes_max = CLIENT_BYTES_MAX

    def __init__(self, gateway: AllClients, client: str, stream: FrameStream) -> None:
        self.client = client
        self.write = stream.write
        self._gateway = gateway
        self._driver = gateway.driver
        self._stream = stream
        self._is_requester = False  # others, readers, are never kept waiting
        self._is_reading = True
        self._routes: dict[int, ClientRoute] = {}
        self._by_destinations: dict[tuple[GroupId, ...], ClientRoute] = {}
        self._fresh: dict[int, ClientRoute] = {}
        self._run: list[tuple[ClientRoute, Request]] = []  # requests of one route that came together
        self._owed = 0  # answers that wait for the disk
        stream.transport.set_write_buffer_limits(high=WAITING_BYTES)

    def send(self, kind: int, message: msgspec.Struct | None = None) -> None:
        self.write(encode(kind, message))

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        for kind, body in frames:
            if kind == FrameKind.REQUEST:
                self._on_request(*decode_request(body))
                continue
            self._submit()
            if kind == FrameKind.ROUTE:
                self._on_route(decode(RouteNumber, body))
            elif kind == FrameKind.PROGRESS:
                self._on_progress(decode(ProgressQuestion, body))
            elif kind == FrameKind.SUBSCRIBE:
                self._on_subscribe(decode(Subscribe, body))
            else:
                raise BadFrame(f"A frame of kind {kind} is out of place.")
        self._submit()

    def on_writable(self, writable: bool) -> None:
        self._gateway.set_stalled(self, not writable)
        self.set_reading()
        subscriber = self._gateway.subscribers.get(self)
        if writable and subscriber is not None:
            subscriber.serve()

    def set_reading(self) -> None:
        """Read on, or not: who does not take our answers, or asks too much, is not heard."""
        is_held_back = self._is_requester and (self._gateway.overloaded or self._driver.congested)
        wanted = self._stream.is_writable and self._owed < OWED_MAX and not is_held_back
        if wanted != self._is_reading:
            self._is_reading = wanted
            if wanted:
                self._stream.resume_reading()
            else:
                self._stream.pause_reading()

    def leave(self) -> None:
        """It can connect again, and go on where it was."""
        self._stream.abort()

    def on_closed(self) -> None:
        self._gateway.closed(self)

    # Requests ---------------------------------------------------------------------------------------------------

    def _on_route(self, wanted: RouteNumber) -> None:
        process = self._driver.process
        named = self._routes.get(wanted.route)
        if (
            named is not None
            and wanted.prompt
            and not named.prompt
            and named.destinations == tuple(wanted.destinations)
        ):
            named.prompt = True
            return
        if not 0 <= wanted.route < ROUTES_MAX or named is not None:
            raise BadFrame(f"{wanted.route} cannot be the number of a new route.")
        try:
            destinations = process.checks.destinations(wanted.destinations)
        except UsageError as error:
            self._routes[wanted.route] = ClientRoute(wanted.route, (), str(error))
            return
        route = ClientRoute(wanted.route, destinations, prompt=wanted.prompt or not process.assures)
        self._routes[wanted.route] = self._by_destinations[destinations] = route
        known = process.state.sessions.known.get(SessionId(self.client, destinations))
        if known is not None:
            reached = known.next
            self._driver.when_durable(lambda: self._reached(route, reached))

    def _reached(self, route: ClientRoute, number: int) -> None:
        route.delivered = max(route.delivered, number)

    def _on_request(self, number: int, data: memoryview) -> None:
        """Take a request together with those of the same route that came right before it."""
        route = self._routes.get(number)
        if route is None:
            raise BadFrame(f"{number} is not a route.")
        if not self._is_requester:
            self._is_requester = True
            self.set_reading()
        if route.error:
            self._refuse(number, parse_request(data).first, "usage", route.error)
            return
        run = self._run
        if run and run[0][0] is not route:
            self._submit()
        if route.refusal:
            self._refuse(number, parse_request(data).first, "unavailable", route.refusal)
            return
        before = run[-1][1] if run else None
        try:
            at = self._driver.clock()
            request = self._driver.process.checks.request(self.client, route.destinations, data, before, at)
        except OutOfTurn as error:
            self._submit()
            self._refuse(number, parse_request(data).first, "out of turn", str(error), error.expected)
            return
        except UsageError as error:
            self._submit()
            self._refuse(number, parse_request(data).first, "usage", str(error))
            return
        except Unavailable as error:
            self._submit()
            route.refusal = str(error)
            self._refuse(number, parse_request(data).first, "unavailable", route.refusal)
            return
        run.append((route, request))

    def _submit(self) -> None:
        """Hand over the requests of one route that came together."""
        run = self._run
        if not run:
            return
        driver, (route, first) = self._driver, run[0]
        taken = [request for _, request in run]
        run.clear()
        if self._gateway.draining or not driver.begun:
            me = driver.process.me
            stopping = f"{me} is being stopped and takes no more requests."
            returning = f"{me} has just been started and takes no requests before it has met its peers."
            route.refusal = stopping if self._gateway.draining else returning
            self._refuse(route.number, first.first, "unavailable", route.refusal)
            return
        requests = Buffers.gathered([request.data for request in taken])
        requests.decoded = taken
        requests.origin, requests.offset = first.origin, first.offset
        try:
            driver.take(Submit(driver.clock(), route.destinations, requests))
        except JournalFull as error:
            route.refusal = str(error)
            self._refuse(route.number, first.first, "unavailable", route.refusal)

    def _refuse(self, route: int, first: int, error: str, sentence: str, expected: int = 0) -> None:
        self.send(FrameKind.REFUSED, Refused(route, first, error, sentence, expected))  # type: ignore[arg-type]

    def taken(self, reply: Reply) -> ClientRoute | None:
        """A request is safe; the route for which that is of interest here."""
        route = self._by_destinations.get(reply.destinations)
        if route is not None:
            route.taken = reply.taken
            self._fresh[route.number] = route
        return route

    def assured(self, assured: Assured) -> bool:
        route = self._by_destinations.get(assured.destinations)
        if route is None:
            return False
        route.assured = max(route.assured, assured.assured)
        self._fresh[route.number] = route
        return True

    def delivered(self, destinations: tuple[GroupId, ...], end: int) -> bool:
        route = self._by_destinations.get(destinations)
        if route is None:
            return False
        route.delivered = end
        self._fresh[route.number] = route
        return True

    def send_taken(self) -> None:
        """Of each set of groups of which there is anything new."""
        process = self._driver.process
        for route in self._fresh.values():
            assured = max(route.assured, route.delivered) if process.assures else 0
            route.taken = max(route.taken, route.delivered, assured)
            latest = process.state.assurances.latest  # not below that of anything that was delivered or assured here
            self._stream.add(encode_taken(route.number, RouteMarks(route.taken, route.delivered, assured, latest)))
        self._fresh.clear()
        self._stream.flush()

    def _on_progress(self, wanted: ProgressQuestion) -> None:
        """Answer with what is durable, for the client will never repeat what it hears of here."""
        process = self._driver.process
        sessions, topology = process.state.sessions, process.topology
        progress = []
        for names in wanted.sets:
            groups = tuple(map(GroupId, names))
            if not topology.is_destination_set(groups):
                raise BadFrame("A client asks about groups that it cannot have sent to.")
            progress.append((names, sessions.progress(SessionId(self.client, groups))))
        answer = ProgressAnswer(topology.group_of[process.me], progress, process.state.assurances.latest)
        self._owed += 1
        self.set_reading()
        self._driver.when_durable(lambda: self._tell_progress(answer))

    def _tell_progress(self, answer: ProgressAnswer) -> None:
        self._owed -= 1
        self.send(FrameKind.PROGRESS_ANSWER, answer)
        self.set_reading()

    # A subscription ----------------------------------------------------------------------------------------------

    def _on_subscribe(self, wanted: Subscribe) -> None:
        process, gateway = self._driver.process, self._gateway
        if self in gateway.subscribers:
            raise BadFrame("A connection has one subscription.")
        if wanted.group != process.topology.group_of[process.me] or wanted.start < 0:
            sentence = f"{process.me} cannot serve group {wanted.group!r} from position {wanted.start}."
            self.send(FrameKind.REFUSED, Refused(-1, 0, "usage", sentence))
            return
        self.send(FrameKind.SUBSCRIBED, Subscribed(self._driver.delivered.end, process.alike))
        subscriber = gateway.subscribers[self] = Subscriber(self._driver, gateway.shelf, self._stream, wanted.start)
        subscriber.serve()
