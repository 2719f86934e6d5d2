"""Proves the order properties of a run from its order keys, in one sort; says which properties stay unproven.

A key that sorts as the protocol orders its messages is a witness. Suppose that in a run

  one key      every message is delivered with one and the same key everywhere,
  increasing   every process delivers in strictly increasing order of keys, and
  no holes     whatever a process was addressed by and never delivered has a greater key than all it delivered.

Then the keys order all deliveries, so there is no cycle (acyclic_order). Members of one group, when groups are
disjoint and nobody delivers what it is not addressed by, each delivered exactly the group's messages up to some key:
prefixes of one another (total_order). And if each message's key exceeds the keys of whatever its sender multicast
before (fifo), or multicast or delivered before (causal), then a predecessor has the smaller key, transitively; a
process addressed by both has either delivered it earlier, or left a hole below, which was excluded; where only what is
delivered counts (causal_extension), a hole does no harm. A predecessor that nobody delivered has no key: its sender's
later messages are unproven. What has no cycle is all the more in order from view to view (view_order).

None of this asks where a key comes from. So messages without keys can be given some: any will do, if with it the
conditions hold. Theirs is the place at which they are delivered, `steps_by_place`.

A message that its sender wants delivered causally has no place in a total order, and no key: for the orders of the
others it is left out, and where there is one, the orders that speak of all are not proved by keys.

Nothing follows where a condition fails. Such runs are checked exactly, in `order`, `precedence` and `kernel`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.messages import judged, nobody
from antiphon.pipeline.requests import capped_sum
from antiphon.pipeline.stretches import first_deliveries, placed
from antiphon.pipeline.summary import members

ORDERS = tuple(
    str(promise)
    for promise in (
        Promise.TOTAL_ORDER,
        Promise.ACYCLIC_ORDER,
        Promise.REAL_TIME_ORDER,
        Promise.FIFO,
        Promise.CAUSAL,
        Promise.CAUSAL_EXTENSION,
        Promise.VIEW_ORDER,
    )
)
DELIVERED, MULTICAST, HOLE, BROKEN, UNCLEAR = "delivered", "multicast", "hole", "broken", "unclear"
CAUSAL = "causal"  # in place of the last two, for a message that was asked for so
OTHER = "other"  # gaps and views, which only take a position
PLACES = "places"  # what is not proved where a position is not the following one


def unproven(steps: DataFrame, facts: DataFrame) -> DataFrame:
    """(run, property) for each promised order property that the keys do not prove; and where positions are odd."""
    conditions = _by_run(_by_process(steps))
    disjoint = F.size(_members()) == F.size(F.array_distinct(_members()))
    named = F.when(judged(Promise.INTEGRITY), F.array(F.lit(PLACES))).otherwise(nobody())
    asked = F.concat(F.array_intersect("judged", _names()), named)
    wanted = facts.select("run", disjoint.alias("disjoint"), asked.alias("wanted"))
    proven = {
        "acyclic_order": F.col("increasing"),
        "real_time_order": F.col("increasing"),  # and what `moments` asks
        "total_order": F.col("increasing") & F.col("no_holes") & F.col("disjoint"),
        "fifo": F.col("increasing") & F.col("no_holes") & F.col("fifo_keys"),
        "causal": F.col("increasing") & F.col("no_holes") & F.col("causal_keys"),
        "causal_extension": F.col("increasing") & F.col("causal_keys"),
        "view_order": F.col("increasing"),
        PLACES: F.col("in_place"),
    }
    open_ = F.array_compact(F.array(*(F.when(~proof, F.lit(name)) for name, proof in proven.items())))
    return conditions.join(F.broadcast(wanted), on="run", how="inner").select(
        "run", F.explode(F.array_intersect("wanted", open_)).alias("property")
    )


def _names() -> Column:
    return F.array(*(F.lit(name) for name in ORDERS))


def _members() -> Column:
    return F.flatten(F.map_values("groups"))


def steps(outcomes: DataFrame, summary: DataFrame, facts: DataFrame) -> DataFrame:
    """What the proof looks at: deliveries, multicasts and holes as (run, process, seq, what, key, position, following).

    Gaps and views are there for the positions: each delivery stands where the one before says that the `following` one
    stands.
    """
    what = F.when(F.col("kind") == "deliver", F.lit(DELIVERED)).otherwise(F.lit(OTHER))
    taken = F.when(F.col("kind") == "deliver", payloads()).otherwise(F.lit(1).cast("long"))
    placed_ = outcomes.filter("kind in ('deliver', 'gap', 'view')").select(
        *("run", "process", "seq", what.alias("what"), F.col("order_key").alias("key"), "position"),
        following(taken).alias("following"),
    )
    return placed_.unionByName(_of_messages(summary, facts), allowMissingColumns=True)


def payloads() -> Column:
    """How many payloads a delivery has. Most have one request, of which no list need be made."""
    count = F.aggregate(
        F.coalesce("requests.payloads", F.array().cast("array<bigint>")), F.lit(0).cast("long"), capped_sum
    )
    none = F.coalesce(F.array_size("requests"), F.lit(0)) == 0
    one = F.col("requests")[0]["payloads"]
    return F.when(none, F.lit(0).cast("long")).when(F.size("requests") == 1, one).otherwise(count)


def following(taken: Column) -> Column:
    """The position of what comes next, if this one has one; beyond the largest number nothing can come."""
    return F.when(F.col("position").isNotNull(), F.coalesce(F.try_add("position", taken), F.lit(-1)))


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
    """The same of runs without keys. A message's key is the first place at which a process delivers it: which one in
    which view. Any key may serve as a witness; with this one, all who deliver the same in a view prove their order.
    """
    first = first_deliveries(events)
    # A view is named `number@process`; where views are named otherwise, they are in the order of their names.
    number = F.coalesce(F.substring_index("view", "@", 1).try_cast("long"), F.lit(0))
    by_seq = Window.partitionBy("run", "process", "view").orderBy("seq")
    place = F.struct(number.alias("number"), F.col("view"), F.row_number().over(by_seq).alias("place"))
    placed_ = placed(first, stretches, how="left").withColumn("key", place)
    keys = placed_.groupBy("run", "message").agg(F.min("key").alias("key"))
    delivered = placed_.drop("key").join(keys, on=["run", "message"], how="inner")
    keyed = summary.drop("key").join(keys, on=["run", "message"], how="left")
    of_places = delivered.select("run", "process", "seq", F.lit(DELIVERED).alias("what"), "key")
    return of_places.unionByName(_of_messages(keyed, facts)).withColumns(
        {name: F.lit(None).cast("long") for name in ("position", "following")}
    )


def _by_process(steps: DataFrame) -> DataFrame:
    """The conditions at each process; its steps are sorted once, for the windows and for the aggregation."""
    before = Window.partitionBy("run", "process").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    what, key = F.col("what"), F.col("key")
    delivered, multicast = what == DELIVERED, what == MULTICAST
    stands = delivered | (what == OTHER)
    seen = steps.withColumns(
        {
            "top_delivered": F.max(F.when(delivered, key)).over(before),
            "top_multicast": F.max(F.when(multicast, key)).over(before),
            "lost_before": F.coalesce(F.max(multicast & key.isNull()).over(before), F.lit(False)),
            "before": F.last(F.when(stands, F.struct("following")), ignorenulls=True).over(before),
        }
    )

    def above(top: str) -> Column:
        return F.coalesce(key > F.col(top), F.lit(True))  # null: there was none before

    expected = F.when(F.col("before").isNull(), F.lit(0)).otherwise(F.col("before.following"))
    in_place = F.coalesce(F.col("position") == expected, F.lit(True))  # null: it has no position, or that before
    fifo = ~multicast | key.isNull() | (~F.col("lost_before") & above("top_multicast"))
    causal = ~multicast | key.isNull() | (~F.col("lost_before") & above("top_multicast") & above("top_delivered"))
    return seen.groupBy("run", "process").agg(
        F.every((what != BROKEN) & (~delivered | above("top_delivered"))).alias("increasing"),
        F.every(~stands | in_place).alias("in_place"),
        F.every(what != UNCLEAR).alias("clear"),
        F.every(fifo & (what != CAUSAL)).alias("fifo_keys"),
        F.every(causal & (what != CAUSAL)).alias("causal_keys"),
        F.max(F.when(delivered, key)).alias("last_key"),
        F.min(F.when(what == HOLE, key)).alias("first_hole"),
    )


def _by_run(processes: DataFrame) -> DataFrame:
    no_holes = F.col("clear") & F.coalesce(F.col("first_hole") > F.col("last_key"), F.lit(True))
    flags = ["increasing", "fifo_keys", "causal_keys", "no_holes", "in_place"]
    return processes.withColumn("no_holes", no_holes).groupBy("run").agg(*(F.every(f).alias(f) for f in flags))
