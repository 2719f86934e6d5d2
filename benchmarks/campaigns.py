"""The long campaigns: every protocol, 20,000 runs that count, over all its options. Prints rows of docs/campaigns.md.

    python benchmarks/campaigns.py [--runs 20000] [--seed 2000000] [PROTOCOL ...]

The same as `antiphon simulate --protocol PROTOCOL --runs 20000 --seed 2000000` for each protocol in turn.
"""

from __future__ import annotations

import argparse
import time

from antiphon.protocols import protocols
from antiphon.simulation.campaign import Campaign, run_campaign


def row(campaign: Campaign, seconds: float) -> str:
    faults = ", ".join(f"{name} {tally}" for name, tally in sorted(campaign.faults.items()))
    rounds = ", ".join(f"{name}: {count:,}" for name, count in sorted(campaign.rounds.items())) or "none"
    options = ", ".join(f"{name} {count:,}" for name, count in sorted(campaign.options.items())) or "none"
    failures = ", ".join(str(scenario.seed) for scenario in campaign.failures) or "none"
    last = campaign.first_seed + campaign.seeds - 1
    return (
        f"| {campaign.protocol} | {campaign.runs:,} | {campaign.first_seed} to {last} | {campaign.events:,} | "
        f"{campaign.multicasts:,} | {campaign.deliveries:,} | {campaign.payloads:,} | {faults} | "
        f"{rounds} | {campaign.highest_round} | "
        f"{options} | {failures} | {seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=2_000_000)
    parser.add_argument("protocols", nargs="*", default=list(protocols()))
    arguments = parser.parse_args()
    print("| protocol | runs that count | seeds | events | multicasts | deliveries | payloads |", end="")
    print(" faults that took effect of those placed | instances by highest round | highest round |", end="")
    print(" runs by option | seeds in violation | seconds |")
    print("|" + " --- |" * 13)
    for protocol in arguments.protocols:
        start = time.perf_counter()
        campaign = run_campaign(protocol, arguments.seed, arguments.runs, {})
        print(row(campaign, time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
