"""Proxies between members, and between clients and members, and what they do to the bytes that pass.

Everybody reaches a member through its proxy, which learns from the Hello who calls: a wire is (who dials, whom). Faults
are laid on wires. What TCP promises is kept: bytes come late, or the connection ends, but none is lost in between.
Datagrams pass the same proxies: what would have to wait is lost, and who is late may be overtaken.
The commands' own calls ("control") are never touched: they are not what is tried here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial

from antiphon.core.errors import BadFrame
from antiphon.runtime.net import Address
from antiphon.runtime.net.frames import HEADER, HELLO_BYTES_MAX, Hello, decode
from antiphon.runtime.net.packets import sender_of

READ_BYTES = 64 << 10
RESET_SECONDS = (0.1, 0.8)  # between two resets of a wire

WireEnds = tuple[str, str]  # who dials: a process or a client's name; whom: a process


class NetworkFault(StrEnum):
    DELAY = "delay"  # all that passes is late
    ONE_WAY = "one-way silence"  # nothing passes in one direction, until the fault ends
    SILENCE = "silence"  # nothing passes in both, on new connections too, until the fault ends
    FREEZE = "freeze"  # the connections that are open pass nothing ever again; new ones are well
    RESET = "reset"  # connections are reset, again and again
    MID_FRAME = "cut in a frame"  # connections end in the middle of a frame
    GREETED = "cut after the greeting"  # connections end right after the member's answer to the Hello


class Trouble:
    """One fault on some wires."""

    def __init__(
        self, kind: NetworkFault, wires: frozenset[WireEnds], *, outward: bool = True, delay: float = 0.0
    ) -> None:
        self.kind = kind
        self.wires = wires
        self.outward = outward  # of one-way silence: from who dials; otherwise towards it
        self.delay = delay
        self.over = asyncio.Event()
        self.is_felt = False  # something passes where it is, or was open there

    def holds(self, outward: bool) -> bool:
        """Whether bytes in this direction have to wait for the end."""
        return self.kind is NetworkFault.SILENCE or (self.kind is NetworkFault.ONE_WAY and self.outward is outward)


class FrameEnds:
    """Follows a stream of frames, and knows where in a chunk of it they end."""

    def __init__(self) -> None:
        self._head = b""
        self._body_left = 0

    def within(self, chunk: bytes) -> set[int]:
        ends = set()
        at = 0
        while at < len(chunk):
            if self._body_left:
                step = min(self._body_left, len(chunk) - at)
                self._body_left -= step
                at += step
            else:
                part = chunk[at : at + HEADER.size - len(self._head)]
                self._head += part
                at += len(part)
                if len(self._head) < HEADER.size:
                    break
                self._body_left, self._head = HEADER.unpack(self._head)[0], b""
            if not self._body_left:
                ends.add(at)
        return ends


class Passage:
    """One connection through a proxy."""

    def __init__(self, network: Network, caller: asyncio.StreamWriter, incoming: asyncio.StreamReader) -> None:
        self.wire: WireEnds = ("", "")
        self.is_frozen = False
        self._network = network
        self._incoming = incoming
        self._writers = [caller]

    async def run(self, process: str, address: Address) -> None:
        try:
            head = await self._incoming.readexactly(HEADER.size)
            length, _ = HEADER.unpack(head)
            if length > HELLO_BYTES_MAX:
                raise BadFrame("This is no Hello.")
            body = await self._incoming.readexactly(length)
            self.wire = (_caller_name(decode(Hello, body)), process)
            trouble = self._network.on(self.wire)
            if trouble is not None and trouble.holds(True):
                await trouble.over.wait()
            answers, member = await asyncio.open_connection(*address)
            self._writers.append(member)
            member.write(head + body)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._pass_on(self._incoming, member, outward=True))
                directions.create_task(self._pass_on(answers, self._writers[0], outward=False))
        except* (OSError, asyncio.IncompleteReadError, BadFrame):
            pass  # one side has ended it, or a fault
        finally:
            self.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, outward: bool) -> None:
        ends = FrameEnds()
        while chunk := await source.read(READ_BYTES):
            inside = ends.within(chunk)
            trouble = self._network.on(self.wire)
            if self.is_frozen:
                await asyncio.Event().wait()
            if trouble is not None:
                if trouble.holds(outward):
                    await trouble.over.wait()
                elif trouble.kind is NetworkFault.DELAY:
                    await asyncio.sleep(self._network.random.uniform(0.5, 1.0) * trouble.delay)
                elif trouble.kind is NetworkFault.MID_FRAME:
                    await _write_last(target, chunk[: self._network.cut(len(chunk), inside)])
                elif trouble.kind is NetworkFault.GREETED and inside and not outward:
                    await _write_last(target, chunk[: min(inside)])
            await _write(target, chunk)
        if not target.is_closing():
            target.write_eof()

    def abort(self) -> None:
        for writer in self._writers:
            with suppress(Exception):  # whatever its state, it ends here
                writer.transport.abort()


async def _write(target: asyncio.StreamWriter, data: bytes) -> None:
    if target.is_closing():
        raise ConnectionError("The other side is gone.")
    target.write(data)
    await target.drain()


async def _write_last(target: asyncio.StreamWriter, data: bytes) -> None:
    """Let this arrive, and then the end of the connection."""
    await _write(target, data)
    target.close()
    await target.wait_closed()
    raise ConnectionError("The connection was cut.")


class DatagramProxy(asyncio.DatagramProtocol):
    """A member's proxy for datagrams."""

    def __init__(self, network: Network, process: str, address: Address) -> None:
        self._network = network
        self._process = process
        self._address = address
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, address: object) -> None:
        trouble = self._network.on((self._network.process_at(sender_of(data)), self._process))
        if trouble is None:
            self._pass_on(data)
        elif trouble.kind is NetworkFault.DELAY:
            late = self._network.random.uniform(0.5, 1.0) * trouble.delay
            asyncio.get_running_loop().call_later(late, self._pass_on, data)
        elif not trouble.holds(True):
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(data, self._address)


