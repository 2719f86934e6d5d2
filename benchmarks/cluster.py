"""The speed of a cluster of real processes on this machine, for messages of 100 bytes.

    python benchmarks/cluster.py [--messages 20000] [--trace]

Throughput: one client with many multicasts outstanding, until every member has delivered everything.
Latency: one multicast outstanding, from the call to the receipt, and to its delivery at a subscriber of each group.
All processes and the client share this machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from antiphon.runtime import cluster
from antiphon.runtime.client import Client, connect
from antiphon.runtime.folder import ClusterFolder

PAYLOAD = b"x" * 100
OUTSTANDING = 2000
LATENCY_SAMPLES = 500


async def throughput(client: Client, folder: ClusterFolder, messages: int) -> float:
    """Messages a second, delivered by all members of all destination groups."""
    groups = list(folder.config.groups)
    left = iter(range(messages))

    async def sender() -> None:
        for _ in left:
            await client.multicast(groups, PAYLOAD)

    before = min(status.delivered for status in cluster.statuses(folder).values() if status is not None)
    begun = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(OUTSTANDING)))
    while True:
        ends = [status.delivered for status in cluster.statuses(folder).values() if status is not None]
        if len(ends) == len(folder.config.processes) and min(ends) >= before + messages:
            return messages / (time.perf_counter() - begun)
        await asyncio.sleep(0.01)


async def latency(client: Client, folder: ClusterFolder, samples: int) -> tuple[list[float], list[float]]:
    """Milliseconds to the receipt, and to the delivery in all groups."""
    groups = list(folder.config.groups)
    ends = cluster.statuses(folder)
    readers = []
    for group, members in folder.config.groups.items():
        status = ends[folder.config.known(members[0])]
        assert status is not None
        readers.append(client.subscribe(group, start=status.delivered))
    to_receipt: list[float] = []
    to_delivery: list[float] = []
    for _ in range(samples):
        begun = time.perf_counter()
        deliveries = [asyncio.ensure_future(anext(reader)) for reader in readers]
        await client.multicast(groups, PAYLOAD)
        to_receipt.append((time.perf_counter() - begun) * 1e3)
        await asyncio.gather(*deliveries)
        to_delivery.append((time.perf_counter() - begun) * 1e3)
    for reader in readers:
        await reader.aclose()
    return to_receipt[samples // 10 :], to_delivery[samples // 10 :]


async def measure(folder: ClusterFolder, messages: int) -> tuple[float, list[float], list[float]]:
    async with connect(folder.path, name="bench") as client:
        await throughput(client, folder, messages // 10)
        rate = await throughput(client, folder, messages)
        return rate, *await latency(client, folder, LATENCY_SAMPLES)


def spread(values: Sequence[float]) -> str:
    percentile = statistics.quantiles(values, n=100)[98]
    return f"{statistics.median(values):6.2f} (p99 {percentile:6.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--protocol", default="skeen")
    parser.add_argument("--trace", action="store_true", help="with the trace on")
    arguments = parser.parse_args()
    print(f"{arguments.protocol}, groups of 3, {os.cpu_count()} cores, trace {'on' if arguments.trace else 'off'}")
    print("groups  journal  messages/s   receipt ms            delivery ms")
    for groups in (1, 2):
        for journal in (True, False):
            with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as temporary:
                sizes = {f"g{i}": 3 for i in range(1, groups + 1)}
                folder = cluster.create(
                    Path(temporary) / "cluster",
                    sizes,
                    protocol=arguments.protocol,
                    journal=journal,
                    trace=arguments.trace,
                )
                cluster.start(folder)
                try:
                    rate, to_receipt, to_delivery = uvloop.run(measure(folder, arguments.messages))
                finally:
                    cluster.stop(folder)
            name = "on" if journal else "off"
            print(f"{groups:6}  {name:7}  {rate:10,.0f}   {spread(to_receipt)}   {spread(to_delivery)}", flush=True)


if __name__ == "__main__":
    main()
