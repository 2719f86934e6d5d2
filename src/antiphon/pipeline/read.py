"""Opens a trace as two DataFrames: its events, each once, and the facts of its runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from antiphon.core.errors import TraceError
from antiphon.pipeline import schema
from antiphon.pipeline.far import ROWS_AT_ONCE, examine_far, far_files, for_spark, is_address, read_far, reading
from antiphon.pipeline.glance.doubled import doubled
from antiphon.pipeline.local import kept, local_table
from antiphon.pipeline.scan import EVENT, Numbers, Scan, numbers, of_rows
from antiphon.trace import RunFacts, read_all_facts, read_facts, run_of
from antiphon.trace.parquet import read_file
from antiphon.trace.survey import Examined, Survey, examine_here, examined, survey

FOOTERS_READ_HERE = 256  # beyond this many files, the executors read the footers
SMALL_FILES, SMALL_BYTES = 64, 1 << 20  # more files than this, of less than this on average, are read once and kept
SMALL_TASK_BYTES, FILES_PER_TASK = 4 << 20, 1_000
FOOTER_TASKS_MAX = 64
COLUMNS = ["run", *schema.EVENT_COLUMNS.names]
DOUBLED_MAX = 2_000_000  # events that are there several times; beyond this, all are shuffled, and not only these


class Trace(NamedTuple):
    """A trace that is open, as far as it can be read."""

    events: DataFrame  # of every run that can be read, each event once
    runs: DataFrame  # the facts of these runs, one row each
    survey: Survey  # what was found on the way, and what was refused
    scan: Scan  # the same events, by a quicker way


def open_trace(spark: SparkSession, trace: Path | str, found: Survey | None = None, *, thorough: bool = False) -> Trace:
    """What can be read of a trace; refused where that is nothing. `trace`: a folder of this machine, or an address that
    Spark reads, as `hdfs://...`. `found`: what a survey told, if there was one. `thorough`: all that is in the files is
    read once more, so that those are found that are damaged inside."""
    survey_ = found or _survey(spark, trace, thorough=thorough)
    events, scan = _events(spark, survey_)
    return Trace(events, _runs(spark, survey_.facts), survey_, scan)


def read_runs(spark: SparkSession, trace: Path | str) -> DataFrame:
    """The facts of every run, one row each."""
    if not is_address(trace):
        return _runs(spark, read_facts(Path(trace)))
    found = read_all_facts(far_files(spark, str(trace)))
    if found.complaints:
        raise TraceError(found.complaints[0])
    return _runs(spark, found.runs)


def read_events(spark: SparkSession, trace: Path | str) -> DataFrame:
    """Every event of every run, once. Refuses, in one sentence, what is not a trace of this version."""
    return _events(spark, _survey(spark, trace).must_be_whole())[0]


def _survey(spark: SparkSession, trace: Path | str, *, thorough: bool = False) -> Survey:
    if not is_address(trace):
        return survey(Path(trace), partial(_examine, spark, thorough=thorough))
    files = far_files(spark, str(trace))
    return survey(files, partial(examine_far, spark, files, thorough=thorough))


def _runs(spark: SparkSession, facts: Iterable[RunFacts]) -> DataFrame:
    rows = [tuple(getattr(run, name) for name in schema.RUNS.names) for run in facts]
    return local_table(spark, rows, schema.RUNS)


def _events(spark: SparkSession, survey_: Survey) -> tuple[DataFrame, Scan]:
    files = survey_.files
    if len(files) > SMALL_FILES and sum(files.values()) < SMALL_BYTES * len(files):
        rows = _read_with_arrow(spark, survey_, list(files)).persist()  # else each check would open all of them again
    else:
        rows = _read_with_spark(spark, survey_)
    known = local_table(spark, [(run.run,) for run in survey_.facts], schema.RUN) if survey_.strangers else None
    scan = Scan(spark, root=survey_.root, files=survey_.files, recast=frozenset(survey_.recast))
    return _once_each(_of_known(rows, known), scan, known)


def _of_known(rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Without the rows of other runs than these, where there are any."""
    return rows if known is None else rows.join(F.broadcast(known), on="run", how="left_semi")


