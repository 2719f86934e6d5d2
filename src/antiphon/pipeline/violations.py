"""How a check on Spark says what it found."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import schema


def violation(
    promise: Promise,
    processes: Column,
    messages: Column,
    detail: Column,
    *,
    rank: Column | None = None,
    rows: Column | None = None,
    missing: Column | None = None,
) -> Column:
    """A violation as a struct; of many, those with the smallest rank are shown.

    `rows`: the few rows of the trace that prove it. Where a check does not name them, they are what these processes did
    with these messages. `missing`: who did not deliver something that is no message.
    """
    return F.struct(
        F.lit(promise.value).alias("property"),
        processes.alias("processes"),
        messages.alias("messages"),
        detail.alias("detail"),
        (F.array() if rows is None else rows).cast(schema.ROWS).alias("rows"),
        (F.array() if missing is None else missing).cast(schema.TEXTS).alias("missing"),
        (F.lit(0) if rank is None else rank).cast("long").alias("rank"),
    )


def rows_of(*places: tuple[str | Column, str | Column]) -> Column:
    """Rows by process and seq; those without a seq are left out."""
    named = [F.struct(_column(p).alias("process"), _column(s).alias("seq")) for p, s in places]
    return F.filter(F.array(*named), lambda row: row["seq"].isNotNull())


def _column(place: str | Column) -> Column:
    return F.col(place) if isinstance(place, str) else place


def found(table: DataFrame, *violations: Column) -> DataFrame:
    """The violations of each row, those that are null left out."""
    return table.select("run", F.inline(F.array_compact(F.array(*violations))))


def together(*parts: DataFrame | None) -> DataFrame | None:
    """All of them, where there are any."""
    some = [part for part in parts if part is not None]
    return reduce(DataFrame.unionByName, some) if some else None


def listed(texts: Column) -> Column:
    return F.array_join(texts, ", ")


def words(*parts: str | Column) -> Column:
    """A sentence of columns and plain words."""
    return F.concat(*(F.lit(part) if isinstance(part, str) else part for part in parts))
