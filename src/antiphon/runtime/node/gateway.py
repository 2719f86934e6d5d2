"""What the clients of a process have in common: who hears of what was released, and the back-pressure on all of them.

What is done for one client, on its connection, is in clients.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from antiphon.core.effects import Assured, Reply
from antiphon.core.events import Adopted, Delivered, Event
from antiphon.core.model import GroupId
from antiphon.core.sessions import SessionId
from antiphon.runtime.net import FrameStream
from antiphon.runtime.net.frames import FrameKind, StatusAnswer, encode
from antiphon.runtime.node.clients import ClientCaller
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.subscribers import Shelf, Subscriber

PENDING_BYTES_MAX = 8 << 20  # of requests taken and not delivered yet: above this, clients wait
LOOK_BYTES = 64 << 10  # of requests between two looks at whether peers lag: by much less than they may
OVERLOAD_SECONDS = 0.02  # between two looks at whether it is over
DRAIN_HOLDS_SECONDS = 10.0  # for which one request to drain holds
STUCK_CLIENT_SECONDS = 30.0  # after which a client that takes nothing is left
DELIVERED_SECONDS = 0.01  # after which a client is told what was delivered, if no receipt has told it before
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
            if now - since > STUCK_CLIENT_SECONDS:
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

    def announce(self, directory: bytes) -> None:
        """Tell all clients who the members are now."""
        for caller in self._callers():
            caller.write(directory)

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
            if type(event) is Adopted:
                self._on_adopted()
            return
        destinations = event.destinations
        for request in event.requests:
            self._delivered(request.client, destinations, request.end)

    def _delivered(self, client: str, destinations: tuple[GroupId, ...], end: int) -> None:
        self._undelivered.delivered(client, destinations, end)
        for caller in self._clients.get(client, ()):
            if caller.delivered(destinations, end):
                self._untold[caller] = None

    def _on_adopted(self) -> None:
        """What others had delivered is delivered, also of the requests that this member took before."""
        known = self.driver.process.state.sessions.known
        reached = [(session, progress.next) for session, progress in known.items()]
        self.driver.when_durable(lambda: self._reached(reached))

    def _reached(self, reached: list[tuple[SessionId, int]]) -> None:
        for (client, destinations), end in reached:
            self._delivered(client, destinations, end)

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


class Undelivered:
    """The requests that this member took and has not delivered yet, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.taken_bytes = 0  # of all that were ever taken
        self._sessions: dict[
            tuple[str, tuple[GroupId, ...]], deque[tuple[int, int]]
        ] = {}  # (the number after it, its size) of each request

    def taken(self, reply: Reply) -> None:
        if not reply.fresh:
            return
        session = (reply.client, reply.destinations)
        waiting = self._sessions.get(session)
        if waiting is None:
            waiting = self._sessions[session] = deque()
        for request in reply.requests[-reply.fresh :]:
            size = len(request.data)
            waiting.append((request.end, size))
            self.bytes += size
            self.taken_bytes += size

    def delivered(self, client: str, destinations: tuple[GroupId, ...], end: int) -> None:
        session = (client, destinations)
        waiting = self._sessions.get(session)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= end:
            self.bytes -= waiting.popleft()[1]
        if not waiting:
            del self._sessions[session]


_BUSY = encode(FrameKind.BUSY)
