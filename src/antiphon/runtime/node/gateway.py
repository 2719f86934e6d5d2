"""What a process does for clients: takes their requests, tells their progress, serves their subscriptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.effects import Assured, Reply
from antiphon.core.errors import BadFrame, JournalFull, Unavailable, UsageError
from antiphon.core.events import Delivered, Event
from antiphon.core.inputs import Submit
from antiphon.core.model import GroupId
from antiphon.core.requests import Request, parse_request
from antiphon.core.sessions import OutOfTurn, SessionId
from antiphon.runtime.net import FrameStream, ReceivedFrame
from antiphon.runtime.net.frames import (
    CLIENT_BYTES_MAX,
    ROUTES_MAX,
    FrameKind,
    Marks,
    Progress,
    ProgressAnswer,
    Refused,
    RouteNumber,
    StatusAnswer,
    Subscribe,
    Subscribed,
    decode,
    decode_request,
    encode,
    encode_taken,
)
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.subscribers import Shelf, Subscriber
from antiphon.runtime.node.undelivered import Undelivered

PENDING_BYTES_MAX = 8 << 20  # of requests taken and not delivered yet: above this, clients wait
LOOK_BYTES = 64 << 10  # of requests between two looks at whether peers lag: by much less than they may
OVERLOAD_SECONDS = 0.02  # between two looks at whether it is over
DRAIN_HOLDS_SECONDS = 10.0  # for which one request to drain holds
WAITING_BYTES = 256 << 10  # that a connection takes before the client has to read on
STALLED_SECONDS = 30.0  # after which a client that takes nothing is left
DELIVERED_SECONDS = 0.01  # after which a client is told what was delivered, if no receipt has told it before
OWED_MAX = 64  # questions of one client that wait for the disk; then it is not heard
BUSY_EVERY = 50  # looks: then the waiting clients are told that this process is alive


class Gateway:
    """All clients of one process, and the back-pressure on them."""

    def __init__(self, driver: Driver, peers_lag: Callable[[], bool], keeps_up: Callable[[], bool]) -> None:
        self.driver = driver
        self.status: Callable[[], StatusAnswer]
        self.overloaded = False
        self.shelf = Shelf(driver)
        self.subscribers: dict[ClientCaller, Subscriber] = {}
        self._drain_until = 0.0
        self._peers_lag = peers_lag
        self._keeps_up = keeps_up
        self._clients: dict[str, list[ClientCaller]] = {}
        self._fresh: dict[ClientCaller, None] = {}  # those with answers to be sent at the end of the turn
        self._untold: dict[ClientCaller, None] = {}  # those of whose requests some were delivered
        self._tells_later = False
        self._stalled: dict[ClientCaller, float] = {}  # those that do not take what they are sent, and since when
        self._undelivered = Undelivered()
        self._has_news = False  # for readers
        self._look_at = 0  # when so many bytes of requests were taken, it is seen whether peers lag
        self._looks = 0

    @property
    def draining(self) -> bool:
        """Whether requests are refused; over unless it is said again, should whoever said it be gone."""
        return time.monotonic() < self._drain_until

    def drain(self, seconds: float = DRAIN_HOLDS_SECONDS) -> None:
        self._drain_until = time.monotonic() + seconds

    def keep_alive(self) -> None:
        """Tell the subscribers that this process lives: silence would send them elsewhere. And so it should while the
        others of the group may go on without this process, if they have the same log. Leave clients that take nothing
        of what they are sent: what waits for them takes memory."""
        if self._keeps_up() or not self.driver.process.alike:
            for subscriber in list(self.subscribers.values()):
                subscriber.tell(_BUSY)
        now = asyncio.get_running_loop().time()
        for caller, since in list(self._stalled.items()):
            if now - since > STALLED_SECONDS:
                caller.leave()

    def set_stalled(self, caller: ClientCaller, is_stalled: bool) -> None:
        if is_stalled:
            self._stalled.setdefault(caller, asyncio.get_running_loop().time())
        else:
            self._stalled.pop(caller, None)

    def open(self, client: str, stream: FrameStream) -> ClientCaller:
        caller = ClientCaller(self, client, stream)
        self._clients.setdefault(client, []).append(caller)
        return caller

    def closed(self, caller: ClientCaller) -> None:
        callers = self._clients[caller.client]
        callers.remove(caller)
        if not callers:
            del self._clients[caller.client]
        self._fresh.pop(caller, None)
        self._untold.pop(caller, None)
        self._stalled.pop(caller, None)
        subscriber = self.subscribers.pop(caller, None)
        if subscriber is not None:
            subscriber.close()

    # What was released --------------------------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        self._undelivered.taken(reply)
        for caller in self._clients.get(reply.client, ()):
            if (route := caller.taken(reply)) is not None:
                (self._fresh if route.prompt else self._untold)[caller] = None

    def assured(self, assured: Assured) -> None:
        for caller in self._clients.get(assured.client, ()):
            if caller.assured(assured):
                self._fresh[caller] = None

    def logged(self, event: Event) -> None:
        self._has_news = True
        if type(event) is not Delivered:
            return
        destinations, clients = event.destinations, self._clients
        for request in event.requests:
            client, end = request.client, request.end
            self._undelivered.delivered(client, destinations, end)
            for caller in clients.get(client, ()):
                if caller.delivered(destinations, end):
                    self._untold[caller] = None

    def answer(self) -> None:
        """Tell clients what is safe now; and what was delivered, soon: the next receipt tells it, too."""
        if self._fresh:
            for caller in self._fresh:
                caller.send_taken()
            self._fresh.clear()
        if self._untold and not self._tells_later:
            self._tells_later = True
            asyncio.get_running_loop().call_later(DELIVERED_SECONDS, self._tell_delivered)

    def _tell_delivered(self) -> None:
        self._tells_later = False
        for caller in self._untold:
            caller.send_taken()
        self._untold.clear()

    def serve(self) -> None:
        """Send readers what this turn has brought, and see whether clients ask too much."""
        if self._has_news:
            self._has_news = False
            for subscriber in list(self.subscribers.values()):
                subscriber.serve()
        undelivered = self._undelivered
        if self.overloaded or not undelivered.bytes:
            return
        if undelivered.bytes > PENDING_BYTES_MAX or undelivered.taken_bytes >= self._look_at:
            self._look_at = undelivered.taken_bytes + LOOK_BYTES
            if self._is_overloaded():
                self.overloaded = True
                self.set_reading()
                self._look_later()

    # Back-pressure ------------------------------------------------------------------------------------------------

    def _is_overloaded(self) -> bool:
        waiting = self._undelivered.bytes
        return waiting > PENDING_BYTES_MAX or (waiting > 0 and self._peers_lag())

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(OVERLOAD_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if self.driver.stopped:
            return
        self._looks += 1
        if self._is_overloaded():
            if self._looks % BUSY_EVERY == 0:
                for caller in self._callers():
                    caller.write(_BUSY)
            self._look_later()
        else:
            self.overloaded = False
            self.set_reading()

    def set_reading(self) -> None:
        for caller in self._callers():
            caller.set_reading()

    def _callers(self) -> list[ClientCaller]:
        return [caller for callers in self._clients.values() for caller in callers]


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

    def __init__(self, gateway: Gateway, client: str, stream: FrameStream) -> None:
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
                self._on_progress(decode(Progress, body))
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
            destinations = process.check_destinations(wanted.destinations)
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
            request = self._driver.process.check_request(self.client, route.destinations, data, before, at)
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
            self._stream.add(encode_taken(route.number, Marks(route.taken, route.delivered, assured, latest)))
        self._fresh.clear()
        self._stream.flush()

    def _on_progress(self, wanted: Progress) -> None:
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


_BUSY = encode(FrameKind.BUSY)
