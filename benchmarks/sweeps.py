"""How much of the cores a sweep uses for its simulations, from its first task to its last figure.

    python benchmarks/sweeps.py [--seeds 200] [--no-trace] [--master "local[*]"]

`runs`: the CPU of all simulations / (time * cores). `used`: that of the workers, which also write the traces. Where
other programs want the same cores, these say more of them than of the sweep. So Linux is asked how long each worker
waited for a core while it had something to do: `wanted` has these waits, too, and is what `used` would be on cores of
its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from antiphon.pipeline.session import spark_session
from antiphon.sweep.folder import SweepFolder
from antiphon.sweep.rounds import _cores, run_sweep
from antiphon.sweep.spec import parse_spec

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
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
    before = workers.seconds()
    with tempfile.TemporaryDirectory() as out:
        folder = SweepFolder.prepare(Path(out) / "sweep", sweep, text)
        start = time.monotonic()
        run_sweep(spark, sweep, folder, lambda _: workers.look())
        seconds = time.monotonic() - start
        table = folder.figures(["cpu_seconds", "error"])
        files = [path.stem.split("-") for path in folder.trace.glob("events/*.parquet")]
    runs, cpu = table["cpu_seconds"].to_pylist(), sum(table["cpu_seconds"].to_pylist())
    tasks = [sum(runs[int(first) : int(last) + 1]) for first, last in files]
    used, wanted = (now - then for now, then in zip(workers.seconds(), before, strict=True))
    print(f"{len(runs):,} runs, {len(runs) - table['error'].null_count} failed, {cores} cores, {seconds:.0f} s")
    print(f"{len(tasks)} tasks, of {median(tasks or [0]):.2f} s CPU (median), {max(tasks, default=0):.2f} s at most")
    print(f"runs   {cpu / (seconds * cores):6.1%}   {cpu:.0f} s CPU of the simulations")
    print(f"used   {used / (seconds * cores):6.1%}   {used:.0f} s CPU of the workers")
    print(f"wanted {wanted / (seconds * cores):6.1%}   {wanted:.0f} s of the workers, with their waits for a core")


if __name__ == "__main__":
    main()
