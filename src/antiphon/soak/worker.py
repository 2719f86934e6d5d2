"""A client of the soak, as a process of its own: multicasts all the time, and writes down what it was told.

Told to end (SIGTERM), it finishes what is under way and then sends once more on each of its routes: that is what a
client whose routes are all alive can do. Exit code 1 says that one of them is not.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

import msgspec
import uvloop

from antiphon.client import Client, connect
from antiphon.core.errors import AntiphonError, OutcomeUnknown, Unavailable
from antiphon.soak.records import RecordLine, RecordWriter, payload_of

SENDERS = 2  # per route
TIMEOUTS_SECONDS = (0.3, 2.0, 10.0)  # of a multicast: some give up soon
LEAVES_ONE_IN = 50  # callers that do not wait for an answer
LEAVE_SECONDS = 0.002
LAST_SECONDS = 30.0  # for the last one on each route, on a cluster that is well
BATCH_MAX = 8  # payloads of one multicast_many
EXIT_WEDGED = 1


class ClientTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is told at its start, as JSON."""

    target: str
    name: str
    routes: list[tuple[str, ...]]
    tag: str = ""  # of this life of it: its payloads carry it
    record: str = ""
    pause_seconds: float  # between two multicasts of one sender, on average
    timeouts: tuple[float, ...] = TIMEOUTS_SECONDS
    last_seconds: float = LAST_SECONDS


class ClientLife:
    def __init__(self, task: ClientTask) -> None:
        self._task = task
        self._record = RecordWriter(Path(task.record))
        self._serials = count()
        self._random = random.Random(task.tag)
        self._ending = asyncio.Event()

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ending.set)
        async with connect(self._task.target, name=self._task.name) as client:
            await asyncio.gather(*(self._keep_sending(client, r) for r in self._task.routes for _ in range(SENDERS)))
            last = await asyncio.gather(*(self._send(client, r, 1, self._task.last_seconds) for r in self._task.routes))
        return 0 if all(last) else EXIT_WEDGED

    async def _keep_sending(self, client: Client, route: tuple[str, ...]) -> None:
        while not self._ending.is_set():
            amount, timeout = self._random.choice((1, 1, 1, BATCH_MAX)), self._random.choice(self._task.timeouts)
            leaves = self._random.randrange(LEAVES_ONE_IN) == 0
            await self._send(client, route, amount, timeout, LEAVE_SECONDS if leaves else None)
            await asyncio.sleep(self._random.uniform(0.0, 2 * self._task.pause_seconds))

    async def _send(
        self, client: Client, route: tuple[str, ...], amount: int, timeout: float, leave: float | None = None
    ) -> bool:
        """Serials and the client's own numbers grow together on each route: nothing is awaited in between."""
        serials = [next(self._serials) for _ in range(amount)]
        payloads = [payload_of(self._task.tag, serial) for serial in serials]
        try:
            async with asyncio.timeout(leave):
                if amount == 1:
                    receipt = await client.multicast(route, payloads[0], timeout=timeout)
                else:
                    receipt = await client.multicast_many(route, payloads, timeout=timeout)
        except (Unavailable, OutcomeUnknown, TimeoutError):
            self._record.write(RecordLine(time.monotonic(), route, serials[0], amount))
            return False
        self._record.write(
            RecordLine(time.monotonic(), receipt.destinations, serials[0], amount, receipt.client, receipt.number)
        )
        return True


async def _run(task: ClientTask) -> int:
    return await ClientLife(task).run()


def main() -> int:
    try:
        return uvloop.run(_run(msgspec.json.decode(sys.argv[1], type=ClientTask)))
    except AntiphonError as error:
        print(f"A client of the soak ends: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
