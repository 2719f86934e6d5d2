"""toto.txt, Tables 2 to 5, Figures 5 and 6 (R6, R7), and what lies beyond them: ToTo against all-ack, in the simulator.

Every machine sends agreed messages at an equal share of the load, periodically or as a Poisson source. Idle machines
acknowledge only when the sources have ended: what is measured is what the messages alone do. Runs are written as a
trace, and everything is measured by the pipeline from there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import msgspec

from antiphon.pipeline.latency_index import latency_index
from antiphon.pipeline.read import read_events, read_runs
from antiphon.simulation import MILLISECOND, Constant, Distance, Latency, Outcome, Plan, Scenario, simulate
from antiphon.trace.parquet import write_run

Source = Literal["periodic", "poisson"]
SOURCES: tuple[Source, ...] = ("periodic", "poisson")
PROTOCOLS = ("toto", "allack")
LOADS = (50, 100, 150, 200)  # messages per second in all
MACHINES, MESSAGES = 8, 4000
PAPER_INDEX = {"periodic": (5.10, 5.42, 5.36, 5.90), "poisson": (5.11, 5.31, 5.54, 5.89)}
PAPER_WIDTH = {
    ("periodic", "toto"): (1.12, 1.39, 1.44, 1.72),
    ("periodic", "allack"): (1.69, 1.31, 1.81, 1.48),
    ("poisson", "toto"): (1.15, 1.29, 1.42, 1.63),
    ("poisson", "allack"): (1.13, 1.27, 1.42, 1.58),
}
PAPER_SPEEDUP = {"periodic": (1.76, 1.63, 1.56, 1.84), "poisson": (3.38, 3.08, 3.01, 2.60)}
MODEL_SPEEDUP = {"periodic": (1.82, 1.55, 1.62, 1.45), "poisson": (3.24, 2.92, 2.63, 2.42)}
PAPER_MS = {
    ("periodic", "toto"): (76.68, 42.31, 29.17, 23.80),
    ("periodic", "allack"): (135.02, 68.78, 45.59, 43.71),
    ("poisson", "toto"): (114.10, 60.98, 44.10, 39.37),
    ("poisson", "allack"): (385.25, 188.06, 133.09, 102.33),
}
INDEX_WITHIN, SPEEDUP_WITHIN, MODEL_WITHIN = 0.4, 0.10, 0.10

Pair = tuple[int, int]  # (τ, ω)


class Case(NamedTuple):
    """What is simulated, with several seeds."""

    protocol: str
    source: Source = "poisson"
    load: int = 50
    n: int = MACHINES
    phi: int | None = None  # of toto; None: half of the machines
    messages: int = MESSAGES
    latency: Latency = Constant(2 * MILLISECOND)
    distances: tuple[Distance, ...] = ()
    name: str = ""  # what is special about it, as a part of the run's name

    def run(self, seed: int) -> str:
        parts = [self.protocol, self.source, self.load, self.n, self.phi or "half", self.messages, self.name, seed]
        return "-".join(str(part) for part in parts if part != "")


class Measured(NamedTuple):
    """The mean over the seeds, and the joint distribution of (τ, ω) over all of them."""

    tau: float
    omega: float
    latency_ms: float  # at the sender
    model_ms: float
    rho: float
    pairs: Counter[Pair]


def plans(case: Case, seed: int) -> tuple[Plan, ...]:
    """Each machine begins at a moment of its own in its first interval: a periodic one keeps this phase to the end."""
    rng = random.Random(f"{case.source}/{case.load}/{seed}")
    mean_ns = round(case.n / case.load * 1e9)
    gap: dict[Source, Callable[[], int]] = {
        "periodic": lambda: mean_ns,
        "poisson": lambda: int(rng.expovariate(1 / mean_ns)),
    }
    found = []
    for i in range(case.n):
        at = rng.randrange(mean_ns)
        for _ in range(case.messages // case.n):
            found.append(Plan(f"g.{i + 1}", at, ("g",)))
            at += gap[case.source]()
    return tuple(sorted(found, key=lambda plan: plan.at))


def run(case: Case, seed: int) -> Outcome:
    options = {"idle": "600000"}
    if case.protocol == "toto":
        options["phi"] = str(case.phi or case.n // 2)
    made = plans(case, seed)
    outcome = simulate(
        Scenario(
            protocol=case.protocol,
            options=options,
            groups={"g": case.n},
            plans=made,
            latency=case.latency,
            distances=case.distances,
            seed=seed,
        )
    )
    assert not outcome.violations, outcome.violations
    if isinstance(case.latency, Constant) and not case.distances:  # else what is late is asked for
        acks = case.n * (case.n - 1)
        assert outcome.messages_sent <= len(made) * (case.n - 1) + acks, "no message but those of Transis"
    return outcome


def record(folder: Path, case: Case, seed: int) -> None:
    """Write the run's trace, if it is not there: what was simulated once need not be again."""
    name = case.run(seed)
    if not (folder / "runs" / f"{name}.json").exists():
        outcome = run(case, seed)
        write_run(folder, msgspec.structs.replace(outcome.facts, run=name), outcome.observations.rows(receives=False))


def measure(folder: Path, cases: Sequence[Case], seeds: Callable[[Case], Iterable[int]]) -> dict[Case, Measured]:
    """Simulate what the folder does not have, and let Spark measure all that it has."""
    from antiphon.pipeline.session import spark_session

    runs = {case: [case.run(seed) for seed in seeds(case)] for case in cases}
    for case in cases:
        for seed in seeds(case):
            record(folder, case, seed)
    spark = spark_session("toto")
    found = latency_index(read_events(spark, folder), read_runs(spark, folder))
    means = {row.run: row for row in found.runs.collect()}
    pairs: dict[str, Counter[Pair]] = {}
    for row in found.pairs.collect():
        pairs.setdefault(row.run, Counter())[row.tau, row.omega] += row.deliveries
    return {case: _mean(case, [(means[name], pairs[name]) for name in names]) for case, names in runs.items()}


def _mean(case: Case, runs: Sequence[tuple[object, Counter[Pair]]]) -> Measured:
    latency_ms, model_ms = (
        fmean(getattr(row, name) for row, _ in runs) for name in ("latency_ms", f"{case.source}_ms")
    )
    pairs = sum((found for _, found in runs), Counter[Pair]())
    low = (case.phi or case.n // 2) if case.protocol == "toto" else case.n - 1
    assert all(low < tau <= case.n for tau, _ in pairs), "Φ < τ ≤ n"
    total = pairs.total()
    return Measured(
        sum(tau * count for (tau, _), count in pairs.items()) / total,
        sum(omega * count for (_, omega), count in pairs.items()) / total,
        latency_ms,
        model_ms,
        abs(model_ms - latency_ms) / latency_ms,
        pairs,
    )
