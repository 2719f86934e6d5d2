"""Proves the order properties of a run from its order keys, in one sort; says which properties stay unproven.

A key that sorts as the protocol orders its messages is a witness. Suppose that in a run

  one key      every message is delivered with one and the same key everywhere,
  increasing   every process delivers in strictly increasing order of keys, and
  no holes     whatever a process was addressed by and never delivered has a greater key than all it delivered.

Then the keys order all deliveries, so there is no cycle (acyclic_order). Members of one group, when groups are
disjoint and nobody delivers what it is not addressed by, each delivered exactly the group's messages up to some key:
prefixes of one another (total_order). And if each message's key exceeds the keys of whatever its sender multicast
before (fifo), or multicast or delivered before (causal), then a predecessor has the smaller key, transitively; a
process addressed by both has either delivered it earlier, or left a hole below, which was excluded. A predecessor that
nobody delivered has no key: its sender's later messages are unproven.

Nothing follows where a condition fails. Such runs are checked exactly, in `order` and `kernel`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.messages import facts, judged

DELIVERED, MULTICAST, HOLE, BROKEN, STRAY = "delivered", "multicast", "hole", "broken", "stray"


def unproven(table: DataFrame, runs: DataFrame) -> DataFrame:
    """(run, property) for each promised order property that the keys do not prove."""
    wanted = F.filter("judged", lambda name: name.isin("total_order", "acyclic_order", "fifo", "causal"))
    conditions = _by_run(_by_process(_steps(table)))
    disjoint = facts(runs).select(
        "run", (F.size(_members()) == F.size(F.array_distinct(_members()))).alias("disjoint"), wanted.alias("wanted")
    )
    proven = {
        "acyclic_order": F.col("increasing"),
        "total_order": F.col("increasing") & F.col("no_holes") & F.col("no_strays") & F.col("disjoint"),
        "fifo": F.col("increasing") & F.col("no_holes") & F.col("fifo_keys"),
        "causal": F.col("increasing") & F.col("no_holes") & F.col("causal_keys"),
    }
    open_ = F.array_compact(F.array(*(F.when(~proof, F.lit(name)) for name, proof in proven.items())))
    return conditions.join(F.broadcast(disjoint), on="run", how="inner").select(
        "run", F.explode(F.array_intersect("wanted", open_)).alias("property")
    )


def _members() -> Column:
    return F.flatten(F.map_values("groups"))


def _steps(table: DataFrame) -> DataFrame:
    """What the proof looks at: deliveries, multicasts and holes as (run, process, seq, what, key)."""

    def step(process: Column, seq: Column, what: str) -> Column:
        return F.struct(
            process.alias("process"), seq.cast("long").alias("seq"), F.lit(what).alias("what"), F.col("key").alias("key")
        )

    nothing = F.lit(None)
    ordered = judged("total_order") | judged("acyclic_order") | judged("fifo") | judged("causal")
    delivered = F.transform("deliveries", lambda d: step(d["process"], d["seq"], DELIVERED))
    multicast = F.array(F.when(F.col("sender").isNotNull(), step(F.col("sender"), F.col("sender_seq"), MULTICAST)))
    missing = F.when(F.col("key").isNotNull(), F.array_except("addressed", "deliverers")).otherwise(
        F.array().cast("array<string>")
    )
    holes = F.transform(missing, lambda process: step(process, nothing, HOLE))
    broken = F.when((F.size("deliveries") > 0) & F.col("key").isNull(), step(F.lit(""), nothing, BROKEN))
    stray = F.when(F.size(F.array_except("deliverers", "addressed")) > 0, step(F.lit(""), nothing, STRAY))
    steps = F.concat(delivered, F.array_compact(F.concat(multicast, F.array(broken, stray))), holes)
    return table.filter(ordered).select("run", F.inline(steps))


def _by_process(steps: DataFrame) -> DataFrame:
    """The conditions at each process; its steps are sorted once, for the windows and for the aggregation."""
    before = Window.partitionBy("run", "process").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    what, key = F.col("what"), F.col("key")
    delivered, multicast = what == DELIVERED, what == MULTICAST
    seen = steps.withColumns(
        {
            "top_delivered": F.max(F.when(delivered, key)).over(before),
            "top_multicast": F.max(F.when(multicast, key)).over(before),
            "lost_before": F.coalesce(F.max(multicast & key.isNull()).over(before), F.lit(False)),
        }
    )

    def above(top: str) -> Column:
        return F.coalesce(key > F.col(top), F.lit(True))  # null: there was none before

    fifo = ~multicast | key.isNull() | (~F.col("lost_before") & above("top_multicast"))
    causal = ~multicast | key.isNull() | (~F.col("lost_before") & above("top_multicast") & above("top_delivered"))
    return seen.groupBy("run", "process").agg(
        F.every((what != BROKEN) & (~delivered | above("top_delivered"))).alias("increasing"),
        F.every(what != STRAY).alias("no_strays"),
        F.every(fifo).alias("fifo_keys"),
        F.every(causal).alias("causal_keys"),
        F.max(F.when(delivered, key)).alias("last_key"),
        F.min(F.when(what == HOLE, key)).alias("first_hole"),
    )


def _by_run(processes: DataFrame) -> DataFrame:
    no_holes = F.coalesce(F.col("first_hole") > F.col("last_key"), F.lit(True))
    flags = ["increasing", "no_strays", "fifo_keys", "causal_keys", "no_holes"]
    return processes.withColumn("no_holes", no_holes).groupBy("run").agg(*(F.every(f).alias(f) for f in flags))
