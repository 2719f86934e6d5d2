"""One soak: a cluster behind proxies, clients, episodes of faults one after the other, and the judges at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from antiphon.client import connect
from antiphon.core.errors import AntiphonError
from antiphon.protocols import protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.soak import plan
from antiphon.soak.clients import ENDED_WITHIN_SECONDS, LoadClient, all_receipts, wait_for_receipts
from antiphon.soak.disks import NotHere, SmallDisk, enter_namespace
from antiphon.soak.judge import judge_logs
from antiphon.soak.memory import MemorySamples, judge_memory
from antiphon.soak.network import Network
from antiphon.soak.probe import Probe, Reader
from antiphon.soak.records import RecordLine
from antiphon.soak.stage import RouteGroups, routes_of
from antiphon.soak.strikes import Strikes
from antiphon.soak.values import EpisodeReport, SoakReport, SoakSettings, judge_delivery
from antiphon.soak.worker import ClientTask

STUCK_SECONDS = 60.0  # then deliveries are not late: they do not come
WEDGED_SECONDS = 30.0  # without a receipt on a route, on a cluster that delivers
SAMPLE_SECONDS = 1.0
QUIET_SECONDS = 1.0  # before each episode, in which nothing is wrong
DRAINED_SECONDS = 30.0


class Soak:
    """Made for one run on a folder that `create` made. ``tell`` hears of each episode, in a line."""

    def __init__(self, folder: ClusterFolder, settings: SoakSettings, tell: Callable[[str], None]) -> None:
        self.report = SoakReport(settings=settings)
        self._folder = folder
        self._settings = settings
        self._tell = tell
        self._routes = routes_of(settings)
        self._network = Network(settings.seed)
        self._memory = MemorySamples()
        self._faults: Counter[str] = Counter()
        self._wedged: set[tuple[str, RouteGroups]] = set()
        self._episode = 0
        names = [f"c{i + 1}" for i in range(settings.clients)]
        records = folder.path / "records"
        records.mkdir()
        task = ClientTask(
            target=str(folder.path.resolve()), name="", routes=self._routes, pause_seconds=settings.pause_seconds
        )
        self._clients = {name: LoadClient(msgspec.structs.replace(task, name=name), records) for name in names}
        # The last member of each group, and the trace, have disks of their own.
        self._small = [members[-1] for members in folder.config.groups.values()]
        self._disks = self._mount([*self._small, plan.TRACE])

    def _mount(self, names: list[str]) -> dict[str, SmallDisk]:
        try:
            enter_namespace()
            return {name: SmallDisk(self._folder.path / name) for name in names}
        except NotHere as error:
            self.report.skipped.append(f"No disk became full: {error}")
            return {}

    async def run(self) -> SoakReport:
        config = self._folder.config
        begun = time.monotonic()
        await self._network.open({str(p): (config.address(p), config.listens_on(p)) for p in config.processes})
        try:
            await asyncio.to_thread(cluster.start, self._folder)
            async with connect(self._folder.path, name="reader") as client:
                readers = {group: Reader(client, group) for group in config.groups}
                self.report.came_to_its_end = await self._live(readers)
        finally:
            await asyncio.to_thread(self._clear)
            await self._network.close()
        self._sum_up()
        if self.report.came_to_its_end:  # otherwise much was on its way, and is neither lost nor late
            self._judge(readers)
        self.report.seconds = round(time.monotonic() - begun, 1)
        return self.report

    def _clear(self) -> None:
        """Nothing of ours runs on, whatever happened."""
        for client in self._clients.values():
            with suppress(AttributeError):  # it was never started
                client.kill()
        for process in self._folder.config.processes:
            with suppress(AntiphonError):
                cluster.kill(self._folder, process)

    def leave(self, *, keep: bool) -> None:
        """Take the small disks away, after everything was judged; ``keep`` leaves what was on them in the folder.

        Also called when the soak was interrupted, perhaps twice: then nothing of it has ended yet.
        """
        self._clear()
        for disk in self._disks.values():
            if keep:
                disk.keep()
            else:
                disk.drop()

    # Episodes -------------------------------------------------------------------------------------------------------

    async def _live(self, readers: dict[str, Reader]) -> bool:
        """Go through all episodes; False if the cluster did not come to an end of which anything can be asked."""
        background = [asyncio.create_task(reader.run()) for reader in readers.values()]
        background.append(asyncio.create_task(self._sample()))
        try:
            for client in self._clients.values():
                client.start()
            if not await self._go_through_episodes(Probe(self._folder.path, self._probed(), readers)):
                return False
            await self._finish(readers)
            return True
        finally:
            for task in background:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    self._add("reader", f"A reader failed: {error!r}.")
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    def _probed(self) -> list[RouteGroups]:
        """Routes that reach every group: the widest one, or each."""
        widest = max(self._routes, key=len)
        return [widest] if len(widest) == len(self._settings.groups) else self._routes

    async def _go_through_episodes(self, probe: Probe) -> bool:
        """False if the cluster no longer delivers: then there is no use in going on."""
        end = time.monotonic() + 60 * self._settings.minutes
        strikes = Strikes(self._folder, self._network, self._clients, self._disks, self._add)
        config = self._folder.config
        replaces = protocol_named(config.protocol).replaces
        whom = (config.topology(), list(self._clients), self._small, self._settings.seed)
        for episode in plan.Planner(*whom, replaces=replaces).episodes():
            await asyncio.sleep(QUIET_SECONDS)
            if time.monotonic() >= end:
                return True
            self._episode = episode.number
            if not await self._go_through(episode, strikes, probe):
                return False
        return True

    async def _go_through(self, episode: plan.Episode, strikes: Strikes, probe: Probe) -> bool:
        faults = [plan.at_present(fault, self._folder.config.present) for fault in episode.faults]
        struck = [fault for fault in faults if strikes.can(fault)]
        skipped = [plan.describe(fault) for fault in faults if not strikes.can(fault)]
        self._faults.update(plan.kind_of(fault) for fault in struck)
        alone = len(struck) == 1
        ends = await asyncio.gather(*(strikes.strike(fault, alone=alone) for fault in struck))
        over = max(ends, default=time.monotonic())
        try:
            await strikes.bring_back()
        except AntiphonError as error:
            self._add("no start", str(error))
            return False
        self.report.unfelt = dict(sorted(strikes.unfelt.items()))
        delivered = await probe.seconds_until_delivery(over, STUCK_SECONDS)
        heard = await self._clients_heard(over) if delivered is not None else None
        report = EpisodeReport(
            number=episode.number,
            faults=[plan.describe(fault) for fault in struck],
            skipped=skipped,
            delivery_seconds=_rounded(delivered),
            clients_seconds=_rounded(heard),
        )
        self.report.episodes.append(report)
        self._tell(_line(report))
        judged = judge_delivery(delivered, STUCK_SECONDS)
        if judged is not None:
            self._add(*judged)
        return delivered is not None

    async def _clients_heard(self, since: float) -> float | None:
        """How long it took until every client had a receipt on every route; None where one is wedged."""
        silent = await wait_for_receipts(self._clients.values(), since, WEDGED_SECONDS, self._wedged)
        for name, route in sorted(silent):
            to = " and ".join(route)
            self._add("wedged client", f"{name} got no receipt from {to} for {WEDGED_SECONDS:.0f} s.")
        self._wedged |= silent  # told once
        return None if silent else time.monotonic() - since

    async def _sample(self) -> None:
        while True:
            for process, pid in cluster.alive(self._folder).items():
                self._memory.look(process, pid)
            for name, client in self._clients.items():
                self._memory.look(name, client.pid)
            await asyncio.sleep(SAMPLE_SECONDS)

    # The end --------------------------------------------------------------------------------------------------------

    async def _finish(self, readers: Mapping[str, Reader]) -> None:
        self._episode = 0
        deadline = time.monotonic() + ENDED_WITHIN_SECONDS
        for client in self._clients.values():
            client.tell_to_end()
        for client in self._clients.values():
            complaint = await asyncio.to_thread(client.complaint, deadline)
            if complaint is not None:
                self._add("wedged client", complaint)
        if not await asyncio.to_thread(cluster.wait_idle, self._folder, DRAINED_SECONDS):
            self._add("not drained", f"Some messages were still under way {DRAINED_SECONDS:.0f} s after the last one.")
        await self._wait_for_readers(readers)
        if not await asyncio.to_thread(cluster.stop, self._folder):
            self._add("not drained", "`down` did not find everything delivered, or a process did not end cleanly.")

    async def _wait_for_readers(self, readers: Mapping[str, Reader]) -> None:
        ends = await asyncio.to_thread(cluster.statuses, self._folder)
        deadline = time.monotonic() + DRAINED_SECONDS
        for group, members in self._folder.config.groups.items():
            found = [answer.delivered for p in members if (answer := ends[self._folder.config.known(p)]) is not None]
            while found and readers[group].digest.count < max(found) and time.monotonic() < deadline:
                await asyncio.sleep(0.02)

    def _sum_up(self) -> None:
        report = self.report
        report.faults = dict(sorted(self._faults.items()))
        report.receipts = sum(line.count for lines in self._receipts().values() for line in lines)
        report.unknown = sum(client.unknown for client in self._clients.values())
        report.memory = self._memory.summary()
        for sentence in judge_memory(report.memory):
            self._add("memory", sentence)

    def _judge(self, readers: Mapping[str, Reader]) -> None:
        read = {group: reader.digest for group, reader in readers.items()}
        faults, self.report.delivered = judge_logs(self._folder, self._receipts(), read)
        for sentence in faults:
            self._add("receipts", sentence)

    def _receipts(self) -> Mapping[str, list[RecordLine]]:
        return all_receipts(list(self._clients.values()))

    def _add(self, kind: str, sentence: str) -> None:
        self.report.add(kind, sentence, self._episode or None)
        self._tell(f"FOUND {kind}: {sentence}")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _line(report: EpisodeReport) -> str:
    went = "; ".join([*report.faults, *(f"skipped: {each}" for each in report.skipped)])
    if report.delivery_seconds is None:
        return f"{report.number}: {went}: nothing is delivered any more."
    clients = f"{report.clients_seconds:.1f} s" if report.clients_seconds is not None else "never"
    return f"{report.number}: {went}: deliveries on after {report.delivery_seconds:.1f} s, all clients after {clients}."
