"""Members that are only what a client sees of them: the wire, the sessions, and any misbehaviour that a test wants."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import antiphon
from antiphon.core import Topology
from antiphon.core.buffers import Buffers
from antiphon.core.events import Delivered, Event, Gap, View, encode_event
from antiphon.core.model import GroupId, MessageId, ProcessId, ViewId
from antiphon.core.requests import Request, parse_request
from antiphon.core.sessions import OutOfTurn, SessionId, Sessions
from antiphon.runtime.cluster.ports import free_ports
from antiphon.runtime.net.frames import (
    CLIENT_BYTES_MAX,
    HEADER,
    RECORD,
    Directory,
    FrameKind,
    Hello,
    OrderKind,
    ProgressAnswer,
    ProgressQuestion,
    ReceiptKind,
    Refused,
    Rejected,
    RouteMarks,
    RouteNumber,
    Subscribe,
    Subscribed,
    decode,
    decode_request,
    encode,
    encode_taken,
)
from antiphon.runtime.net.stream import FrameStream, ReceivedFrame
from waiting import IN_TIME_SECONDS

RECORDS = 4  # in one frame for subscribers


class FakeGroup:
    """A group's log, and what all its members have delivered."""

    def __init__(self) -> None:
        self.sessions = Sessions()
        self.log: list[Event] = []
        self.end = 0
        self.is_held = False  # it delivers nothing for now
        self.held: list[tuple[SessionId, Request]] = []

    def deliver(self, session: SessionId, request: Request) -> None:
        if self.is_held:
            self.held.append((session, request))
            return
        admitted = tuple(self.sessions.admit(session, request, ordered=True))
        count = sum(each.count for each in admitted)
        id = MessageId(ProcessId("fake"), len(self.log))
        key = len(self.log).to_bytes(8, "big")
        self.log.append(Delivered(id, session.destinations, self.end, count, admitted, key, 7))
        self.end += count

    def announce(self, *members: str, gap: bool = False) -> None:
        """A view of these members, or a gap."""
        view = View(ViewId(self.end, ProcessId("fake")), tuple(map(ProcessId, members)), self.end, 7)
        self.log.append(Gap(self.end, 7) if gap else view)
        self.end += 1

    def let_go(self) -> None:
        self.is_held = False
        held, self.held = self.held, []
        for session, request in held:
            self.deliver(session, request)


