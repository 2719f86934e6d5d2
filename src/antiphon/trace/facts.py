"""The facts of each run of a trace, as JSON, and which files hold events. What those hold is in parquet.py."""

from __future__ import annotations

import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from antiphon.core.buffers import UNDECODABLE
from antiphon.core.errors import TraceError
from antiphon.core.model import RUN_NAME
from antiphon.trace.coverage import torn_by_names
from antiphon.trace.schema import TRACE_VERSION, RunFacts

_VALID_NAMES = "use letters, digits, '.', '_' and '-'"


def write_facts(folder: Path, facts: RunFacts) -> None:
    _write(folder / "runs" / f"{facts.run}.json", [facts])


def write_many_facts(folder: Path, name: str, facts: Sequence[RunFacts]) -> None:
    """The facts of many runs in one file, a line each."""
    _write(folder / "runs" / f"{name}.jsonl", facts)


def remove_facts(folder: Path, run: str) -> None:
    """Of a run of which nothing may be said."""
    (folder / "runs" / f"{run}.json").unlink(missing_ok=True)


class TraceFiles(NamedTuple):
    """The files of a trace, each by its address: a path of this machine, or one of a file system that Spark reads."""

    root: str
    facts: Iterable[tuple[str, bytes]]  # each file of facts and its text, by name
    events: dict[str, int]  # each file of events and its size in bytes, as `in_order` has them


def files_here(folder: Path) -> TraceFiles:
    """Those of a trace on this machine; refuses a folder without facts."""
    if not folder.is_dir():
        raise TraceError(f"There is no folder {folder}.")
    facts = sorted([*_shown(folder, "runs/*.json"), *_shown(folder, "runs/*.jsonl")])
    if not facts:
        raise TraceError(no_facts(str(folder)))
    events = {str(file): file.stat().st_size for file in event_files(folder)}
    return TraceFiles(str(folder), ((str(file), file.read_bytes()) for file in facts), events)


def no_facts(root: str) -> str:
    return f"{root} is not a trace: it has no runs/*.json or runs/*.jsonl."


class FactsRead(NamedTuple):
    """The facts of the runs of a trace, and what is wrong with others, by file and line."""

    runs: list[RunFacts]
    refused: dict[str, str]  # why nothing can be said of a run
    nameless: list[str]  # what is wrong with facts that do not even tell their run
    files: dict[str, str]  # where the facts of a run are

    @property
    def complaints(self) -> list[str]:
        return [*self.refused.values(), *self.nameless]


def read_facts(folder: Path) -> list[RunFacts]:
    """The facts of every run of a trace, by file and line; refuses what is not a trace of this version."""
    found = read_all_facts(files_here(folder))
    if found.complaints:
        raise TraceError(found.complaints[0])
    return found.runs


def read_all_facts(files: TraceFiles) -> FactsRead:
    """The same; but what is wrong with the facts of one run is no reason to refuse the others.

    A process is also incomplete when the names of its files show that one is gone.
    """
    names = _names_by_run(files.events)
    found: dict[str, RunFacts] = {}
    place_of: dict[str, str] = {}
    files_of: dict[str, str] = {}
    refused: dict[str, str] = {}
    nameless: list[str] = []
    for file, whole in files.facts:
        for place, text in _texts(file, whole):
            try:
                facts = _read_facts(place, text)
            except TraceError as error:
                if file.endswith(".json"):
                    refused[PurePosixPath(file).stem] = str(error)
                else:
                    nameless.append(str(error))
                continue
            if facts.driver == "runtime":
                gone = torn_by_names(names.get(facts.run, ()), facts.rows)
                facts.incomplete += [process for process in gone if process not in facts.incomplete]
            if facts.run in found:
                refused[facts.run] = f"Run {facts.run!r} is defined twice: {place_of[facts.run]}; {place}."
            found[facts.run], place_of[facts.run], files_of[facts.run] = facts, place, file
    return FactsRead([facts for run, facts in found.items() if run not in refused], refused, nameless, files_of)


def _names_by_run(events: Iterable[str]) -> dict[str, list[str]]:
    """The names of the files that hold one run each."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in events:
        if run := run_of(file):
            found[run].append(PurePosixPath(file).name)
    return found


def _texts(file: str, whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Where the facts of a run stand, and what stands there: a whole file, or each line of one."""
    if file.endswith(".json"):
        yield file, whole
        return
    for number, line in enumerate(whole.splitlines(), start=1):
        if line.strip():
            yield f"Line {number} of {file}", line


def _read_facts(place: str, text: bytes) -> RunFacts:
    try:
        raw = json.loads(text, object_pairs_hook=partial(_once, place))
        if b"\\u" in text:  # half of a pair, which stands for no character
            json.dumps(raw, ensure_ascii=False).encode()
    except UNDECODABLE as error:
        raise TraceError(f"{place} is not JSON: {error}.") from None
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != TRACE_VERSION:
        raise TraceError(f"{place} has trace version {version!r}; this program reads version {TRACE_VERSION}.")
    try:
        facts = msgspec.convert(raw, RunFacts)
    except msgspec.ValidationError as error:
        raise TraceError(f"{place} does not hold the facts of a run: {error}.") from None
    if not RUN_NAME.fullmatch(facts.run):
        raise TraceError(f"{place} has {facts.run!r} as the name of a run: {_VALID_NAMES}.")
    return facts


def _once(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Of two definitions of a group, most readers would take the last without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise TraceError(f"{place} defines {twice!r} twice.")
    return found


def event_files(folder: Path, run: str = "*") -> list[Path]:
    """All files that may have events of a run, or of any: those that are its own, then those that hold many."""
    return [*_shown(folder, f"events/run={run}/*.parquet"), *_shown(folder, "events/*.parquet")]


def _shown(folder: Path, names: str) -> list[Path]:
    """Without those that are hidden, as Spark has it: many tools leave such things beside the files."""
    return sorted(file for file in folder.glob(names) if not file.name.startswith((".", "_")))


def in_order(files: Iterable[str]) -> list[str]:
    """Addresses of files of events in the order of `event_files`."""
    return sorted(files, key=lambda file: (run_of(file) is None, file))


def run_of(file: Path | str) -> str | None:
    """The run whose events a file holds, by its folder; None: its column `run` says it of each row."""
    name = PurePosixPath(file).parent.name
    return name.removeprefix("run=") if name.startswith("run=") else None


def _write(path: Path, facts: Sequence[RunFacts]) -> None:
    """The file appears whole or not at all."""
    for run in facts:
        if not RUN_NAME.fullmatch(run.run):
            raise TraceError(f"{run.run!r} is not a valid run name: {_VALID_NAMES}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # two may write it at the same time
    temporary.write_bytes(msgspec.json.Encoder().encode_lines(facts))
    temporary.replace(path)
