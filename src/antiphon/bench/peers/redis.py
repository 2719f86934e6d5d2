"""Redis Streams: a primary with two replicas, and ``WAIT 1`` behind what is appended; read at a replica.

``WAIT`` keeps its connection waiting. So the client gathers what comes meanwhile, and sends it in one pipeline with one
``WAIT`` behind it, over two connections in turn.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec

from antiphon.bench.peers.contract import MEMBERS, AppendBatch, Reads, Served, Work
from antiphon.bench.peers.processes import not_on_path, servers
from antiphon.bench.task import WorkerTask
from antiphon.runtime.cluster.ports import HOST, free_ports

PIPELINES = 2
READ_COUNT = 10_000
CHUNK = 1 << 20
STREAM = b"log"
FIELD = b"m"
IN_MEMORY = ("--appendonly", "no")
SYNCED = ("--appendonly", "yes", "--appendfsync", "always")


def command(*words: bytes) -> bytes:
    """A command as Redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Redis(Served):
    def __init__(self, name: str, title: str, keeps: str, options: tuple[str, ...]) -> None:
        self.name, self.title, self.keeps = name, title, keeps
        self._options = options

    def missing(self) -> str | None:
        return not_on_path("redis-server", "redis-server")

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        ports = free_ports(MEMBERS, None)
        commands = {f"redis-{port}": self._command(folder, port, ports[0]) for port in ports}
        with servers(folder, commands, lambda: _replicas(ports[0]) == MEMBERS - 1):
            yield msgspec.json.encode(ports).decode()

    def _command(self, folder: Path, port: int, primary: int) -> list[str]:
        place = folder / str(port)
        place.mkdir()
        words = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(place), "--save", "", *self._options]
        words += ["--repl-diskless-sync-delay", "0"]
        return words if port == primary else [*words, "--replicaof", HOST, str(primary)]

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        primary = msgspec.json.decode(task.target, type=list[int])[0]
        queue: asyncio.Queue[tuple[bytes, int, asyncio.Future[None]]] = asyncio.Queue()
        pipelines = [asyncio.create_task(_pipeline(primary, queue)) for _ in range(PIPELINES)]
        before = b"*5\r\n$4\r\nXADD\r\n" + command(STREAM, b"*", FIELD).partition(b"\r\n")[2] + b"$%d\r\n" % task.size

        async def append(payloads: list[bytes]) -> None:
            done = asyncio.get_running_loop().create_future()
            body = before + (b"\r\n" + before).join(payloads) + b"\r\n"
            queue.put_nowait((body, len(payloads), done))
            await done

        try:
            yield append
        finally:
            for pipeline in pipelines:
                pipeline.cancel()
            await asyncio.gather(*pipelines, return_exceptions=True)

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        replica = msgspec.json.decode(task.target, type=list[int])[1]
        reader, writer = await asyncio.open_connection(HOST, replica, limit=CHUNK)
        try:
            yield _reads(task, reader, writer)
        finally:
            writer.close()


def _replicas(port: int) -> int:
    """How many replicas a primary has that are up to date; 0 while it does not answer."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1.0) as connection:
        connection.sendall(command(b"INFO", b"replication"))
        return connection.recv(1 << 16).count(b"state=online")
    return 0


async def _pipeline(port: int, queue: asyncio.Queue[tuple[bytes, int, asyncio.Future[None]]]) -> None:
    """One connection of a client: send all that waits, and wait until a replica has it."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=CHUNK)
    wait = command(b"WAIT", b"1", b"0")
    taken: list[tuple[bytes, int, asyncio.Future[None]]] = []
    try:
        while True:
            taken = [await queue.get()]
            while not queue.empty():
                taken.append(queue.get_nowait())
            writer.writelines([*(body for body, _, _ in taken), wait])
            await _acknowledged(reader, sum(count for _, count, _ in taken))
            for _, _, done in taken:
                done.set_result(None)
    except (OSError, EOFError, RuntimeError) as error:
        for _, _, done in taken:
            done.set_exception(error)
    finally:
        writer.close()


async def _acknowledged(reader: asyncio.StreamReader, count: int) -> None:
    """Read the answers: an id for each payload, and to WAIT the number of replicas, which comes last."""
    ids = 0
    rest = b""
    while True:
        data = await reader.read(CHUNK)
        if not data:
            raise EOFError("Redis has closed the connection")
        rest += data
        if rest[:1] == b"-" or b"\n-" in rest:
            raise RuntimeError(f"Redis refuses: {rest[:200]!r}")
        whole = rest.rfind(b"\n") + 1
        ids += rest.count(b"$", 0, whole)
        is_last = b":" in rest[:whole]
        rest = rest[whole:]
        if is_last:
            if ids != count:
                raise RuntimeError(f"Redis has answered {ids} of {count} times")
            return


async def _reads(task: WorkerTask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Reads:
    """One XREAD after the other. An answer says how many entries it has, and all are of one size."""
    size = b"$%d\r\n" % task.size
    last = b"0"  # the log is new
    while True:
        count = b"%d" % READ_COUNT
        writer.write(command(b"XREAD", b"COUNT", count, b"BLOCK", b"0", b"STREAMS", STREAM, last))
        answer = bytearray()
        while not (entries := _complete(answer, size, task.size)):
            data = await reader.read(CHUNK)
            if not data:
                raise EOFError("Redis has closed the connection")
            answer += data
        last = _last_id(answer)
        yield entries, task.heads(answer)


def _complete(answer: bytearray, size: bytes, length: int) -> int:
    """How many entries an answer has, if it is all there; otherwise 0."""
    # *1 stream: *2 its name and entries: $3 log *<entries>, and then each as *2 id *2 field payload
    parts = answer[:64].split(b"\r\n", 5)
    if answer.startswith(b"-"):
        raise RuntimeError(f"Redis refuses: {bytes(answer[:200])!r}")
    if len(parts) < 6:
        return 0
    expected = int(parts[4][1:])
    begin = answer.rfind(size)
    if begin < 0 or len(answer) != begin + len(size) + length + 2 or answer.count(size) != expected:
        return 0
    return expected


def _last_id(answer: bytearray) -> bytes:
    begin = answer.rfind(b"*2\r\n$", 0, answer.rfind(b"*2\r\n$1\r\n" + FIELD))
    return bytes(answer[begin:].split(b"\r\n", 3)[2])
