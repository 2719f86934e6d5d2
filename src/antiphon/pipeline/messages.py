"""One row per multicast message with everything that happened to it: the table that all checks start from."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PROPERTIES = (
    "integrity",
    "validity",
    "agreement",
    "uniform_agreement",
    "total_order",
    "acyclic_order",
    "fifo",
    "causal",
    "genuineness",
    "locality",
)
# What a run must have been given the time to do before its absence can be held against it.
NEEDS_DRAINED = ("validity", "agreement", "uniform_agreement")


def facts(runs: DataFrame) -> DataFrame:
    """Of each run what the checks ask: its groups, who is faulty, and which properties are to be judged."""
    drained = [F.when(F.col("drained"), F.lit(name)) for name in NEEDS_DRAINED]
    always = [F.lit(name) for name in PROPERTIES if name not in NEEDS_DRAINED]
    return runs.select(
        "run",
        "groups",
        "faulty",
        F.array_intersect("promises", F.array_compact(F.array(*always, *drained))).alias("judged"),
    )


def judged(name: str) -> Column:
    return F.array_contains("judged", name)


def about_messages(events: DataFrame, runs: DataFrame) -> DataFrame:
    """The rows that say something of one message; frames only where genuineness is judged."""
    genuine = facts(runs).select("run", judged("genuineness").alias("genuine"))
    return (
        events.filter("kind in ('multicast', 'deliver') or (kind in ('send', 'receive') and message is not null)")
        .join(F.broadcast(genuine), on="run", how="inner")
        .filter("genuine or kind in ('multicast', 'deliver')")
        .withColumn("message", F.coalesce("message", F.lit("")))
    )


def messages(rows: DataFrame, runs: DataFrame) -> DataFrame:
    """Gather each message's rows. One shuffle, after which no check of a single message needs another."""
    kind = F.col("kind")
    multicast, deliver, touch = kind == "multicast", kind == "deliver", kind.isin("send", "receive")
    groups = F.array_sort(F.coalesce("destinations", F.array().cast("array<string>")))
    # Lists do not shrink by being aggregated before the shuffle; so shuffle first.
    gathered = (
        rows.repartition("run", "message")
        .groupBy("run", "message")
        .agg(
            F.collect_list(F.when(multicast, F.struct("process", "seq"))).alias("multicasts"),
            F.collect_set(F.when(multicast, groups)).alias("multicast_to"),
            F.collect_list(F.when(deliver, F.struct("process", "seq"))).alias("deliveries"),
            F.collect_set(F.when(deliver, groups)).alias("delivered_to"),
            F.collect_set(F.when(touch, F.col("process"))).alias("touched_at"),
            F.collect_set(F.when(touch, F.col("peer"))).alias("touched_by"),
        )
    )
    return gathered.join(F.broadcast(facts(runs)), on="run", how="inner").transform(_derived)


def _derived(table: DataFrame) -> DataFrame:
    """Name what the definitions of docs/trace.md speak of: sender(m), addressed(m), and who delivered m."""
    # What was never multicast has neither senders nor addressees, whatever its deliver rows claim.
    table = table.withColumns(
        {
            "destinations": F.array_distinct(F.flatten("multicast_to")),
            "senders": F.array_sort(F.array_distinct("multicasts.process")),
            "deliverers": F.array_sort(F.array_distinct("deliveries.process")),
        }
    )
    members = F.transform(
        "destinations",
        lambda group: F.coalesce(F.try_element_at("groups", group), F.array().cast("array<string>")),
    )
    one_sender = F.size("senders") == 1
    return table.withColumns(
        {
            "addressed": F.array_distinct(F.flatten(members)),
            # A client's retry leaves several senders: then none of them counts as *the* sender.
            "sender": F.when(one_sender, F.get("senders", F.lit(0))),
            "sender_seq": F.when(one_sender, F.array_min("multicasts.seq")),
        }
    )
