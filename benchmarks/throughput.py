"""What a cluster reaches beside the ceiling: a bare replicated log in the same language, in the same run.

    python benchmarks/throughput.py [--seconds 4] [--json]

Each row is `antiphon bench cluster` with other words; before and after each the bare log takes the same batches
(`antiphon.bench.replicated_log`), and the ratio is to the mean of both. 100-byte payloads, everything synced, a client
process and a reader process per group. Absolute numbers are noise on a shared machine; a ratio is not.

Members retain 256 MB of what they delivered, as a cluster does that runs for long, so that files are written again;
with ``--retain all`` every file is a new one. (The bare log writes one file of which it keeps all.) "written" is all
that a member writes, for each payload byte: journal, snapshots, delivered log and spilled frames.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from antiphon.bench import ClusterFigures, ClusterLoad, measure
from antiphon.bench.cluster import RETAIN, running
from antiphon.bench.replicated_log import measure as measure_log
from antiphon.core import parse_groups

SIZE = 100


class Case(NamedTuple):
    protocol: str
    groups: str
    batch: int
    outstanding: int


CASES = (
    Case("skeen", "1x3", 100, 40),
    Case("tom", "1x3", 100, 40),
    Case("skeen", "1x3", 100, 160),
    Case("tom", "1x3", 100, 160),
    Case("skeen", "1x3", 1000, 20),
    Case("tom", "1x3", 1000, 20),
    Case("skeen", "2x3", 100, 40),
    Case("tom", "2x3", 100, 40),
    Case("skeen", "1x3", 1, 2000),
    Case("tom", "1x3", 1, 2000),
    Case("skeen", "1x3", 1, 1),
    Case("tom", "1x3", 1, 1),
)


def bare(case: Case, seconds: float) -> float:
    """The bare log, with the same batches; single calls are compared with batches of 100, for the client gathers."""
    outstanding = case.outstanding if case.batch > 1 or case.outstanding == 1 else 40
    batch = case.batch if case.batch > 1 or case.outstanding == 1 else 100
    found = measure_log(batch=batch, size=SIZE, outstanding=outstanding, seconds=seconds)
    return found["messages_per_second"]


def run(case: Case, seconds: float, retain: str) -> ClusterFigures:
    load = ClusterLoad(batch=case.batch, size=SIZE, outstanding=case.outstanding, seconds=seconds)
    with (
        tempfile.TemporaryDirectory(prefix="antiphon-bench-") as temporary,
        running(
            Path(temporary) / "cluster", parse_groups(case.groups), protocol=case.protocol, retain=[retain]
        ) as folder,
    ):
        return measure(folder, load)


def _line(case: Case, found: ClusterFigures, ceiling: float, ratio: float) -> str:
    cpu, latency = found.cpu_us_per_message, found.latency_ms
    return (
        f"{case.protocol:8} {case.groups:6} {case.batch:5} {case.outstanding:6} {found.messages_per_second:10,.0f} "
        f"{ceiling:10,.0f} {ratio:5.2f} {latency.p50:9.2f} {latency.p99:7.1f} "
        f"{found.bytes_written_per_payload_byte:7.2f} client {cpu['client']:.2f} member {cpu['member']:.2f} "
        f"reader {cpu['reader']:.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--retain", default=RETAIN)
    parser.add_argument("--only", help="only the cases of this protocol")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    if not arguments.json:
        print("protocol groups batch outst. messages/s bare log/s ratio    p50 ms  p99 ms written CPU us/message")
    for case in CASES:
        if arguments.only not in (None, case.protocol):
            continue
        before = bare(case, arguments.seconds / 2)
        found = run(case, arguments.seconds, arguments.retain)
        ceiling = (before + bare(case, arguments.seconds / 2)) / 2
        rate = found.messages_per_second
        ratio = rate / ceiling
        rows.append({"case": case._asdict(), "messages_per_second": rate, "bare_per_second": ceiling, "ratio": ratio})
        if not arguments.json:
            print(_line(case, found, ceiling, ratio), flush=True)
    if arguments.json:
        print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