def _read_with_spark(spark: SparkSession, survey_: Survey) -> DataFrame:
    # All files are known, and a given schema saves Spark from inferring anything.
    reader = spark.read.schema(schema.EVENTS)
    strange = set(survey_.recast)
    files = [file for file in survey_.files if file not in strange]
    of_many, of_one = ([for_spark(file) for file in files if (run_of(file) is None) is many] for many in (True, False))
    parts = [reader.parquet(*of_many)] if of_many else []
    if of_one:  # Spark takes `run` from the folders' names: a file beside these would be left out
        parts.append(reader.option("basePath", f"{for_spark(survey_.root)}/events").parquet(*of_one))
    if strange:
        parts.append(_read_with_arrow(spark, survey_, survey_.recast))
    return reduce(DataFrame.unionByName, [part.select(*COLUMNS) for part in parts])


def _read_with_arrow(spark: SparkSession, survey_: Survey, files: Sequence[str]) -> DataFrame:
    """Many small files, and those of which a column must be converted. Spark takes longer to open a small file than to
    read it: Arrow opens ten in that time."""
    if is_address(survey_.root):
        return read_far(spark, survey_.root, files).select(*COLUMNS)
    paths = spark.createDataFrame(pa.table({"path": list(files)}))
    size = sum(survey_.files[file] for file in files)
    tasks = max(2, size // SMALL_TASK_BYTES, len(files) // FILES_PER_TASK)
    return paths.repartition(tasks).mapInArrow(_rows_of, schema.EVENTS).select(*COLUMNS)


def _rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        tables = [_read_file(path) for path in batch.column("path").to_pylist()]
        yield from pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


def _read_file(path: str) -> pa.Table:
    with reading(path):
        return read_file(path)


def deduplicate(events: DataFrame) -> DataFrame:
    """Keep, of the rows with equal (run, process, seq), the one with the smallest time."""
    return _once_each(events, of_rows(events))[0]


def _once_each(events: DataFrame, scan: Scan, known: DataFrame | None = None) -> tuple[DataFrame, Scan]:
    """The events and the scan, both without rows that are there again. `known`: the runs that the events are of, where
    the scan has others too.

    A full shuffle would cost more than all checks together, and most traces have nothing to drop. So only events that
    are there several times, or may be, are moved.
    """
    again = kept(doubled(scan))
    found = again.limit(DOUBLED_MAX + 1).count()
    if not found:
        return events, scan
    if found > DOUBLED_MAX:
        once = kept(_first_of_each(events))
        return once, of_rows(once)
    chosen = numbers(again.toArrow())
    copies = scan.map(partial(_chosen, np.sort(chosen)), COLUMNS, schema.EVENTS)
    once = kept(_first_of_each(_of_known(copies, known))).select(*COLUMNS)
    clean = events.join(F.broadcast(once.select(*EVENT)), on=EVENT, how="left_anti")
    whole = clean.select(*COLUMNS).unionByName(once)
    return whole, scan.divided(chosen, once) if scan.files else of_rows(whole)


def _chosen(wanted: Numbers, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The events that have these numbers."""
    made = to_arrow_schema(schema.EVENTS).names
    for table in tables:
        found = numbers(table)
        place = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
        some = table.filter(pa.array(wanted[place] == found)).select(made)
        yield from some.cast(to_arrow_schema(schema.EVENTS)).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


def _first_of_each(events: DataFrame) -> DataFrame:
    # The earliest; of those with equal times, the one that sorts first.
    same_event = Window.partitionBy("run", "process", "seq").orderBy("time_ns", *schema.EVENT_COLUMNS.names[3:])
    return events.withColumn("copy", F.row_number().over(same_event)).filter("copy = 1").drop("copy")


def _examine(
    spark: SparkSession, files: Sequence[str], runs: Collection[str], *, thorough: bool = False
) -> Iterable[Examined]:
    """Look at every file: here when they are few, on the executors when many."""
    if len(files) <= FOOTERS_READ_HERE:
        return examine_here(files, runs, thorough=thorough)
    paths = spark.createDataFrame(pa.table({"path": list(files)}))
    tasks = min(len(files) // FOOTERS_READ_HERE + 1, FOOTER_TASKS_MAX)
    worthwhile = F.col("complaint").isNotNull() | F.col("recast") | (F.size(F.concat("strange", "held")) > 0)
    found = (
        paths.repartition(tasks)
        .mapInArrow(partial(_examined, frozenset(runs), thorough), schema.EXAMINED)
        .filter(worthwhile)
    )
    return [Examined(*row) for row in found.orderBy("file").collect()]


def _examined(runs: frozenset[str], thorough: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [examined(path, runs, thorough=thorough)._asdict() for path in batch.column("path").to_pylist()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(schema.EXAMINED))
