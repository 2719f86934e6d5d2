"""One merge: what is newly closed in the logs of all groups goes, in the order of the keys, behind what is in a table.

Every message is read from the log of the first of its groups; that all others of its groups have it is checked on the
heads. Keys are cut into buckets at boundaries that the driver knows: a bucket is a task and, about, a file; each is
sorted by itself, and its first position is the sum of what is in the buckets before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from antiphon.core.errors import UsageError
from antiphon.merge import tasks
from antiphon.merge.floors import Floor, closed_by
from antiphon.merge.logs import MemberLog, MergeError, segments_after
from antiphon.merge.table import Increment, MergedTable
from antiphon.merge.tasks import Span
from antiphon.pipeline.local import local_table

TASK_BYTES = 16 << 20  # of logs, read by one task: a segment, usually
BUCKET_BYTES = 64 << 20  # of payloads, about: a task, and a file
ROW_BYTES = 64  # what a row takes beside its payload
SAMPLES = 200  # keys for each bucket, from which boundaries are chosen

COLUMNS = ["position", "message", "groups", "client", "number", "key", "time", "payload"]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge did."""

    increment: Increment | None  # None: there was nothing new
    waiting: int  # payloads that the logs hold and that may still be preceded by others
    rows: int  # of the whole table


class Unmerged(NamedTuple):
    """What is in the logs behind what is merged already."""

    messages: int  # that are closed now
    payloads: int
    size: int
    waiting: int  # payloads that are not


def merge(
    spark: SparkSession, floors: dict[str, Floor], table: MergedTable, *, bucket_bytes: int = BUCKET_BYTES
) -> Merged:
    """Add to the table what these floors close. Whoever calls it holds the table's lock."""
    before = table.newest()
    after, position = (before.until, before.end) if before is not None else (b"", 0)
    closed = closed_by(floors)
    span = Span(after, max(after, closed or b""))
    segments = _segments(spark, [floor.log for floor in floors.values() if floor.log is not None], after)
    if segments is None:
        return Merged(increment=None, waiting=0, rows=position)
    heads = segments.mapInArrow(tasks.heads, from_arrow_schema(tasks.HEADS)).persist()
    try:
        _check_segments(heads)
        found = _look(heads, span)
        if not found.payloads:
            return Merged(increment=None, waiting=found.waiting, rows=position)
        _check_groups(heads, span)
        boundaries = _boundaries(heads, span, found, bucket_bytes)
        offsets = _offsets(heads, span, boundaries, position)
        ends = dict.fromkeys(floors, 0) | (before.ends if before is not None else {}) | _ends(heads, span)
    finally:
        heads.unpersist()
    folder = table.begin()
    rows(segments, span, boundaries, offsets).write.parquet(
        f"file://{folder.resolve()}"
    )  # as Hadoop has it: nothing is quoted
    increment = Increment(
        number=before.number + 1 if before is not None else 1,
        first=position,
        end=position + found.payloads,
        messages=found.messages,
        closed=span.until.hex(),
        floors={group: (floor.key or b"").hex() for group, floor in floors.items()},
        ends=ends,
    )
    table.commit(increment)
    return Merged(increment=increment, waiting=found.waiting, rows=increment.end)


def rows(segments: DataFrame, span: Span, boundaries: Sequence[bytes], offsets: Sequence[int]) -> DataFrame:
    """The rows of the table for a span, in one partition for each bucket, in order."""
    of_tasks = segments.mapInArrow(tasks.messages(span, boundaries), from_arrow_schema(tasks.MESSAGES))
    in_bucket = Window.partitionBy("bucket").orderBy("key").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.sum(F.size("payloads").cast("long")).over(in_bucket), F.lit(0))
    starts = local_table(segments.sparkSession, list(enumerate(offsets)), OFFSETS)
    return (
        of_tasks.repartitionById(len(offsets), F.col("bucket"))
        .withColumn("before", before)
        .join(F.broadcast(starts), on="bucket", how="inner")
        .select("*", F.posexplode("payloads").alias("place", "paid"))
        .select(
            (F.col("offset") + F.col("before") + F.col("place")).alias("position"),
            "message",
            "groups",
            "paid.client",
            "paid.number",
            "key",
            F.timestamp_micros(F.expr("time_ns div 1000")).alias("time"),
            "paid.payload",
        )
        .select(*COLUMNS)
    )


OFFSETS = StructType([StructField("bucket", IntegerType(), False), StructField("offset", LongType(), False)])


