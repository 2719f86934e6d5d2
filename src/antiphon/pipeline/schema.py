"""The trace's columns as Spark types; a test holds them equal to the Arrow schema in antiphon.trace."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

TEXT = StringType()
TEXTS = ArrayType(TEXT)

REQUEST = StructType(
    [
        StructField("client", TEXT),
        StructField("first", LongType()),
        StructField("payloads", LongType()),
        StructField("digest", LongType()),
    ]
)

EVENT_COLUMNS = StructType(
    [
        StructField("process", TEXT, nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("time_ns", LongType(), nullable=False),
        StructField("kind", TEXT, nullable=False),
        StructField("message", TEXT),
        StructField("destinations", TEXTS),
        StructField("requests", ArrayType(REQUEST)),
        StructField("peers", TEXTS),
        StructField("about", TEXTS),
        StructField("layer", TEXT),
        StructField("bytes", LongType()),
        StructField("step", IntegerType()),
        StructField("order_key", BinaryType()),
        StructField("position", LongType()),
    ]
)

# `run` is the name of the folder, or a column of a file with many runs.
EVENTS = StructType([*EVENT_COLUMNS.fields, StructField("run", TEXT, nullable=False)])

RUN = StructType([StructField("run", TEXT, nullable=False)])

# What is to be said of a file of events (antiphon.trace.survey).
EXAMINED = StructType(
    [
        StructField("file", TEXT),
        StructField("complaint", TEXT),
        StructField("recast", BooleanType()),
        StructField("strange", TEXTS),
        StructField("held", TEXTS),
    ]
)

RUNS = StructType(
    [
        StructField("version", IntegerType(), nullable=False),
        StructField("run", TEXT, nullable=False),
        StructField("driver", TEXT, nullable=False),
        StructField("protocol", TEXT, nullable=False),
        StructField("options", MapType(TEXT, TEXT), nullable=False),
        StructField("groups", MapType(TEXT, TEXTS), nullable=False),
        StructField("promises", TEXTS, nullable=False),
        StructField("drained", BooleanType(), nullable=False),
        StructField("faulty", TEXTS, nullable=False),
        StructField("incomplete", TEXTS, nullable=False),
        StructField("rows", MapType(TEXT, LongType()), nullable=False),
        StructField("clock_error_ns", LongType()),
        StructField("seed", LongType()),
    ]
)

# What a client was told is safe: so many of its payloads, from the first on.
RECEIPTS = StructType(
    [
        StructField("run", TEXT),
        StructField("client", TEXT),
        StructField("destinations", TEXTS),
        StructField("first", LongType()),
        StructField("payloads", LongType()),
    ]
)

# A row of the trace, by what tells it apart in its run.
PLACE = StructType([StructField("process", TEXT), StructField("seq", LongType())])
ROWS = ArrayType(PLACE)

VIOLATIONS = StructType(
    [
        StructField("run", TEXT, nullable=False),
        StructField("property", TEXT, nullable=False),
        StructField("processes", TEXTS, nullable=False),
        StructField("messages", TEXTS, nullable=False),
        StructField("detail", TEXT, nullable=False),
        StructField("rows", ROWS, nullable=False),  # that prove it; none: all of these messages at these processes
        StructField("missing", TEXTS, nullable=False),  # who lacks what no message names; of messages, the rows tell
    ]
)

# What a check gives: a violation, and how telling it is. Of many, those with the smallest rank are shown.
FOUND = StructType([*VIOLATIONS.fields, StructField("rank", LongType(), nullable=False)])


def columns(texts: str, longs: str, doubles: str = "") -> StructType:
    """The schema of a table of figures, by the names of its columns."""
    kinds = ((texts, StringType()), (longs, LongType()), (doubles, DoubleType()))
    return StructType([StructField(name, kind) for names, kind in kinds for name in names.split()])


def as_columns(columns: StructType, table: DataFrame) -> DataFrame:
    """These columns of a table, with their types, whatever types it was computed with."""
    return table.select(*(F.col(column.name).cast(column.dataType) for column in columns))
