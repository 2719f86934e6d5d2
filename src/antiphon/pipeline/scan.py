"""Gives the parts of a trace, as Arrow tables, to a function that Spark's tasks call.

Arrow reads a Parquet file in a fifth of the time that Spark takes to read it and hand it to Python. So where the rows
of a trace are those of its files, the tasks get the files' names, or what is in them; else they get the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from antiphon.pipeline.far import contents, is_address, reading
from antiphon.trace import run_of
from antiphon.trace.parquet import EVENTS, RUN, check_cells, open_file, read_file

TASK_ROWS = 1 << 19  # so many rows a task holds
BYTES_PER_TASK = 16 << 20  # of files
BYTES_PER_BUCKET = 32 << 20  # each part of the trace is divided into as many pieces as there are buckets
EVENT = ["run", "process", "seq"]
# Texts come as numbers in a dictionary, as files have them anyway, also those in lists. Keys do not: few are alike.
_CODED = pa.dictionary(pa.int32(), pa.string())


def _coded(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_coded(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_coded(field.type)) for field in kind])
    return _CODED if pa.types.is_string(kind) else kind


_EVERYTHING = EVENTS.append(RUN)
_TYPES = {field.name: _coded(field.type) for field in _EVERYTHING}

Batches = Iterator[pa.RecordBatch]
Look = Callable[[Iterable[pa.Table]], Batches]
Numbers = npt.NDArray[np.uint64]
NONE: Numbers = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True)
class Scan:
    """A trace: what is in files, without some of it, and rows beside."""

    spark: SparkSession
    rows: DataFrame | None = None
    root: str = ""  # the folder of the files
    files: dict[str, int] = field(default_factory=dict)  # their sizes
    recast: frozenset[str] = frozenset()  # those of which a column must be converted
    without: Numbers = field(default_factory=lambda: NONE)  # of events in files: these are among the rows

    def map(self, look: Look, columns: Sequence[str], made: str | StructType) -> DataFrame:
        """What `look` makes of the parts of the trace: it is called once per task."""
        parts = []
        if self.rows is not None:
            parts.append(self.rows.select(*columns).mapInArrow(partial(_in_rows, look), made))
        if self.files:
            wanted = _Wanted(list(columns), self.recast, self.without)
            parts.append(self._named().mapInArrow(partial(_in_files, look, wanted), made))
        return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])

    def buckets(self) -> int:
        """Into how many tasks to divide what was looked at: one holds a bucket in memory."""
        most = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 200)
        if not self.files:
            return most
        return max(1, min(most, 2 * (os.cpu_count() or 1)), sum(self.files.values()) // BYTES_PER_BUCKET)

    def divided(self, doubled: Numbers, rows: DataFrame) -> Scan:
        """The same, with these events taken from the rows and not from the files."""
        return replace(self, without=np.sort(doubled), rows=rows)

    def beside(self, rows: DataFrame) -> Scan:
        """The same, and these rows."""
        return replace(self, rows=rows if self.rows is None else self.rows.unionByName(rows))

    def _named(self) -> DataFrame:
        """(path, part, parts): files, large ones in several parts; or (path, content)."""
        if is_address(self.root):
            return contents(self.spark, self.root, list(self.files))
        pieces = []
        for path, size in self.files.items():
            parts = 1 if path in self.recast else max(1, size // BYTES_PER_TASK)
            pieces += [(path, part, parts, size // parts) for part in range(parts)]
        tasks = max(1, min(len(pieces), sum(self.files.values()) // BYTES_PER_TASK))
        ends = np.cumsum([size for *_, size in pieces])
        task = np.minimum((ends - 1) * tasks // ends[-1], tasks - 1)
        path_, part_, parts_, _ = zip(*pieces, strict=True)
        table = pa.table({"path": path_, "part": part_, "parts": parts_, "task": pa.array(task, pa.int32())})
        return self.spark.createDataFrame(table).repartitionById(tasks, "task")


@dataclass(frozen=True)
class _Wanted:
    columns: list[str]
    recast: frozenset[str]
    without: Numbers


def of_rows(rows: DataFrame) -> Scan:
    return Scan(rows.sparkSession, rows)


def numbers(table: pa.Table) -> Numbers:
    """A number for each event; two events may have the same one by chance."""
    found = np.asarray(table.column("seq").to_numpy(), dtype=np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for name, weight in (("run", 0xC2B2AE3D27D4EB4F), ("process", 0x165667B19E3779F9)):
        one = table.column(name).combine_chunks()
        coded = one if pa.types.is_dictionary(one.type) else one.dictionary_encode()
        of_names = [crc32(text.encode()) * weight % 2**64 for text in coded.dictionary.to_pylist()]
        found = found + np.array(of_names, dtype=np.uint64)[np.asarray(coded.indices)]
    return found


def _in_rows(look: Look, batches: Batches) -> Batches:
    return look(_tables(_checked(pa.Table.from_batches([batch])) for batch in batches))


def _checked(table: pa.Table) -> pa.Table:
    with reading("?"):
        check_cells("The trace", table)
    return table


def _in_files(look: Look, wanted: _Wanted, batches: Batches) -> Batches:
    pa.set_cpu_count(1)
    return look(_tables(_read(wanted, batches)))


def _tables(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Small ones put together."""
    waiting: list[pa.Table] = []
    rows = 0
    for part in parts:
        if rows and rows + len(part) > TASK_ROWS:
            yield _one(waiting)
            waiting, rows = [], 0
        waiting.append(part)
        rows += len(part)
    if rows:
        yield _one(waiting)


