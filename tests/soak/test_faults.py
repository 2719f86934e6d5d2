"""The soak's faults are faults: each one does to a connection, a disk or a plan what its name says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from antiphon.core import Topology
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.cluster.ports import HOST, free_ports
from antiphon.runtime.net.frames import HEADER, MAGIC, VERSION, FrameKind, Hello, encode
from antiphon.soak import SoakSettings, create, plan
from antiphon.soak.network import FrameEnds, Network, NetworkFault, Trouble, WireEnds
from antiphon.soak.stage import routes_of
from waiting import IN_TIME_SECONDS

WIRE = ("c1", "a.1")
HELLO = encode(FrameKind.HELLO, Hello(MAGIC, VERSION, "", "client", "c1-ab12", "a.1"))
FRAME = encode(FrameKind.HEARTBEAT) + HEADER.pack(1000, FrameKind.REQUEST) + bytes(1000)


class Caller:
    """A client at the proxy of a member that sends everything back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def dial(self) -> Caller:
        self.reader, self.writer = await asyncio.open_connection(HOST, self._port)
        self.writer.write(HELLO)
        return self

    async def echoes(self, seconds: float = IN_TIME_SECONDS) -> bool:
        """Whether a frame comes back in time; what was held back before comes with it."""
        self.writer.write(FRAME)
        return await self.hears(len(FRAME), seconds)

    async def hears(self, amount: int, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.reader.readexactly(amount)
        except TimeoutError:
            return False
        return True

    async def rest(self) -> bytes | None:
        """What comes before the end of the connection; None if that is a reset."""
        try:
            async with asyncio.timeout(IN_TIME_SECONDS):
                return await self.reader.read()
        except ConnectionResetError:
            return None


ARRIVED: list[int] = []  # how much came on each connection, once it has ended


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    arrived = 0
    try:
        await reader.readexactly(len(HELLO))
        while data := await reader.read(1 << 16):
            arrived += len(data)
            writer.write(data)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        ARRIVED.append(arrived)
        writer.close()


def try_out(story: Callable[[Network, Caller, Callable[[], Awaitable[Caller]]], Awaitable[None]]) -> None:
    """Run a story with a network, a caller that is through already, and a way to make another one."""

    async def run() -> None:
        port, own = free_ports(2, None)
        server = await asyncio.start_server(echo, HOST, own)
        network = Network(seed=1)
        await network.open({"a.1": ((HOST, port), (HOST, own))})
        callers: list[Caller] = []

        async def another() -> Caller:
            callers.append(await Caller(port).dial())
            return callers[-1]

        try:
            caller = await another()
            assert await caller.echoes()
            await story(network, caller, another)
        finally:
            await network.close()
            server.close()
            for each in callers:
                each.writer.transport.abort()
            await asyncio.sleep(0.02)  # lets the transports end

    asyncio.run(run())


def struck(
    network: Network, kind: NetworkFault, seconds: float = 60.0, wires: Sequence[WireEnds] = (WIRE,), **how: object
) -> asyncio.Task[None]:
    trouble = Trouble(kind, frozenset(wires), **how)  # type: ignore[arg-type]
    return asyncio.create_task(network.strike(trouble, seconds))


async def lift(strike: asyncio.Task[None]) -> None:
    strike.cancel()
    await asyncio.gather(strike, return_exceptions=True)


@pytest.mark.parametrize("how", [{"outward": True}, {"outward": False}])
def test_one_way_silence_holds_bytes_back_and_loses_none(how: dict[str, object]) -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        strike = struck(network, NetworkFault.ONE_WAY, **how)
        await asyncio.sleep(0.05)
        assert not await caller.echoes(0.3)
        await lift(strike)
        assert await caller.hears(len(FRAME), IN_TIME_SECONDS)

    try_out(story)


def test_silence_is_for_new_connections_too_and_for_its_wires_only() -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        strike = struck(network, NetworkFault.SILENCE)
        await asyncio.sleep(0.05)
        fresh = await another()
        assert await asyncio.gather(caller.echoes(0.3), fresh.echoes(0.3)) == [False, False]
        await lift(strike)
        assert await fresh.hears(len(FRAME), IN_TIME_SECONDS)
        struck(network, NetworkFault.SILENCE, wires=[("c2", "a.1")])
        await asyncio.sleep(0.05)
        assert await caller.echoes()

    try_out(story)


def test_a_frozen_connection_stays_so_and_a_new_one_is_well() -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        strike = struck(network, NetworkFault.FREEZE)
        await asyncio.sleep(0.05)
        fresh = await another()
        assert await fresh.echoes()
        await lift(strike)
        assert not await caller.echoes(0.3)

    try_out(story)


def test_a_delay_delays() -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        struck(network, NetworkFault.DELAY, delay=0.4)
        await asyncio.sleep(0.05)
        assert not await caller.echoes(0.35)  # at least half of it, both ways
        assert await caller.hears(len(FRAME), IN_TIME_SECONDS)

    try_out(story)


def test_a_reset_ends_a_connection() -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        await struck(network, NetworkFault.RESET, seconds=0.1)
        assert not await caller.rest()
        assert await (await another()).echoes()

    try_out(story)


def test_a_cut_is_inside_of_a_frame() -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        struck(network, NetworkFault.MID_FRAME)
        await asyncio.sleep(0.05)
        ended = len(ARRIVED)
        caller.writer.write(FRAME * 3)
        await caller.rest()
        while len(ARRIVED) == ended:
            await asyncio.sleep(0.01)
        ends = FrameEnds().within(FRAME * 4) | {0, len(FRAME)}  # a whole frame was there before
        assert ARRIVED[-1] > len(FRAME)
        assert ARRIVED[-1] not in ends

    try_out(story)


def test_a_connection_ends_after_its_greeting() -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        struck(network, NetworkFault.GREETED)
        await asyncio.sleep(0.05)
        fresh = await another()
        fresh.writer.write(FRAME * 3)
        assert await fresh.rest() == FRAME[: HEADER.size]

    try_out(story)


@pytest.mark.parametrize("kind", list(NetworkFault))
def test_a_fault_is_felt_where_something_passes(kind: NetworkFault) -> None:
    async def story(network: Network, caller: Caller, another: Callable[[], Awaitable[Caller]]) -> None:
        here, elsewhere = (Trouble(kind, frozenset([wire])) for wire in (WIRE, ("c2", "a.1")))
        strikes = [asyncio.create_task(network.strike(trouble, 60.0)) for trouble in (elsewhere, here)]
        await asyncio.sleep(0.05)
        caller.writer.write(FRAME)
        async with asyncio.timeout(IN_TIME_SECONDS):
            while not here.is_felt:
                await asyncio.sleep(0.01)
        assert not elsewhere.is_felt
        for strike in strikes:
            await lift(strike)

    try_out(story)


def test_where_frames_end_is_known_however_the_stream_is_cut() -> None:
    stream = FRAME * 3
    whole = FrameEnds().within(stream)
    assert whole == {k * len(FRAME) + end for k in range(3) for end in (HEADER.size, len(FRAME))}
    for step in (1, 2, 7, 600):
        ends, found = FrameEnds(), set()
        for at in range(0, len(stream), step):
            found |= {at + end for end in ends.within(stream[at : at + step])}
        assert found == whole


# Disks ----------------------------------------------------------------------------------------------------------

FULL = """
import sys
from pathlib import Path
from antiphon.soak.disks import NotHere, SmallDisk, enter_namespace
folder = Path(sys.argv[1])
try:
    enter_namespace()
    disk = SmallDisk(folder)
except NotHere as error:
    print("not here:", error)
    sys.exit()
(folder / "kept").write_bytes(bytes(100_000))
disk.fill()
try:
    (folder / "more").write_bytes(bytes(100_000))
except OSError as error:
    print(error.strerror)
disk.free()
(folder / "more").write_bytes(bytes(100_000))
disk.keep()
SmallDisk(folder / "another").drop()
(folder / "another").rmdir()
"""


def test_a_disk_becomes_full_and_has_room_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path / "disk"], capture_output=True, text=True, check=True)
    if done.stdout.startswith("not here"):
        pytest.skip(done.stdout)
    assert done.stdout == "No space left on device\n"
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "disk").iterdir()}
    assert sizes == {"kept": 100_000, "more": 100_000}


