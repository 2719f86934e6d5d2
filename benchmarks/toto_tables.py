"""R6 and R7: toto.txt's Tables 2 to 5, from simulation. Takes some minutes; `--seeds 2` is a look at it.

8 machines send 4000 agreed messages, each at an eighth of the load, over links of 2 ms; Φ = 4. Idle machines
acknowledge only when the sources have ended: what is measured is what the messages alone do. The latency is that at the
sender. Periodic sources have the phases with which a seed began, for the whole run.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple

from antiphon.core import OrderingProtocol
from antiphon.protocols.allack import AllAck
from antiphon.protocols.toto import ToTo
from antiphon.services.dag import Node
from antiphon.simulation import MILLISECOND, Constant, Plan, Scenario, simulate

MACHINES, MESSAGES, PHI = 8, 4000, 4
LOADS = (50, 100, 150, 200)  # messages per second in all
PAPER_INDEX = {"periodic": (5.10, 5.42, 5.36, 5.90), "poisson": (5.11, 5.31, 5.54, 5.89)}
PAPER_WIDTH = {"periodic": (1.12, 1.39, 1.44, 1.72), "poisson": (1.15, 1.29, 1.42, 1.63)}
PAPER_SPEEDUP = {"periodic": (1.76, 1.63, 1.56, 1.84), "poisson": (3.38, 3.08, 3.01, 2.60)}
MODEL_SPEEDUP = {"periodic": (1.82, 1.55, 1.62, 1.45), "poisson": (3.24, 2.92, 2.63, 2.42)}
INDEX_WITHIN, SPEEDUP_WITHIN, MODEL_WITHIN = 0.4, 0.10, 0.10

Pair = tuple[int, int]


class Measured(NamedTuple):
    latency_ms: float  # at the sender
    pairs: Counter[Pair]  # (τ, ω), over all messages and machines

    @property
    def mean_index(self) -> float:
        return sum(tau * count for (tau, _), count in self.pairs.items()) / self.pairs.total()

    @property
    def mean_width(self) -> float:
        return sum(omega * count for (_, omega), count in self.pairs.items()) / self.pairs.total()


def gap_periodic(rng: random.Random, mean_ns: int) -> int:
    return mean_ns


def gap_poisson(rng: random.Random, mean_ns: int) -> int:
    return int(rng.expovariate(1 / mean_ns))


GAPS: dict[str, Callable[[random.Random, int], int]] = {"periodic": gap_periodic, "poisson": gap_poisson}


def plans(source: str, load: int, seed: int, n: int = MACHINES, messages: int = MESSAGES) -> tuple[Plan, ...]:
    """Each machine begins at a moment of its own in its first interval."""
    rng = random.Random(f"{source}/{load}/{seed}")
    mean_ns = round(n / load * 1e9)
    found = []
    for i in range(n):
        at = rng.randrange(mean_ns)
        for _ in range(messages // n):
            found.append(Plan(f"g.{i + 1}", at, ("g",)))
            at += GAPS[source](rng, mean_ns)
    return tuple(sorted(found, key=lambda plan: plan.at))


def measure(
    protocol: type[OrderingProtocol], source: str, load: int, seed: int, n: int = MACHINES, messages: int = MESSAGES
) -> Measured:
    """Of the messages that were delivered before the first source ended."""
    pairs: Counter[Pair] = Counter()
    widths: dict[tuple[str, Any], int] = {}
    made = plans(source, load, seed, n, messages)
    end = min(max(plan.at for plan in made if plan.sender == f"g.{i + 1}") for i in range(n))
    sent_at: dict[str, int] = {}
    latencies: list[int] = []

    class Watched(protocol):  # type: ignore[misc,valid-type]
        def when_entered(self, m: Node) -> None:
            widths[self.me, m.name] = self.graph.dag.beside(m)
            super().when_entered(m)

        def deliver_next(self, node: Node) -> None:
            super().deliver_next(node)
            if self.now <= end:
                pairs[self.graph.dag.beside(node), widths.pop((self.me, node.name))] += 1

    options = {"idle": "600000", **({"phi": str(n // 2)} if protocol is ToTo else {})}
    scenario = Scenario(
        protocol=protocol.declaration.name,
        options=options,
        groups={"g": n},
        plans=made,
        latency=Constant(2 * MILLISECOND),
        seed=seed,
    )
    outcome = simulate(scenario, Watched)
    assert not outcome.violations, outcome.violations
    for row in outcome.observations.rows(receives=False):
        if row.kind == "multicast" and row.message is not None:
            sent_at[row.message] = row.time_ns
        elif row.kind == "deliver" and row.time_ns <= end and str(row.message).rpartition(":")[0] == row.process:
            latencies.append(row.time_ns - sent_at[str(row.message)])
    assert all((n // 2 if protocol is ToTo else n - 1) < tau <= n for tau, _ in pairs), "Φ < τ ≤ n"
    acks = n * (n - 1)
    assert outcome.messages_sent <= len(made) * (n - 1) + acks, "no message but those of Transis"
    return Measured(fmean(latencies) / MILLISECOND, pairs)


def model_ms(source: str, load: int, pairs: Counter[Pair], n: int = MACHINES) -> float:
    """Formulas (1) and (2), with the measured distribution of (τ, ω)."""
    interval_ms = n / load * 1000

    def waiting(tau: int, omega: int) -> float:
        if source == "poisson":
            return sum(1 / (n - k) for k in range(omega, tau))
        return (tau - omega) / (n - omega + 1)

    return interval_ms * sum(count * waiting(*pair) for pair, count in pairs.items()) / pairs.total()


def mean_of(protocol: type[OrderingProtocol], source: str, load: int, seeds: int, messages: int) -> Measured:
    runs = [measure(protocol, source, load, seed, messages=messages) for seed in range(seeds)]
    return Measured(fmean(run.latency_ms for run in runs), sum((run.pairs for run in runs), Counter()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--loads", type=int, nargs="*", default=LOADS)
    arguments = parser.parse_args()
    missed = []
    print("| source | msg/s | protocol | τ | paper | ω | paper | ms | model ms | ρ | speedup | paper | its model |")
    print("| --- " * 13 + "|")
    for source in GAPS:
        for load in arguments.loads:
            at = LOADS.index(load)
            toto, allack = [mean_of(kind, source, load, arguments.seeds, arguments.messages) for kind in (ToTo, AllAck)]
            speedup, aim = allack.latency_ms / toto.latency_ms, MODEL_SPEEDUP[source][at]
            for name, found in (("ToTo", toto), ("all-ack", allack)):
                predicted = model_ms(source, load, found.pairs)
                deviation = abs(predicted - found.latency_ms) / found.latency_ms
                index = PAPER_INDEX[source][at] if name == "ToTo" else MACHINES
                cells = [source, load, name, f"{found.mean_index:.2f}", f"{index:.2f}", f"{found.mean_width:.2f}"]
                cells += [PAPER_WIDTH[source][at] if name == "ToTo" else "", f"{found.latency_ms:.2f}"]
                cells += [f"{predicted:.2f}", f"{deviation:.3f}"]
                cells += [f"{speedup:.2f}", PAPER_SPEEDUP[source][at], aim] if name == "ToTo" else ["", "", ""]
                print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
                if abs(found.mean_index - index) > INDEX_WITHIN:
                    missed.append(f"{source} {load} {name}: τ {found.mean_index:.2f}, paper {index}")
                if deviation > MODEL_WITHIN:
                    missed.append(f"{source} {load} {name}: ρ {deviation:.3f}")
            if abs(speedup / aim - 1) > SPEEDUP_WITHIN:
                missed.append(f"{source} {load}: speedup {speedup:.2f}, the paper's model {aim}")
    print("\nWithin the bounds of R6 and R7." if not missed else "\nNot within the bounds:\n" + "\n".join(missed))


if __name__ == "__main__":
    main()
