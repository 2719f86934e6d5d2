"""Do groups that have nothing to do with one another cost each other anything?

    python benchmarks/disjoint.py [--protocol primcast] [--groups 1 2 4 8] [--rate 4000] [--batch 100] [--seconds 5]

One cluster of as many groups of three. Each group has a client and a reader of its own, and as many payloads a second,
whatever the number of groups; so what a member spends on one payload should not depend on it. Printed: the processor
time of a member for each payload of its group (the mean, and that of the group where it is greatest), beside it that
of the first row, and the rate that the slowest group had.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from antiphon.bench import ClusterFigures, ClusterLoad, measure
from antiphon.bench.cluster import running


def run(protocol: str, count: int, load: ClusterLoad) -> list[ClusterFigures]:
    groups = {f"g{i}": 3 for i in range(1, count + 1)}
    with (
        tempfile.TemporaryDirectory(prefix="antiphon-bench-") as temporary,
        running(Path(temporary) / "cluster", groups, protocol=protocol) as folder,
        ThreadPoolExecutor(count) as pool,
    ):
        loads = [pool.submit(measure, folder, load, to=[group]) for group in groups]
        return [each.result() for each in loads]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="primcast")
    parser.add_argument("--groups", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--rate", type=float, default=4000.0, help="payloads a second to each group")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    load = ClusterLoad(batch=arguments.batch, rate=arguments.rate, seconds=arguments.seconds)
    print(
        "| groups | us of a member for each payload | of the worst group | beside the first row | slowest, a second |"
    )
    print("| --- | --- | --- | --- | --- |")
    first = None
    for count in arguments.groups:
        found = run(arguments.protocol, count, load)
        spent = [each.cpu_us_per_message["member"] for each in found]
        mean = statistics.fmean(spent)
        first = first or mean
        slowest = min(each.messages_per_second for each in found)
        print(f"| {count} | {mean:.2f} | {max(spent):.2f} | {mean / first:.2f} | {slowest:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