FAILING = """
import os, sys
from antiphon.soak.disks import fail_writes
with open(sys.argv[1], "wb", buffering=0) as file:
    file.write(b"before")
    fail_writes(os.getpid())
    try:
        file.write(b"after")
    except OSError:
        os._exit(7)
"""


def test_every_write_fails_after_a_disk_has(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", FAILING, tmp_path / "file"], check=False).returncode == 7
    assert (tmp_path / "file").read_bytes() == b"before"


# Plans ----------------------------------------------------------------------------------------------------------


def episodes(seed: int, amount: int) -> list[plan.Episode]:
    planner = plan.Planner(Topology.sized({"a": 3, "b": 3}), ["c1", "c2"], ["a.3", "b.3"], seed, replaces=True)
    return list(islice(planner.episodes(), amount))


def test_a_seed_is_a_plan() -> None:
    assert episodes(1, 50) == episodes(1, 50)
    assert episodes(1, 50) != episodes(2, 50)


def test_a_plan_has_every_fault_and_words_for_it() -> None:
    faults = [fault for episode in episodes(3, 60) for fault in episode.faults]
    assert {type(fault) for fault in faults} == set(plan.SoakFault.__subclasses__())
    struck = {(f.kind, f.wires[0][0].startswith("c")) for f in faults if isinstance(f, plan.BadNetwork)}
    assert struck == {(kind, of_clients) for kind in NetworkFault for of_clients in (True, False)}
    assert all(plan.describe(fault) for fault in faults)
    killed = {len(fault.processes) for fault in faults if isinstance(fault, plan.Kill)}
    assert killed == {1, 2, 3, 6}, "one, some, a group, all"
    assert {fault.disk for fault in faults if isinstance(fault, plan.FullDisk)} >= {plan.TRACE, "a.3"}


def test_the_first_of_each_group_keeps_its_disk_and_a_plan_strikes_who_has_the_place() -> None:
    faults = [fault for episode in episodes(3, 200) for fault in episode.faults]
    assert {fault.process for fault in faults if isinstance(fault, plan.LostDisk)} == {"a.2", "a.3", "b.2", "b.3"}
    present = {"a.2": "a.4"}
    for fault in faults:
        now = plan.at_present(fault, lambda name: present.get(name, name))
        assert b"a.2" not in msgspec.json.encode(now)
        assert plan.describe(now) == plan.describe(fault).replace("a.2", "a.4")


def test_every_process_of_the_cluster_listens_behind_a_proxy(tmp_path: Path) -> None:
    config = create(tmp_path / "cluster", SoakSettings(protocol="tom", groups={"a": 2, "b": 1})).config
    assert ClusterFolder.load(tmp_path / "cluster").config == config
    dialled, own = ({f(process) for process in config.processes} for f in (config.address, config.listens_on))
    assert len(dialled | own) == 6


@pytest.mark.parametrize(
    ("protocol", "routes"),
    [
        ("tom", [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]),
        ("sequencer", [("a",), ("b",), ("c",)]),
        ("ctbroadcast", [("a", "b", "c")]),
    ],
)
def test_clients_send_to_what_the_protocol_takes(protocol: str, routes: list[tuple[str, ...]]) -> None:
    assert routes_of(SoakSettings(protocol=protocol, groups={"a": 1, "b": 1, "c": 1})) == routes
