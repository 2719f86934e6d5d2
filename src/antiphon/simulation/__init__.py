"""The virtual world: any protocol under any fault, from a seed, the same every time."""

from antiphon.simulation.generate import (
    Workload,
    faults_for,
    parse_faults,
    plan,
    random_scenario,
    workload_scenario,
)
from antiphon.simulation.placing import FaultKind, place_faults
from antiphon.simulation.run import Outcome, simulate
from antiphon.simulation.shrink import as_code, shrink
from antiphon.simulation.values import (
    INVARIANT,
    LIVELOCK,
    MILLISECOND,
    Constant,
    Crash,
    Distrust,
    Exponential,
    Fault,
    Latency,
    Partition,
    Pause,
    Plan,
    Scenario,
    Slow,
    Tell,
    Uniform,
    WrongSuspicion,
)

__all__ = [
    "INVARIANT",
    "LIVELOCK",
    "MILLISECOND",
    "Constant",
    "Crash",
    "Distrust",
    "Exponential",
    "Fault",
    "FaultKind",
    "Latency",
    "Outcome",
    "Partition",
    "Pause",
    "Plan",
    "Scenario",
    "Slow",
    "Tell",
    "Uniform",
    "Workload",
    "WrongSuspicion",
    "as_code",
    "faults_for",
    "parse_faults",
    "place_faults",
    "plan",
    "random_scenario",
    "shrink",
    "simulate",
    "workload_scenario",
]
