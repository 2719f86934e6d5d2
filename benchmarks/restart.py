"""How long a process that was killed takes until it serves again, after a million payloads.

    python benchmarks/restart.py [--protocol primcast] [--payloads 1000000] [--batch 100] [--batch 1]

One group of three; a client sends so many payloads, in requests of so many; then one member is killed with `kill -9`
and started again, three times. What is measured is from the start of the new process until it listens: Python and its
modules, the check of all that is on disk, the snapshot, the replay.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import uvloop

from antiphon.client import connect
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

OUTSTANDING = 2000
RESTARTS = 3


async def send(folder: ClusterFolder, payloads: int, batch: int) -> None:
    request, left = [bytes(100)] * batch, payloads // batch

    async def keep_sending() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.multicast_many(("g1",), request, timeout=120)

    async with connect(folder.path, name="restart") as client:
        await asyncio.gather(*(keep_sending() for _ in range(min(OUTSTANDING, 200_000 // batch))))


def measure(protocol: str, payloads: int, batch: int) -> tuple[list[float], list[float]]:
    """Seconds until the member listens: as it was killed; and after a clean stop."""
    with tempfile.TemporaryDirectory(prefix="antiphon-restart-", dir=Path.cwd()) as temporary:
        folder = cluster.create(Path(temporary) / "cluster", {"g1": 3}, protocol=protocol, trace=False)
        cluster.start(folder)
        try:
            uvloop.run(send(folder, payloads, batch))
            cluster.wait_idle(folder, 60)
            killed = [_restart(folder, "g1.2") for _ in range(RESTARTS)]
            cluster.wait_idle(folder, 60)
        finally:
            cluster.stop(folder)
        begun = time.monotonic()
        cluster.start(folder, ["g1.2"])
        clean = [time.monotonic() - begun]
        cluster.stop(folder)
    return killed, clean


def _restart(folder: ClusterFolder, process: str) -> float:
    cluster.kill(folder, process)
    begun = time.monotonic()
    cluster.start(folder, [process])
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="primcast")
    parser.add_argument("--payloads", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, action="append")
    arguments = parser.parse_args()
    for batch in arguments.batch or [100, 1]:
        killed, clean = measure(arguments.protocol, arguments.payloads, batch)
        times = ", ".join(f"{seconds:.2f}" for seconds in killed)
        print(
            f"{arguments.protocol}, {arguments.payloads:,} payloads in batches of {batch}: listens {times} s after "
            f"kill -9, {clean[0]:.2f} s after a clean stop",
            flush=True,
        )


if __name__ == "__main__":
    main()