class FakeMember:
    """One process. What it does wrong is set from outside."""

    def __init__(self, name: str, group: str, cluster: FakeCluster) -> None:
        self.name = name
        self.group = group
        self.cluster = cluster
        self.taken = Sessions()  # only its ``taken`` is used: what is delivered is the group's
        self.requests: list[tuple[tuple[str, ...], Request]] = []  # all that came, in order
        self.expected: dict[SessionId, int] = {}  # up to which it said that it has taken
        self.connections: list[FakeConnection] = []
        self.welcomed = 0
        self.closes_at_once = False  # after its welcome
        self.rejects = ""
        self.is_silent = False
        self.is_busy = False  # says only that
        self.tells: Callable[[int], int] = lambda delivered: delivered  # when it is asked how far its group is
        self.knows: int | None = None  # of the events of its group's log; None: all
        self.keeps = 0  # the position from which on it has them
        self.takes: Callable[[Request], bool] = lambda request: True  # else it says nothing about the request
        self.refuses: str = ""  # with this error
        self.answers: Callable[[], bool] = lambda: True  # else it takes the request and is cut off
        self.lag = 0.0  # seconds, before its answers to requests leave
        self._listening: socket.socket | None = None
        self._connecting: set[asyncio.Task[object]] = set()
        self.address = ""

    async def start(self) -> None:
        # Not a port that the system picks: it may go to somebody's connection while the member is down.
        port = int(self.address.rpartition(":")[2] or free_ports(1, None)[0])
        listening = socket.create_server(("127.0.0.1", port))
        listening.setblocking(False)
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        # Not asyncio's server, nor its sock_accept: stopped while they accept, they leak the connection (Python 3.11).
        with suppress(BlockingIOError):
            accepted, _ = listening.accept()
            accepted.setblocking(False)
            connecting = asyncio.get_running_loop().connect_accepted_socket(lambda: FakeConnection(self), accepted)
            task: asyncio.Task[object] = asyncio.ensure_future(connecting)
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def stop(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            await asyncio.gather(*self._connecting, return_exceptions=True)
        self.cut()
        while self.connections:
            await asyncio.sleep(0)

    def cut(self) -> None:
        for connection in self.connections:
            connection.abort()

    def numbers(self) -> list[int]:
        return [request.first for _, request in self.requests]


class FakeConnection(FrameStream):
    def __init__(self, member: FakeMember) -> None:
        super().__init__(CLIENT_BYTES_MAX)
        self.member = member
        self.client = ""
        self.routes: dict[int, tuple[GroupId, ...]] = {}
        self.prompt: dict[int, bool] = {}
        self.sent: int | None = None  # events of the log, to the subscriber
        self.start = 0

    def on_open(self) -> None:
        self.member.connections.append(self)

    def on_lost(self) -> None:
        self.member.connections.remove(self)

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        for kind, body in frames:
            self.on_frame(kind, body)

    def on_frame(self, kind: int, body: memoryview) -> None:
        member = self.member
        if kind == FrameKind.HELLO:
            self.on_hello(decode(Hello, body))
        elif member.is_silent:
            return
        elif member.is_busy:
            self.write(encode(FrameKind.BUSY))
        elif kind == FrameKind.ROUTE:
            route = decode(RouteNumber, body)
            groups = tuple(GroupId(group) for group in route.destinations)
            assert self.routes.setdefault(route.route, groups) == groups, "a number means one set"
            self.prompt[route.route] = route.prompt
        elif kind == FrameKind.REQUEST:
            number, data = decode_request(body)
            self.on_request(number, parse_request(bytes(data)))
        elif kind == FrameKind.PROGRESS:
            sessions = member.cluster.groups[member.group].sessions
            asked = [tuple(GroupId(name) for name in groups) for groups in decode(ProgressQuestion, body).sets]
            marks = [(list(g), member.tells(sessions.progress(SessionId(self.client, g)))) for g in asked]
            answer = ProgressAnswer(member.group, marks)
            self.write(encode(FrameKind.PROGRESS_ANSWER, answer))
        elif kind == FrameKind.SUBSCRIBE:
            self.on_subscribe(decode(Subscribe, body))
        else:
            raise AssertionError(f"a client sent a frame of kind {kind}")

    def on_hello(self, hello: Hello) -> None:
        member = self.member
        self.client = hello.name
        if member.rejects:
            self.write(encode(FrameKind.REJECTED, Rejected("other", member.rejects)))
            self.close()
            return
        member.welcomed += 1
        self.write(encode(FrameKind.WELCOME, member.cluster.directory(member.name)))
        if member.closes_at_once:
            self.close()

    def on_request(self, number: int, request: Request) -> None:
        member = self.member
        assert request.client == self.client
        session = SessionId(request.client, self.routes[number])
        member.requests.append((session.destinations, request))
        if not member.takes(request):
            return
        if member.refuses:
            self.reply(encode(FrameKind.REFUSED, Refused(number, request.first, member.refuses, "It says no.")))
            return
        member.taken.known = member.cluster.groups[member.group].sessions.known
        try:
            member.taken.check(session, request)
        except OutOfTurn as error:
            refused = Refused(number, request.first, "out of turn", str(error), error.expected)
            self.reply(encode(FrameKind.REFUSED, refused))
            return
        if member.taken.take(session, request):
            member.cluster.deliver(session, request)
        if not member.answers():
            self.abort()
            return
        delivered = member.cluster.groups[member.group].sessions.known.get(session)
        taken = member.taken.expected(session, request.settled)
        member.expected[session] = taken
        cluster = member.cluster
        assured, timestamp = (taken, cluster.timestamp) if cluster.assures else (0, 0)
        self.reply(
            encode_taken(number, RouteMarks(taken, 0 if delivered is None else delivered.next, assured, timestamp))
        )

    def assure(self, timestamp: int) -> None:
        """All that the member has taken."""
        for number, groups in self.routes.items():
            taken = self.member.expected.get(SessionId(self.client, groups), 0)
            self.write(encode_taken(number, RouteMarks(taken, 0, taken, timestamp)))

    def reply(self, frame: bytes) -> None:
        if self.member.lag:
            self.loop.call_later(self.member.lag, self.write, frame)
        else:
            self.write(frame)

    def on_subscribe(self, subscribe: Subscribe) -> None:
        group = self.member.cluster.groups[self.member.group]
        if self.member.refuses:
            self.write(encode(FrameKind.REFUSED, Refused(-1, 0, self.member.refuses, "It says no.")))
            return
        known = group.log[: self.member.knows]
        end = known[-1].position + known[-1].count if known else 0
        self.write(encode(FrameKind.SUBSCRIBED, Subscribed(end, self.member.cluster.alike)))
        self.sent, self.start = 0, subscribe.start
        if self.start < self.member.keeps:
            self.sent = None
            self.write(encode(FrameKind.REFUSED, Refused(-1, 0, "gone", "It is gone.", self.member.keeps)))
        self.serve()

    def serve(self) -> None:
        if self.sent is None:
            return
        log = self.member.cluster.groups[self.member.group].log[: self.member.knows]
        records = [encode_event(event) for event in log[self.sent :] if event.position + event.count > self.start]
        self.sent = len(log)
        for first in range(0, len(records), RECORDS):
            some = records[first : first + RECORDS]
            pieces = [piece for record in some for piece in (RECORD.pack(record.size), *record.pieces)]
            self.write(HEADER.pack(Buffers(*pieces).size, FrameKind.EVENTS), *pieces)


class FakeCluster:
    """What a member takes is delivered at once, in all its groups, unless a group is held."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.alike = True  # whether all members of a group are said to have one log
        self.receipt: ReceiptKind = "member"
        self.order: OrderKind = "set"
        self.leaders: dict[str, str] = {}  # by the member that is asked
        self.assures = False  # at once, with this timestamp
        self.timestamp = 0
        self.topology = Topology.sized(sizes)
        self.groups = {str(group): FakeGroup() for group in self.topology.groups}
        self.members = {
            str(name): FakeMember(name, self.topology.group_of[name], self) for name in self.topology.processes
        }

    async def __aenter__(self) -> FakeCluster:
        for member in self.members.values():
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members.values():
            await member.stop()

    @property
    def target(self) -> str:
        return ",".join(member.address for member in self.members.values())

    def directory(self, process: str) -> Directory:
        groups = {str(group): [str(member) for member in members] for group, members in self.topology.groups.items()}
        addresses = {name: member.address for name, member in self.members.items()}
        leader = self.leaders.get(process, "")
        return Directory("fake", process, groups, addresses, self.receipt, self.order, leader)

    def assure(self, timestamp: int) -> None:
        """Members come to know that a majority of each group has what they took."""
        for member in self.members.values():
            for connection in member.connections:
                connection.assure(timestamp)

    def deliver(self, session: SessionId, request: Request) -> None:
        for group in session.destinations:
            self.groups[group].deliver(session, request)
        self.serve()

    def serve(self) -> None:
        for member in self.members.values():
            for connection in member.connections:
                connection.serve()

    def let_go(self, group: str) -> None:
        self.groups[group].let_go()
        self.serve()

    def payloads(self, group: str) -> list[bytes]:
        """All that the group delivered, in its order."""
        return [
            payload for event in self.groups[group].log for request in event.requests for payload in request.payloads()
        ]

    def requests(self, names: Iterable[str] | None = None) -> list[Request]:
        chosen = self.members if names is None else names
        return [request for name in chosen for _, request in self.members[name].requests]


Story = Callable[[FakeCluster, antiphon.Client], Awaitable[None]]


def run(sizes: dict[str, int], story: Story, **options: float) -> FakeCluster:
    async def all_of_it() -> FakeCluster:
        async with FakeCluster(sizes) as cluster:
            async with antiphon.connect(cluster.target, **options) as client:  # type: ignore[arg-type]
                await asyncio.wait_for(story(cluster, client), IN_TIME_SECONDS)
            return cluster

    return asyncio.run(all_of_it())
