"""The files of a trace where only Spark's file systems may reach: `hdfs://`, `s3a://`, or `file://` of all machines.

This machine need not see them: the executors list and read them, and Python gets what Spark has read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from antiphon.core.errors import TraceError
from antiphon.pipeline import schema
from antiphon.pipeline.local import local_table
from antiphon.trace import run_of
from antiphon.trace.facts import TraceFiles, in_order, no_facts
from antiphon.trace.parquet import read_file
from antiphon.trace.survey import Examined, examined

# Such a file is held in memory as a whole while it is examined: by Java, on its way, and by Python.
EXAMINED_BYTES_MAX = 512 << 20
NAMED_MAX = 256  # up to this many files are asked for by name; of more, the folder is read and the others left out
ROWS_AT_ONCE = 10_000
ADDRESS = StructType([StructField("path", StringType(), nullable=False)])

Batches = Iterator[pa.RecordBatch]


def is_address(place: Path | str) -> bool:
    """Whether it names a file system, and not only a path."""
    return "://" in str(place)


def for_spark(place: Path | str) -> str:
    """A place as Spark takes it. A plain path would be one of the cluster's default file system, which may be another;
    and Spark takes an address literally, where others write %20 for a blank."""
    text = str(place)
    path = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
    return f"file://{path}" if path.startswith("/") else text


def far_files(spark: SparkSession, trace: str) -> TraceFiles:
    """What a trace consists of. The facts come to the driver: they are as many as there are runs."""
    facts = _collected(spark, f"{for_spark(trace)}/runs", "*.json*", "content")
    if facts is None:
        raise TraceError(f"{trace} is not a trace, or Spark cannot see it: there is no folder {trace}/runs.")
    texts = {row.path: bytes(row.content) for row in facts if _is_of_facts(PurePosixPath(row.path))}
    if not texts:
        raise TraceError(no_facts(trace))
    events = _collected(spark, f"{for_spark(trace)}/events", "*.parquet", "length") or []
    sizes = {row.path: row.length for row in events if _is_of_events(PurePosixPath(row.path))}
    return TraceFiles(trace, sorted(texts.items()), {file: sizes[file] for file in in_order(sizes)})


def _is_of_facts(file: PurePosixPath) -> bool:
    return file.parent.name == "runs" and file.suffix in (".json", ".jsonl")


def _is_of_events(file: PurePosixPath) -> bool:
    """Whether it lies in the folder of all events or in that of a run, and not deeper."""
    return (file.parent.parent if run_of(str(file)) else file.parent).name == "events"


def _collected(spark: SparkSession, folder: str, names: str, column: str) -> list[Row] | None:
    """The files in a folder and below it, and one thing about each; None: there is no such folder."""
    try:
        return _binary(spark, [folder], names).select("path", column).collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def examine_far(
    spark: SparkSession, files: TraceFiles, wanted: Sequence[str], runs: Collection[str], *, thorough: bool = False
) -> Iterable[Examined]:
    """Let the executors look at every file. What is to be said of one comes back, if there is anything."""
    large = [file for file in wanted if files.events[file] > EXAMINED_BYTES_MAX]
    said = f"has more than {EXAMINED_BYTES_MAX >> 20} MiB, and files elsewhere are examined as a whole: divide it"
    refused = [Examined(file, f"{file} {said}.") for file in large]
    others = [file for file in wanted if files.events[file] <= EXAMINED_BYTES_MAX]
    if not others:
        return refused
    worthwhile = F.col("complaint").isNotNull() | F.col("recast") | (F.size(F.concat("strange", "held")) > 0)
    look = partial(_examined, frozenset(runs), thorough)
    looked_at = contents(spark, files.root, others).mapInArrow(look, schema.EXAMINED)
    return refused + [Examined(*row) for row in looked_at.filter(worthwhile).orderBy("file").collect()]


def _examined(runs: frozenset[str], thorough: bool, batches: Batches) -> Batches:
    for file, content in _each(batches):
        found = examined(file, runs, content, thorough=thorough)._asdict()
        yield pa.RecordBatch.from_pylist([found], to_arrow_schema(schema.EXAMINED))


def read_far(spark: SparkSession, root: str, files: Sequence[str]) -> DataFrame:
    """The events of files that Spark alone does not read, or not quickly."""
    return contents(spark, root, files).mapInArrow(_rows_of, schema.EVENTS)


def _rows_of(batches: Batches) -> Batches:
    for file, content in _each(batches):
        with reading(file):
            table = read_file(file, content=content)
        yield from table.combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


@contextmanager
def reading(file: str) -> Iterator[None]:
    """In a task: what cannot be read is told in words that Spark uses, too, as an error loses its type on its way."""
    try:
        yield
    except (pa.ArrowException, OSError, TraceError) as error:
        raise RuntimeError(f"Arrow failed while reading file {file} ({error})") from None


def _each(batches: Batches) -> Iterator[tuple[str, pa.Buffer]]:
    for batch in batches:
        for file, content in zip(batch.column("path"), batch.column("content"), strict=True):
            yield file.as_py(), content.as_buffer()


def contents(spark: SparkSession, root: str, files: Sequence[str]) -> DataFrame:
    """(path, content): files with all that is in them."""
    if len(files) <= NAMED_MAX:
        return _binary(spark, files, "*.parquet").select("path", "content")
    wanted = local_table(spark, [(file,) for file in files], ADDRESS)
    everything = _binary(spark, [f"{for_spark(root)}/events"], "*.parquet").select("path", "content")
    return everything.join(F.broadcast(wanted), on="path", how="left_semi")


def _binary(spark: SparkSession, places: Sequence[str], names: str) -> DataFrame:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", names)
    return reader.load(list(places))
