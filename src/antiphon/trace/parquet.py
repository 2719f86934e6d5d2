"""The events of a trace on disk, as Parquet. Apart from the rest of the trace, because pyarrow is slow to load."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.core.errors import TraceError
from antiphon.trace.facts import event_files, run_of, write_facts, write_many_facts
from antiphon.trace.schema import TRACE_VERSION, EventKind, RequestCell, Row, RunFacts

EVENTS = pa.schema(
    [
        pa.field("process", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("message", pa.string()),
        pa.field("destinations", pa.list_(pa.string())),
        pa.field(
            "requests",
            pa.list_(
                pa.struct(
                    [
                        pa.field("client", pa.string()),
                        pa.field("first", pa.int64()),
                        pa.field("payloads", pa.int64()),
                        pa.field("digest", pa.int64()),
                    ]
                )
            ),
        ),
        pa.field("peers", pa.list_(pa.string())),
        pa.field("about", pa.list_(pa.string())),
        pa.field("layer", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("step", pa.int32()),
        pa.field("order_key", pa.binary()),
        pa.field("position", pa.int64()),
    ],
    metadata={"antiphon.trace.version": str(TRACE_VERSION)},
)
RUN = pa.field("run", pa.string(), nullable=False)  # of a file that holds the events of many runs

ROWS_PER_BATCH = 4096  # that are Python objects at one time: as a table they take less than half of the memory


def to_table(rows: Iterable[Row]) -> pa.Table:
    coming = iter(rows)
    batches = []
    while batch := list(islice(coming, ROWS_PER_BATCH)):
        batches.append(_to_batch(batch))
    return pa.Table.from_batches(batches, schema=EVENTS)


def _to_batch(rows: list[Row]) -> pa.RecordBatch:
    arrays = [
        pa.array(_plain(column) if field.name == "requests" else column, type=field.type)
        for column, field in zip(zip(*rows, strict=True), EVENTS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def _plain(requests: Iterable[tuple[RequestCell, ...] | None]) -> list[list[dict[str, object]] | None]:
    return [None if cells is None else [cell._asdict() for cell in cells] for cells in requests]


def write_events(folder: Path, run: str, name: str, events: pa.Table) -> None:
    """Write one Parquet file of a run; it appears whole or not at all."""
    _write(folder / "events" / f"run={run}" / f"{name}.parquet", events)


def _write(path: Path, events: pa.Table, attempt: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}{attempt}.tmp")
    pq.write_table(events, temporary, compression="zstd")
    with temporary.open("rb") as written:
        os.fsync(written.fileno())  # a name must never stand for less than the whole file
    temporary.replace(path)


def write_run(folder: Path, facts: RunFacts, rows: Sequence[Row], *, rows_per_file: int = 1_000_000) -> None:
    """Write a whole run, replacing what an earlier run of the same name left."""
    events = folder / "events" / f"run={facts.run}"
    for stale in events.glob("*.parquet"):
        stale.unlink()
    for start in range(0, max(len(rows), 1), rows_per_file):
        table = to_table(rows[start : start + rows_per_file])
        write_events(folder, facts.run, f"part-{start // rows_per_file:05d}", table)
    write_facts(folder, facts)


def write_runs(folder: Path, name: str, runs: Iterable[tuple[RunFacts, Iterable[Row]]]) -> None:
    """Write whole runs into one file of events and one of facts. Two may do so at the same time, if it is the same."""
    tables = ((of_run, to_table(rows)) for of_run, rows in runs)
    named = [(of_run, table.append_column(RUN, pa.repeat(of_run.run, len(table)))) for of_run, table in tables]
    write_tables(folder, name, named)


def write_tables(folder: Path, name: str, runs: Sequence[tuple[RunFacts, pa.Table]]) -> None:
    """The same of tables that have the column of the run already."""
    if runs:
        runs = [(of_run if len(table) else _idle(of_run), table) for of_run, table in runs]
        events = pa.concat_tables([table for _, table in runs])
        _write(folder / "events" / f"{name}.parquet", events, f".{secrets.token_hex(4)}")
        write_many_facts(folder, name, [of_run for of_run, _ in runs])


def _idle(facts: RunFacts) -> RunFacts:
    """The facts of a run in which nothing happened: no folder is there to say so."""
    members = sorted({process for names in facts.groups.values() for process in names})
    return msgspec.structs.replace(facts, rows=dict.fromkeys(members, 0))


def wanted_columns(path: Path | str, found: pa.Schema) -> list[str]:
    """Refuse a Parquet file that lacks a column or has it in another type. The result has the columns that hold the
    same in another type, as pandas writes them: numbers with nulls as doubles, and a column of nulls without a type."""
    other = []
    for field in EVENTS if run_of(path) else (*EVENTS, RUN):
        position = found.get_field_index(field.name)
        if position < 0:
            raise TraceError(f"{path} has no column {field.name!r}.")
        kind = _plain_type(found.field(position).type)
        if kind == field.type:
            continue
        if not _same_in_another_type(kind, field.type):
            raise TraceError(f"{path} has column {field.name!r} as {found.field(position).type}, not {field.type}.")
        other.append(field.name)
    return other


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """A type as it is in the file: that a text is large, or one of a dictionary, is a wish of who wrote it."""
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind


def _same_in_another_type(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Where a column has nulls, or nothing else, or only empty lists, its type may have been lost; and many tools have
    one type for all whole numbers."""
    if pa.types.is_list(kind) and pa.types.is_list(wanted):
        return bool(pa.types.is_null(kind.value_type))
    if pa.types.is_null(kind):
        return True
    return bool(pa.types.is_integer(wanted) and (pa.types.is_float64(kind) or pa.types.is_int64(kind)))


