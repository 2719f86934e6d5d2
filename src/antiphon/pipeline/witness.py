"""Proves the orders of a run without keys from places: a message's key is the first place at which a process delivers
it, which one in which view.

Any key may serve as a witness (`glance.conclude`); with this one, all who deliver the same in a view prove their order,
also where views part and their histories cannot be merged into one (`glance.merge`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.glance.conclude import ORDERS, proofs
from antiphon.pipeline.stretches import first_deliveries, placed
from antiphon.pipeline.summary import members

DELIVERED, MULTICAST, HOLE, BROKEN, UNCLEAR = "delivered", "multicast", "hole", "broken", "unclear"
CAUSAL = "causal"  # in place of the last two, for a message that was asked for so


def unproven(steps: DataFrame, facts: DataFrame) -> DataFrame:
    """(run, property) for each promised order property that the keys do not prove."""
    conditions = _by_run(_by_process(steps))
    disjoint = F.size(_members()) == F.size(F.array_distinct(_members()))
    wanted = facts.select("run", disjoint.alias("disjoint"), F.array_intersect("judged", _names()).alias("wanted"))
    flags = ("increasing", "no_holes", "disjoint", "fifo_keys", "causal_keys")
    proven = proofs(*(F.col(flag) for flag in flags))
    open_ = F.array_compact(F.array(*(F.when(~proof, F.lit(str(name))) for name, proof in proven.items())))
    return conditions.join(F.broadcast(wanted), on="run", how="inner").select(
        "run", F.explode(F.array_intersect("wanted", open_)).alias("property")
    )


def _names() -> Column:
    return F.array(*(F.lit(name) for name in ORDERS))


def _members() -> Column:
    return F.flatten(F.map_values("groups"))


def _of_messages(summary: DataFrame, facts: DataFrame) -> DataFrame:
    """The multicasts; and the few messages that have holes, or say that a condition does not hold."""
    columns = ["run", "process", "seq", "what", "key"]
    sent = summary.filter("sender is not null").select(
        "run", F.col("sender").alias("process"), F.col("sender_seq").alias("seq"), F.lit(MULTICAST).alias("what"), "key"
    )
    ordered_one = F.col("is_delivered") & ~F.col("causal")
    odd = {
        BROKEN: (ordered_one & F.col("key").isNull()) | (F.col("multicasts") > 1),
        UNCLEAR: ordered_one & F.col("holes").isNull(),
        CAUSAL: F.col("causal") | ((F.col("multicasts") > 0) & F.col("sender").isNull()),
    }
    found = F.array_compact(F.array(*(F.when(condition, F.lit(what)) for what, condition in odd.items())))
    nowhere = (F.lit("").alias("process"), F.lit(None).cast("long").alias("seq"))
    flags = (
        summary.filter(odd[BROKEN] | odd[UNCLEAR] | odd[CAUSAL])
        .select("run", *nowhere, F.explode(found).alias("what"), "key")
        .select(*columns)
    )
    holes = (
        summary.filter("key is not null and not causal and holes <> 0")
        .join(F.broadcast(members(facts)), on="run", how="inner")
        .filter("(holes & bit) <> 0")
        .select("run", "process", nowhere[1], F.lit(HOLE).alias("what"), "key")
    )
    return sent.unionByName(flags).unionByName(holes)


def steps_by_place(events: DataFrame, stretches: DataFrame, summary: DataFrame, facts: DataFrame) -> DataFrame:
    """What the proof looks at: deliveries, multicasts and holes as (run, process, seq, what, key)."""
    first = first_deliveries(events)
    # A view is named `number@process`; where views are named otherwise, they are in the order of their names.
    number = F.coalesce(F.substring_index("view", "@", 1).try_cast("long"), F.lit(0))
    by_seq = Window.partitionBy("run", "process", "view").orderBy("seq")
    place = F.struct(number.alias("number"), F.col("view"), F.row_number().over(by_seq).alias("place"))
    placed_ = placed(first, stretches, how="left").withColumn("key", place)
    keys = placed_.groupBy("run", "message").agg(F.min("key").alias("key"))
    delivered = placed_.drop("key").join(keys, on=["run", "message"], how="inner")
    keyed = summary.join(keys, on=["run", "message"], how="left")
    of_places = delivered.select("run", "process", "seq", F.lit(DELIVERED).alias("what"), "key")
    return of_places.unionByName(_of_messages(keyed, facts))


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
        F.every(what != UNCLEAR).alias("clear"),
        F.every(fifo & (what != CAUSAL)).alias("fifo_keys"),
        F.every(causal & (what != CAUSAL)).alias("causal_keys"),
        F.max(F.when(delivered, key)).alias("last_key"),
        F.min(F.when(what == HOLE, key)).alias("first_hole"),
    )


def _by_run(processes: DataFrame) -> DataFrame:
    no_holes = F.col("clear") & F.coalesce(F.col("first_hole") > F.col("last_key"), F.lit(True))
    flags = ["increasing", "fifo_keys", "causal_keys", "no_holes"]
    return processes.withColumn("no_holes", no_holes).groupBy("run").agg(*(F.every(f).alias(f) for f in flags))
