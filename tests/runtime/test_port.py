"""Who is let in when there are too many: strangers, clients and peers have shares of their own."""

from __future__ import annotations

import asyncio
import socket

import pytest

from antiphon.runtime.cluster.ports import free_ports
from antiphon.runtime.net import FrameStream, Port, ReceivedFrame
from antiphon.runtime.net import port as port_module
from antiphon.runtime.net.frames import MAGIC, VERSION, FrameKind, Hello, encode
from antiphon.runtime.net.port import Shares, shares_of

CLUSTER = "c"


class Guest:
    """A caller who is welcome and says nothing."""

    frame_bytes_max = 1000

    def __init__(self, hello: Hello, stream: FrameStream) -> None:
        stream.write(b"welcome")

    def on_frames(self, frames: list[ReceivedFrame]) -> None: ...
    def on_writable(self, writable: bool) -> None: ...
    def on_closed(self) -> None: ...


class Visit:
    """One connection to the port, from outside."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, role: str) -> bool:
        """Whether it is let in."""
        self.writer.write(encode(FrameKind.HELLO, Hello(MAGIC, VERSION, CLUSTER, role, "x")))  # type: ignore[arg-type]
        return (await self.reader.read(100)).startswith(b"welcome")

    async def is_over(self) -> bool:
        try:
            async with asyncio.timeout(0.1):
                return not await self.reader.read(100)
        except TimeoutError:
            return False
        except OSError:
            return True


class Door:
    """A port that listens, with few places."""

    def __init__(self, shares: Shares) -> None:
        self.port = Port(CLUSTER, Guest)
        self.port.shares = shares
        self.address = ("127.0.0.1", free_ports(1, None)[0])
        self._visits: list[Visit] = []

    async def __aenter__(self) -> Door:
        self._server = await self.port.listen(self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.port.close()
        for visit in self._visits:
            visit.writer.close()
        await asyncio.sleep(0.05)

    async def visit(self) -> Visit:
        visit = Visit(*await asyncio.open_connection(*self.address))
        self._visits.append(visit)
        await asyncio.sleep(0.01)
        return visit


def test_of_too_many_strangers_the_oldest_goes() -> None:
    async def scenario() -> None:
        async with Door(Shares(strangers=4, clients=4)) as door:
            silent = [await door.visit() for _ in range(7)]
            assert [await visit.is_over() for visit in silent] == [True] * 3 + [False] * 4
            assert door.port.refused["too many strangers"] == 3
            assert await (await door.visit()).say("client")
            assert await (await door.visit()).say("peer")
            assert len(door.port.strangers) <= 4

    asyncio.run(scenario())


def test_clients_at_their_limit_do_not_keep_a_peer_out() -> None:
    async def scenario() -> None:
        async with Door(Shares(strangers=4, clients=3)) as door:
            clients = [await door.visit() for _ in range(4)]
            assert [await visit.say("client") for visit in clients] == [True] * 3 + [False]
            assert door.port.refused["too many clients"] == 1
            assert await (await door.visit()).say("peer")
            clients[0].writer.close()
            await asyncio.sleep(0.05)
            assert await (await door.visit()).say("client"), "there is room again"

    asyncio.run(scenario())


def test_clients_at_their_limit_do_not_keep_a_command_out_and_of_too_many_commands_the_oldest_is_told() -> None:
    async def scenario() -> None:
        async with Door(Shares(strangers=4, clients=0, commands=2)) as door:
            assert not await (await door.visit()).say("client")
            commands = [await door.visit() for _ in range(3)]
            assert [await visit.say("command") for visit in commands] == [True] * 3
            assert b"More than 2 commands asked this process" in await commands[0].reader.read(200)
            assert [await visit.is_over() for visit in commands] == [True, False, False]
            assert door.port.refused["too many commands"] == 1
            assert len(door.port.commands) == 2

    asyncio.run(scenario())


def test_a_command_names_the_cluster() -> None:
    async def scenario() -> None:
        async with Door(Shares(strangers=4, clients=4)) as door:
            nameless = await door.visit()
            nameless.writer.write(encode(FrameKind.HELLO, Hello(MAGIC, VERSION, "", "command", "control")))
            assert b"wrong cluster" in await nameless.reader.read(200)

    asyncio.run(scenario())


def test_one_that_was_told_why_and_does_not_go_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_module, "HELLO_SECONDS", 0.2)

    async def scenario() -> None:
        async with Door(Shares(strangers=4, clients=0)) as door:
            stubborn = socket.create_connection(door.address)
            await asyncio.sleep(0.02)
            stubborn.sendall(encode(FrameKind.HELLO, Hello(MAGIC, VERSION, CLUSTER, "client", "x")))
            await asyncio.sleep(0.5)
            assert not door.port.connections
            assert not door.port.strangers
            stubborn.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("files", [64, 256, 1024, 20_000, 1 << 16])
def test_all_shares_together_never_take_the_files_of_the_disk(files: int) -> None:
    shares = shares_of(files, peers=9)
    assert shares.strangers >= 2
    assert shares.clients >= 14
    if files >= 256:
        assert shares.strangers + shares.clients + port_module.DISK_FILES + 9 * port_module.FILES_PER_PEER <= files
