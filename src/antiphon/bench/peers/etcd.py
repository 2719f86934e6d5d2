"""etcd: three members; a batch is a transaction of puts, to the leader; a watch at another member reads them.

It is spoken to by gRPC, as its own clients do, with messages put together by hand: their fields never change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec

from antiphon.bench.peers import http2
from antiphon.bench.peers.contract import MEMBERS, AppendBatch, Reads, Served, Work
from antiphon.bench.peers.processes import not_on_path, servers
from antiphon.bench.task import WorkerTask
from antiphon.runtime.cluster.ports import HOST, free_ports

TRANSACTION_MAX = 128  # operations, as etcd is configured
KEY = b"%012d"
KEYS = b"0", b":"  # all keys: the range of what begins with a digit
ASK_SECONDS = 2.0


# Protocol buffers ----------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The number of each field, and its value, or where its bytes begin and end."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, at, at + value
            at += value
        else:
            yield tag >> 3, value, 0


def put_before(size: int) -> tuple[bytes, bytes]:
    """What stands before a key and before its value in a transaction: the same for all puts of one size."""
    value = field(2, bytes(size))[:-size]
    put = field(1, bytes(12)) + value + bytes(size)
    operation = field(2, put)
    whole = field(2, operation)
    return whole[: len(whole) - len(put)] + field(1, bytes(12))[:-12], value


# The peer ------------------------------------------------------------------------------------------------------------


class Etcd(Served):
    name = "etcd"
    title = "etcd"
    keeps = "a majority, synced"
    batch_max = TRANSACTION_MAX

    def missing(self) -> str | None:
        return not_on_path("etcd", "etcd-server")

    def batch(self, work: Work) -> int:
        return 1 if work.batch == 1 else TRANSACTION_MAX  # it gains by larger ones, and this is what it takes

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        ports = free_ports(2 * MEMBERS, None)
        clients, peers = ports[:MEMBERS], ports[MEMBERS:]
        everybody = ",".join(f"m{index}=http://{HOST}:{port}" for index, port in enumerate(peers))
        commands = {}
        for index, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            words = ["etcd", "--name", f"m{index}", "--data-dir", str(folder / f"m{index}"), "--log-level", "error"]
            for what, port in (("peer", peer), ("client", client)):
                words += [f"--listen-{what}-urls", f"http://{HOST}:{port}"]
            words += ["--initial-advertise-peer-urls", f"http://{HOST}:{peer}"]
            words += ["--advertise-client-urls", f"http://{HOST}:{client}"]
            commands[f"etcd-{index}"] = [*words, "--initial-cluster", everybody, "--logger", "zap"]
        leader: list[int] = []
        with servers(folder, commands, lambda: _find_leader(clients, leader)):
            yield msgspec.json.encode([leader[0], *(port for port in clients if port != leader[0])]).decode()

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        connection = await http2.connect(HOST, msgspec.json.decode(task.target, type=list[int])[0])
        before_key, before_value = put_before(task.size)
        sent = 0

        async def append(payloads: list[bytes]) -> None:
            nonlocal sent
            pieces: list[bytes] = []
            for number, payload in enumerate(payloads, sent):
                pieces += (before_key, KEY % number, before_value, payload)
            sent += len(payloads)
            if len(payloads) == 1:  # not a transaction, but a put of its own
                message = field(1, KEY % (sent - 1)) + field(2, payloads[0])
                await connection.call("/etcdserverpb.KV/Put", message)
            else:
                await connection.call("/etcdserverpb.KV/Txn", b"".join(pieces))

        try:
            yield append
        finally:
            connection.close()

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        connection = await http2.connect(HOST, msgspec.json.decode(task.target, type=list[int])[1])
        begin, end = KEYS
        create = field(1, field(1, begin) + field(2, end))
        try:
            stream = await connection.stream("/etcdserverpb.Watch/Watch", create)
            await stream.messages.get()  # it is created
            yield _reads(task, stream)
        finally:
            connection.close()


async def _reads(task: WorkerTask, stream: http2.Http2Stream) -> Reads:
    while (message := await stream.messages.get()) is not None:
        events = sum(1 for number, _, _ in fields(message) if number == 11)
        if events:
            yield events, task.heads(message)


def _find_leader(ports: list[int], leader: list[int]) -> bool:
    """Ask the members who leads; they know when they have found each other."""

    async def ask() -> None:
        for port in ports:
            connection = await http2.connect(HOST, port)
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    status = await connection.call("/etcdserverpb.Maintenance/Status", b"")
            finally:
                connection.close()
            header = next(status[at:end] for number, at, end in fields(status) if number == 1)
            member = next((value for number, value, _ in fields(header) if number == 2), None)
            found = next((value for number, value, _ in fields(status) if number == 4), None)
            if member is not None and member == found:
                leader.append(port)

    with suppress(OSError, RuntimeError, TimeoutError):
        asyncio.run(ask())
    return len(leader) > 0
