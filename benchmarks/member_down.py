"""What callers and members pay while a member of a group is away: one group of three, batches of 100, at full rate.

    python benchmarks/member_down.py [--seconds 4] [--rounds 3] [-o kept=BYTES]

First all three are there, then one is stopped (SIGSTOP), then it is back for a few seconds. What it lacks is handed
over into the channel to it (docs/protocols/retention.md, K8), which the disk keeps. Memory is the largest member's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from antiphon.core import parse_groups
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

CATCH_UP_SECONDS = 6.0


def load(folder: ClusterFolder, seconds: float) -> tuple[float, float, float]:
    """Payloads a second, the 99th percentile to the receipt in ms, bytes written for each payload byte."""
    command = [sys.executable, "-m", "antiphon", "bench", "cluster", "--dir", str(folder.path), "--batch", "100"]
    done = subprocess.run([*command, "--seconds", str(seconds), "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found["messages_per_second"], found["receipt_ms"]["p99"], found["bytes_written_per_payload_byte"]


def largest_mib(pids: list[int]) -> float:
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return max(int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) / 1024 for text in texts)


def show(when: str, folder: ClusterFolder, seconds: float, rounds: int) -> None:
    rate, p99, written = (
        median(figures) for figures in zip(*(load(folder, seconds) for _ in range(rounds)), strict=True)
    )
    pids = [pid for pid in cluster.alive(folder).values() if pid is not None]
    print(f"{when:12} {rate:12,.0f} {p99:10.1f} {written:12.2f} {largest_mib(pids):10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    options = dict(each.split("=", 1) for each in arguments.option)
    with tempfile.TemporaryDirectory(prefix="antiphon-away-", dir=Path.cwd()) as temporary:
        folder = cluster.create(Path(temporary) / "c", parse_groups("g=3"), options=options, trace=False)
        cluster.start(folder)
        try:
            print(f"{'':12} {'payloads/s':>12} {'p99, ms':>10} {'written':>12} {'MiB':>10}")
            show("all there", folder, arguments.seconds, arguments.rounds)
            away = cluster.alive(folder)[folder.config.known("g.3")]
            assert away is not None
            os.kill(away, signal.SIGSTOP)
            time.sleep(1)
            show("one away", folder, arguments.seconds, arguments.rounds)
            os.kill(away, signal.SIGCONT)
            time.sleep(CATCH_UP_SECONDS)
            show("it is back", folder, arguments.seconds, 1)
        finally:
            cluster.end(folder, drain_seconds=0.2)


if __name__ == "__main__":
    main()
