"""How much of the cores a sweep's tasks use, from first to last. The aim is 85 %; where it is missed, it exits with 1.

    python benchmarks/sweeps.py [--seeds 200] [--no-trace] [--master "local[*]"]

The figure is `used`: the CPU of the workers / (time * cores); they simulate, write the traces and make the figures.
`runs` is that of the simulations alone, `java` what Spark itself takes, `others` what other programs took of the same
cores. Where that is much, a low figure says more of them than of the sweep: `chrt -r 1` before the command lets the
sweep come first. Linux also tells how long each worker waited for a core while it had something to do: `wanted` has
these waits, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from antiphon.pipeline.session import spark_session
from antiphon.sweep.folder import SweepFolder
from antiphon.sweep.rounds import _cores, run_sweep
from antiphon.sweep.spec import parse_spec
from pipeline import tree_seconds

AIM = 0.85
OTHERS_MAX = 0.05

SPEC = """
seeds = "1-{seeds}"
trace = {trace}
[[grid]]
protocol = ["skeen", "tom"]
groups = ["2x3", "3x3"]
fanout = [1, 2]
messages = 200
[[grid]]
protocol = ["skeen", "tom", "arrow", "toto"]
faults = "random"
"""


class Workers:
    """The Python processes of our Spark: what each used, and how long it waited for a core."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}

    def look(self) -> None:
        for path in Path("/proc").glob("[0-9]*/schedstat"):
            try:
                command = (path.parent / "cmdline").read_bytes()
                if (b"pyspark/daemon" in command or b"pyspark.daemon" in command) and is_ours(path.parent):
                    used, waited, _ = map(int, path.read_text().split())
                    self._seen[int(path.parent.name)] = used, waited
            except OSError:
                continue  # it has ended

    def seconds(self) -> tuple[float, float]:
        """What they used, and what they wanted."""
        used = sum(used for used, _ in self._seen.values()) / 1e9
        return used, used + sum(waited for _, waited in self._seen.values()) / 1e9


def is_ours(process: Path) -> bool:
    """Whether this program is above it."""
    while (pid := int(process.name)) not in (0, os.getpid()):
        process = process.with_name((process / "stat").read_text().rpartition(")")[2].split()[1])
    return pid != 0


def busy_seconds() -> float:
    """What all programs of this machine have used."""
    user, nice, system, _, _, *more = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(more)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("--master", default="local[*]")
    arguments = parser.parse_args()
    text = SPEC.format(seeds=arguments.seeds, trace=str(not arguments.no_trace).lower())
    sweep = parse_spec(text, "the sweep")
    spark = spark_session("sweeps", rows=1_000_000, master=arguments.master)
    cores = _cores(spark)
    workers = Workers()
    workers.look()
    before, busy, ours = workers.seconds(), busy_seconds(), tree_seconds(os.getpid())
    with tempfile.TemporaryDirectory() as out:
        folder = SweepFolder.prepare(Path(out) / "sweep", sweep, text)
        start = time.monotonic()
        run_sweep(spark, sweep, folder, lambda _: workers.look())
        seconds = time.monotonic() - start
        busy, ours = busy_seconds() - busy, tree_seconds(os.getpid()) - ours
        table = folder.figures(["cpu_seconds", "error"])
        files = [path.stem.split("-") for path in folder.trace.glob("events/*.parquet")]
    runs, cpu = table["cpu_seconds"].to_pylist(), sum(table["cpu_seconds"].to_pylist())
    tasks = [sum(runs[int(first) : int(last) + 1]) for first, last in files]
    used, wanted = (now - then for now, then in zip(workers.seconds(), before, strict=True))
    print(f"{len(runs):,} runs, {len(runs) - table['error'].null_count} failed, {cores} cores, {seconds:.0f} s")
    print(f"{len(tasks)} tasks, of {median(tasks or [0]):.2f} s CPU (median), {max(tasks, default=0):.2f} s at most")
    of = {
        "runs": (cpu, "of the simulations"),
        "used": (used, "of the workers"),
        "wanted": (wanted, "of the workers, with their waits for a core"),
        "java": (ours - used, "of Spark and of this program"),
        "others": (max(0.0, busy - ours), "of other programs on the same cores"),
    }
    shares = {name: spent / (seconds * cores) for name, (spent, _) in of.items()}
    for name, (spent, what) in of.items():
        print(f"{name:<7}{shares[name]:6.1%}   {spent:.0f} s CPU {what}")
    print(f"Tasks of {median(tasks or [0]):.1f} s used {shares['used']:.0%} of the cores given; the aim is {AIM:.0%}.")
    if shares["used"] < AIM:
        if shares["others"] > OTHERS_MAX:
            print("Other programs took so much of them that this is no measure of the sweep.")
        sys.exit(1)


if __name__ == "__main__":
    main()
