"""NATS JetStream: three servers, a stream of three replicas in files; a push consumer reads it.

The last message of a batch asks for an acknowledgement, whose sequence number says that all before it are stored too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from antiphon.bench.peers.contract import MEMBERS, AppendBatch, Reads, Served, Work
from antiphon.bench.peers.processes import not_on_path, servers
from antiphon.bench.task import WorkerTask
from antiphon.core.errors import Unavailable
from antiphon.runtime.cluster.ports import HOST, free_ports

CHUNK = 1 << 20
SUBJECT = "log"
INBOX = "_INBOX.writer"
READER = "_INBOX.reader"
ANSWER = "_INBOX.answer"
ANSWER_SECONDS = 10.0
ASK_AGAIN_SECONDS = 1.0  # while servers look for each other, questions are lost
STREAM = {"name": SUBJECT, "subjects": [SUBJECT], "storage": "file", "num_replicas": MEMBERS, "retention": "limits"}
_ACKNOWLEDGED = re.compile(rb"MSG _INBOX\.writer\.(\d+) 1 +\d+\r\n(\{[^\r]*\})\r\n")
_MESSAGE = b"MSG log 2 "
_CONFIG = """\
server_name: s{number}
listen: {host}:{port}
jetstream {{ store_dir: "{store}" }}
cluster {{ name: bench, listen: {host}:{route}, routes: [{routes}] }}
"""


class Nats(Served):
    name = "nats"
    title = "NATS JetStream, 3 replicas in files"
    keeps = "a majority, written, synced later"

    def missing(self) -> str | None:
        return not_on_path("nats-server", "nats-server")

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        ports = free_ports(2 * MEMBERS, None)
        clients, routes = ports[:MEMBERS], ports[MEMBERS:]
        commands = {}
        for number, (port, route) in enumerate(zip(clients, routes, strict=True), 1):
            config = folder / f"s{number}.conf"
            known = ", ".join(f'"nats://{HOST}:{each}"' for each in routes)
            store = folder / f"s{number}"
            text = _CONFIG.format(number=number, host=HOST, port=port, store=store, route=route, routes=known)
            config.write_text(text)
            commands[f"nats-{number}"] = ["nats-server", "-c", str(config)]
        leader: list[int] = []
        with servers(folder, commands, lambda: _create_stream(clients, leader)):
            yield msgspec.json.encode([leader[0], *(port for port in clients if port != leader[0])]).decode()

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        leader = msgspec.json.decode(task.target, type=list[int])[0]
        waiting: dict[int, asyncio.Future[None]] = {}
        sent = 0

        def received(data: bytes) -> int:
            whole = 0
            for found in _ACKNOWLEDGED.finditer(data):
                whole = found.end()
                answer = msgspec.json.decode(found[2])
                done = waiting.pop(int(found[1]))
                if answer.get("seq") == int(found[1]):
                    done.set_result(None)
                else:
                    done.set_exception(RuntimeError(f"message {int(found[1])} is not in its place: {answer}"))
            return whole

        async with _connected(leader, received) as connection:
            connection.write(f"SUB {INBOX}.* 1\r\n".encode())
            quiet = b"PUB %s %d\r\n" % (SUBJECT.encode(), task.size)

            async def append(payloads: list[bytes]) -> None:
                nonlocal sent
                sent += len(payloads)
                done = waiting[sent] = asyncio.get_running_loop().create_future()
                loud = b"PUB %s %s.%d %d\r\n" % (SUBJECT.encode(), INBOX.encode(), sent, task.size)
                words = [word for payload in payloads[:-1] for word in (quiet, payload, b"\r\n")]
                connection.write(b"".join([*words, loud, payloads[-1], b"\r\n"]))
                await done

            yield append

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        port = msgspec.json.decode(task.target, type=list[int])[1]
        arrived: asyncio.Queue[bytes] = asyncio.Queue()

        def received(data: bytes) -> int:
            last = data.rfind(_MESSAGE)
            line = data.find(b"\r\n", last)
            if last < 0 or line < 0:
                return 0
            end = line + 2 + task.size + 2
            whole = end if end <= len(data) else last  # the last message, or all before it
            if whole:
                arrived.put_nowait(data[:whole])
            return whole

        async with _connected(port, received) as connection:
            consumer = {"deliver_subject": READER, "ack_policy": "none", "deliver_policy": "all"}
            connection.write(f"SUB {READER} 2\r\n".encode())
            api = f"$JS.API.CONSUMER.CREATE.{SUBJECT}"
            await connection.ask(api, {"stream_name": SUBJECT, "config": consumer})
            yield _reads(task, arrived)


async def _reads(task: WorkerTask, arrived: asyncio.Queue[bytes]) -> Reads:
    while True:
        data = await arrived.get()
        yield data.count(_MESSAGE), task.heads(data)


class _Connection(asyncio.Protocol):
    """A client of a server: what comes is handed on with what was left of it before."""

    def __init__(self, received: Callable[[bytes], int]) -> None:
        self._received = received
        self._rest = b""
        self._closing = False
        self._transport: asyncio.Transport
        self._asked: asyncio.Future[dict[str, Any]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n')

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if b"PING\r\n" in data[:64] or b"\r\nPING\r\n" in data:
            self.write(b"PONG\r\n")
        if b"-ERR" in data[:5] or b"\r\n-ERR" in data:
            raise RuntimeError(f"NATS refuses: {data[:200]!r}")
        if self._asked is not None and not self._asked.done():
            self._rest = self._answered(data)
        else:
            self._rest = data[self._received(data) :]

    def _answered(self, data: bytes) -> bytes:
        found = re.search(rb"MSG _INBOX\.answer 3 +(\d+)\r\n", data)
        if found is None or len(data) < found.end() + int(found[1]) + 2:
            return data
        assert self._asked is not None
        self._asked.set_result(msgspec.json.decode(data[found.end() : found.end() + int(found[1])]))
        return data[found.end() + int(found[1]) + 2 :]

    async def ask(self, api: str, question: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Ask JetStream for something, and have its answer."""
        self._asked = asyncio.get_running_loop().create_future()
        body = msgspec.json.encode(question)
        self.write(f"SUB {ANSWER} 3\r\n".encode())
        self.write(f"PUB {api} {ANSWER} {len(body)}\r\n".encode() + body + b"\r\n")
        async with asyncio.timeout(seconds):
            answer = await self._asked
        if "error" in answer:
            raise Unavailable(f"NATS JetStream refuses: {answer['error'].get('description', answer['error'])}.")
        return answer

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closing:
            raise RuntimeError("NATS has closed the connection")

    def close(self) -> None:
        self._closing = True
        self._transport.close()


@asynccontextmanager
async def _connected(port: int, received: Callable[[bytes], int]) -> AsyncIterator[_Connection]:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: _Connection(received), HOST, port)
    try:
        yield connection
    finally:
        connection.close()


def _create_stream(ports: list[int], leader: list[int]) -> bool:
    """Make the stream as soon as the servers have found each other, and find out who leads it."""

    async def create() -> dict[str, Any]:
        async with _connected(ports[0], lambda data: 0) as connection:
            with suppress(Unavailable):  # it is there: an answer before was not awaited
                await connection.ask(f"$JS.API.STREAM.CREATE.{SUBJECT}", STREAM, ASK_AGAIN_SECONDS)
            return await connection.ask(f"$JS.API.STREAM.INFO.{SUBJECT}", {}, ASK_AGAIN_SECONDS)  # its leader answers

    with suppress(OSError, TimeoutError, Unavailable):
        name = asyncio.run(create()).get("cluster", {}).get("leader", "")
        if name:
            leader.append(ports[int(name[1:]) - 1])
            return True
    return False
