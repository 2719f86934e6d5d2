"""How many events a second the simulator handles on one core, with checks and trace on.

    python benchmarks/simulator.py [--messages 5000] [--repeat 3] [PROTOCOL ...]

An event is one input handled by one process. The target is 150,000 a second for skeen, three groups of three; steps are
not followed, as in a campaign.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from antiphon.core import Topology
from antiphon.protocols import protocols
from antiphon.simulation import Scenario, Workload, plan, simulate
from antiphon.trace.parquet import write_run

GROUPS = {"g1": 3, "g2": 3, "g3": 3}


def measure(protocol: str, messages: int) -> tuple[int, float, float]:
    """Events, and the seconds they took without and with the trace written as Parquet."""
    assumes = protocols()[protocol].declaration.assumes
    plans = plan(
        random.Random(1),
        Topology.sized(GROUPS),
        ["c1", "c2"],
        messages=messages,
        fanout=None,
        assumes=assumes,
        workload=Workload.CLOSED,
        interval_ns=0,
    )
    scenario = Scenario(protocol=protocol, groups=GROUPS, plans=plans, closed_loop=True, seed=7)
    start = time.perf_counter()
    outcome = simulate(scenario)
    checked = time.perf_counter() - start
    assert not outcome.violations
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder), outcome.facts, outcome.rows)
    return outcome.events, checked, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("protocols", nargs="*", default=list(protocols()))
    arguments = parser.parse_args()
    print(f"{'protocol':12} {'events':>9} {'checked, events/s':>18} {'and trace written':>18}")
    for protocol in arguments.protocols:
        events, checked, written = min(
            (measure(protocol, arguments.messages) for _ in range(arguments.repeat)), key=lambda m: m[2]
        )
        print(f"{protocol:12} {events:9} {events / checked:18,.0f} {events / written:18,.0f}")


if __name__ == "__main__":
    main()
