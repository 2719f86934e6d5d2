"""What stands before each row of something that may be too long for one task: in its block, and at the ends of blocks.

A block is what has the same number, divided by a size. Blocks are few, and of each only one row is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

EVENTS_IN_BLOCK = 1 << 18  # of a history, by their seq, in a block
BLOCK = "of block"


def running_max(
    rows: DataFrame, by: Sequence[str], order: str, values: Mapping[str, Column], *, size: int, then: Sequence[str] = ()
) -> DataFrame:
    """Each row with the largest of these values in the rows before it, null if there are none.

    Rows that are equal `by` are in the order of a number and, where these are equal, `then`.
    """
    here, earlier = _before(by, order, then)
    parts = rows.withColumns({BLOCK: _block(order, size), **{f"{name} here": value for name, value in values.items()}})
    ends = parts.groupBy(*by, BLOCK).agg(*(F.max(f"{name} here").alias(name) for name in values))
    tops = ends.select(*by, BLOCK, *(F.max(name).over(earlier).alias(f"{name} earlier") for name in values))
    joined = parts.join(F.broadcast(tops), on=[*by, BLOCK], how="inner")
    found = {name: F.greatest(F.max(f"{name} here").over(here), F.col(f"{name} earlier")) for name in values}
    return joined.select(*rows.columns, *(column.alias(name) for name, column in found.items()))


def placed(rows: DataFrame, by: Sequence[str], order: str, name: str, *, size: int) -> DataFrame:
    """Each row with its place among those that are equal `by`, from 1 on."""
    here, earlier = _before(by, order, ())
    parts = rows.withColumn(BLOCK, _block(order, size))
    ends = parts.groupBy(*by, BLOCK).agg(F.count(F.lit(1)).alias("rows"))
    offsets = ends.select(*by, BLOCK, F.coalesce(F.sum("rows").over(earlier), F.lit(0)).alias("offset"))
    joined = parts.join(F.broadcast(offsets), on=[*by, BLOCK], how="inner")
    place = F.col("offset") + F.count(F.lit(1)).over(here) + 1
    return joined.select(*rows.columns, place.alias(name))


def _before(by: Sequence[str], order: str, then: Sequence[str]) -> tuple[WindowSpec, WindowSpec]:
    """The rows before one in its block, and the blocks before that."""
    here = Window.partitionBy(*by, BLOCK).orderBy(order, *then)
    earlier = Window.partitionBy(*by).orderBy(BLOCK)
    return here.rowsBetween(Window.unboundedPreceding, -1), earlier.rowsBetween(Window.unboundedPreceding, -1)


def _block(order: str, size: int) -> Column:
    return F.expr(f"`{order}` div {size}")