def read_rows(folder: Path, run: str) -> list[Row]:
    """All events of one run, each once, by process and seq. For small runs; Spark reads the large ones."""
    return deduplicate(_raw_rows(folder, run))


def heard_processes(folder: Path, run: str) -> set[str]:
    """Those from which something was received, by the rows that are here; whether theirs are here or not."""
    found: set[str] = set()
    for table in _tables(folder, run, ["kind", "peers"]):
        received = table.filter(pc.equal(table.column("kind"), EventKind.RECEIVE.value))
        found.update(pc.unique(pc.list_flatten(received.column("peers"))).to_pylist())
    return found


def forgetful_processes(folder: Path, run: str, among: Collection[str]) -> list[str]:
    """Those of these processes of which others have delivered a message that they never multicast, by their rows."""
    if not among:
        return []
    said: set[str] = set()
    delivered: set[str] = set()
    wanted = pa.array(among, pa.string())
    for table in _tables(folder, run, ["kind", "message"]):
        for kind, found in ((EventKind.MULTICAST, said), (EventKind.DELIVER, delivered)):
            messages = pc.unique(table.filter(pc.equal(table.column("kind"), kind.value)).column("message"))
            origins = pc.list_element(pc.split_pattern(messages, ":", max_splits=1), 0)
            found.update(messages.filter(pc.is_in(origins, wanted)).to_pylist())
    lost = {message.partition(":")[0] for message in delivered - said}
    return [process for process in among if process in lost]


def _raw_rows(folder: Path, run: str) -> Iterator[Row]:
    for table in _tables(folder, run):
        for cells in zip(*(table.column(field.name).to_pylist() for field in EVENTS), strict=True):
            yield _tupled(Row(*cells))


def _tables(folder: Path, run: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """What each file holds of one run; at least these columns of it."""
    for path in event_files(folder, run):
        table = read_file(path, columns)
        yield table.filter(pc.equal(table.column(RUN.name), run))


def open_file(path: Path | str, content: pa.Buffer | None = None, **options: Any) -> pq.ParquetFile:
    """A file of this machine, or one of which somebody else has read the content."""
    return pq.ParquetFile(path if content is None else pa.BufferReader(content), **options)


def read_file(path: Path | str, columns: list[str] | None = None, content: pa.Buffer | None = None) -> pa.Table:
    """The events of one file, with their run; or only these columns of them, and the run."""
    run = run_of(path)
    file = open_file(path, content)
    wanted_columns(path, file.schema_arrow)
    names = columns or EVENTS.names
    table = file.read(columns=names if run else [*names, RUN.name])
    if run:
        table = table.drop_columns(RUN.name) if RUN.name in table.column_names else table
        table = table.append_column(RUN, pa.repeat(run, table.num_rows))
    everything = EVENTS.append(RUN)
    table = table.select([*names, RUN.name]).cast(pa.schema([everything.field(name) for name in (*names, RUN.name)]))
    check_cells(path, table)
    return table


def check_cells(path: Path | str, table: pa.Table) -> None:
    """Refuse events with a null inside a list, or with text that is not valid UTF-8.

    No footer tells of either, so it is looked for in what is read: each question is one call of Arrow's for all rows,
    and texts of a dictionary are looked at once each.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _has_lists(column.type):
            for part in column.chunks:
                _check_lists(path, name, part)
        if _has_texts(column.type):
            check_text(path, name, column)


def check_text(path: Path | str, name: str, column: pa.ChunkedArray) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise TraceError(f"{path} has text in column {name!r} that is not valid UTF-8.") from None


def _check_lists(path: Path | str, name: str, lists: pa.Array) -> None:
    # What a list that is null had before it became so does not count. It takes a copy to leave that out, so that comes
    # only where there is a null at all.
    null = _null_inside(lists.values) and _null_inside(lists.flatten())
    if null:
        raise TraceError(f"{path} has rows with {null} among what column {name!r} lists.")


def _null_inside(values: pa.Array) -> str | None:
    if values.null_count:
        return "a null"
    if not pa.types.is_struct(values.type):
        return None
    fields = (field.name for place, field in enumerate(values.type) if values.field(place).null_count)
    return next((f"a null {name!r}" for name in fields), None)


def _has_lists(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _has_texts(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or _has_lists(kind):
        return _has_texts(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_has_texts(field.type) for field in kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _tupled(row: Row) -> Row:
    """Lists and dicts, as Parquet gives them, as the tuples that a Row holds."""
    return row._replace(
        destinations=None if row.destinations is None else tuple(row.destinations),
        requests=None if row.requests is None else tuple(RequestCell(**cell) for cell in row.requests),  # type: ignore[arg-type]
        peers=None if row.peers is None else tuple(row.peers),
        about=None if row.about is None else tuple(row.about),
    )


def deduplicate(rows: Iterable[Row]) -> list[Row]:
    """Keep the earliest of rows with equal (process, seq), which recovery may have written again."""
    kept: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = (row.process, row.seq)
        other = kept.get(key)
        if other is None or row.time_ns < other.time_ns:
            kept[key] = row
        elif row.time_ns == other.time_ns and row != other:
            kept[key] = min(row, other, key=_sorting)
    return [kept[key] for key in sorted(kept)]


def _sorting(row: Row) -> tuple[object, ...]:
    """By the columns from left to right, what is null first: only a forged trace has two such rows that differ."""
    return tuple((cell is not None, cell) for cell in row)
