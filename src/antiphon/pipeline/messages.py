"""One row per multicast message with everything that happened to it: what all checks of messages start from."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import REGISTRY

PROPERTIES = tuple(str(promise) for promise in REGISTRY)
# What a run must have been given the time to do before its absence can be held against it.
IN_PART = tuple(str(promise) for promise, definition in REGISTRY.items() if definition.in_part)
NEEDS_DRAINED = tuple(str(promise) for promise, definition in REGISTRY.items() if definition.drained)
TIMED = tuple(str(promise) for promise, definition in REGISTRY.items() if definition.timed)


def facts_of(runs: DataFrame) -> DataFrame:
    """Of each run what the checks ask: its groups, who is held to nothing, and which properties are to be judged.

    Of a process whose rows are not all here nothing is expected, as of a faulty one. `unknown` are those among them
    that were up at the end, and may have delivered anything; a run is `whole` when there is no such process.
    """
    drained = [F.when(F.col("drained"), F.lit(name)) for name in NEEDS_DRAINED]
    timed = [F.when(F.col("clock_error_ns").isNotNull(), F.lit(name)) for name in TIMED]
    always = [F.lit(name) for name in PROPERTIES if name not in (*NEEDS_DRAINED, *TIMED)]
    return runs.select(
        "run",
        "groups",
        "drained",
        "clock_error_ns",
        F.array_union("faulty", "incomplete").alias("faulty"),
        F.array_except("incomplete", "faulty").alias("unknown"),
        (F.size("incomplete") == 0).alias("whole"),
        F.array_intersect("promises", F.array_compact(F.array(*always, *drained, *timed))).alias("judged"),
    )


def outcomes(events: DataFrame) -> DataFrame:
    """All events but frames. They are few of a trace's rows, and almost every check and figure looks at them: who keeps
    this table keeps it for all, as Spark knows it again."""
    return events.filter("kind not in ('send', 'receive')")


def judged(name: str) -> Column:
    return F.array_contains("judged", name)


def judges(*promises: str) -> Column:
    """Whether one of these is judged."""
    return F.arrays_overlap("judged", F.array(*(F.lit(str(name)) for name in promises)))


def nobody() -> Column:
    return F.array().cast("array<string>")


def group_set() -> Column:
    """A row's destination groups, so that equal sets are equal arrays."""
    return F.array_sort(F.array_distinct(F.coalesce("destinations", nobody())))


def members_of(destinations: str) -> Column:
    """The members of these groups, each once."""
    members = F.transform(destinations, lambda group: F.coalesce(F.try_element_at("groups", group), nobody()))
    return F.array_distinct(F.flatten(members))


def about_messages(events: DataFrame, facts: DataFrame, *, genuine: bool | None) -> DataFrame:
    """A row for each message that an event says something of; frames where genuineness is judged.

    `genuine`: whether it is judged in every run, or in none; None: in some.
    """
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    # A nameless delivery is one of a message that nobody multicast; a nameless multicast is none.
    subjects = F.when(deliver | (multicast & F.col("message").isNotNull()), F.array(F.coalesce("message", F.lit(""))))
    kinds = ["multicast", "deliver"]
    rows = events
    if genuine is not False:
        kinds += ["send", "receive"]
        subjects = subjects.when(~multicast if genuine else F.col("genuine") & ~multicast, F.col("about"))
    if genuine is None:
        flags = facts.select("run", judged("genuineness").alias("genuine"))
        rows = rows.join(F.broadcast(flags), on="run", how="inner")
    causal = multicast & F.coalesce(F.col("layer") == "causal", F.lit(False))
    # The requests that are delivered with the message, as a number that tells such lists apart.
    admitted = F.when(deliver, F.xxhash64(group_set(), F.col("requests.client"), F.col("requests.first")))
    return (
        rows.filter(F.col("kind").isin(kinds))
        .select(
            *("run", "process", "seq", "time_ns", "kind", "destinations", "order_key", "peers"),
            causal.alias("causal"),
            admitted.alias("admitted"),
            F.explode(subjects).alias("message"),
        )
        .filter("message is not null")
    )


def messages(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """Gather each message's rows. One shuffle, after which no check of a single message needs another."""
    kind = F.col("kind")
    multicast, deliver, touch = kind == "multicast", kind == "deliver", kind.isin("send", "receive")
    groups = group_set()
    # Lists do not shrink by being aggregated before the shuffle; so shuffle first.
    gathered = (
        rows.repartition("run", "message")
        .groupBy("run", "message")
        .agg(
            # The first row counts: an honest trace has no other.
            F.min(
                F.when(multicast, F.struct("process", "seq", groups.alias("destinations"), "causal", "time_ns"))
            ).alias("multicast"),
            F.min(F.when(deliver, F.struct("time_ns", "process", "seq"))).alias("first_delivery"),
            F.max(F.when(deliver, F.col("order_key"))).alias("key"),
            F.collect_list(F.when(deliver, F.struct("process", "seq"))).alias("deliveries"),
            F.collect_set(F.when(deliver, F.struct("process", groups.alias("destinations")))).alias("delivered_to"),
            F.collect_set(F.when(touch, F.col("process"))).alias("touched_at"),
            F.collect_set(F.when(touch, F.col("peers"))).alias("touched_by"),
        )
    )
    return gathered.join(F.broadcast(facts), on="run", how="inner").transform(_derived)


def _derived(table: DataFrame) -> DataFrame:
    """Name what the definitions of docs/trace.md speak of: sender(m), addressed(m), and who delivered m."""
    # What was never multicast has neither sender nor addressees, whatever its deliver rows claim.
    table = table.withColumns(
        {
            "known": F.col("multicast").isNotNull(),
            "sender": F.col("multicast.process"),
            "sender_seq": F.col("multicast.seq"),
            "multicast_ns": F.col("multicast.time_ns"),
            "causal": F.coalesce("multicast.causal", F.lit(False)),  # it has no place in a total order
            "destinations": F.coalesce("multicast.destinations", nobody()),
            "deliverers": F.array_sort(F.array_distinct("deliveries.process")),
            "touched": F.array_compact(F.array_union("touched_at", F.flatten("touched_by"))),
        }
    )
    return table.withColumn("addressed", members_of("destinations")).drop("multicast", "touched_at", "touched_by")
