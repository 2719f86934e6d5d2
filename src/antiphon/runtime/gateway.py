"""What a process does for clients: takes their requests, tells their progress, serves their subscriptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from antiphon.core.errors import BadFrame, JournalError, JournalFull, UsageError
from antiphon.core.inputs import Submit
from antiphon.runtime.driver import EXIT_REFUSED, Driver
from antiphon.runtime.frames import (
    CLIENT_BYTES_MAX,
    Accepted,
    Delivered,
    Kind,
    Progress,
    ProgressAnswer,
    Refused,
    Request,
    StatusAnswer,
    Subscribe,
    Subscribed,
    decode,
    encode,
)

PENDING_MAX = 2_000  # messages that wait for their order: above this, clients wait too
PROGRESS_MAX = 1 << 16  # numbers in one answer
DELIVERED_BYTES = 128 << 10  # in one frame
OVERLOAD_SECONDS = 0.02  # between two looks at whether it is over
DRAIN_SECONDS = 10.0  # for which one request to drain holds
BUSY_EVERY = 50  # looks: then the waiting clients are told that this process is alive


class Gateway:
    """All clients of one process, and the back-pressure on them."""

    def __init__(self, driver: Driver, backlog_bytes: Callable[[], int], backlog_bytes_max: int) -> None:
        self.driver = driver
        self.status: Callable[[], StatusAnswer]
        self._drain_until = 0.0
        self.overloaded = False
        self._backlog_bytes = backlog_bytes
        self._backlog_bytes_max = backlog_bytes_max
        self._clients: dict[str, list[ClientSession]] = {}
        self._fresh: dict[ClientSession, None] = {}  # those with answers to be sent at the end of the turn
        self._subscribers: dict[ClientSession, None] = {}
        self._looks = 0

    @property
    def draining(self) -> bool:
        """Whether requests are refused; over unless it is said again, should whoever said it be gone."""
        return time.monotonic() < self._drain_until

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        self._drain_until = time.monotonic() + seconds

    def keep_alive(self) -> None:
        """Tell the subscribers that this process lives: silence would send them elsewhere."""
        for session in self._subscribers:
            session.send(Kind.BUSY)

    def open(self, client: str, transport: Any, *, is_trusted: bool) -> ClientSession:
        session = ClientSession(self, client, transport, is_trusted=is_trusted)
        self._clients.setdefault(client, []).append(session)
        return session

    def closed(self, session: ClientSession) -> None:
        sessions = self._clients[session.client]
        sessions.remove(session)
        if not sessions:
            del self._clients[session.client]
        self._fresh.pop(session, None)
        self._subscribers.pop(session, None)

    def subscribed(self, session: ClientSession) -> None:
        self._subscribers[session] = None

    def reply(self, client: str, number: int) -> None:
        for session in self._clients.get(client, ()):
            if session.is_requester:
                session.accepted.append(number)
                self._fresh[session] = None

    def flush(self) -> None:
        """The end of a turn: send what it has brought."""
        for session in self._fresh:
            session.send_accepted()
        self._fresh.clear()
        for session in list(self._subscribers):
            session.serve()
        if not self.overloaded and self._is_overloaded():
            self.overloaded = True
            self._read_clients()
            self._look_later()

    def _is_overloaded(self) -> bool:
        return self.driver.process.protocol.pending() > PENDING_MAX or self._backlog_bytes() > self._backlog_bytes_max

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(OVERLOAD_SECONDS, self._look_again)

    def _look_again(self) -> None:
        if self.driver.stopped:
            return
        self._looks += 1
        if self._is_overloaded():
            if self._looks % BUSY_EVERY == 0:
                for session in self._sessions():
                    session.send(Kind.BUSY)
            self._look_later()
        else:
            self.overloaded = False
            self._read_clients()

    def _read_clients(self) -> None:
        for session in self._sessions():
            session.set_reading()

    def _sessions(self) -> list[ClientSession]:
        return [session for sessions in self._clients.values() for session in sessions]


class ClientSession:
    """One connection of a client: requests, or one subscription, or both."""

    frame_bytes_max = CLIENT_BYTES_MAX

    def __init__(self, gateway: Gateway, client: str, transport: Any, *, is_trusted: bool) -> None:
        self.client = client
        self.is_requester = False  # others (readers, status) are never kept waiting, and hear of no requests
        self.accepted: list[int] = []
        self._gateway = gateway
        self._driver = gateway.driver
        self._transport = transport
        self._is_trusted = is_trusted  # it named the cluster
        self._is_writable = True
        self._is_reading = True
        self._position = 0
        self._history: Iterator[bytes] | None = None

    def send(self, kind: Kind, message: Any = None) -> None:
        if not self._transport.is_closing():
            self._transport.write(encode(kind, message))

    def on_frames(self, frames: list[tuple[int, bytes]]) -> None:
        for kind, body in frames:
            if kind == Kind.REQUEST:
                self._on_request(decode(Request, body))
            elif kind == Kind.PROGRESS:
                self._on_progress(decode(Progress, body))
            elif kind == Kind.SUBSCRIBE:
                self._on_subscribe(decode(Subscribe, body))
            elif kind == Kind.STATUS:
                self.send(Kind.STATUS_ANSWER, self._gateway.status())
            elif kind == Kind.DRAIN and self._is_trusted:
                self._gateway.drain()
            else:
                raise BadFrame(f"A frame of kind {kind} is out of place.")

    def on_writable(self, writable: bool) -> None:
        self._is_writable = writable
        self.set_reading()
        if writable:
            self.serve()

    def set_reading(self) -> None:
        """Read on, or not: who does not take our answers, or asks too much, is not heard."""
        wanted = self._is_writable and not (self.is_requester and self._gateway.overloaded)
        if wanted != self._is_reading and not self._transport.is_closing():
            self._is_reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def on_closed(self) -> None:
        self._gateway.closed(self)

    # Requests ---------------------------------------------------------------------------------------------------

    def _on_request(self, request: Request) -> None:
        driver, process = self._driver, self._driver.process
        if not self.is_requester:
            self.is_requester = True
            self.set_reading()
        try:
            process.check_request(self.client, request.number, request.settled, request.destinations, request.payload)
            if self._gateway.draining:
                sentence = f"{process.me} is being stopped and takes no more requests."
                self.send(Kind.REFUSED, Refused(request.number, "unavailable", sentence))
                return
            destinations = process.topology.destinations(request.destinations)
            submit = Submit(driver.clock(), self.client, request.number, request.settled, destinations, request.payload)
            driver.take(submit)
        except UsageError as error:
            self.send(Kind.REFUSED, Refused(request.number, "usage", str(error)))
        except JournalFull as error:
            self.send(Kind.REFUSED, Refused(request.number, "unavailable", str(error)))

    def send_accepted(self) -> None:
        self.send(Kind.ACCEPTED, Accepted(self.accepted))
        self.accepted = []

    def _on_progress(self, progress: Progress) -> None:
        """Answer with what is durable, for the client will let members forget what it hears here."""
        process = self._driver.process
        group = process.topology.group_of[process.me]
        limit = max(0, min(progress.limit, PROGRESS_MAX))
        delivered = process.sessions.delivered(self.client, max(0, progress.start), limit)
        answer = ProgressAnswer(group, progress.start, delivered)
        self._driver.when_durable(lambda: self.send(Kind.PROGRESS_ANSWER, answer))

    # Subscriptions ----------------------------------------------------------------------------------------------

    def _on_subscribe(self, wanted: Subscribe) -> None:
        process = self._driver.process
        if wanted.group != process.topology.group_of[process.me] or wanted.start < 0:
            sentence = f"{process.me} cannot serve group {wanted.group!r} from position {wanted.start}."
            self.send(Kind.REFUSED, Refused(-1, "usage", sentence))
            return
        self.send(Kind.SUBSCRIBED, Subscribed(self._driver.deliveries.end))
        self._position = wanted.start
        self._history = None
        self._gateway.subscribed(self)
        self.serve()

    def serve(self) -> None:
        """Send the subscriber all that there is, or as much as it takes."""
        if self not in self._gateway._subscribers:
            return
        try:
            while self._is_writable and not self._transport.is_closing() and (records := self._next_records()):
                self.send(Kind.DELIVERED, Delivered(self._position, records))
                self._position += len(records)
        except JournalError as error:
            self._driver.fail(EXIT_REFUSED, str(error))

    def _next_records(self) -> list[bytes]:
        deliveries = self._driver.deliveries
        if self._history is None:
            recent = deliveries.recent(self._position)
            if recent is not None:
                return _first_bytes(recent)
            self._history = deliveries.history(self._position)
        records: list[bytes] = []
        size = 0
        for record in self._history:
            records.append(record)
            size += len(record)
            if size >= DELIVERED_BYTES:
                return records
        self._history = None
        return records or self._next_records()


def _first_bytes(records: list[bytes]) -> list[bytes]:
    """As many records as make a frame, and at least one."""
    size = 0
    for count, record in enumerate(records):
        size += len(record)
        if size >= DELIVERED_BYTES:
            return records[: count + 1]
    return records
