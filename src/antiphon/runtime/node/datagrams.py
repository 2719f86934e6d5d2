"""Datagrams between the processes of a cluster: which are taken, and what becomes of them.

A peer's datagrams are taken after its handshake (peers.py), as those of the incarnation that it said there: what an old
copy of its journal would lead it to say is not heard this way either.
"""

from __future__ import annotations

from antiphon.core import ProcessId
from antiphon.core.buffers import Buffers
from antiphon.core.channel import Transport
from antiphon.core.effects import Send
from antiphon.core.errors import BadFrame, JournalFull
from antiphon.core.inputs import Receive
from antiphon.runtime.cluster import ClusterConfig
from antiphon.runtime.net import parse_address
from antiphon.runtime.net.datagrams import DatagramPort, Setting
from antiphon.runtime.net.packets import Discarded, Identity
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.peers import PeerCaller


class Datagrams:
    """Between a driver and its datagram port; where the protocol sends no datagrams there is no port."""

    def __init__(
        self, config: ClusterConfig, incarnation: int, driver: Driver, callers: dict[ProcessId, PeerCaller]
    ) -> None:
        me = driver.process.me
        self._driver = driver
        self._callers = callers
        self._processes = driver.process.topology.processes
        self._places = {process: place for place, process in enumerate(self._processes)}
        self.port: DatagramPort | None = None
        if driver.process.sends_datagrams:
            identity = Identity(config.digest(), len(self._processes), self._places[me], incarnation)
            setting = Setting(
                identity,
                config.listens_on(me),
                {place: config.address(p) for p, place in self._places.items() if p != me},
                frozenset(place for p, place in self._places.items() if p in config.listen),
                parse_address(config.multicast) if config.multicast else None,
                config.drop,
            )
            self.port = DatagramPort(setting, self._receive)

    def open(self) -> None:
        if self.port is not None:
            self.port.open()

    def close(self) -> None:
        if self.port is not None:
            self.port.close()

    def send(self, peer: ProcessId, send: Send) -> None:
        assert self.port is not None, "only what is declared to travel in datagrams does"
        self.port.send(self._places[peer], send)

    def flush(self) -> None:
        if self.port is not None:
            self.port.flush()

    def read(self) -> None:
        """Take what has come. A process that was asleep for a moment must not ask for what is there already, or send
        what others have sent meanwhile."""
        if self.port is not None:
            self.port.read()

    def sweep(self) -> None:
        if self.port is not None:
            self.port.sweep()

    def set_reading(self) -> None:
        if self.port is not None:
            self.port.set_reading(self._driver.begun and not self._driver.congested)

    def counted(self) -> dict[str, int]:
        return {} if self.port is None else self.port.counted()

    def _receive(self, sender: int, incarnation: int, frames: list[bytes]) -> None:
        peer = self._processes[sender]
        caller = self._callers.get(peer)
        if caller is None or incarnation > caller.incarnation:
            raise Discarded("not met yet")
        if incarnation < caller.incarnation:
            raise Discarded("old incarnation")
        for frame in frames:
            self._take(peer, Buffers(frame))

    def _take(self, peer: ProcessId, frame: Buffers) -> None:
        driver = self._driver
        try:
            part, _ = driver.process.decode_frame(frame)
            if part.transport is not Transport.DATAGRAM:
                raise Discarded("bad frame")
            driver.process.checks.frame(frame)
            driver.take(Receive(driver.clock(), peer, Transport.DATAGRAM, 0, frame))
        except BadFrame:
            raise Discarded("bad frame") from None
        except JournalFull:
            raise Discarded("disk full") from None
