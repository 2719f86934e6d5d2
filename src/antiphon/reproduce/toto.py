"""What R6 and R7 share: ToTo against all-ack, simulated in a sweep, and measured by the pipeline from the trace.

Every machine sends agreed messages at an equal share of the load, periodically or as a Poisson source. Idle machines
acknowledge only when the sources have ended: what is measured is what the messages alone do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from antiphon.reproduce.lab import Lab, Swept
from antiphon.simulation import MILLISECOND, Constant, Distance, Latency, Plan, Scenario
from antiphon.simulation.values import Value

Source = Literal["periodic", "poisson"]
SOURCES: tuple[Source, ...] = ("periodic", "poisson")
PROTOCOLS = {"toto": "ToTo", "allack": "all-ack"}
TITLES: dict[Source, str] = {"periodic": "periodic sources", "poisson": "Poisson sources"}
LOADS = (50, 100, 150, 200)  # messages per second in all
MACHINES, MESSAGES, SEEDS = 8, 4000, 10
# As many seeds, since periodic sources keep their phases to the end of a run. Poisson sources need longer runs: what is
# still waiting when they end is not counted, and that is the slowest.
QUICK_MESSAGES: dict[Source, int] = {"periodic": 160, "poisson": 480}

TauOmega = tuple[int, int]  # (τ, ω)


class Case(Value, frozen=True):
    """What is simulated, with several seeds."""

    protocol: str
    source: Source = "poisson"
    load: int = 50
    n: int = MACHINES
    phi: int | None = None  # of toto; None: half of the machines
    messages: int = MESSAGES
    latency: Latency = Constant(2 * MILLISECOND)
    distances: tuple[Distance, ...] = ()

    @property
    def early(self) -> int:
        """Φ, or what stands for it: a delivery waits for more machines than this."""
        return (self.phi or self.n // 2) if self.protocol == "toto" else self.n - 1

    def scenario(self, seed: int, /) -> Scenario:
        options = {"idle": "600000"}
        if self.protocol == "toto":
            options["phi"] = str(self.early)
        return Scenario(
            protocol=self.protocol,
            options=options,
            groups={"g": self.n},
            plans=self._plans(seed),
            latency=self.latency,
            distances=self.distances,
            seed=seed,
        )

    def _plans(self, seed: int) -> tuple[Plan, ...]:
        """Each machine begins at a moment of its own in its first interval: a periodic one keeps this phase."""
        rng = random.Random(f"{self.source}/{self.load}/{seed}")
        mean_ns = round(self.n / self.load * 1e9)
        gap: dict[Source, Callable[[], int]] = {
            "periodic": lambda: mean_ns,
            "poisson": lambda: int(rng.expovariate(1 / mean_ns)),
        }
        found = []
        for i in range(self.n):
            at = rng.randrange(mean_ns)
            for _ in range(self.messages // self.n):
                found.append(Plan(f"g.{i + 1}", at, ("g",)))
                at += gap[self.source]()
        return tuple(sorted(found, key=lambda plan: plan.at))


class Measured(NamedTuple):
    """The mean over the seeds, and the joint distribution of (τ, ω) over all of them."""

    tau: float
    omega: float
    latency_ms: float  # at the sender
    model_ms: float
    rho: float
    pairs: Counter[TauOmega]

    def index_shares(self) -> dict[int, float]:
        """The distribution of τ."""
        counts: Counter[int] = Counter()
        for (tau, _), deliveries in self.pairs.items():
            counts[tau] += deliveries
        return {tau: counts[tau] / counts.total() for tau in sorted(counts)}


MeasuredCases = dict[Case, Measured]


class Tables(NamedTuple):
    """What Tables 2 to 5 are made of."""

    found: MeasuredCases
    swept: Swept


def tables(lab: Lab) -> Tables:
    """Both protocols with both kinds of sources at every load: for R6, and for R7."""

    def make() -> Tables:
        cases = [
            Case(protocol, source, load, messages=QUICK_MESSAGES[source] if lab.quick else MESSAGES)
            for source in SOURCES
            for load in LOADS
            for protocol in PROTOCOLS
        ]
        swept = lab.sweep("toto", cases, range(SEEDS))
        return Tables(measured(swept, cases), swept)

    made: Tables = lab.once("toto", make)
    return made


def of(found: MeasuredCases, protocol: str, source: Source, load: int) -> Measured:
    """Of Tables 2 to 5, one cell."""
    (cell,) = [m for case, m in found.items() if (case.protocol, case.source, case.load) == (protocol, source, load)]
    return cell


def measured(swept: Swept, cases: Sequence[Case]) -> MeasuredCases:
    from antiphon.pipeline.latency_index import latency_index

    index = latency_index(swept.events, swept.runs)
    means = {row.run: row for row in index.runs.collect()}
    pairs: dict[str, Counter[TauOmega]] = {}
    for row in index.pairs.collect():  # at most n² for each run
        pairs.setdefault(row.run, Counter())[row.tau, row.omega] += row.deliveries
    found = {}
    for point, case in enumerate(cases):
        found[case] = _mean(case, [(means[name], pairs[name]) for name in swept.names(point)])
    return found


def _mean(case: Case, runs: Sequence[tuple[object, Counter[TauOmega]]]) -> Measured:
    latency_ms, model_ms = (
        fmean(getattr(row, name) for row, _ in runs) for name in ("latency_ms", f"{case.source}_ms")
    )
    pairs = sum((found for _, found in runs), Counter[TauOmega]())
    total = pairs.total()
    return Measured(
        sum(tau * count for (tau, _), count in pairs.items()) / total,
        sum(omega * count for (_, omega), count in pairs.items()) / total,
        latency_ms,
        model_ms,
        abs(model_ms - latency_ms) / latency_ms,
        pairs,
    )
