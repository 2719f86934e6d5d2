"""The soak's clients: started, killed and started anew, looked after through their records, and ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

import msgspec

from antiphon.soak.records import RecordLine, RecordReader
from antiphon.soak.stage import RouteGroups
from antiphon.soak.worker import EXIT_WEDGED, LAST_SECONDS, TIMEOUTS_SECONDS, ClientTask

RECEIPTS_LOOK_SECONDS = 0.05
ENDED_WITHIN_SECONDS = max(TIMEOUTS_SECONDS) + LAST_SECONDS + 5.0


class LoadClient:
    """One client over all its lives. Each life has a record, and is an identity of its own to the cluster."""

    def __init__(self, task: ClientTask, records: Path) -> None:
        """``task``: what each life of it is told, but for its tag and its record."""
        self.name = task.name
        self.receipts: dict[str, list[RecordLine]] = {}  # by the tag of the life
        self.unknown = 0
        self._task = task
        self._records = records
        self._life = 0
        self._heard: dict[RouteGroups, float] = {}  # when each route last got a receipt
        self._reader: RecordReader
        self._process: subprocess.Popen[bytes]
        self._tag = ""

    def start(self) -> None:
        tag = f"{self.name}.{self._life}"
        self._life += 1
        path = self._records / tag
        self.read(path, tag)
        task = msgspec.structs.replace(self._task, tag=tag, record=str(path))
        with (self._records / f"{self._tag}.log").open("wb") as log:
            command = [sys.executable, "-m", "antiphon.soak.worker", msgspec.json.encode(task).decode()]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def read(self, record: Path, tag: str) -> None:
        """Hear of the client through this record from now on."""
        self._tag = tag
        self.receipts[tag] = []
        self._reader = RecordReader(record)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.look()

    def look(self) -> None:
        """Read what the client has written since."""
        receipts = self.receipts[self._tag]
        for line in self._reader.news():
            if line.client:
                receipts.append(line)
                self._heard[line.destinations] = line.at
            else:
                self.unknown += line.count

    def silent_routes(self, since: float) -> list[RouteGroups]:
        """The routes on which it has had no receipt since then."""
        self.look()
        return [route for route in self._task.routes if self._heard.get(route, 0.0) <= since]

    def tell_to_end(self) -> None:
        self._process.terminate()

    def complaint(self, deadline: float) -> str | None:
        """Wait for its end; a sentence if it is wedged: if it could not send on every route once more."""
        try:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self._tag} did not end within {ENDED_WITHIN_SECONDS:.0f} s."
        self.look()
        if code == EXIT_WEDGED:
            return f"{self._tag} could not send once more on each of its routes, on a cluster that is well."
        if code != 0:
            words = (self._records / f"{self._tag}.log").read_text(errors="replace").strip().splitlines()
            return f"{self._tag} ended with exit code {code}: {words[-1] if words else 'it printed nothing'}"
        return None


async def wait_for_receipts(
    clients: Iterable[LoadClient], since: float, patience: float, known: Set[tuple[str, RouteGroups]]
) -> set[tuple[str, RouteGroups]]:
    """Wait until each client has had a receipt on each route since then, but for ``known``; returns where none came."""
    wanted = list(clients)
    deadline = time.monotonic() + patience
    while True:
        silent = {(client.name, route) for client in wanted for route in client.silent_routes(since)} - known
        if not silent or time.monotonic() > deadline:
            return silent
        await asyncio.sleep(RECEIPTS_LOOK_SECONDS)


def all_receipts(clients: Sequence[LoadClient]) -> Mapping[str, list[RecordLine]]:
    return {tag: receipts for client in clients for tag, receipts in client.receipts.items()}
