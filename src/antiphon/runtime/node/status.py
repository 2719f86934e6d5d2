"""What a process says of itself to whoever asks: `antiphon status` shows it."""

from __future__ import annotations

from antiphon.core import Failures
from antiphon.runtime.net import Port
from antiphon.runtime.net.frames import StatusAnswer
from antiphon.runtime.node.company import Company
from antiphon.runtime.node.datagrams import Datagrams
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.gateway import Gateway
from antiphon.runtime.node.neighbours import Neighbours


class StatusReport:
    """How all parts of a process are doing."""

    def __init__(
        self,
        incarnation: int,
        driver: Driver,
        neighbours: Neighbours,
        company: Company,
        gateway: Gateway,
        port: Port,
        datagrams: Datagrams,
    ) -> None:
        self._incarnation = incarnation
        self._driver = driver
        self._links = neighbours.links
        self._company = company
        self._gateway = gateway
        self._port = port
        self._datagrams = datagrams
        self._counts_durably = False  # one that has taken another's place

    def answer(self) -> StatusAnswer:
        driver, links = self._driver, self._links
        journal, protocol = driver.journal, driver.process.protocol
        view = protocol.present_view()
        return StatusAnswer(
            process=driver.process.me,
            incarnation=self._incarnation,
            begins=driver.delivered.begin,
            delivered=driver.delivered.end,
            delivered_bytes=driver.delivered.bytes_on_disk,
            pending=protocol.pending() + driver.host.held,
            waits_for=self._waits_for(),
            unacknowledged=self._unacknowledged(),
            journal_bytes=journal.bytes_on_disk if journal is not None else 0,
            written_bytes=driver.written_bytes,
            last_sync_ms=round(journal.last_sync_seconds * 1e3, 3) if journal is not None else 0.0,
            disk_seconds=driver.disk_watch.seconds(),
            connected=[link.peer for link in links.values() if link.ready],
            lost={link.peer: link.lost_at for link in links.values() if not link.ready},
            refused=dict(self._port.refused),
            datagrams=self._datagrams.counted(),
            full=driver.is_full,
            returning=list(self._company.awaited()),
            trace=driver.observer.state,
            retain=driver.delivered.complaint,
            draining=self._gateway.draining,
            view=None if view is None else (str(view[0]), list(view[1])),
            counters=protocol.counters(),
            epoch=driver.process.topology.epoch,
            learns=not self._counts(),
        )

    def _counts(self) -> bool:
        """Whether it does, and will after a crash: then another member may be lost. What has yet to begin does not know
        that it takes another's place."""
        driver, process = self._driver, self._driver.process
        has_joined = process.me in process.topology.joined
        if has_joined and driver.is_new and not driver.begun:
            return False
        if has_joined and process.protocol.counts and not self._counts_durably:
            driver.when_durable(self._count)
            return self._counts_durably
        return process.protocol.counts

    def _count(self) -> None:
        self._counts_durably = self._driver.process.protocol.counts

    def _unacknowledged(self) -> int:
        """Where there are views, nothing waits for who is away: nobody delivers anything by what is kept for it."""
        with_views = self._driver.process.with_views
        return sum(link.unacknowledged for link in self._links.values() if link.ready or not with_views)

    def _waits_for(self) -> list[str]:
        """Where a majority is enough, whoever is there and not suspected is not what a message waits for."""
        process, links = self._driver.process, self._links
        named, suspects = process.protocol.waits_for(), process.state.suspects
        if process.protocol.assumes(process.protocol.options).failures is Failures.CRASH_RECOVERY:
            return list(named)
        return [p for p in named if p not in links or p in suspects or not links[p].ready]
