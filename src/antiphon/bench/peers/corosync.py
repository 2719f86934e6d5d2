"""Corosync's closed process groups (CPG): a token ring.

On one machine nodes would take each other's sockets, so each has a network namespace of its own, joined to the others
by a bridge; that takes root. A message is acknowledged when it comes back to its sender, a member like all others. More
may be sent each time the token comes round than by default, since that makes it quicker.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from antiphon.bench.peers.contract import MEMBERS, AppendBatch, Reads, Served, Work
from antiphon.bench.peers.processes import not_on_path, servers
from antiphon.bench.task import HEAD, WorkerTask

NODES_MAX = 3
NETWORK = "10.77.0"
NAMESPACES = Path("/run/netns")
FULL_SECONDS = 0.001
LIBRARY = "libcpg.so.4"
_NODE = "node {{\n ring0_addr: {network}.{number}\n nodeid: {number}\n}}\n"
_CONFIG = """\
totem {{
 version: 2
 window_size: 300
 max_messages: 100
 cluster_name: bench
 transport: udpu
 crypto_cipher: none
 crypto_hash: none
}}
nodelist {{
{nodes}}}
system {{
 state_dir: {state}
 sched_rr: no
 move_to_root_cgroup: no
}}
logging {{
 to_stderr: yes
 to_syslog: no
}}
"""


class Corosync(Served):
    name = "corosync"
    title = "Corosync CPG"
    keeps = "nothing"
    groups_max = NODES_MAX

    def missing(self) -> str | None:
        absent = not_on_path("corosync", "corosync libcpg4") or not_on_path("ip", "iproute2")
        if absent:
            return absent
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            return f"{LIBRARY} is not installed (on Debian: apt-get install libcpg4)"
        return None if os.geteuid() == 0 else "it needs network namespaces, which only root can make"

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        count = MEMBERS * work.groups
        nodes = "".join(_NODE.format(network=NETWORK, number=number) for number in range(1, count + 1))
        with _namespaces(count) as names:
            commands = {}
            for number, name in enumerate(names, 1):
                config = folder / f"{number}.conf"
                state = folder / f"{number}"
                state.mkdir()
                config.write_text(_CONFIG.format(nodes=nodes, state=state))
                # The lock file is below /run, the same for all: so each has a /run of its own.
                script = 'mount -t tmpfs none /run && exec corosync -f -c "$0"'
                commands[f"corosync-{number}"] = ["ip", "netns", "exec", name, "sh", "-c", script, str(config)]
            logs = [folder / f"{name}.log" for name in commands]
            with servers(folder, commands, lambda: all(f"members[{count}]:" in log.read_text() for log in logs)):
                yield msgspec.json.encode(names).decode()

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # each until so many of its own have come back
        sent = back = 0

        def delivered(_handle: int, _group: int, _node: int, _process: int, _message: int, _length: int) -> None:
            nonlocal back
            back += 1

        def dispatched() -> None:
            while waiting and waiting[0][0] <= back:
                waiting.popleft()[1].set_result(None)

        with _Member(task, 0, delivered, dispatched) as member:
            turn = asyncio.Lock()

            async def append(payloads: list[bytes]) -> None:
                nonlocal sent
                done = asyncio.get_running_loop().create_future()
                async with turn:  # the payloads of a batch stand together
                    for payload in payloads:
                        while not member.send(payload):
                            await asyncio.sleep(FULL_SECONDS)  # what comes back makes room
                    sent += len(payloads)
                    waiting.append((sent, done))
                await done

            yield append

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        arrived: asyncio.Queue[tuple[int, list[tuple[int, int]]]] = asyncio.Queue()
        heads: list[tuple[int, int]] = []
        count = told = 0
        wrong: list[int] = []  # an error in a callback of the library would be lost

        def delivered(_handle: int, _group: int, _node: int, _process: int, message: int, _length: int) -> None:
            nonlocal count
            if count % task.batch == 0:  # one client: a batch begins where the one before it ends
                found = task.heads(ctypes.string_at(message, HEAD.size))
                heads.extend(found)
                if not found:
                    wrong.append(count)
            count += 1

        def dispatched() -> None:
            nonlocal told
            if wrong:
                raise RuntimeError(f"message {wrong[0]} does not begin a batch")
            if count > told:
                arrived.put_nowait((count - told, heads.copy()))
                heads.clear()
                told = count

        with _Member(task, MEMBERS * task.place + 1, delivered, dispatched):
            yield _reads(arrived)


async def _reads(arrived: asyncio.Queue[tuple[int, list[tuple[int, int]]]]) -> Reads:
    while True:
        yield await arrived.get()


# Network namespaces --------------------------------------------------------------------------------------------------


@contextmanager
def _namespaces(count: int) -> Iterator[list[str]]:
    """So many of them, joined by a bridge in one more."""
    hub = f"bench{os.getpid()}-hub"
    names = [f"bench{os.getpid()}-{number}" for number in range(1, count + 1)]
    with ExitStack() as stack:
        for name in (hub, *names):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
        _ip("-n", hub, "link", "add", "name", "hub0", "type", "bridge")
        _ip("-n", hub, "link", "set", "hub0", "up")
        for number, name in enumerate(names, 1):
            cable = f"node{number}"
            _ip("link", "add", "name", "ring0", "netns", name, "type", "veth", "peer", "name", cable, "netns", hub)
            _ip("-n", hub, "link", "set", cable, "master", "hub0", "up")
            _ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "ring0")
            _ip("-n", name, "link", "set", "ring0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


# The library ---------------------------------------------------------------------------------------------------------

_OK, _TRY_AGAIN, _AGREED, _DISPATCH_ALL, _NEW_NETWORK = 1, 6, 2, 2, 0x40000000
_DELIVER = ctypes.CFUNCTYPE(
    None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t
)


class _Callbacks(ctypes.Structure):
    _fields_ = (("deliver", _DELIVER), ("changed", ctypes.c_void_p))


class _Name(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char * 128))


class _Buffer(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Member:
    """This process, as a member of the group at one of the nodes. What is delivered is taken when there is some."""

    def __init__(
        self,
        task: WorkerTask,
        node: int,
        delivered: Callable[[int, int, int, int, int, int], None],
        dispatched: Callable[[], None],
    ) -> None:
        _enter(msgspec.json.decode(task.target, type=list[str])[node])
        self._library = ctypes.CDLL(LIBRARY)
        self._handle = ctypes.c_uint64()
        self._callbacks = _Callbacks(_DELIVER(delivered), None)
        self._check("initialize", ctypes.byref(self._handle), ctypes.byref(self._callbacks))
        self._dispatched = dispatched
        self._buffer = _Buffer()
        self._send = self._library.cpg_mcast_joined
        self._send.argtypes = (ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
        self._dispatch = self._library.cpg_dispatch
        self._dispatch.argtypes = (ctypes.c_uint64, ctypes.c_int)

    def __enter__(self) -> _Member:
        name = _Name(5, b"bench")
        self._check("join", self._handle, ctypes.byref(name))
        descriptor = ctypes.c_int()
        self._check("fd_get", self._handle, ctypes.byref(descriptor))
        self._descriptor = descriptor.value
        asyncio.get_running_loop().add_reader(self._descriptor, self.take)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._library.cpg_finalize(self._handle)

    def send(self, payload: bytes) -> bool:
        """False: not now."""
        self._buffer.base, self._buffer.length = payload, len(payload)
        result = self._send(self._handle, _AGREED, ctypes.addressof(self._buffer), 1)
        if result not in (_OK, _TRY_AGAIN):
            raise RuntimeError(f"cpg_mcast_joined has failed with {result}")
        return bool(result == _OK)

    def take(self) -> None:
        result = self._dispatch(self._handle, _DISPATCH_ALL)
        if result not in (_OK, _TRY_AGAIN):
            raise RuntimeError(f"cpg_dispatch has failed with {result}")
        self._dispatched()

    def _check(self, function: str, *arguments: object) -> None:
        result = getattr(self._library, f"cpg_{function}")(*arguments)
        if result != _OK:
            raise RuntimeError(f"cpg_{function} has failed with {result}")


def _enter(namespace: str) -> None:
    """Corosync's sockets are those of the network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with (NAMESPACES / namespace).open() as file:
        if libc.setns(file.fileno(), _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"the namespace {namespace} cannot be entered")
