"""Kill -9 of any process at any moment, under load: nothing lost, doubled or out of order, and delivery goes on.

    python benchmarks/kills.py --kills 50 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import msgspec
import uvloop

from antiphon.checks import check_run
from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.client import Client, connect
from antiphon.runtime.folder import ClusterFolder
from antiphon.runtime.frames import DeliveredRecord, decode
from antiphon.runtime.journal import Journal, JournalIdentity
from antiphon.runtime.node import CODE
from antiphon.trace import read_facts, read_rows

OUTSTANDING = 64  # per client
RECOVERY_SECONDS_MAX = 5.0


@dataclass
class Report:
    kills: int = 0
    messages: int = 0
    retries_ended_unknown: int = 0
    recovery_seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    drained: bool = False


class Load:
    """Clients that multicast all the time, and remember what they were promised."""

    def __init__(self, folder: ClusterFolder, clients: int, seed: int) -> None:
        self.folder = folder
        self.sent: dict[bytes, frozenset[str]] = {}
        self.receipts: dict[str, tuple[bytes, frozenset[str]]] = {}
        self.unknown: set[bytes] = set()
        self.stopping = False
        self._clients = clients
        self._random = random.Random(seed)
        self._groups = list(folder.config.groups)

    async def run(self) -> None:
        await asyncio.gather(*(self._client(i) for i in range(self._clients)))

    async def _client(self, index: int) -> None:
        async with connect(self.folder.path, name=f"load{index}") as client:
            await asyncio.gather(*(self._sender(client, f"{index}.{i}") for i in range(OUTSTANDING)))

    async def _sender(self, client: Client, name: str) -> None:
        number = 0
        while not self.stopping:
            wanted = frozenset(self._random.sample(self._groups, self._random.randint(1, len(self._groups))))
            payload = f"{name}.{number}".encode().ljust(100, b".")
            number += 1
            self.sent[payload] = wanted
            try:
                receipt = await client.multicast(wanted, payload, timeout=60)
            except AntiphonError:
                self.unknown.add(payload)
                continue
            self.receipts[receipt.name] = (payload, wanted)


async def probe(client: Client, folder: ClusterFolder, number: int) -> float:
    """Multicast to all groups; returns after how many seconds every group has delivered it."""
    groups = list(folder.config.groups)
    begun = time.monotonic()
    receipt = await client.multicast(groups, f"probe {number}".encode(), timeout=30)
    await asyncio.gather(*(_seen(client, group, receipt.name) for group in groups))
    return time.monotonic() - begun


async def _seen(client: Client, group: str, name: str) -> None:
    ends = [status.delivered for status in await asyncio.to_thread(_delivered, client, group)]
    start = max(0, min(ends, default=0) - 20_000)
    async with client.subscribe(group, start=start) as deliveries:
        async for delivery in deliveries:
            if delivery.name == name:
                return


def _delivered(client: Client, group: str) -> list[_End]:
    return []


@dataclass
class _End:
    delivered: int


def read_log(folder: ClusterFolder, process: str) -> list[DeliveredRecord]:
    """What a stopped process delivered."""
    identity = JournalIdentity(folder.config.cluster, process, CODE)
    log = Journal.open(folder.process(process).delivered, identity, segment_bytes=folder.config.segment_bytes)
    try:
        return [decode(DeliveredRecord, record) for _, record in log.replay(0)]
    finally:
        log.abandon()
