"""A sweep's folder: what is done, what is under way, and the figures of all runs.

sweep.toml                    what was asked for, if that was a file
sweep.json                    by what the sweep is known again
points.parquet                the points, numbered
metrics/<first>-<last>.parquet   the figures of a round's runs, one row each: with this file the round is done
trace/                        a trace (docs/trace.md), if it is kept
rounds/<first>-<last>/        the round that is under way; gone when it is done
    chunks.json               which runs each task has
    outcomes/<first>-<last>.parquet   what came of a task's runs: with this file the chunk is done
    trace/                    its trace
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.errors import UsageError
from antiphon.simulation.settings import CHOSEN_FOR_RANDOM, RANDOM, Settings
from antiphon.simulation.values import kind_of
from antiphon.sweep.pace import Chunk
from antiphon.sweep.spec import Point, Sweep
from antiphon.sweep.task import chunk_name, chunk_of, write_table

POINT = pa.schema(
    [
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("option", pa.string(), nullable=False),  # name=value, with commas between several
        pa.field("groups", pa.string()),
        pa.field("clients", pa.int64()),
        pa.field("messages", pa.int64()),
        pa.field("fanout", pa.int64()),
        pa.field("faults", pa.string(), nullable=False),
        pa.field("sent_survives", pa.bool_()),
        pa.field("workload", pa.string()),
        pa.field("interval", pa.float64()),
        pa.field("latency", pa.string()),
        pa.field("loss", pa.float64()),
        pa.field("causal", pa.float64()),
        pa.field("size", pa.int64()),
        pa.field("payloads", pa.int64()),
        pa.field("gather", pa.int64()),
    ]
)


def parameters(point: Point) -> dict[str, Any]:
    """A point as a row. Null is what the seed chooses in random runs, and what a program's scenarios do not have."""
    if not isinstance(point, Settings):
        return _parameters_of_scenarios(point)
    found: dict[str, Any] = msgspec.to_builtins(point)
    if point.faults == RANDOM:
        found = {key: value if key in CHOSEN_FOR_RANDOM else None for key, value in found.items()}
    return found | {"option": _pairs(point.option)}


def _parameters_of_scenarios(point: Point) -> dict[str, Any]:
    scenario = point.scenario(0)
    return dict.fromkeys(POINT.names) | {
        "protocol": scenario.protocol,
        "option": _pairs(scenario.options),
        "groups": _pairs(scenario.groups),
        "messages": len(scenario.plans),
        "faults": ",".join(sorted({kind_of(fault) for fault in scenario.faults})) or "none",
    }


def _pairs(named: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(named.items()))


@dataclass(frozen=True)
class Round:
    """Some runs in a row, cut into chunks; as long as it is under way it has a folder of its own."""

    folder: Path
    chunks: list[Chunk]

    @property
    def name(self) -> str:
        return chunk_name((self.chunks[0][0], self.chunks[-1][1]))

    def committed(self) -> list[Chunk]:
        return sorted(chunk_of(file) for file in (self.folder / "outcomes").glob("[0-9]*.parquet"))

    def outcomes(self) -> list[dict[str, Any]]:
        files = [self.folder / "outcomes" / f"{chunk_name(chunk)}.parquet" for chunk in self.chunks]
        found: list[dict[str, Any]] = pa.concat_tables(pq.read_table(file) for file in files).to_pylist()
        return found


class SweepFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace = path / "trace"
        self.metrics = path / "metrics"
        self._rounds = path / "rounds"

    @classmethod
    def prepare(cls, path: Path, sweep: Sweep, text: str | None = None) -> SweepFolder:
        """A new folder, or that of the same sweep, to go on with. ``text``: the file that asked for it."""
        known = path / "sweep.json"
        if not known.exists():
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UsageError(f"{path} holds something else than a sweep: give another folder with --out.")
            path.mkdir(parents=True, exist_ok=True)
            points = [{"point": number} | parameters(point) for number, point in enumerate(sweep.points)]
            numbered = pa.schema([pa.field("point", pa.int32(), nullable=False), *POINT])
            write_table(path / "points.parquet", pa.Table.from_pylist(points, numbered))
            if text is not None:
                (path / "sweep.toml").write_text(text)
            temporary = path / ".sweep.json.tmp"
            temporary.write_bytes(msgspec.json.encode({"digest": sweep.digest, "runs": sweep.runs}))
            temporary.replace(known)
        elif msgspec.json.decode(known.read_bytes())["digest"] != sweep.digest:
            raise UsageError(f"{path} holds another sweep: give another folder with --out.")
        found = cls(path)
        found.metrics.mkdir(exist_ok=True)
        found._rounds.mkdir(exist_ok=True)
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else goes on with this sweep meanwhile."""
        with (self.path / "sweep.json").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"Another process is running the sweep in {self.path}.") from None
            yield

    def done(self) -> int:
        """How many runs are done, in rounds that are; the next round begins there."""
        return max((chunk_of(file)[1] + 1 for file in self.metrics.glob("[0-9]*.parquet")), default=0)

    def figures(self, columns: list[str]) -> pa.Table:
        files = sorted(self.metrics.glob("[0-9]*.parquet"))
        return pa.concat_tables([pq.ParquetFile(file).read(columns=columns) for file in files])

    def begin(self, chunks: list[Chunk]) -> Round:
        name = chunk_name((chunks[0][0], chunks[-1][1]))
        folder = self._rounds / name
        (folder / "outcomes").mkdir(parents=True)
        temporary = folder / ".chunks.json.tmp"
        temporary.write_bytes(msgspec.json.encode(chunks))
        temporary.replace(folder / "chunks.json")
        return Round(folder, chunks)

    def under_way(self) -> Round | None:
        """The round that was begun and not ended, if there is one."""
        for folder in sorted(self._rounds.iterdir()):
            if (folder / "chunks.json").exists():
                return Round(folder, msgspec.json.decode((folder / "chunks.json").read_bytes(), type=list[Chunk]))
            shutil.rmtree(folder)  # hardly begun, or all but gone
        return None

    def is_measured(self, round: Round) -> bool:
        return self._figures_of(round).exists()

    def _figures_of(self, round: Round) -> Path:
        return self.metrics / f"{round.name}.parquet"

    def measured(self, round: Round, table: pa.Table) -> None:
        write_table(self._figures_of(round), table)

    def end(self, round: Round, *, keep_trace: bool) -> None:
        """The round is measured: its trace is kept with those of the others, or goes."""
        for part in ("events", "runs") if keep_trace else ():
            (self.trace / part).mkdir(parents=True, exist_ok=True)
            for file in sorted((round.folder / "trace" / part).glob("[0-9]*")):
                file.replace(self.trace / part / file.name)
        shutil.rmtree(round.folder, ignore_errors=True)  # an attempt that comes too late may still write there
