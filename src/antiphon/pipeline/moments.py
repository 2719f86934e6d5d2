"""Whether keys show that the order is one of real time: what is multicast after a delivery has a greater key.

Suppose that every process delivers by growing keys (`glance.conclude`), and that whenever m was delivered somewhere and
m2 is multicast later, by more than the error of the clocks, m2 has the greater key. Then keys grow along the whole
relation of `real_time_order`, so it has no cycle.

That is enough, and more than is promised: a message to one group may have a lower key than an earlier one to another,
if nothing leads from one to the other. So where it fails nothing follows, and the run is checked exactly, in `kernel`.

A message is compared with the greatest key that was delivered before its multicast. A run is cut into blocks of time,
of which many can be sorted at once; what was delivered in all earlier blocks is one key for each.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

BLOCK_NS = 100_000_000


def untimely(outcomes: DataFrame, facts: DataFrame) -> DataFrame:
    """(run) where some message has a lower key than one that was delivered before it was multicast."""
    blocks = Window.partitionBy("run").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    # A delivery at the very moment of a multicast is not before it.
    within = Window.partitionBy("run", "block").orderBy("at", "delivered").rowsBetween(Window.unboundedPreceding, -1)
    delivered_key = F.when(F.col("delivered"), F.col("key"))
    all_ = moments(outcomes, facts).withColumn("block", F.expr(f"at div {BLOCK_NS}"))
    tops = (
        all_.groupBy("run", "block")
        .agg(F.max(delivered_key).alias("top"))
        .select("run", "block", F.max("top").over(blocks).alias("earlier"))
    )
    compared = all_.join(tops, on=["run", "block"], how="inner").withColumn("here", F.max(delivered_key).over(within))
    late = ~F.col("delivered") & (F.col("key") <= F.greatest("earlier", "here"))
    return compared.filter(late).select("run").distinct()


def moments(outcomes: DataFrame, facts: DataFrame) -> DataFrame:
    """(run, at, delivered, key): when each message that has a key was multicast, and when it was first delivered; the
    latter by the error of the clocks later, so that whatever is multicast after that was multicast after it."""
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    messages = (
        outcomes.filter("kind in ('multicast', 'deliver') and message is not null")
        .groupBy("run", "message")
        .agg(
            F.min(F.when(multicast, F.col("time_ns"))).alias("multicast_ns"),
            F.min(F.when(deliver, F.col("time_ns"))).alias("delivered_ns"),
            F.max(F.when(deliver, F.col("order_key"))).alias("key"),  # where it has several, keys prove nothing
        )
        .filter("key is not null")
        .join(F.broadcast(facts.select("run", "clock_error_ns")), on="run", how="inner")
    )
    known_at = F.try_add(F.col("delivered_ns"), F.col("clock_error_ns"))  # null: later than anything can be
    both = F.array(
        F.struct(F.col("multicast_ns").alias("at"), F.lit(False).alias("delivered")),
        F.struct(known_at.alias("at"), F.lit(True).alias("delivered")),
    )
    return messages.select("run", "key", F.inline(both)).filter("at is not null")
