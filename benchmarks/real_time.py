"""In how many random runs primcast without order=realtime breaks the order of real time, though it does not promise it.

    python benchmarks/real_time.py [--runs 1500] [--seed 500000]

Each run is judged as if it had promised it. Prints one row for each kind of clocks.
"""

from __future__ import annotations

import argparse

from antiphon.checks import RunHistory
from antiphon.checks.real_time import real_time_order
from antiphon.protocols.primcast import Primcast
from antiphon.simulation import random_scenario, simulate


def share(hybrid: str, seeds: range) -> int:
    broken = 0
    for seed in seeds:
        outcome = simulate(random_scenario(Primcast, seed, {"order": "total", "hybrid": hybrid}))
        broken += bool(real_time_order(RunHistory(outcome.facts, outcome.rows)))
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=500_000)
    given = parser.parse_args()
    for hybrid in ("false", "true"):
        broken = share(hybrid, range(given.seed, given.seed + given.runs))
        print(f"hybrid={hybrid}: {broken} of {given.runs} runs")


if __name__ == "__main__":
    main()
