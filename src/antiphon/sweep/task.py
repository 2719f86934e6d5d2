"""What a task does: it simulates some runs in a row, and commits what came of them.

A task may be tried again, and two attempts may run at the same time. Both do the same: a run is decided by its seed. So
each writes under a name of its own and then renames: whoever comes last puts the same in the place of the same.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.errors import AntiphonError
from antiphon.simulation import Outcome, simulate
from antiphon.sweep.pace import Chunk
from antiphon.sweep.spec import Sweep, run_name
from antiphon.trace import Row, RunFacts
from antiphon.trace.parquet import write_runs

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
ERROR_CHARACTERS_MAX = 1_000


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
    outcomes: list[dict[str, Any]] = []
    write_runs(folder / "trace", chunk_name(chunk), _simulated(sweep, chunk, outcomes))
    write_table(committed, pa.Table.from_pylist(outcomes, OUTCOMES))


def write_table(path: Path, table: pa.Table) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    pq.write_table(table, temporary)
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(path)


def _simulated(sweep: Sweep, chunk: Chunk, outcomes: list[dict[str, Any]]) -> Iterator[tuple[RunFacts, Iterable[Row]]]:
    """The runs that have a trace, one after the other; beside them, what came of each."""
    for number in range(chunk[0], chunk[1] + 1):
        point, seed = sweep.run(number)
        start = time.process_time()
        found: dict[str, Any] = {"run": run_name(point, seed), "point": point, "seed": seed}
        try:
            outcome = simulate(sweep.points[point].scenario(seed))
        except Exception as error:  # one bad run is a row, and not the end of the others
            found["error"] = str(error) if isinstance(error, AntiphonError) else f"{type(error).__name__}: {error}"
        else:
            found |= _told(outcome)
            yield msgspec.structs.replace(outcome.facts, run=found["run"]), _rows(outcome, sweep)
        # Whoever took the rows has made a table of them by now, which is part of the work.
        outcomes.append(found | {"cpu_seconds": time.process_time() - start})


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
