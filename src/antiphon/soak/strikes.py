"""Lets the faults of a plan happen to a cluster. Everything returns: a strike ends when what it struck is well."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from antiphon.core import ProcessId
from antiphon.core.errors import AntiphonError, Unavailable
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, Whereabouts
from antiphon.runtime.cluster.ports import HOST, free_ports
from antiphon.runtime.net.frames import MAGIC, VERSION, FrameKind, Hello, StatusAnswer, encode
from antiphon.soak import plan
from antiphon.soak.clients import LoadClient
from antiphon.soak.disks import SmallDisk, fail_writes
from antiphon.soak.network import Network, Trouble

END_SECONDS_MAX = 10.0  # within which a process ends whose disk has failed
STRIKE_LOOK_SECONDS = 0.01
START_ATTEMPTS = 3
FELT_SECONDS = 15.0  # within which a member under load feels that its disk is full


class Strikes:
    """``on_finding`` hears of what a struck process does wrong: kind, sentence."""

    def __init__(
        self,
        folder: ClusterFolder,
        network: Network,
        clients: Mapping[str, LoadClient],
        disks: dict[str, SmallDisk],
        on_finding: Callable[[str, str], None],
    ) -> None:
        self._folder = folder
        self._network = network
        self._clients = clients
        self._disks = disks
        self._on_finding = on_finding
        self.unfelt: Counter[str] = Counter()  # how many of each kind came to nothing
        self._commands = asyncio.Lock()  # `up`, `down` and `replace` of one cluster take turns
        self._lost: list[str] = []  # those without a disk, whose places nobody has taken yet
        self._places: dict[str, Whereabouts] = {}  # of those who take them

    def can(self, fault: plan.SoakFault) -> bool:
        return not isinstance(fault, plan.FullDisk) or fault.disk in self._disks

    async def strike(self, fault: plan.SoakFault, *, alone: bool) -> float:
        """Let it happen, and mend it; returns when the fault itself was over, and the mending began.

        ``alone``: nothing else is wrong meanwhile."""
        await asyncio.sleep(fault.after)
        match fault:
            case plan.Kill():
                return await self._kill(fault)
            case plan.KillStarting():
                return await self._kill_starting(fault)
            case plan.PauseMembers():
                return await self._pause(fault)
            case plan.BadNetwork():
                trouble = Trouble(fault.kind, frozenset(fault.wires), outward=fault.outward, delay=fault.delay)
                await self._network.strike(trouble, fault.seconds)
                self._note(fault, felt=trouble.is_felt)
            case plan.FullDisk():
                await self._fill(fault)
            case plan.FailedDisk():
                return await self._fail_disk(fault)
            case plan.LostDisk():
                return await self._lose_disk(fault)
            case plan.DownUp():
                return await self._down_and_up(fault, alone=alone)
            case plan.KillClient():
                await asyncio.to_thread(self._clients[fault.client].kill)
                self._clients[fault.client].start()
            case plan.Crowd():
                await self._crowd(fault, alone=alone)
        return time.monotonic()

    def _note(self, fault: plan.SoakFault, *, felt: bool) -> None:
        if not felt:
            self.unfelt[plan.kind_of(fault)] += 1

    def _is_up(self, process: str) -> bool:
        return self._folder.process(process).pid() is not None

    async def bring_back(self) -> None:
        """Start whatever is down, after all faults are over."""
        for attempt in range(START_ATTEMPTS):
            try:
                await self._start()
                return
            except AntiphonError as error:
                if attempt == START_ATTEMPTS - 1:
                    raise
                self._on_finding("no start", str(error))

    async def _start(self) -> None:
        async with self._commands:
            await self._up()

    async def _up(self) -> None:
        await self._network.admit_all()
        intact = [process for process in self._folder.in_use() if process not in self._lost]
        await self._command("up", lambda folder: cluster.start(folder, intact))
        for lost in list(self._lost):
            await self._replace(lost)

    async def _command(self, name: str, command: Callable[[ClusterFolder], object]) -> None:
        """Do what `antiphon up`, `down` or `replace` does. It may fail while faults are on, but in a sentence."""
        try:
            await asyncio.to_thread(command, self._folder)
        except AntiphonError:
            raise
        except Exception as error:
            self._on_finding("traceback", f"`{name}` failed with {error!r}.")
            raise Unavailable(f"`{name}` failed.") from None

    async def _kill_now(self, processes: tuple[str, ...]) -> None:
        now = [self._folder.config.present(process) for process in processes]  # another fault may have replaced it
        await asyncio.gather(*(asyncio.to_thread(cluster.kill, self._folder, process) for process in now))
        await self._refuse(now)

    async def _refuse(self, processes: Iterable[str]) -> None:
        """Nobody listens where these did; unless another fault's mending has started them again meanwhile."""
        async with self._commands:
            for process in processes:
                if not self._is_up(process):
                    self._network.refuse(process)

    async def _kill(self, fault: plan.Kill) -> float:
        self._note(fault, felt=any(map(self._is_up, fault.processes)))
        await self._kill_now(fault.processes)
        await asyncio.sleep(fault.seconds)
        over = time.monotonic()
        with suppress(AntiphonError):  # other faults are still on; at the end of the episode it must start
            await self._start()
        return over

    async def _kill_starting(self, fault: plan.KillStarting) -> float:
        await self._kill_now((fault.process,))
        own = self._folder.process(fault.process)
        killed = 0
        for moment in fault.moments:
            starting = asyncio.create_task(self._start())
            while (pid := own.pid()) is None and not starting.done():
                await asyncio.sleep(STRIKE_LOOK_SECONDS)
            await asyncio.sleep(moment)
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # its start reaps it
                    killed += 1
            with suppress(AntiphonError):
                await starting
        self._note(fault, felt=killed > 0)
        over = time.monotonic()
        with suppress(AntiphonError):
            await self._start()
        return over

    async def _pause(self, fault: plan.PauseMembers) -> float:
        pids = [pid for process in fault.processes if (pid := self._folder.process(process).pid()) is not None]
        self._note(fault, felt=bool(pids))
        _signal(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            _signal(pids, signal.SIGCONT)
        return time.monotonic()

    async def _fill(self, fault: plan.FullDisk) -> None:
        """Room that was reserved before lasts for a while: the fault begins when the process feels it."""
        disk = self._disks[fault.disk]
        disk.fill()
        try:
            self._note(fault, felt=await self._says_full(fault.disk))
            await asyncio.sleep(fault.seconds)
        finally:
            disk.free()

    async def _says_full(self, disk: str) -> bool:
        """Whether the process says so soon; of the trace's disk, whether any does."""
        deadline = time.monotonic() + FELT_SECONDS
        while time.monotonic() < deadline:
            config = self._folder.config  # another fault may have the process replaced: then there is nobody to ask
            for process in config.processes if disk == plan.TRACE else {disk} & {*config.processes}:
                answer = await asyncio.to_thread(cluster.ask, config, process)
                if isinstance(answer, StatusAnswer) and (answer.trace if disk == plan.TRACE else answer.full):
                    return True
            await asyncio.sleep(STRIKE_LOOK_SECONDS)
        return False

    async def _fail_disk(self, fault: plan.FailedDisk) -> float:
        own = self._folder.process(fault.process)
        pid = own.pid()
        self._note(fault, felt=pid is not None)
        if pid is not None:
            with suppress(ProcessLookupError):
                fail_writes(pid)
            deadline = time.monotonic() + END_SECONDS_MAX
            while own.pid() == pid:
                if time.monotonic() > deadline:
                    self._on_finding("ghost", f"{fault.process}'s disk failed, and it did not end within 10 s.")
                    await self._kill_now((fault.process,))
                    break
                await asyncio.sleep(STRIKE_LOOK_SECONDS)
            await self._refuse([fault.process])
        over = time.monotonic()
        with suppress(AntiphonError):
            await self._start()
        return over

    async def _lose_disk(self, fault: plan.LostDisk) -> float:
        async with self._commands:
            felt = self._may_lose(fault.process)
            if felt:
                await asyncio.to_thread(cluster.kill, self._folder, fault.process)
                self._network.refuse(fault.process)
                felt = await asyncio.to_thread(wipe, self._folder, fault.process)
            if felt:
                self._lost.append(fault.process)
        self._note(fault, felt=felt)
        over = time.monotonic()
        with suppress(AntiphonError):
            await self._start()
        return over

    def _may_lose(self, process: str) -> bool:
        """A group loses one disk at a time: while nobody has taken the place, the others alone know what it knew."""
        config = self._folder.config
        members = next((members for members in config.groups.values() if process in members), [])
        coming = [each.newcomer for each in config.replaced if not each.counts]
        return process in members and not any(member in self._lost or member in coming for member in members)

    async def _replace(self, lost: str) -> None:
        folder = self._folder
        if folder.config.replacement_of(lost) is None:
            _, newcomer = folder.config.topology().replacing(ProcessId(lost))
            if newcomer not in self._places:
                proxy, own = await asyncio.to_thread(free_ports, 2, None)
                self._places[newcomer] = Whereabouts(f"{HOST}:{proxy}", f"{HOST}:{own}")
                self._network.add(newcomer, (HOST, proxy), (HOST, own))
                if lost in self._disks:
                    self._disks[newcomer] = SmallDisk(folder.path / newcomer)
            await self._network.admit_all()
        where = self._places.__getitem__
        await self._command("replace", lambda folder: cluster.replace_lost(folder, lost, choose_place=where))
        self._lost.remove(lost)
        self._network.remove(lost)

    async def _down_and_up(self, fault: plan.DownUp, *, alone: bool) -> float:
        """Where nothing else is wrong, every process ends by itself and cleanly: `down` need not kill it."""
        async with self._commands:
            up = [process for process in self._folder.config.processes if self._is_up(process)]
            self._note(fault, felt=bool(up))
            try:
                await self._command("down", cluster.stop)
            except AntiphonError as error:
                if alone:
                    self._on_finding("down", str(error))
            killed = [process for process in up if not self._folder.process(process).stopped_cleanly]
            if alone and killed:
                self._on_finding("down", f"`down` did not find that {', '.join(killed)} ended cleanly.")
            for process in self._folder.config.processes:
                self._network.refuse(process)
            await asyncio.sleep(fault.seconds)
            over = time.monotonic()
            with suppress(AntiphonError):
                await self._up()
        return over

    async def _crowd(self, fault: plan.Crowd, *, alone: bool) -> None:
        """They call the member itself, not its proxy: it is the one that may run out of something."""
        process = self._folder.config.present(fault.process)
        own = self._folder.process(process)
        pid = own.pid()
        host, port = self._folder.config.listens_on(process)
        callers: list[asyncio.StreamWriter] = []
        try:
            for number in range(fault.callers):
                with suppress(OSError):
                    _, caller = await asyncio.open_connection(host, port)
                    callers.append(caller)
                    hello = Hello(MAGIC, VERSION, "", "client", f"crowd{number}-0", fault.process)
                    caller.write(encode(FrameKind.HELLO, hello))
            self._note(fault, felt=bool(callers))
            await asyncio.sleep(fault.seconds)
            if alone and own.pid() != pid:
                self._on_finding("crowd", f"{fault.process} ended while {fault.callers} callers were there.")
        finally:
            for caller in callers:
                caller.transport.abort()


def wipe(folder: ClusterFolder, process: str) -> bool:
    """Nothing is left of what a dead process kept, but for a mark that its trace is whole: that is written before, for
    a soak judges it. False: it could not be, and all is as it was."""
    own = folder.process(process)
    cluster.salvage_trace(folder, ProcessId(process))
    if not own.is_traced:
        return False
    own.salvaged.touch()
    for path in own.path.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != own.salvaged:
            path.unlink()
    return True


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
