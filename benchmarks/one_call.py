"""One call outstanding, in this version and in another one in turn: to the receipt and to a reader of each group.

    python benchmarks/one_call.py --beside TREE [--protocol skeen] [--groups 1x3] [--messages 1000] [--repeat 5]

Each turn starts a cluster of its own, with the same options, in a process that has loaded that version. Milliseconds
are medians over a turn's calls; the processor time is that of client, members and reader together. What counts is the
ratio of the medians over the turns: a machine that others use is slow for both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

HERE = Path(__file__).resolve().parents[1]
PAYLOAD = b"x" * 100
FIGURES = ("receipt p50", "receipt p99", "reader p50", "reader p99", "CPU ms a call")


# One turn, in a process that has loaded one version -----------------------------------------------------------------


async def calls(connect: Any, folder: Path, groups: list[str], samples: int) -> tuple[list[float], list[float]]:
    to_receipt: list[float] = []
    to_reader: list[float] = []
    async with connect(folder, name="bench") as client:
        readers = [aiter(client.subscribe(group)) for group in groups]
        for _ in range(samples + samples // 10):
            begun = time.perf_counter()
            deliveries = [asyncio.ensure_future(anext(reader)) for reader in readers]
            await client.multicast(groups, PAYLOAD)
            to_receipt.append((time.perf_counter() - begun) * 1e3)
            await asyncio.gather(*deliveries)
            to_reader.append((time.perf_counter() - begun) * 1e3)
        for reader in readers:
            await reader.aclose()
    return to_receipt[samples // 10 :], to_reader[samples // 10 :]


def members_of(folder: Path) -> list[int]:
    """The processes whose command line names this folder: every version has that in common."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            named = str(folder).encode() in entry.read_bytes()
        except OSError:  # it has ended since
            continue
        if named:
            found.append(int(entry.parent.name))
    return found


def processor_seconds(processes: list[int]) -> float:
    """Of these processes so far, and of this one."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime
    for pid in processes:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def one_turn(protocol: str, groups: str, samples: int) -> list[float]:
    """FIGURES, of the version that this process has loaded."""
    import uvloop

    from antiphon.runtime import cluster

    try:
        from antiphon.client import connect
    except ImportError:  # 0.1 has it elsewhere
        from antiphon.runtime.client import connect  # type: ignore[import-not-found, no-redef]

    count, size = (int(number) for number in groups.split("x"))
    names = [f"g{index}" for index in range(1, count + 1)]
    with tempfile.TemporaryDirectory(prefix="antiphon-one-call-") as temporary:
        folder = cluster.create(Path(temporary) / "c", dict.fromkeys(names, size), protocol=protocol, trace=False)
        cluster.start(folder)
        try:
            pids = members_of(folder.path)
            before = processor_seconds(pids)
            to_receipt, to_reader = uvloop.run(calls(connect, folder.path, names, samples))
            taken = processor_seconds(pids) - before
        finally:
            cluster.stop(folder)
    percentiles = [value for times in (to_receipt, to_reader) for value in (median(times), quantiles(times, n=100)[98])]
    return [*percentiles, taken * 1e3 / (samples + samples // 10)]


# Both in turn -------------------------------------------------------------------------------------------------------


def turn_apart(tree: Path, arguments: argparse.Namespace) -> list[float]:
    options = ["--protocol", arguments.protocol, "--groups", arguments.groups, "--messages", str(arguments.messages)]
    command = [sys.executable, __file__, "--once", *options]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: a turn failed.\n{done.stderr}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="TREE", help="the folder of another version's repository")
    parser.add_argument("--protocol", default="skeen")
    parser.add_argument("--groups", default="1x3", help="how many groups of how many members")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(one_turn(arguments.protocol, arguments.groups, arguments.messages)))
        return
    if arguments.beside is None or not (arguments.beside / "src" / "antiphon").is_dir():
        parser.error("--beside names the folder of another version's repository")
    trees = {"there": arguments.beside.resolve(), "here": HERE}
    turns: dict[str, list[list[float]]] = {name: [] for name in trees}
    for _ in range(arguments.repeat):
        for name, tree in trees.items():
            turns[name].append(turn_apart(tree, arguments))
    middles = {name: [median(column) for column in zip(*found, strict=True)] for name, found in turns.items()}
    print(f"{arguments.protocol} {arguments.groups}, one call outstanding, medians of {arguments.repeat} turns (ms)")
    print(f"{'':14} {'there':>8} {'here':>8} {'ratio':>7}  {'ratio of the best':>17}")
    for index, figure in enumerate(FIGURES):
        there, here = middles["there"][index], middles["here"][index]
        best = min(turn[index] for turn in turns["here"]) / min(turn[index] for turn in turns["there"])
        print(f"{figure:14} {there:8.3f} {here:8.3f} {here / there:7.2f}  {best:17.2f}")


if __name__ == "__main__":
    main()
