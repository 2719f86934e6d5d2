"""Who may talk to a process, once a connection has said who is calling: its peers, clients, and commands.

Nothing that a caller says of itself can stop this process or one of its peers: there is no proof of who it is. What
would be a reason to stop is asked again from the peer's own address, which this process dials itself (links.py).
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.core import ProcessId
from antiphon.core.errors import JournalBehind
from antiphon.core.requests import CLIENT_NAME
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.net import Caller, FrameStream, Rejection
from antiphon.runtime.net.frames import Directory, FrameKind, Hello, OrderKind, ReceiptKind, Replaced, Welcome, encode
from antiphon.runtime.node.commands import CommandCaller
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.gateway import Gateway
from antiphon.runtime.node.neighbours import Neighbours
from antiphon.runtime.node.peers import PeerCaller, check_marks, marks


class Reception:
    """Turns a Hello into a caller, or refuses it."""

    def __init__(
        self,
        cluster: ClusterFolder,
        incarnation: int,
        driver: Driver,
        gateway: Gateway,
        neighbours: Neighbours,
        replaced: Callable[[Replaced], None],
        on_stranger: Callable[[], None],
    ) -> None:
        """``replaced`` is told by a command who has taken whose place; ``on_stranger`` when somebody calls who may be a
        member that this process has not heard of."""
        self._cluster = cluster
        self._replaced = replaced
        self._on_stranger = on_stranger
        self._incarnation = incarnation
        self._driver = driver
        self._gateway = gateway
        self._neighbours = neighbours

    @property
    def _config(self) -> ClusterConfig:
        return self._cluster.config

    def greet(self, hello: Hello, stream: FrameStream) -> Caller:
        """Rejection: this caller has no business here."""
        if hello.role == "peer":
            return self._greet_peer(hello, stream)
        return self._greet_client(hello, stream) if hello.role == "client" else self._greet_command(stream)

    def _greet_peer(self, hello: Hello, stream: FrameStream) -> PeerCaller:
        driver, peer = self._driver, ProcessId(hello.name)
        me = driver.process.me
        link, callers = self._neighbours.links.get(peer), self._neighbours.callers
        if driver.process.topology.is_stranger(peer) and (driver.begun or link is None):
            refused = self._strange(peer)
            self._on_stranger()  # not before it is refused: it dials again, and is known then
            raise refused
        if link is None or hello.to != me:
            raise Rejection("unknown process", f"{me} has no channel with {hello.name!r} to {hello.to!r}.")
        if hello.incarnation < link.newest_incarnation:
            raise Rejection(
                "old incarnation",
                f"A newer {peer} than incarnation {hello.incarnation} runs: this one is an old copy and must not run.",
            )
        try:
            check_marks(driver, peer, hello.channels)
        except JournalBehind as error:
            link.wake()  # if the peer says the same at its own address, this process stops
            raise Rejection("behind", str(error)) from None
        former = callers.get(peer)
        if former is not None:
            former.close()
        stream.write(encode(FrameKind.WELCOME, Welcome(me, self._incarnation, marks(driver, peer))))
        link.wake()
        caller = callers[peer] = PeerCaller(driver, peer, hello.incarnation, stream)
        caller.set_reading()
        return caller

    def _strange(self, peer: ProcessId) -> Rejection:
        """What there is to say to who is no member: it was, or will be once this process has heard of it."""
        found = self._config.replacement_of(peer)
        if found is not None:
            return Rejection("replaced", f"{peer} was replaced by {found.newcomer}.")
        return Rejection("stranger", f"{peer} is not a member, as far as {self._driver.process.me} has heard.")

    def _greet_client(self, hello: Hello, stream: FrameStream) -> Caller:
        config = self._config
        if not CLIENT_NAME.fullmatch(hello.name):
            raise Rejection("bad client name", "A client's name is 1 to 64 letters, digits, '.', '_' or '-'.")
        if hello.name in config.addresses or config.replacement_of(hello.name) is not None:
            raise Rejection("bad client name", f"{hello.name!r} is a process of this cluster, not a client.")
        self._welcome(stream)
        return self._gateway.open(hello.name, stream)

    def _greet_command(self, stream: FrameStream) -> Caller:
        self._welcome(stream)
        return CommandCaller(self._gateway, stream, self._replaced)

    def _welcome(self, stream: FrameStream) -> None:
        stream.write(self.directory())

    def directory(self) -> bytes:
        """How a client, or a command, reaches the cluster; said again to clients when it changes."""
        config = self._config
        process = self._driver.process
        receipt: ReceiptKind = "majority" if process.assures else "member"
        order: OrderKind = "client" if process.heeds_floors else "set"
        leader = process.protocol.led_by() or ""
        ways = (config.groups, config.addresses, receipt, order, leader, config.epoch)
        return encode(FrameKind.WELCOME, Directory(config.cluster, process.me, *ways))
