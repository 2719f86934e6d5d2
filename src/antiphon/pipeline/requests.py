"""Clients' requests: what was multicast, acknowledged and delivered of each, and in which order at each process."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.messages import group_set, judged, members_of
from antiphon.trace import MAJORITY

SESSION = ["run", "process", "client", "destinations"]  # what one client sends to one set, as one process delivers it


def cells(events: DataFrame, kinds: list[str]) -> DataFrame:
    """One row per request of each event of these kinds."""
    return (
        events.filter(F.col("kind").isin(kinds))
        .select(
            "run",
            "process",
            "seq",
            "kind",
            "message",
            "layer",
            "position",
            group_set().alias("destinations"),
            F.posexplode("requests").alias("place", "request"),
        )
        .select("run", "process", "seq", "place", "kind", "message", "layer", "position", "destinations", "request.*")
    )


def own_clients(events: DataFrame, incomplete: DataFrame) -> DataFrame:
    """The processes that multicast on their own behalf, or whose missing rows may say so."""
    own = F.exists("requests", lambda request: request["client"] == F.col("process"))
    found = events.filter((F.col("kind") == "multicast") & own).select("run", F.col("process").alias("client"))
    return found.unionByName(incomplete).distinct()


def odd_requests(events: DataFrame, facts: DataFrame) -> DataFrame:
    """One row per request with `fake` deliveries (otherwise than it was multicast), `unkept` receipts of correct
    processes or `untrue` ones for what a majority holds, as far as such things are judged."""
    kind = F.col("kind")
    rows = cells(events, ["multicast", "deliver", "receipt"])
    what = ["payloads", "digest"]
    table = (
        rows.repartition("run", "client", "destinations", "first")
        .groupBy("run", "client", "destinations", "first")
        .agg(
            F.collect_set(F.when(kind == "multicast", F.struct(*what))).alias("multicast"),
            F.collect_list(F.when(kind == "deliver", F.struct("process", "message", *what))).alias("delivered"),
            F.collect_set(F.when(kind == "receipt", F.struct("process", "seq", "layer", *what))).alias("receipts"),
        )
        .join(F.broadcast(facts), on="run", how="inner")
    )
    fake = F.filter("delivered", lambda d: ~F.exists("multicast", lambda m: _same(m, d)))
    unkept = F.filter(
        "receipts",
        lambda r: ~F.array_contains("faulty", r["process"]) & (F.size(missing_at(r)) > 0),
    )
    untrue = F.filter("receipts", lambda r: (r["layer"] == MAJORITY) & (F.size(missing_at(r)) > 0))
    nothing = F.array()
    judged_table = table.withColumn("correct", F.array_except(members_of("destinations"), "faulty")).withColumns(
        {
            "fake": F.when(judged("integrity") & F.col("whole"), fake).otherwise(nothing),
            "unkept": F.when(judged("receipts"), unkept).otherwise(nothing),
            "untrue": F.when(judged("durable_receipts"), untrue).otherwise(nothing),
        }
    )
    return judged_table.filter("size(fake) > 0 or size(unkept) > 0 or size(untrue) > 0")


def _same(one: Column, other: Column) -> Column:
    return one["payloads"].eqNullSafe(other["payloads"]) & one["digest"].eqNullSafe(other["digest"])


def missing_at(receipt: Column) -> Column:
    """The correct addressed processes that did not deliver the request as the receipt has it."""
    there = F.transform(F.filter("delivered", lambda d: _same(d, receipt)), lambda d: d["process"])
    return F.array_sort(F.array_except("correct", there))


def delivered_first(events: DataFrame) -> DataFrame:
    """One row per request and process that delivers it: when and with which message it does first."""
    return (
        cells(events, ["deliver"])
        .groupBy(*SESSION, "first")
        .agg(F.min(F.struct("seq", "place", "message")).alias("at"))
        .select(*SESSION, "first", "at.*")
    )


def delivered(events: DataFrame, own: DataFrame) -> DataFrame:
    """One row per delivered request; `own` where its client multicasts on its own behalf, and its `last` number.

    Who does so numbers requests instead of payloads.
    """
    marks = F.broadcast(own.withColumn("own", F.lit(True)))
    marked = cells(events, ["deliver"]).join(marks, on=["run", "client"], how="left")
    length = F.when(F.col("own"), F.lit(1)).otherwise(F.greatest("payloads", F.lit(1)))
    last = capped_sum(F.col("first"), length.cast("long") - 1)
    return marked.withColumns({"own": F.coalesce("own", F.lit(False)), "last": last}).drop("kind", "digest")


def crooked(delivered: DataFrame) -> DataFrame:
    """The sessions that are not straight: each request where the one before it ended.

    A straight session breaks neither integrity nor the client's order. Where a client multicasts on its own behalf,
    growing numbers are straight.
    """
    by_delivery = Window.partitionBy(*SESSION).orderBy("seq", "place")
    before = F.lag("last", 1, -1).over(by_delivery)
    next_one = F.coalesce(F.col("first") == F.try_add(before, F.lit(1)), F.lit(False))  # none after the largest number
    straight = F.when(F.col("own"), F.col("first") > before).otherwise(next_one & (F.col("payloads") > 0))
    judged_rows = delivered.withColumn("straight", straight)
    sessions = judged_rows.groupBy(*SESSION).agg(F.every("straight").alias("straight"))
    return sessions.filter("not straight").select(*SESSION)


def capped_sum(one: Column, other: Column) -> Column:
    """The sum of numbers that are not negative; where a long cannot hold it, the largest that one can."""
    return F.coalesce(F.try_add(one, other), F.lit(2**63 - 1))


def request_text() -> Column:
    """A request in a sentence: by its client and its numbers."""
    one = F.col("payloads") == 1
    numbers = F.when(one, F.col("first").cast("string")).otherwise(
        F.format_string("%d to %d", F.col("first"), capped_sum(F.col("first"), F.col("payloads") - 1))
    )
    return F.format_string("request %s of %s to %s", numbers, F.col("client"), F.array_join("destinations", " and "))
