"""Make a failing run small: leave out faults, commands and multicasts while it still fails; print the rest as code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from antiphon.core.component import OrderingProtocol
from antiphon.simulation.run import Outcome, simulate
from antiphon.simulation.values import Constant, Scenario

Item = TypeVar("Item")


def shrink(outcome: Outcome, protocol: type[OrderingProtocol] | None = None, *, runs_max: int = 600) -> Outcome:
    """The smallest outcome found that breaks one of the same properties."""
    broken = {violation.property for violation in outcome.violations}
    best = outcome
    runs = 0

    def still_fails(scenario: Scenario) -> bool:
        nonlocal best, runs
        if runs >= runs_max:
            return False
        runs += 1
        found = simulate(scenario, protocol)
        if any(violation.property in broken for violation in found.violations):
            best = found
            return True
        return False

    size = -1
    while size != (size := _size(best.scenario)) and runs < runs_max:
        _minimise(best.scenario.faults, lambda kept: still_fails(_replace(best.scenario, faults=tuple(kept))))
        _minimise(best.scenario.commands, lambda kept: still_fails(_replace(best.scenario, commands=tuple(kept))))
        _minimise(best.scenario.plans, lambda kept: still_fails(_replace(best.scenario, plans=tuple(kept))))
        for simpler in ({"latency": Constant()}, {"snapshot_every": 0}, {"turn_ns": 0}, {"gather": 1}, {"fifo": True}):
            still_fails(_replace(best.scenario, **simpler))
    return best


def _size(scenario: Scenario) -> int:
    return len(scenario.plans) + len(scenario.faults) + len(scenario.commands)


def _replace(scenario: Scenario, **changes: object) -> Scenario:
    return msgspec.structs.replace(scenario, **changes)


def _minimise(items: Sequence[Item], still_fails: Callable[[list[Item]], bool]) -> None:
    """Delta debugging: try without ever smaller pieces of the list."""
    kept = list(items)
    piece = max(len(kept) // 2, 1)
    while kept:
        start = 0
        while start < len(kept):
            shorter = kept[:start] + kept[start + piece :]
            if still_fails(shorter):
                kept = shorter
            else:
                start += piece
        if piece == 1:
            return
        piece = max(piece // 2, 1)


def as_code(scenario: Scenario) -> str:
    """A program that runs the scenario again."""
    lines = ["from antiphon.simulation import *", "", "outcome = simulate(", "    Scenario("]
    for field in msgspec.structs.fields(scenario):
        value = getattr(scenario, field.name)
        if not field.required and value == field.default:
            continue
        if isinstance(value, tuple) and value:
            lines.append(f"        {field.name}=(")
            lines += [f"            {item!r}," for item in value]
            lines.append("        ),")
        else:
            lines.append(f"        {field.name}={value!r},")
    lines += ["    )", ")", "for violation in outcome.violations:", "    print(violation.property, violation.detail)"]
    return "\n".join(lines) + "\n"
