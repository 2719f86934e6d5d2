"""How many events a second the simulator handles on one core, with checks and trace on.

    python benchmarks/simulator.py [--messages 5000] [--repeat 3] [PROTOCOL ...]
    python benchmarks/simulator.py skeen --beside TREE    # another version, run in turn with this one

An event is one input handled by one process. The target is 150,000 a second for skeen, three groups of three; steps are
not followed, as in a campaign. On a machine that others use, only the ratio to another version says something: both are
run in turn, each time in a process of its own, and compared by processor time.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from antiphon.core import Topology
from antiphon.protocols import protocols
from antiphon.simulation import Scenario, Workload, plan, simulate

GROUPS = {"g1": 3, "g2": 3, "g3": 3}
HERE = Path(__file__).resolve().parents[1]


def closed_loop(protocol: str, messages: int) -> Scenario:
    plans = plan(
        random.Random(1),
        Topology.sized(GROUPS),
        ["c1", "c2"],
        messages=messages,
        fanout=None,
        assumes=protocols()[protocol].declaration.assumes,
        workload=Workload.CLOSED,
        interval_ns=0,
    )
    return Scenario(protocol=protocol, groups=GROUPS, plans=plans, closed_loop=True, seed=7)


def measure(protocol: str, messages: int) -> tuple[int, float, float]:
    """Events, and the seconds they took without and with the trace written as Parquet."""
    from antiphon.trace.parquet import write_run  # other versions have it elsewhere

    scenario = closed_loop(protocol, messages)
    start = time.perf_counter()
    outcome = simulate(scenario)
    checked = time.perf_counter() - start
    assert not outcome.violations
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder), outcome.facts, outcome.rows)
    return outcome.events, checked, time.perf_counter() - start


def events_per_processor_second(protocol: str, messages: int) -> float:
    """Of the version that this process has loaded."""
    simulate(closed_loop(protocol, 50))  # what is worked out once, is now
    scenario = closed_loop(protocol, messages)
    start = time.process_time()
    outcome = simulate(scenario)
    taken = time.process_time() - start
    assert not outcome.violations
    return outcome.events / taken


def run_apart(tree: Path, protocol: str, messages: int) -> float:
    """The same of another tree, in a process of its own."""
    command = [sys.executable, __file__, "--once", "--messages", str(messages), protocol]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def compare(other: Path, protocol: str, messages: int, repeat: int) -> None:
    rates: dict[Path, list[float]] = {other: [], HERE: []}
    for _ in range(repeat):
        for tree, found in rates.items():
            found.append(run_apart(tree, protocol, messages))
    there, here = rates.values()
    middle, best = median(here) / median(there), max(here) / max(there)
    print(f"{protocol:12} {median(there):18,.0f} {median(here):18,.0f} {middle:8.2f} {best:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--beside", type=Path, metavar="TREE", help="the folder of another version's repository")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("protocols", nargs="*", default=list(protocols()))
    arguments = parser.parse_args()
    if arguments.once:
        print(events_per_processor_second(arguments.protocols[0], arguments.messages))
    elif arguments.beside is not None:
        if not (arguments.beside / "src" / "antiphon").is_dir():
            parser.error(f"{arguments.beside} is no folder of Antiphon's repository")
        print("events a second of processor time, with checks")
        print(f"{'protocol':12} {'there, median':>18} {'here, median':>18} {'ratio':>8} {'of best':>8}")
        for protocol in arguments.protocols:
            compare(arguments.beside.resolve(), protocol, arguments.messages, arguments.repeat)
    else:
        print(f"{'protocol':12} {'events':>9} {'checked, events/s':>18} {'and trace written':>18}")
        for protocol in arguments.protocols:
            runs = [measure(protocol, arguments.messages) for _ in range(arguments.repeat)]
            events, checked, written = min(runs, key=lambda run: run[2])
            print(f"{protocol:12} {events:9} {events / checked:18,.0f} {events / written:18,.0f}")


if __name__ == "__main__":
    main()
