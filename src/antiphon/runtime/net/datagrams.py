"""The one place that sends and receives datagrams: a socket at a process's own address, and one for a multicast group.

Nothing here waits. What the system does not take is lost, and so is what comes faster than it is read. What was sent,
and what was lost and why, is counted. What comes is hostile until proved otherwise, and never fatal.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import random
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.core.buffers import Buffers
from antiphon.core.effects import Send
from antiphon.core.errors import UsageError
from antiphon.runtime.net.dial import Address
from antiphon.runtime.net.packets import (
    FRAME_BYTES_MAX,
    FRAME_OVERHEAD,
    Assembly,
    Discarded,
    Identity,
    checksum,
    cut,
    frames_in,
    pack,
    read,
)

LOCAL_BYTES = 60_000  # of a datagram between processes of one machine
NETWORK_BYTES = 1_400  # ... and between machines, so that no router cuts it
BUFFER_BYTES = 8 << 20  # that the system is asked to keep of what is not read yet; it may give less
BURST_BYTES = 128 << 10  # sent at once; a receiver's buffer may be small ...
BURST_SECONDS = 0.001  # ... and it gets so much time to read
QUEUE_BYTES_MAX = 8 << 20  # wait for their turn; more is lost
READ_MAX = 64  # datagrams in one turn of the event loop: the others have theirs
NAMES_SECONDS = 5.0  # after so long, names of machines are looked up again
SO_RCVBUFFORCE = 33  # past the system's limit, for who may; Python has no name for it
PROBE_SECONDS = 0.2


class Setting(NamedTuple):
    """What a process has to know to send and receive datagrams."""

    identity: Identity
    listen: Address
    peers: dict[int, Address]  # by place
    moved: frozenset[int] = frozenset()  # those behind a proxy: their datagrams come from elsewhere
    multicast: Address | None = None  # a group that all processes have joined
    drop: int = 0  # per cent of what comes, lost on purpose


Accept = Callable[[int, int, list[bytes]], None]  # sender's place, its incarnation, whole frames


class DatagramPort:
    """``accept`` gets what comes, and raises Discarded if it does not want it."""

    def __init__(self, setting: Setting, accept: Accept) -> None:
        self.counts: Counter[str] = Counter()
        self._setting = setting
        self._me = setting.identity
        self._accept = accept
        self._sockets: list[socket.socket] = []
        self._out: socket.socket
        self._loop: asyncio.AbstractEventLoop
        self._targets: dict[int, Any] = {}  # by place: addresses, as the system wants them
        self._is_reading = False
        self._buffer = bytearray(1 << 16)  # no datagram is longer
        self._view = memoryview(self._buffer).toreadonly()
        self._chance = random.Random()
        self._assembly = Assembly()
        hosts = [setting.listen[0], *(host for host, _ in setting.peers.values())]
        self._size_max = LOCAL_BYTES if all(map(is_loopback, hosts)) else NETWORK_BYTES
        self._last: Send | None = None  # the one that is being let out, receiver by receiver
        self._last_receivers = 0
        self._turn: dict[int, list[Buffers]] = {}  # by receivers: the frames of this turn
        self._queue: deque[tuple[int, bytearray]] = deque()
        self._queued = 0  # bytes
        self._waiting: dict[bytes, None] = {}  # the checksums of what is queued
        self._timer: asyncio.TimerHandle | None = None

    # Life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the address. UsageError: that is not possible."""
        self._loop = asyncio.get_running_loop()
        host, port = self._setting.listen
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            self._out = _socket(family)
            self._sockets.append(self._out)
            self._out.bind(address)
            if self._setting.multicast is not None:
                self._sockets.append(_join(self._out, self._setting.multicast, str(address[0])))
        except OSError as error:
            self.close()
            raise UsageError(f"No datagrams can be received on {host}:{port}: {error.strerror or error}.") from None

    async def look_up(self) -> None:
        """Find the peers' machines, and find them again where they have names that may move."""
        family = self._out.family
        while True:
            for place, (host, port) in self._setting.peers.items():
                with suppress(OSError):  # it is tried again, and until then what is sent there is lost
                    found = await self._loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
                    self._targets[place] = found[0][4]
            if len(self._targets) == len(self._setting.peers) and all(
                is_numeric(host) for host, _ in self._setting.peers.values()
            ):
                return
            await asyncio.sleep(NAMES_SECONDS)

    def set_reading(self, is_reading: bool) -> None:
        """While nothing is read, the system keeps what its buffer takes, and the rest is lost."""
        if is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        for each in self._sockets:
            if is_reading:
                self._loop.add_reader(each.fileno(), self._read_all, each)
            else:
                self._loop.remove_reader(each.fileno())

    def close(self) -> None:
        self.set_reading(False)
        if self._timer is not None:
            self._timer.cancel()
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    # Out ----------------------------------------------------------------------------------------------------------

    def send(self, place: int, send: Send) -> None:
        """One of a frame's receivers; they are named one after the other."""
        if send is not self._last:
            self._end_last()
            self._last = send
        self._last_receivers |= 1 << place

    def _end_last(self) -> None:
        if self._last is not None:
            self._turn.setdefault(self._last_receivers, []).append(self._last.frame)
        self._last, self._last_receivers = None, 0

    def flush(self) -> None:
        """The turn has ended: small frames for the same receivers share a datagram."""
        self._end_last()
        if not self._turn:
            return
        turn, self._turn = self._turn, {}
        room = self._size_max - self._me.overhead
        for receivers, frames in turn.items():
            together: list[Buffers] = []
            size = 0
            for frame in frames:
                if together and size + FRAME_OVERHEAD + frame.size > room:
                    self._put(receivers, pack(self._me, receivers, together))
                    together, size = [], 0
                if FRAME_OVERHEAD + frame.size <= room:
                    together.append(frame)
                    size += FRAME_OVERHEAD + frame.size
                else:
                    self._put_parts(receivers, frame)
            if together:
                self._put(receivers, pack(self._me, receivers, together))
        if self._timer is None:
            self._pump()

    def _put_parts(self, receivers: int, frame: Buffers) -> None:
        if frame.size > FRAME_BYTES_MAX:
            self.counts["too large"] += 1
            return
        if self._queued > QUEUE_BYTES_MAX:
            self.counts["queue full"] += 1
            return
        for part in cut(self._me, receivers, frame, self._size_max):
            self._queue_up(receivers, part)  # all of them, or none

    def _put(self, receivers: int, datagram: bytearray) -> None:
        if self._queued > QUEUE_BYTES_MAX:
            self.counts["queue full"] += 1
        else:
            self._queue_up(receivers, datagram)

    def _queue_up(self, receivers: int, datagram: bytearray) -> None:
        """What waits here anyway, because somebody asked for it before, does not go twice."""
        name = checksum(datagram)
        if name in self._waiting:
            self.counts["waiting already"] += 1
            return
        self._waiting[name] = None
        self._queue.append((receivers, datagram))
        self._queued += len(datagram)

    def _pump(self) -> None:
        self._timer = None
        sent = 0
        while self._queue:
            if sent >= BURST_BYTES:
                self._timer = self._loop.call_later(BURST_SECONDS, self._pump)
                return
            receivers, datagram = self._queue.popleft()
            self._queued -= len(datagram)
            del self._waiting[checksum(datagram)]
            sent += len(datagram)
            self._send(receivers, datagram)

    def _send(self, receivers: int, datagram: bytearray) -> None:
        # Who is not named has to look at it, too: for a few, one for each of them is less work.
        if self._setting.multicast is not None and receivers.bit_count() * 2 > len(self._setting.peers):
            self.counts["multicast"] += 1
            self._hand_over(datagram, self._setting.multicast)
            return
        for place, target in self._targets.items():
            if receivers >> place & 1:
                self._hand_over(datagram, target)

    def _hand_over(self, datagram: bytearray, target: Any) -> None:
        try:
            self._out.sendto(datagram, target)
            self.counts["sent"] += 1
        except OSError:  # no room, no route: lost
            self.counts["not sent"] += 1

    # In -----------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read now what has come, and not only when the event loop comes to it."""
        for each in self._sockets if self._is_reading else ():
            self._read_all(each)

    def _read_all(self, source: socket.socket) -> None:
        for _ in range(READ_MAX):
            if not self._is_reading:
                return
            try:
                size, address = source.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:
                self.counts["not received"] += 1
                return
            self._receive(size, address)

    def _receive(self, size: int, address: tuple[Any, ...]) -> None:
        try:
            self._take(self._view[:size], address)
        except Discarded as reason:
            self.counts[str(reason)] += 1

    def _take(self, data: memoryview, address: tuple[Any, ...]) -> None:
        setting = self._setting
        packet = read(self._me, data)
        sender = packet.sender
        if sender == self._me.place:
            if address[:2] != self._out.getsockname()[:2]:
                raise Discarded("stranger")
            return  # what goes to a multicast group comes back, too
        if sender not in setting.moved and address != self._targets.get(sender):
            raise Discarded("stranger")
        if setting.drop and self._chance.random() * 100 < setting.drop:
            raise Discarded("dropped on purpose")
        if not packet.is_mine:
            return
        if packet.is_part:
            whole = self._assembly.add(sender, packet.body, self._loop.time())
            frames = [] if whole is None else [whole]
        else:
            frames = frames_in(packet.body)
        if frames:
            self._accept(sender, packet.incarnation, frames)
        self.counts["received"] += 1

    def sweep(self) -> None:
        """Once in a while: give up frames of which no more parts come."""
        self._assembly.sweep(self._loop.time())

    def counted(self) -> dict[str, int]:
        """What was sent and received, and what was lost, by reason."""
        found = self.counts.copy()
        found["incomplete"] = self._assembly.given_up
        found["not read in time"] = _overflowed(self._sockets)
        return {reason: count for reason, count in sorted(found.items()) if count}