def _one(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries().combine_chunks()


def _read(wanted: _Wanted, batches: Batches) -> Iterator[pa.Table]:
    own = [name for name in wanted.columns if name != RUN.name]
    if len(wanted.without):
        own += [name for name in EVENT if name not in (*own, RUN.name)]
    for batch in batches:
        for row in range(batch.num_rows):
            cells = {name: batch.column(name)[row] for name in batch.schema.names}
            path, content = cells["path"].as_py(), cells["content"].as_buffer() if "content" in cells else None
            part, parts = (cells[name].as_py() if name in cells else default for name, default in _WHOLE.items())
            with reading(path):
                if path in wanted.recast:
                    tables: Iterable[pa.Table] = _slices(_as_wanted(read_file(path, own, content)))
                else:
                    tables = _groups(path, own, part, parts, content)
                for table in tables:
                    yield (_rest(table, wanted.without) if len(wanted.without) else table).select(wanted.columns)


_WHOLE = {"part": 0, "parts": 1}


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, len(table), TASK_ROWS):
        yield table.slice(start, TASK_ROWS)


def _rest(table: pa.Table, without: Numbers) -> pa.Table:
    found = numbers(table)
    place = np.minimum(np.searchsorted(without, found), len(without) - 1)
    return table.filter(pa.array(without[place] != found))


def _groups(path: str, columns: list[str], part: int, parts: int, content: pa.Buffer | None) -> Iterator[pa.Table]:
    """The row groups of a file that are this part of it."""
    run = run_of(path)
    wanted = columns if run else [*columns, RUN.name]
    file = _with_texts_coded(path, wanted, content)
    n = file.num_row_groups
    for group in range(part * n // parts, (part + 1) * n // parts):
        # Each by itself: a batch of two would have two dictionaries, which Arrow cannot put into one list's texts.
        for batch in file.iter_batches(TASK_ROWS, [group], columns=wanted, use_threads=False):
            table = _as_wanted(pa.Table.from_batches([batch]).select(wanted))
            check_cells(path, table)
            if run:
                same = pa.repeat(pa.scalar(0, pa.int32()), len(table))
                table = table.append_column(RUN.name, pa.DictionaryArray.from_arrays(same, pa.array([run])))
            yield table


def _with_texts_coded(path: str, wanted: Sequence[str], content: pa.Buffer | None) -> pq.ParquetFile:
    about = open_file(path, content).metadata
    leaves = [about.schema.column(place) for place in range(about.num_columns)]
    inside = {name for name in wanted if _TYPES[name] != _EVERYTHING.field(name).type}
    texts = [leaf for leaf in leaves if leaf.path.partition(".")[0] in inside and leaf.physical_type == "BYTE_ARRAY"]
    return open_file(path, content, metadata=about, read_dictionary=[leaf.path for leaf in texts])


def _as_wanted(table: pa.Table) -> pa.Table:
    """Texts may be large, or not from a dictionary, as other tools write them."""
    for place, name in enumerate(table.column_names):
        found = table.column(name)
        if found.type != _TYPES[name]:
            table = table.set_column(place, name, found.cast(_EVERYTHING.field(name).type).cast(_TYPES[name]))
    return table
