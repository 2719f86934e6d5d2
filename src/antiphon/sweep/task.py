"""What a task does: it simulates some runs in a row, measures them, and commits what came of them.

A task may be tried again, and two attempts may run at the same time. Both do the same: a run is decided by its seed. So
each writes under a name of its own and then renames: whoever comes last puts the same in the place of the same.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.errors import AntiphonError
from antiphon.pipeline.glance.figures import FIGURES, figures
from antiphon.pipeline.glance.run_index import index_of_groups
from antiphon.pipeline.glance.times import counted_here
from antiphon.simulation import Outcome, simulate
from antiphon.sweep.pace import Chunk
from antiphon.sweep.spec import Sweep, run_name
from antiphon.trace import Row, RunFacts
from antiphon.trace.parquet import RUN, to_table, write_tables

_RENAMED = {"payloads": "payloads_delivered"}
OUTCOMES = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("point", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("events", pa.int64()),
        pa.field("faults_effective", pa.int64()),
        pa.field("virtual_seconds", pa.float64()),
        pa.field("violations", pa.list_(pa.string())),
        pa.field("error", pa.string()),
        pa.field("cpu_seconds", pa.float64(), nullable=False),
    ]
)
# A run's `payloads` are what it was asked for.
MEASURED = pa.schema([field.with_name(_RENAMED.get(field.name, field.name)) for field in FIGURES])
COMMITTED = pa.schema([*OUTCOMES, *MEASURED])
ERROR_CHARACTERS_MAX = 1_000

SimulatedRun = tuple[RunFacts, pa.Table]


def chunk_name(chunk: Chunk) -> str:
    return f"{chunk[0]:08d}-{chunk[1]:08d}"


def chunk_of(file: Path) -> Chunk:
    first, last = file.stem.split("-")
    return int(first), int(last)


def run_chunk(sweep: Sweep, chunk: Chunk, folder: Path) -> None:
    """Simulate a chunk into the folder of its round, unless that is done already. The outcomes come last."""
    committed = folder / "outcomes" / f"{chunk_name(chunk)}.parquet"
    if committed.exists():
        return
    outcomes, runs = _simulated(sweep, chunk)
    if sweep.trace:
        write_tables(folder / "trace", chunk_name(chunk), runs)
    measured = _measured(runs)
    rows = [{**outcome, **measured.get(outcome["run"], {})} for outcome in outcomes]
    write_table(committed, pa.Table.from_pylist(rows, COMMITTED))


def _measured(runs: list[SimulatedRun]) -> dict[str, dict[str, Any]]:
    """The figures of each run, as `antiphon metrics` makes them: a task has all of a run, so that nothing is to come
    together from several."""
    if not runs:
        return {}
    events = pa.concat_tables([table for _, table in runs])
    index = index_of_groups((facts.run, facts.groups) for facts, _ in runs)
    found = figures(counted_here(index, events)).to_pylist()
    return {row.pop("run"): {_RENAMED.get(name, name): cell for name, cell in row.items()} for row in found}


def write_table(path: Path, table: pa.Table) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    pq.write_table(table, temporary)
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(path)


def _simulated(sweep: Sweep, chunk: Chunk) -> tuple[list[dict[str, Any]], list[SimulatedRun]]:
    """What came of each run; and those that have a trace, with it."""
    outcomes, runs = list[dict[str, Any]](), list[SimulatedRun]()
    for number in range(chunk[0], chunk[1] + 1):
        point, seed = sweep.run(number)
        start = time.process_time()
        found: dict[str, Any] = {"run": run_name(point, seed), "point": point, "seed": seed}
        try:
            outcome = simulate(sweep.points[point].scenario(seed))
            table = to_table(_rows(outcome, sweep))  # a protocol can say what no trace can hold
        except Exception as error:  # one bad run is a row, and not the end of the others
            words = str(error) if isinstance(error, AntiphonError) else f"{type(error).__name__}: {error}"
            found["error"] = words[:ERROR_CHARACTERS_MAX]
        else:
            found |= _told(outcome)
            named = table.append_column(RUN, pa.repeat(found["run"], len(table)))
            runs.append((msgspec.structs.replace(outcome.facts, run=found["run"]), named))
        outcomes.append(found | {"cpu_seconds": time.process_time() - start})
    return outcomes, runs


def _told(outcome: Outcome) -> dict[str, Any]:
    broken = outcome.violations
    error = f"{broken[0].property}: {broken[0].detail}"[:ERROR_CHARACTERS_MAX] if broken else None
    return {
        "events": outcome.events,
        "faults_effective": len(outcome.faults_effective),
        "virtual_seconds": outcome.virtual_ns / 1e9,
        "violations": sorted({violation.property for violation in broken}),
        "error": error,
    }


def _rows(outcome: Outcome, sweep: Sweep) -> list[Row]:
    """All rows where they are kept; else those that figures are made of."""
    return (
        outcome.rows if sweep.trace and sweep.receives else outcome.observations.rows(receives=False) + outcome.outside
    )
