"""What a sweep says at its end: each point's means over its seeds, and the first runs that failed."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.sweep.folder import SweepFolder, parameters
from antiphon.sweep.spec import Sweep

SHOWN = 5
FAILURES_MAX = 1_000
MEANS = ("sends_per_multicast", "latency_ms_p50", "latency_ms_p99")


class PointSummary(msgspec.Struct, kw_only=True):
    point: int
    parameters: dict[str, Any]
    runs: int = 0
    failed: int = 0
    steps_max: int | None = None
    sends_per_multicast: float | None = None  # the mean over the runs, as are the next two
    latency_ms_p50: float | None = None
    latency_ms_p99: float | None = None


class Failure(msgspec.Struct):
    run: str
    point: int
    seed: int
    error: str


class Summary(msgspec.Struct, kw_only=True):
    folder: str
    points: int
    runs: int
    failed: int
    cpu_seconds: float
    by_point: list[PointSummary]
    failures: list[Failure]  # the first of them


def summary(folder: SweepFolder, sweep: Sweep) -> Summary:
    table = folder.figures(["run", "point", "seed", "error", "steps_max", "cpu_seconds", *MEANS])
    failures = table.filter(pc.is_valid(table["error"]))
    return Summary(
        folder=str(folder.path),
        points=len(sweep.points),
        runs=len(table),
        failed=len(failures),
        cpu_seconds=round(pc.sum(table["cpu_seconds"]).as_py() or 0.0, 3),
        by_point=_by_point(table, sweep),
        failures=[Failure(row["run"], row["point"], row["seed"], row["error"]) for row in _first(failures)],
    )


def _first(failures: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = failures.slice(0, FAILURES_MAX).to_pylist()
    return found


def _by_point(table: pa.Table, sweep: Sweep) -> list[PointSummary]:
    asked = [("run", "count"), ("error", "count"), ("steps_max", "max"), *((name, "mean") for name in MEANS)]
    found = {row["point"]: row for row in table.group_by("point").aggregate(asked).to_pylist()}
    return [
        PointSummary(
            point=number,
            parameters=parameters(point),
            runs=found[number]["run_count"],
            failed=found[number]["error_count"],
            steps_max=found[number]["steps_max_max"],
            **{name: found[number][f"{name}_mean"] for name in MEANS},
        )
        for number, point in enumerate(sweep.points)
        if number in found
    ]
