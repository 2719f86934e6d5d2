"""Looks over the files of a trace before anybody reads them: what can be read, and what is wrong with the rest.

One damaged file is no reason to refuse ten thousand runs: it is told of which run nothing can be said, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.errors import TraceError
from antiphon.trace.facts import TraceFiles, files_here, read_all_facts, run_of
from antiphon.trace.parquet import EVENTS, RUN, check_cells, check_text, open_file, wanted_columns
from antiphon.trace.schema import TRACE_VERSION, EventKind, RunFacts

KINDS = frozenset(map(str, EventKind))
NEVER_NULL = [field.name for field in EVENTS if not field.nullable]


class Examined(NamedTuple):
    """What is to be said of a file of events without reading its rows."""

    file: str
    complaint: str | None = None
    recast: bool = False  # whether a column must be converted: Spark alone would not read it
    strange: Sequence[str] = ()  # runs in it of which there are no facts
    held: Sequence[str] = ()  # runs in it of which there are facts; of a file that holds many


class Survey(NamedTuple):
    """What can be read of a trace."""

    root: str  # the trace's folder
    facts: list[RunFacts]  # of the runs that can be judged
    files: dict[str, int]  # that hold their events, by address, and their sizes in bytes
    recast: list[str]  # those among them that Spark alone would not read
    refused: dict[str, str]  # by run: the one sentence that says what is wrong with it
    nameless: list[str]  # what is wrong with facts that do not even tell their run
    strangers: bool  # whether the files may hold events of other runs too

    @property
    def complaints(self) -> list[str]:
        return [*self.refused.values(), *self.nameless]

    def must_be_whole(self) -> Survey:
        """Itself, unless there is something that cannot be read."""
        if self.complaints:
            raise TraceError(self.complaints[0])
        return self


Examine = Callable[[Sequence[str], Collection[str]], Iterable[Examined]]


def examine_here(files: Sequence[str], runs: Collection[str], *, thorough: bool = False) -> Iterable[Examined]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(partial(examined, runs=runs, thorough=thorough), files))


def survey(trace: Path | TraceFiles, examine: Examine = examine_here) -> Survey:
    """Look at all facts and at every file of events. Refuses a trace of which no run can be read."""
    # Who reads the files may have been started in another folder.
    root, _, files = here = files_here(trace.resolve()) if isinstance(trace, Path) else trace
    found = read_all_facts(here)
    if not files:
        raise TraceError(f"{root} is not a trace: it has no events/run=*/*.parquet and no events/*.parquet.")
    facts = {run.run: run for run in found.runs}
    refused = dict(found.refused)
    folders = {run for file in files if (run := run_of(file))}
    for run in sorted(folders - facts.keys() - refused.keys()):
        refused[run] = f"{root} has events of run {run!r} but no facts of it are in runs/."
    known = facts.keys() | refused.keys()
    recast: list[str] = []
    damaged: set[str] = set()
    eventful: set[str] = set(folders)
    for file, complaint, cast, strange, held in examine([f for f in files if run_of(f) not in refused], known):
        if complaint:
            damaged.add(file)
            whose = _whose(file, known - folders, found.files)
            for run in whose:
                refused.setdefault(run, complaint)
            found.nameless.extend(() if whose else (complaint,))
        for run in strange:
            refused.setdefault(run, f"{file} has events of run {run!r} but no facts of it are in runs/.")
        recast += [file] if cast else []
        eventful.update(held)
    for run in sorted(facts.keys() - eventful - refused.keys()):
        if not _idle(facts[run]):
            refused[run] = f"{found.files[run]} has the facts of run {run!r}, but there are no events of it."
    readable = [run for name, run in facts.items() if name not in refused]
    left = {file: size for file, size in files.items() if run_of(file) not in refused and file not in damaged}
    strangers = bool(refused) and any(run_of(file) is None for file in left)
    result = Survey(root, readable, left, recast, refused, found.nameless, strangers)
    if not readable:
        raise TraceError(result.complaints[0])
    return result


def _idle(facts: RunFacts) -> bool:
    """Whether the facts say that nothing happened: that no process has a row."""
    return not any(facts.rows.get(process, 1) for members in facts.groups.values() for process in members)


def _whose(file: str, others: Collection[str], files: Mapping[str, str]) -> Collection[str]:
    """The runs that a damaged file may be about: the one of its folder; or those whose facts were written together with
    it, under its name; or all that have no folder of their own."""
    run = run_of(file)
    if run:
        return [run]
    name = f"{PurePosixPath(file).stem}.jsonl"
    beside = [run for run in others if run in files and PurePosixPath(files[run]).name == name]
    return beside or others


def examined(
    file: Path | str, runs: Collection[str], content: pa.Buffer | None = None, *, thorough: bool = False
) -> Examined:
    """Look at a file that may be about these runs. An error would lose its type on its way out of an executor.

    Only a `thorough` look reads all of it, and finds damage behind a footer that is whole.
    """
    try:
        parquet = open_file(file, content)
        recast = _differing(file, parquet)
        _check_version(file, parquet.schema_arrow)
        _check_nulls(file, parquet)
        _check_kinds(file, _distinct(file, content, "kind"))
        held = set() if run_of(file) else _distinct(file, content, RUN.name)
        if thorough:
            _check_rows(file, parquet)
    except (pa.ArrowException, OSError):
        return Examined(str(file), f"{file} is not a Parquet file, or is damaged.")
    except TraceError as error:
        return Examined(str(file), str(error))
    return Examined(str(file), None, recast, sorted(held - set(runs)), sorted(held & set(runs)))


def _check_rows(file: Path | str, parquet: pq.ParquetFile) -> None:
    for batch in parquet.iter_batches(columns=EVENTS.names if run_of(file) else [*EVENTS.names, RUN.name]):
        check_cells(file, pa.Table.from_batches([batch]))


def _check_version(file: Path | str, found: pa.Schema) -> None:
    metadata = found.metadata or {}
    version = metadata.get(b"antiphon.trace.version", str(TRACE_VERSION).encode()).decode(errors="replace")
    if version != str(TRACE_VERSION):
        raise TraceError(f"{file} has trace version {version!r}; this program reads version {TRACE_VERSION}.")


def _differing(file: Path | str, parquet: pq.ParquetFile) -> bool:
    """Whether a column has a type that Spark would not take for the one it should have, but which can be converted."""
    other = wanted_columns(file, parquet.schema_arrow)
    for name in other:
        try:
            parquet.read(columns=[name]).column(0).cast((EVENTS.append(RUN)).field(name).type)
        except pa.ArrowInvalid:
            found = parquet.schema_arrow.field(name).type
            raise TraceError(f"{file} has column {name!r} as {found}, and in it what is not a whole number.") from None
    return bool(other)


def _check_nulls(file: Path | str, parquet: pq.ParquetFile) -> None:
    """What every event has. The file's own statistics tell, where it has such."""
    places = {parquet.metadata.schema.column(i).path: i for i in range(parquet.metadata.num_columns)}
    for name in NEVER_NULL if run_of(file) else (*NEVER_NULL, RUN.name):
        for group in range(parquet.num_row_groups):
            counted = parquet.metadata.row_group(group).column(places[name]).statistics
            known = counted is not None and counted.has_null_count
            if counted.null_count if known else parquet.read_row_group(group, columns=[name]).column(0).null_count:
                raise TraceError(f"{file} has rows whose {name} is null.")


def _check_kinds(file: Path | str, kinds: set[str]) -> None:
    unknown = kinds - KINDS
    if unknown:
        raise TraceError(f"{file} has events of kind {min(unknown)!r}; version {TRACE_VERSION} knows no such kind.")


def _distinct(file: Path | str, content: pa.Buffer | None, column: str) -> set[str]:
    """The different values of a column that has few. As a dictionary, it is read without making a text of each row."""
    coded = open_file(file, content, read_dictionary=[column])
    found: set[str] = set()
    for group in range(coded.num_row_groups):
        values = coded.read_row_group(group, columns=[column]).column(0)
        check_text(file, column, values)
        found.update(values.unique().to_pylist())
    return found
