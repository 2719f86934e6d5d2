"""Clocks that were set back: a process's later row has an earlier time, and its latencies are not to be trusted.

To sort all rows of a process would be dear. So rows are looked at in blocks of neighbours, of which only the ends are
kept: seen is a clock that falls behind an earlier block, or below where its block begins, or does not end at its
height. What goes back and catches up again within a block may be missed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

BLOCK_ROWS = 1024

SET_BACK = StructType(
    [StructField("run", StringType()), StructField("process", StringType()), StructField("back_ns", LongType())]
)


def set_back(events: DataFrame) -> DataFrame:
    """One row per run and process whose clock went back: by at least so much."""
    time = F.col("time_ns")
    blocks = events.groupBy("run", "process", F.floor(F.col("seq") / BLOCK_ROWS).alias("block")).agg(
        F.min(time).alias("lowest"),
        F.max(time).alias("highest"),
        F.min_by(time, F.col("seq")).alias("first"),
        F.max_by(time, F.col("seq")).alias("last"),
    )
    earlier = Window.partitionBy("run", "process").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    before = F.coalesce(F.max("highest").over(earlier), F.col("first"))
    within = F.greatest(F.col("first") - F.col("lowest"), F.col("highest") - F.col("last"))
    back = F.greatest(before - F.col("lowest"), within).cast("long")
    found = blocks.select("run", "process", back.alias("back_ns")).filter("back_ns > 0")
    return found.groupBy("run", "process").agg(F.max("back_ns").alias("back_ns"))
