"""What ordering costs: the classic protocols in batches of 100, in one group of 3, 5 and 9 processes.

    python benchmarks/ordering_cost.py [--seconds 4] [--journal/--no-journal] [PROTOCOL[:OPTION=VALUE,...] ...]

Each cell is `antiphon bench cluster --protocol P --groups 1xN`: payloads of 100 bytes a second, delivered in order at a
reader; beside it the processor time of all members together for one of them, which does not depend on how many cores
the machine has. `fifo` orders nothing between senders: it is what a group costs without agreement on an order.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from antiphon.bench import ClusterFigures, ClusterLoad, measure
from antiphon.bench.cluster import running

SIZES = (3, 5, 9)
PROTOCOLS = ("fifo", "sequencer", "sequencer:variant=broadcast", "token", "symmetric", "skeen", "tom")
LOAD = {"batch": 100, "size": 100, "outstanding": 40}


def run(protocol: str, size: int, seconds: float, *, journal: bool) -> ClusterFigures:
    name, _, options = protocol.partition(":")
    load = ClusterLoad(**LOAD, seconds=seconds)
    with (
        tempfile.TemporaryDirectory(prefix="antiphon-bench-") as temporary,
        running(
            Path(temporary) / "cluster",
            {"g1": size},
            protocol=name,
            options=dict(pair.split("=", 1) for pair in options.split(",") if pair),
            journal=journal,
        ) as folder,
    ):
        return measure(folder, load)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocols", nargs="*", default=PROTOCOLS)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--journal", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    print(f"| protocol | {' | '.join(f'n = {size}' for size in SIZES)} |")
    print(f"| --- |{' --- |' * len(SIZES)}")
    for protocol in arguments.protocols:
        cells = []
        for size in SIZES:
            found = run(protocol, size, arguments.seconds, journal=arguments.journal)
            spent = found.cpu_us_per_message["member"] * size
            cells.append(f"{found.messages_per_second:,.0f} a second, {spent:.1f} µs")
        print(f"| {protocol.replace(':', ' ')} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