def _segments(spark: SparkSession, logs: Sequence[MemberLog], after: bytes) -> DataFrame | None:
    """The segments that hold what is behind a key, one row each."""
    files = [(log.group, file) for log in logs for file in segments_after(log, after)]
    if not files:
        return None
    named = [
        {"group": group, "path": str(file.path.resolve()), "first": file.first, "is_last": file.is_last}
        for group, file in files
    ]
    size = sum(file.path.stat().st_size for _, file in files) + sum(log.referred_bytes for log in logs)
    table = pa.Table.from_pylist(named, tasks.SEGMENTS)
    return spark.createDataFrame(table).repartition(max(1, min(len(files), size // TASK_BYTES)))


def _is_home() -> Column:
    return (F.col("group") == F.element_at("groups", 1)) & (F.col("count") > 0)


def _in(span: Span) -> Column:
    return (F.col("key") > F.lit(span.after)) & (F.col("key") <= F.lit(span.until))


def _check_segments(heads: DataFrame) -> None:
    """Every segment is whole, and goes on where the one before it ends. One row for each: few."""
    wanted = ["group", "first", "next", "link", "chain", "first_key", "last_key", "complaint", "is_contradiction"]
    found = heads.filter("key is null").select(*wanted).orderBy("group", "first").collect()
    for row in found:
        if row.complaint is not None:
            raise (MergeError if row.is_contradiction else UsageError)(row.complaint)
    last: Row | None = None
    for row in found:
        if last is not None and last.group == row.group:
            if (last.next, last.chain) != (row.first, row.link):
                raise UsageError(f"The log of {row.group} lacks a segment between records {last.next} and {row.first}.")
            if last.last_key is not None and row.first_key is not None and row.first_key < last.last_key:
                raise MergeError(f"The log of {row.group} goes back in the order of the keys at record {row.first}.")
        last = row


def _look(heads: DataFrame, span: Span) -> Unmerged:
    closed, home = _in(span), _is_home()
    row = heads.agg(
        F.count_if(home & closed).alias("messages"),
        F.coalesce(F.sum(F.when(home & closed, F.col("count"))), F.lit(0)).alias("payloads"),
        F.coalesce(F.sum(F.when(home & closed, F.col("size"))), F.lit(0)).alias("size"),
        F.coalesce(F.sum(F.when(home & (F.col("key") > F.lit(span.until)), F.col("count"))), F.lit(0)).alias("waiting"),
    ).first()
    assert row is not None, "an aggregate of everything is one row"
    return Unmerged(row["messages"], row["payloads"], row["size"], row["waiting"])


def _check_groups(heads: DataFrame, span: Span) -> None:
    """What is closed is in the logs of all its groups: each key has one message, and each message all its copies."""
    by_key = (
        heads.filter(_in(span) & (F.col("count") > 0))
        .groupBy("key")
        .agg(
            F.min("message").alias("message"),
            F.max("message").alias("other"),
            F.min("count").alias("least"),
            F.max("count").alias("most"),
            F.first("groups").alias("groups"),
            F.collect_set("group").alias("delivered"),
        )
    )
    odd = by_key.filter(
        "message != other or least != most or size(delivered) != size(groups) "
        "or size(array_except(delivered, groups)) > 0"
    )
    for row in odd.orderBy("key").limit(1).collect():
        if row.message != row.other:
            raise MergeError(f"{row.message} and {row.other} were delivered at the same place in the order.")
        missing = [group for group in row.groups if group not in row.delivered]
        if missing:
            raise MergeError(
                f"{row.message} was delivered by {', '.join(sorted(row.delivered))} and is missing in the log of "
                f"{', '.join(missing)}, which has gone beyond it."
            )
        raise MergeError(f"The groups of {row.message} do not agree on what it brought.")


def _ends(heads: DataFrame, span: Span) -> dict[str, int]:
    """Where what is merged ends in the log of each group, if there is anything of it."""
    merged = heads.filter(F.col("key") <= F.lit(span.until)).groupBy("group").agg(F.max("end").alias("end"))
    return {row["group"]: row["end"] for row in merged.collect()}


def _boundaries(heads: DataFrame, span: Span, found: Unmerged, bucket_bytes: int) -> list[bytes]:
    """Keys that cut what is to be merged into buckets of about the same weight."""
    total = found.size + ROW_BYTES * found.payloads
    buckets = -(-total // bucket_bytes)
    if buckets == 1:
        return []
    weight = F.col("size") + ROW_BYTES * F.col("count")
    one_of = max(1, found.messages // (SAMPLES * buckets))
    chosen = heads.filter(_is_home() & _in(span) & (F.pmod(F.xxhash64("key"), F.lit(one_of)) == 0))
    sample = sorted((row.key, row.weight) for row in chosen.select("key", weight.alias("weight")).collect())
    whole = sum(weight for _, weight in sample)
    boundaries: list[bytes] = []
    passed = 0
    for key, size in sample:
        passed += size
        if passed * buckets >= whole * (len(boundaries) + 1) and len(boundaries) < buckets - 1:
            boundaries.append(key)
    return boundaries


def _offsets(heads: DataFrame, span: Span, boundaries: Sequence[bytes], position: int) -> list[int]:
    """The position of the first row of each bucket."""
    if not boundaries:
        return [position]
    counted = heads.filter(_is_home() & _in(span)).select("key", "count")
    parts = counted.mapInArrow(tasks.counts(boundaries), from_arrow_schema(tasks.COUNTS))
    summed = parts.groupBy("bucket").agg(F.sum("payloads").alias("payloads")).collect()
    by_bucket = {row.bucket: row.payloads for row in summed}
    offsets = [position]
    for bucket in range(len(boundaries)):
        offsets.append(offsets[-1] + by_bucket.get(bucket, 0))
    return offsets
