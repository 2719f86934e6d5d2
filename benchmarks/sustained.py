"""Does memory stay flat? A cluster under a steady load, half of its peak rate, for as long as one likes.

    python benchmarks/sustained.py [--protocol primcast] [--groups 1x3] [--minutes 10] [--share 0.5 | --rate 20000] \
        [--retain 256MB] [--json out.json]

First the peak rate is measured, in five seconds; then the load is a share of it. Printed, thirty times: the resident
memory of the largest member, of the client and of the largest reader, in MiB, and, of the members' disks, the largest
delivered log and the largest journal. At the end the second half of that is compared with the first: it is flat when
its largest is at most a tenth, or 8 MiB, above the first half's. Exit code 1: something grows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from antiphon.bench import ClusterLoad, measure
from antiphon.bench.cluster import running
from antiphon.core import parse_groups
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

LOOKS = 30
MIB = 1 << 20
GROWTH_MAX, GROWTH_MIB_MAX = 1.1, 8.0
COLUMNS = ("second", "member MiB", "client MiB", "reader MiB", "log MiB", "journal MiB", "delivered")


def resident_mib(pid: int | str) -> float:
    """The memory that a process holds; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def workers(role: str) -> list[str]:
    """The load's processes: children of this one that have this role."""
    own = Path(f"/proc/{os.getpid()}/task")
    children = [child for task in own.iterdir() for child in (task / "children").read_text().split()]
    wanted = f'"role":"{role}"'.encode()
    return [child for child in children if wanted in Path(f"/proc/{child}/cmdline").read_bytes()]


class Watch:
    """Looks at all processes now and then, and prints what it sees."""

    def __init__(self, folder: ClusterFolder, seconds: float) -> None:
        self.rows: list[dict[str, float]] = []
        self._folder = folder
        self._seconds = seconds

    def __call__(self, begin: float) -> None:
        print("".join(f"{name:>13}" for name in COLUMNS), flush=True)
        for look in range(LOOKS):
            time.sleep(max(0.0, begin + self._seconds * look / LOOKS - time.monotonic()))
            self.rows.append(self._look(time.monotonic() - begin))
            print("".join(f"{value:13,.1f}" for value in self.rows[-1].values()), flush=True)

    def _look(self, second: float) -> dict[str, float]:
        members = [pid for pid in cluster.alive(self._folder).values() if pid is not None]
        statuses = [status for status in cluster.statuses(self._folder).values() if status is not None]
        seen = (
            second,
            max(map(resident_mib, members)),
            max(map(resident_mib, workers("client")), default=0.0),
            max(map(resident_mib, workers("reader")), default=0.0),
            max(status.delivered_bytes for status in statuses) / MIB,
            max(status.journal_bytes for status in statuses) / MIB,
            max(status.delivered for status in statuses),
        )
        return dict(zip(COLUMNS, seen, strict=True))


def grown(rows: list[dict[str, float]], name: str) -> tuple[float, float, bool]:
    """The largest of the first half (after a fifth of it, in which all fills up) and of the second; whether it grew."""
    half = len(rows) // 2
    first = max(row[name] for row in rows[half // 5 : half])
    second = max(row[name] for row in rows[half:])
    return first, second, second > first * GROWTH_MAX and second > first + GROWTH_MIB_MAX


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="primcast")
    parser.add_argument("--groups", default="1x3")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--share", type=float, default=0.5, help="of the peak rate")
    parser.add_argument("--rate", type=float, help="payloads a second, instead")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--retain", default="256MB")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seconds = arguments.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="antiphon-sustained-") as temporary,
        running(
            Path(temporary) / "cluster",
            parse_groups(arguments.groups),
            protocol=arguments.protocol,
            retain=[arguments.retain],
        ) as folder,
    ):
        rate = arguments.rate
        if rate is None:
            peak = measure(folder, ClusterLoad(batch=arguments.batch, size=arguments.size)).messages_per_second
            rate = peak * arguments.share
            print(f"peak {peak:,.0f} messages a second; now {rate:,.0f} for {arguments.minutes:g} minutes")
        watch = Watch(folder, seconds)
        load = ClusterLoad(batch=arguments.batch, size=arguments.size, seconds=seconds, rate=rate)
        measured = measure(folder, load, watch)
    print(f"{measured.messages_per_second:,.0f} messages a second at the slowest reader, {measured.latency_ms}")
    has_grown = False
    for name in COLUMNS[1:5]:
        first, second, is_more = grown(watch.rows, name)
        has_grown |= is_more
        verdict = "it grows" if is_more else "flat"
        print(f"{name:>12}: {first:,.1f} at most in the first half, {second:,.1f} in the second: {verdict}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rate": rate, "rows": watch.rows}, indent=1))
    return 1 if has_grown else 0


if __name__ == "__main__":
    raise SystemExit(main())
