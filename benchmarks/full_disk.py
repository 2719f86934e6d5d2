"""A disk that is really full: does a cluster refuse new work, keep what it acknowledged, and go on when there is room?

    truncate -s 1000M disk.img && mkfs.ext4 -q -F disk.img && mkdir -p small && sudo mount -o loop disk.img small
    python benchmarks/full_disk.py small [--protocol primcast] [--retain 100MB] [--kill]

All three processes of a group are on this one small disk, together with a file that takes 40 per cent of it. A client
sends until it is refused 60 times; with --kill, all processes are killed and started again then. The file is removed,
and the client sends some more. Exit code 1: a process ended by itself or did not go on, something acknowledged was not
delivered once and in its client's order (of what is still kept), or nothing more was taken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import antiphon
from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

GROUP = "g"
BATCH, SIZE, SENDERS = 50, 1000, 20
REFUSALS, FILL_SECONDS, MORE_SECONDS, ROOM_SECONDS = 60, 120.0, 20.0, 8.0


async def send(
    folder: ClusterFolder, seconds: float, refusals: int, most: int
) -> tuple[list[antiphon.Receipt], Counter[str]]:
    """What was acknowledged, and what went wrong how often."""
    receipts: list[antiphon.Receipt] = []
    errors: Counter[str] = Counter()
    until = time.monotonic() + seconds

    async def keep_sending(client: antiphon.Client) -> None:
        while time.monotonic() < until and errors.total() < refusals and len(receipts) < most:
            try:
                receipts.append(await client.multicast_many({GROUP}, [bytes(SIZE)] * BATCH, timeout=4.0))
            except AntiphonError as error:
                errors[type(error).__name__] += 1

    async with antiphon.connect(folder.path) as client:
        await asyncio.gather(*(keep_sending(client) for _ in range(SENDERS)))
    return receipts, errors


async def read(folder: ClusterFolder) -> tuple[int, dict[str, list[int]]]:
    """Where the log begins, and the numbers of each client's payloads in it."""
    first, numbers = -1, dict[str, list[int]]()
    async with antiphon.connect(folder.path) as client:
        async for delivery in client.subscribe(GROUP, start="earliest", follow=False):
            first = delivery.position if first < 0 else first
            numbers.setdefault(delivery.client, []).append(delivery.number)
    return first, numbers


def look(folder: ClusterFolder, what: str) -> None:
    free = shutil.disk_usage(folder.path).free >> 20
    print(f"{what}: {free} MiB are free")
    for process, status in cluster.statuses(folder).items():
        if status is None:
            print(f"  {process} does not answer")
            continue
        state = "full" if status.full else "takes requests"
        kept = f"positions {status.begins} to {status.delivered} in {status.delivered_bytes >> 20} MiB"
        print(f"  {process} {state}, {kept}, journal {status.journal_bytes >> 20} MiB")


def missing(receipts: list[antiphon.Receipt], first: int, numbers: dict[str, list[int]]) -> int:
    """How many of the acknowledged requests are not there once and in order, of those that may not have been let go."""
    lost = 0
    for client, found in numbers.items():
        if found != list(range(found[0], found[0] + len(found))):
            print(f"the payloads of {client} are not there once and in order")
            lost += 1
    for receipt in receipts:
        found = numbers.get(receipt.client, [])
        begins, ends = (found[0], found[-1] + 1) if found else (0, 0)
        was_let_go = first > 0 and (not found or receipt.number < begins)
        if not was_let_go and not begins <= receipt.number < receipt.number + receipt.count <= ends:
            lost += 1
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("disk", type=Path, help="a folder on a small file system, such as a loop mount")
    parser.add_argument("--protocol", default="primcast")
    parser.add_argument("--retain", default="all")
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    path, ballast = arguments.disk / "cluster", arguments.disk / "ballast"
    shutil.rmtree(path, ignore_errors=True)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(arguments.disk).free * 2 // 5)
    settings = {"protocol": arguments.protocol, "retain": [arguments.retain], "snapshot_bytes": 64 << 20}
    folder = cluster.create(path, {GROUP: 3}, trace=False, **settings)
    cluster.start(folder)
    try:
        receipts, errors = asyncio.run(send(folder, FILL_SECONDS, REFUSALS, 1 << 30))
        print(f"{len(receipts)} requests were acknowledged, and then {dict(errors)}")
        look(folder, "full")
        dead = [process for process, pid in cluster.alive(folder).items() if pid is None]
        if arguments.kill:
            for process in folder.config.processes:
                cluster.kill(folder, process)
            try:
                cluster.start(folder)
            except AntiphonError as error:
                print(f"started on the full disk: {error}")
        ballast.unlink()
        cluster.start(folder)
        time.sleep(ROOM_SECONDS)
        look(folder, "with room again")
        stuck = [process for process, status in cluster.statuses(folder).items() if status is None or status.full]
        more, errors = asyncio.run(send(folder, MORE_SECONDS, REFUSALS, 60))
        print(f"{len(more)} more were acknowledged, {dict(errors)}")
        cluster.wait_idle(folder, 20)
        first, numbers = asyncio.run(read(folder))
        lost = missing(receipts + more, first, numbers)
        print(f"read from position {first} on: {lost} acknowledged requests are missing")
        print(f"ended by themselves: {dead}; did not go on: {stuck}")
        return 1 if lost or dead or stuck or not more else 0
    finally:
        cluster.stop(folder, drain_seconds=2.0)
        shutil.rmtree(path, ignore_errors=True)
        ballast.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
