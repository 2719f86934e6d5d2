"""The facts of each run of a trace, as JSON, and which files hold its events. What those hold is in parquet.py."""

from __future__ import annotations

from pathlib import Path

import msgspec

from antiphon.core.buffers import UNDECODABLE
from antiphon.core.errors import TraceError
from antiphon.core.model import RUN_NAME
from antiphon.trace.schema import TRACE_VERSION, RunFacts


def write_facts(folder: Path, facts: RunFacts) -> None:
    if not RUN_NAME.fullmatch(facts.run):
        raise TraceError(f"{facts.run!r} is not a valid run name: use letters, digits, '.', '_' and '-'.")
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    _replace(folder / "runs" / f"{facts.run}.json", msgspec.json.encode(facts) + b"\n")


def remove_facts(folder: Path, run: str) -> None:
    """Of a run of which nothing may be said."""
    (folder / "runs" / f"{run}.json").unlink(missing_ok=True)


def read_facts(folder: Path) -> list[RunFacts]:
    """The facts of every run of a trace, by name; refuses what is not a trace of this version."""
    files = sorted((folder / "runs").glob("*.json"))
    if not folder.is_dir():
        raise TraceError(f"There is no folder {folder}.")
    if not files:
        raise TraceError(f"{folder} is not a trace: it has no runs/*.json.")
    return [_read_facts(path) for path in files]


def _read_facts(path: Path) -> RunFacts:
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except UNDECODABLE as error:
        raise TraceError(f"{path} is not JSON: {error}.") from None
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != TRACE_VERSION:
        raise TraceError(f"{path} has trace version {version!r}; this program reads version {TRACE_VERSION}.")
    try:
        return msgspec.convert(raw, RunFacts)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path} does not hold the facts of a run: {error}.") from None


def event_files(folder: Path, run: str) -> list[Path]:
    return sorted((folder / "events" / f"run={run}").glob("*.parquet"))


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