class Network:
    """A proxy for each member, and the troubles that are on now."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._troubles: list[Trouble] = []
        self._passages: dict[Passage, asyncio.Task[None]] = {}
        self._members: dict[str, tuple[Address, Address]] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._datagram_proxies: dict[str, asyncio.DatagramTransport] = {}

    async def open(self, members: Mapping[str, tuple[Address, Address]]) -> None:
        """``members``: for each, where others reach it and where it listens."""
        self._members = dict(members)
        await self.admit_all()

    def add(self, process: str, reached: Address, listens: Address) -> None:
        """Somebody new, whom nobody reaches before `admit_all`."""
        self._members[process] = (reached, listens)

    def remove(self, process: str) -> None:
        self.refuse(process)
        self._members.pop(process, None)

    async def admit_all(self) -> None:
        for process, ((host, port), own) in self._members.items():
            if process not in self._servers:
                accept = partial(self._accept, process, own)
                self._servers[process] = await asyncio.start_server(accept, host, port)
                self._datagram_proxies[process], _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    partial(DatagramProxy, self, process, own), local_addr=(host, port)
                )

    def process_at(self, place: int) -> str:
        """Who has this place in the cluster; nobody's name for another number."""
        names = list(self._members)
        return names[place] if 0 <= place < len(names) else ""

    def refuse(self, process: str) -> None:
        """Let nobody in, as the system does where nobody listens, until `admit_all`: the process is down."""
        server = self._servers.pop(process, None)
        if server is not None:
            server.close()
            self._datagram_proxies.pop(process).close()

    async def _accept(
        self, process: str, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        passage = Passage(self, writer, reader)
        task = asyncio.current_task()
        assert task is not None
        self._passages[passage] = task
        try:
            with suppress(asyncio.CancelledError):  # `close` ends it, and nobody waits to hear how
                await passage.run(process, address)
        finally:
            del self._passages[passage]

    async def close(self) -> None:
        for process in self._members:
            self.refuse(process)
        tasks = list(self._passages.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on(self, wire: WireEnds) -> Trouble | None:
        """What is wrong with a wire on which something passes."""
        found = next((trouble for trouble in self._troubles if wire in trouble.wires), None)
        if found is not None and found.kind not in (NetworkFault.FREEZE, NetworkFault.RESET):
            found.is_felt = True
        return found

    def cut(self, length: int, ends: set[int]) -> int:
        """Where in a chunk to cut, so that it is inside a frame."""
        at = self.random.randrange(1, max(2, length))
        return at - 1 if at in ends else at

    async def strike(self, trouble: Trouble, seconds: float) -> None:
        """Lay a trouble on its wires for some time."""
        self._troubles.append(trouble)
        try:
            if trouble.kind is NetworkFault.FREEZE:
                for passage in self._on(trouble):
                    passage.is_frozen = True
            if trouble.kind is NetworkFault.RESET:
                await self._reset_often(trouble, seconds)
            else:
                await asyncio.sleep(seconds)
        finally:
            self._troubles.remove(trouble)
            trouble.over.set()

    async def _reset_often(self, trouble: Trouble, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for passage in self._on(trouble):
                passage.abort()
            await asyncio.sleep(min(self.random.uniform(*RESET_SECONDS), max(0.0, end - loop.time())))

    def _on(self, trouble: Trouble) -> list[Passage]:
        """The connections that it ends, or stops for good."""
        found = [passage for passage in self._passages if passage.wire in trouble.wires]
        trouble.is_felt = trouble.is_felt or bool(found)
        return found


def _caller_name(hello: Hello) -> str:
    """A client's own name has a random end that makes it unique."""
    return hello.name if hello.role == "peer" else hello.name.rpartition("-")[0] or hello.name
