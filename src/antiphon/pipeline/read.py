"""Opens a trace as two DataFrames: its events, each once, and the facts of its runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from antiphon.core.errors import TraceError
from antiphon.pipeline import schema
from antiphon.pipeline.far import ROWS_AT_ONCE, examine_far, far_files, for_spark, is_address, read_far
from antiphon.pipeline.local import kept, local_table, small
from antiphon.trace import RunFacts, read_all_facts, read_facts, run_of
from antiphon.trace.parquet import read_file
from antiphon.trace.survey import Examined, Survey, examine_here, examined, survey

FOOTERS_READ_HERE = 256  # beyond this many files, the executors read the footers
SMALL_FILES, SMALL_BYTES = 64, 1 << 20  # more files than this, of less than this on average, are read once and kept
SMALL_TASK_BYTES, FILES_PER_TASK = 4 << 20, 1_000
FOOTER_TASKS_MAX = 64
COLUMNS = ["run", *schema.EVENT_COLUMNS.names]
BLOCK_BITS = 6  # events of a process are examined for duplicates in blocks of 64, one bit each
DOUBLED_HERE = 10_000  # events that are there several times: so many numbers the driver holds
DOUBLED_MAX = 8_000_000  # beyond this, all events are shuffled, and not only these


class Trace(NamedTuple):
    """A trace that is open, as far as it can be read."""

    events: DataFrame  # of every run that can be read, each event once
    runs: DataFrame  # the facts of these runs, one row each
    survey: Survey  # what was found on the way, and what was refused


def open_trace(spark: SparkSession, trace: Path | str, found: Survey | None = None) -> Trace:
    """What can be read of a trace; refused where that is nothing. `trace`: a folder of this machine, or an address that
    Spark reads, as `hdfs://...`. `found`: what a survey told, if there was one."""
    survey_ = found or _survey(spark, trace)
    return Trace(_events(spark, survey_), _runs(spark, survey_.facts), survey_)


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
    return _events(spark, _survey(spark, trace).must_be_whole())


def _survey(spark: SparkSession, trace: Path | str) -> Survey:
    if not is_address(trace):
        return survey(Path(trace), partial(_examine, spark))
    files = far_files(spark, str(trace))
    return survey(files, partial(examine_far, spark, files))


def _runs(spark: SparkSession, facts: Iterable[RunFacts]) -> DataFrame:
    rows = [tuple(getattr(run, name) for name in schema.RUNS.names) for run in facts]
    return local_table(spark, rows, schema.RUNS)


def _events(spark: SparkSession, survey_: Survey) -> DataFrame:
    files = survey_.files
    if len(files) > SMALL_FILES and sum(files.values()) < SMALL_BYTES * len(files):
        rows = _read_with_arrow(spark, survey_, list(files)).persist()  # else each check would open all of them again
    else:
        rows = _read_with_spark(spark, survey_)
    if survey_.strangers:
        known = local_table(spark, [(run.run,) for run in survey_.facts], schema.RUN)
        rows = rows.join(F.broadcast(known), on="run", how="left_semi")
    return deduplicate(rows)


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
        tables = [read_file(path) for path in batch.column("path").to_pylist()]
        yield from pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


def deduplicate(events: DataFrame) -> DataFrame:
    """Keep, of the rows with equal (run, process, seq), the one with the smallest time.

    A full shuffle would cost more than all checks together, and most traces have nothing to drop. So one narrow pass
    sets a bit per event, in words of 64 events, once with or and once with exclusive or. A word with fewer bits than
    rows holds events that are there several times: those whose bits cancelled out, or if that does not account for all
    rows, as where one is there three times, any of them. Only such rows are shuffled; each other is looked up by a
    number, and what has the number of such a row by chance is only looked at more closely.
    """
    bit = F.expr(f"shiftleft(1L, cast(seq & {2**BLOCK_BITS - 1} as int))")
    words = events.groupBy("run", "process", F.expr(f"shiftright(seq, {BLOCK_BITS})").alias("block")).agg(
        F.count(F.lit(1)).alias("rows"), F.bit_or(bit).alias("bits"), F.bit_xor(bit).alias("odd")
    )
    cancelled = F.col("bits").bitwiseAND(F.bitwise_not("odd"))
    twice = F.col("rows") == F.bit_count("bits") + F.bit_count(cancelled)
    dirty = (
        words.filter(F.col("rows") > F.bit_count("bits"))
        .withColumn("doubled", F.when(twice, cancelled).otherwise(F.col("bits")))
        .withColumn("bit", F.explode(F.sequence(F.lit(0), F.lit(2**BLOCK_BITS - 1))))
        .filter("(shiftright(doubled, bit) & 1) = 1")
        .withColumn("seq", F.expr(f"shiftleft(block, {BLOCK_BITS}) + bit"))
    )
    numbers = small(dirty.select(_number()), DOUBLED_HERE)
    if numbers.isEmpty():
        return events
    if numbers.count() > DOUBLED_MAX:
        return kept(_first_of_each(events))
    marked = events.withColumn("number", _number())
    there = F.broadcast(numbers)
    clean = marked.join(there, on="number", how="left_anti")
    once = kept(_first_of_each(marked.join(there, on="number", how="left_semi")))
    return clean.unionByName(once).drop("number")


def _number() -> Column:
    return F.xxhash64("run", "process", "seq").alias("number")


def _first_of_each(events: DataFrame) -> DataFrame:
    # The earliest; of those with equal times, the one that sorts first.
    same_event = Window.partitionBy("run", "process", "seq").orderBy("time_ns", *schema.EVENT_COLUMNS.names[3:])
    return events.withColumn("copy", F.row_number().over(same_event)).filter("copy = 1").drop("copy")


def _examine(spark: SparkSession, files: Sequence[str], runs: Collection[str]) -> Iterable[Examined]:
    """Look at every file: here when they are few, on the executors when many."""
    if len(files) <= FOOTERS_READ_HERE:
        return examine_here(files, runs)
    paths = spark.createDataFrame(pa.table({"path": list(files)}))
    tasks = min(len(files) // FOOTERS_READ_HERE + 1, FOOTER_TASKS_MAX)
    worthwhile = F.col("complaint").isNotNull() | F.col("recast") | (F.size("strange") > 0)
    found = paths.repartition(tasks).mapInArrow(partial(_examined, frozenset(runs)), schema.EXAMINED).filter(worthwhile)
    return [Examined(*row) for row in found.orderBy("file").collect()]


def _examined(runs: frozenset[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [examined(path, runs)._asdict() for path in batch.column("path").to_pylist()]
        yield pa.RecordBatch.from_pylist(found, to_arrow_schema(schema.EXAMINED))