def _overflowed(sockets: Sequence[socket.socket]) -> int:
    """How many datagrams found no room in the buffers of these sockets. Linux says so in its list of all of them."""
    wanted = {str(os.fstat(each.fileno()).st_ino) for each in sockets}
    found = 0
    for table in (Path("/proc/self/net/udp"), Path("/proc/self/net/udp6")):
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                found += int(fields[12]) if fields[9] in wanted else 0
    return found


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_numeric(host) and ipaddress.ip_address(host).is_loopback)


def is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.setblocking(False)
    try:
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except OSError:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return made


def _join(out: socket.socket, group: Address, interface: str) -> socket.socket:
    """A socket that hears the group; and ``out`` sends to it on the same interface."""
    own = socket.inet_aton(interface)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    made = _socket(socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # every process of this machine listens there
        made.bind(group)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + own)
    except BaseException:
        made.close()
        raise
    return made


def offers_multicast(group: Address, interface: str) -> bool:
    """Whether what is sent to a group on this interface arrives on this machine."""
    out = _socket(socket.AF_INET)
    heard: Sequence[socket.socket] = ()
    try:
        out.bind((interface, 0))
        heard = [_join(out, group, interface) for _ in range(2)]
        out.sendto(b"?", group)
        for each in heard:
            each.settimeout(PROBE_SECONDS)
            if each.recvfrom(16) != (b"?", out.getsockname()):
                return False
    except OSError:
        return False
    finally:
        for each in (out, *heard):
            each.close()
    return True
