"""The properties of single messages: integrity, validity, agreement, uniform agreement, genuineness."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.messages import facts, judged


def violation(name: str, processes: Column, messages: Column, detail: Column, *, rank: Column | None = None) -> Column:
    """A violation as a struct; of many, those with the smallest rank are shown."""
    return F.struct(
        F.lit(name).alias("property"),
        processes.alias("processes"),
        messages.alias("messages"),
        detail.alias("detail"),
        (F.lit(0) if rank is None else rank).cast("long").alias("rank"),
    )


def listed(texts: Column) -> Column:
    return F.array_join(texts, ", ")


def message_violations(table: DataFrame) -> DataFrame:
    """Judge every row of the message table by itself."""
    correct = F.array_except("addressed", "faulty")
    seen = table.withColumns({"correct": correct, "missing": F.array_except(correct, F.col("deliverers"))})
    found = [*_integrity(), _validity(), _agreement(), _uniform_agreement(), _genuineness()]
    return seen.select("run", F.inline(F.array_compact(F.array(*found))))


def _check(name: str, broken: Column, processes: Column, detail: Column) -> Column:
    struct = violation(name, processes, F.array("message"), detail)
    return F.when(judged(name) & broken, struct)


def _integrity() -> list[Column]:
    message, deliverers = F.col("message"), F.col("deliverers")
    at = F.col("deliveries.process")
    twice = F.filter(deliverers, lambda p: F.size(F.filter(at, lambda q: p == q)) > 1)
    known = F.size("multicasts") > 0
    strays = F.array_except(deliverers, F.col("addressed"))
    other = F.array_except("delivered_to", "multicast_to")
    return [
        _check(
            "integrity",
            F.size("deliveries") > F.size(deliverers),
            twice,
            F.concat(listed(twice), F.lit(" delivered "), message, F.lit(" more than once")),
        ),
        _check(
            "integrity",
            ~known & (F.size(deliverers) > 0),
            deliverers,
            F.concat(message, F.lit(" was delivered but never multicast")),
        ),
        _check(
            "integrity",
            known & (F.size(other) > 0),
            deliverers,
            F.concat(message, F.lit(" was delivered with other destinations than it was multicast to")),
        ),
        _check(
            "integrity",
            F.size(strays) > 0,
            strays,
            F.concat(listed(strays), F.lit(" delivered "), message, F.lit(" without being addressed")),
        ),
    ]


def _validity() -> Column:
    senders = F.array_except("senders", "faulty")
    nobody = F.size(F.array_intersect("correct", "deliverers")) == 0
    return _check(
        "validity",
        (F.size(senders) > 0) & (F.size("correct") > 0) & nobody,
        senders,
        F.concat(F.col("message"), F.lit(" has a correct sender and no correct process delivered it")),
    )


def _missed() -> Column:
    return F.concat(
        F.get("deliverers", F.lit(0)), F.lit(" delivered "), "message", F.lit(", "), listed(F.col("missing")),
        F.lit(" never did"),
    )  # fmt: skip


def _agreement() -> Column:
    by_correct = F.size(F.array_except("deliverers", "faulty")) > 0
    return _check("agreement", by_correct & (F.size("missing") > 0), F.col("missing"), _missed())


def _uniform_agreement() -> Column:
    return _check(
        "uniform_agreement", (F.size("deliverers") > 0) & (F.size("missing") > 0), F.col("missing"), _missed()
    )


def _genuineness() -> Column:
    touched = F.array_union("touched_at", "touched_by")
    strangers = F.array_except(touched, F.array_union("senders", "addressed"))
    return _check(
        "genuineness",
        F.size(strangers) > 0,
        strangers,
        F.concat(
            listed(strangers), F.lit(" took part in "), F.col("message"),
            F.lit(", being neither its sender nor an addressee"),
        ),
    )  # fmt: skip


def idle_chatter(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Genuineness of what is about no single message: two may talk only if some message of the run concerns both."""
    genuine = facts(runs).filter(judged("genuineness"))
    members = genuine.select("run", F.explode("groups").alias("group", "members"))
    # Few rows, however long the run: pairs of processes that talk, and circles that some message concerns.
    pairs = (
        events.filter("kind in ('send', 'receive') and message is null")
        .join(F.broadcast(genuine.select("run")), on="run", how="left_semi")
        .select("run", "process", F.coalesce("peer", "process").alias("peer"))
        .distinct()
    )
    circles = (
        events.filter("kind = 'multicast'")
        .select("run", F.col("process").alias("sender"), F.array_sort("destinations").alias("destinations"))
        .distinct()
        .withColumn("group", F.explode("destinations"))
        .join(F.broadcast(members), on=["run", "group"], how="inner")
        .groupBy("run", "sender", "destinations")
        .agg(F.flatten(F.collect_list("members")).alias("addressed"))
        .select("run", F.array_append("addressed", F.col("sender")).alias("circle"))
        .distinct()
    )
    both = (
        (F.col("pairs.run") == F.col("circles.run"))
        & F.array_contains("circles.circle", F.col("pairs.process"))
        & F.array_contains("circles.circle", F.col("pairs.peer"))
    )
    strangers = pairs.alias("pairs").join(circles.alias("circles"), on=both, how="left_anti")
    ends = F.array_distinct(F.array("process", "peer"))
    detail = F.concat(F.lit("no message of the run concerns "), F.array_join(ends, " and "), F.lit(", which talk"))
    found = violation("genuineness", ends, F.array().cast("array<string>"), detail)
    return strangers.select("run", F.inline(F.array(found)))
