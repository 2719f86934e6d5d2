"""How a check on Spark says what it found."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise


def violation(
    promise: Promise, processes: Column, messages: Column, detail: Column, *, rank: Column | None = None
) -> Column:
    """A violation as a struct; of many, those with the smallest rank are shown."""
    return F.struct(
        F.lit(promise.value).alias("property"),
        processes.alias("processes"),
        messages.alias("messages"),
        detail.alias("detail"),
        (F.lit(0) if rank is None else rank).cast("long").alias("rank"),
    )


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
