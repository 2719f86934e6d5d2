"""Opens a trace as two DataFrames: its events, each once, and the facts of its runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from antiphon.core.errors import TraceError
from antiphon.pipeline import schema
from antiphon.pipeline.local import local_table
from antiphon.trace import TRACE_VERSION, event_files, read_facts, run_of
from antiphon.trace.parquet import EVENTS, RUN, check_columns

FOOTERS_READ_HERE = 256  # beyond this many files, the executors read the footers
SMALL_FILES, SMALL_BYTES = 64, 1 << 20  # more files than this, of less than this on average, are read once and kept
SMALL_TASK_BYTES, FILES_PER_TASK = 4 << 20, 1_000
FOOTER_TASKS_MAX = 64
ROWS_AT_ONCE = 10_000
COLUMNS = ["run", *schema.EVENT_COLUMNS.names]
BLOCK_BITS = 6  # events of a process are examined for duplicates in blocks of 64, one bit each
DIRTY_BLOCKS_MAX = 100_000  # beyond this, one shuffle of everything is cheaper than picking blocks


def read_runs(spark: SparkSession, folder: Path | str) -> DataFrame:
    """The facts of every run, one row each."""
    facts = read_facts(Path(folder))
    rows = [tuple(getattr(run, name) for name in schema.RUNS.names) for run in facts]
    return local_table(spark, rows, schema.RUNS)


def read_events(spark: SparkSession, folder: Path | str) -> DataFrame:
    """Every event of every run, once. Refuses, in one sentence, what is not a trace of this version."""
    root = Path(folder).resolve()  # Java may have been started in another folder
    runs = frozenset(run.run for run in read_facts(root))
    files = event_files(root)
    if not files:
        raise TraceError(f"{root} is not a trace: it has no events/run=*/*.parquet and no events/*.parquet.")
    _refuse_unknown_runs(root, runs)
    _check_files(spark, files, runs)
    size = sum(file.stat().st_size for file in files)
    if len(files) > SMALL_FILES and size < SMALL_BYTES * len(files):
        return deduplicate(_read_small(spark, files, size))
    return deduplicate(_read_large(spark, root / "events", files))


def _read_large(spark: SparkSession, events: Path, files: list[Path]) -> DataFrame:
    # All runs of the folder are known now, and a given schema saves Spark from inferring anything.
    reader = spark.read.schema(schema.EVENTS)
    of_many = [str(file) for file in files if run_of(file) is None]
    parts = [reader.parquet(*of_many)] if of_many else []
    if len(of_many) < len(files):  # Spark takes `run` from the folders' names: a file beside these would be left out
        parts.append(reader.option("basePath", str(events)).parquet(str(events / "run=*")))
    return reduce(DataFrame.unionByName, parts).select(*COLUMNS)


def _read_small(spark: SparkSession, files: list[Path], size: int) -> DataFrame:
    """Many small files. Spark takes longer to open one than to read it: Arrow opens ten in that time. And each check
    would open all of them again: what was read is kept."""
    paths = spark.createDataFrame(pa.table({"path": [str(file) for file in files]}))
    tasks = max(2, size // SMALL_TASK_BYTES, len(files) // FILES_PER_TASK)
    return paths.repartition(tasks).mapInArrow(_rows_of, schema.EVENTS).select(*COLUMNS).persist()


def _rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted = EVENTS.append(RUN)
    for batch in batches:
        tables = []
        for path in map(Path, batch.column("path").to_pylist()):
            run = run_of(path)
            table = pq.read_table(path, columns=EVENTS.names if run else wanted.names, partitioning=None)
            if run:
                table = table.append_column(RUN, pa.repeat(run, table.num_rows))
            tables.append(table.cast(wanted))
        yield from pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


def deduplicate(events: DataFrame) -> DataFrame:
    """Keep, of the rows with equal (run, process, seq), the one with the smallest time.

    A full shuffle would cost more than all checks together, and most traces have nothing to drop. So one narrow pass
    sets a bit per event, exactly, in words of 64 events: a word with fewer bits than rows holds a duplicate. Only the
    rows of such words are shuffled.
    """
    words = events.groupBy("run", "process", _block()).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bit_or(F.expr(f"shiftleft(1L, cast(seq & {2**BLOCK_BITS - 1} as int))")).alias("bits"),
    )
    found = words.filter(F.col("rows") > F.bit_count("bits")).select("run", "process", "block")
    dirty = found.limit(DIRTY_BLOCKS_MAX + 1).collect()
    if not dirty:
        return events
    if len(dirty) > DIRTY_BLOCKS_MAX:
        return _first_of_each(events)
    blocks = F.broadcast(local_table(events.sparkSession, dirty, found.schema))
    marked = events.withColumn("block", _block())
    on = ["run", "process", "block"]
    clean = marked.join(blocks, on=on, how="left_anti")
    return clean.unionByName(_first_of_each(marked.join(blocks, on=on, how="left_semi"))).drop("block")


def _block() -> Column:
    return F.expr(f"shiftright(seq, {BLOCK_BITS})").alias("block")


def _first_of_each(events: DataFrame) -> DataFrame:
    same_event = Window.partitionBy("run", "process", "seq").orderBy("time_ns")
    return events.withColumn("copy", F.row_number().over(same_event)).filter("copy = 1").drop("copy")


def _refuse_unknown_runs(root: Path, runs: Iterable[str]) -> None:
    folders = {path.name.removeprefix("run=") for path in (root / "events").glob("run=*")}
    unknown = sorted(folders - set(runs))
    if unknown:
        raise TraceError(f"{root} has events of run {unknown[0]!r} but no facts of it are in runs/.")


def _check_files(spark: SparkSession, files: list[Path], runs: frozenset[str]) -> None:
    """Read every file's footer, and which runs it is about: here when they are few, on the executors when many."""
    if len(files) <= FOOTERS_READ_HERE:
        with ThreadPoolExecutor(8) as pool:
            complaints = [words for words in pool.map(partial(complaint_about, runs=runs), files) if words]
    else:
        paths = spark.createDataFrame(pa.table({"path": [str(file) for file in files]}))
        tasks = min(len(files) // FOOTERS_READ_HERE + 1, FOOTER_TASKS_MAX)
        found = paths.repartition(tasks).mapInArrow(partial(_complaints, runs), "complaint string").limit(1)
        complaints = [str(row.complaint) for row in found.collect()]
    if complaints:
        raise TraceError(complaints[0])


def _complaints(runs: frozenset[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [complaint_about(Path(path), runs) for path in batch.column("path").to_pylist()]
        yield pa.RecordBatch.from_pydict({"complaint": pa.array([words for words in found if words], pa.string())})


def complaint_about(file: Path, runs: Collection[str]) -> str | None:
    """What is wrong with an event file, which may be about these runs; an error would lose its type on the way to the
    driver. Only its footer is read and, if it is about many runs, the column that says of which."""
    try:
        found = pq.read_schema(file)
        check_columns(file, found)
        strange = set() if run_of(file) else _runs_in(file) - set(runs)
    except (pa.ArrowInvalid, OSError):
        return f"{file} is not a Parquet file."
    except TraceError as error:
        return str(error)
    version = (found.metadata or {}).get(b"antiphon.trace.version", str(TRACE_VERSION).encode())
    if version != str(TRACE_VERSION).encode():
        return f"{file} has trace version {version.decode()!r}; this program reads version {TRACE_VERSION}."
    if None in strange:
        return f"{file} has rows whose run is null."
    return f"{file} has events of run {min(map(str, strange))!r} but no facts of it are in runs/." if strange else None


def _runs_in(file: Path) -> set[str | None]:
    """The runs of a file of many. As a dictionary, the column is read without making a text of each row."""
    parquet = pq.ParquetFile(file, read_dictionary=[RUN.name])
    found: set[str | None] = set()
    for group in range(parquet.num_row_groups):
        column = parquet.read_row_group(group, columns=[RUN.name]).column(0)
        found.update(column.unique().to_pylist())
    return found
