"""What a trace cost and how long it took: counts, frames per multicast, steps, latencies, rates."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PER_OCTAVE = 128  # latency buckets between x and 2x: a percentile is a latency that occurred, at most 0.6 % too high
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
EACH, LAST = "latency_ms", "last_ms"  # multicast to each delivery; multicast to the message's last delivery


@dataclass(frozen=True)
class Metrics:
    """Four small tables, however long the trace: they grow with runs, layers and numbers of groups only."""

    runs: DataFrame  # one row per run
    by_groups: DataFrame  # one row per run and number of destination groups
    by_layer: DataFrame  # one row per run and component that sent frames
    latencies: DataFrame  # the histogram behind the percentiles


def metrics(events: DataFrame, runs: DataFrame) -> Metrics:
    """Measure every run. Two passes over the trace; everything else is computed from their small results."""
    totals = _totals(events).localCheckpoint()
    latencies = latency_histogram(events).localCheckpoint()
    percentiles = _percentiles(latencies, ["run"])
    named = runs.select("run", "protocol")
    rows = named.join(_by_run(totals), on="run", how="left").join(percentiles, on="run", how="left")
    frames = totals.filter("kind = 'send'").select("run", "layer", F.col("rows").alias("sends"), "bytes")
    multicasts = totals.filter("kind = 'multicast'").select("run", F.col("rows").alias("multicasts"))
    by_layer = frames.join(F.broadcast(multicasts), on="run", how="left").select(
        "run", "layer", "sends", "bytes", _per("sends", "multicasts").alias("sends_per_multicast")
    )
    return Metrics(
        runs=rows.orderBy("run"),
        by_groups=_percentiles(latencies, ["run", "groups"]).orderBy("run", "groups"),
        by_layer=by_layer.orderBy("run", "layer"),
        latencies=latencies,
    )


def _per(amount: str, count: str) -> Column:
    return F.try_divide(F.col(amount).cast("double"), F.col(count).cast("double"))


def _totals(events: DataFrame) -> DataFrame:
    """Everything that plain counting gives, per run, kind and layer."""
    # A client's retry makes a second multicast row: the message is one.
    first = Window.partitionBy("run", "message").orderBy("time_ns", "process", "seq")
    multicasts = (
        events.filter("kind = 'multicast'").withColumn("try", F.row_number().over(first)).filter("try = 1").drop("try")
    )
    rows = events.filter("kind in ('deliver', 'send')").unionByName(multicasts)
    return rows.groupBy("run", "kind", F.when(F.col("kind") == "send", F.col("layer")).alias("layer")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.sum("bytes").alias("bytes"),
        F.max("step").alias("steps_max"),
        F.avg("step").alias("steps_mean"),
        F.min("time_ns").alias("first_ns"),
        F.max("time_ns").alias("last_ns"),
    )


def _by_run(totals: DataFrame) -> DataFrame:
    def of(kind: str, column: str) -> Column:
        return F.when(F.col("kind") == kind, F.col(column))

    def count(kind: str) -> Column:
        return F.coalesce(F.sum(of(kind, "rows")), F.lit(0))

    counts = totals.groupBy("run").agg(
        count("multicast").alias("multicasts"),
        count("deliver").alias("deliveries"),
        count("send").alias("sends"),
        F.coalesce(F.sum(of("send", "bytes")), F.lit(0)).alias("bytes"),
        F.max(of("deliver", "steps_max")).alias("steps_max"),
        F.max(of("deliver", "steps_mean")).alias("steps_mean"),
        ((F.max(of("deliver", "last_ns")) - F.min(of("multicast", "first_ns"))) / 1e9).alias("seconds"),
    )
    return counts.select(
        *("run", "multicasts", "deliveries", "sends", "bytes", "steps_max", "steps_mean", "seconds"),
        _per("sends", "multicasts").alias("sends_per_multicast"),
        _per("bytes", "multicasts").alias("bytes_per_multicast"),
        _per("deliveries", "seconds").alias("deliveries_per_second"),
    )


def latency_histogram(events: DataFrame) -> DataFrame:
    """Latencies counted in narrow buckets, by run, measure and number of destination groups.

    Buckets keep the largest latency in them. Unlike a sketch they add up exactly, so one small table gives the
    percentiles of a run, of each number of groups, and the picture.
    """
    multicasts = (
        events.filter("kind = 'multicast'")
        .groupBy("run", "message")
        .agg(F.min("time_ns").alias("sent_ns"), F.max(F.size("destinations")).alias("groups"))
    )
    deliveries = events.filter("kind = 'deliver'").select("run", "message", "time_ns")
    # A hash table of the few multicasts beside each part of the many deliveries: neither side need be sorted.
    each = deliveries.join(multicasts.hint("shuffle_hash"), on=["run", "message"], how="inner")
    last = each.groupBy("run", "message").agg(
        F.max("time_ns").alias("time_ns"), F.min("sent_ns").alias("sent_ns"), F.min("groups").alias("groups")
    )
    both = each.withColumn("measure", F.lit(EACH)).unionByName(last.withColumn("measure", F.lit(LAST)))
    latency = F.col("time_ns") - F.col("sent_ns")
    bucket = F.when(latency > 0, F.floor(F.log2(latency) * PER_OCTAVE)).otherwise(F.lit(-1))  # clocks may be apart
    return (
        both.select("run", "measure", "groups", bucket.alias("bucket"), latency.alias("latency_ns"))
        .groupBy("run", "measure", "groups", "bucket")
        .agg(F.count(F.lit(1)).alias("count"), F.max("latency_ns").alias("top_ns"))
    )


def _percentiles(latencies: DataFrame, by: list[str]) -> DataFrame:
    """The smallest bucket's top with at least that share of all latencies at or below it."""
    merged = latencies.groupBy(*by, "measure", "bucket").agg(
        F.sum("count").alias("count"), F.max("top_ns").alias("top_ns")
    )
    all_ = Window.partitionBy(*by, "measure")
    up_to = all_.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = merged.withColumns({"below": F.sum("count").over(up_to), "total": F.sum("count").over(all_)})
    columns = [F.sum(F.when(F.col("measure") == m, F.col("count"))).alias(n) for m, n in _COUNTS.items()]
    for measure in (EACH, LAST):
        for name, share in QUANTILES.items():
            reached = (F.col("measure") == measure) & (F.col("below") >= F.ceil(F.col("total") * share))
            columns.append((F.min(F.when(reached, F.col("top_ns"))) / 1e6).alias(f"{measure}_{name}"))
    kept = ranked.groupBy(*by).agg(*columns)
    return kept if "groups" in by else kept.drop(*_COUNTS.values())


_COUNTS = {LAST: "messages", EACH: "deliveries"}  # every delivered message has one last delivery


def timeline(events: DataFrame, *, buckets: int = 120) -> DataFrame:
    """Deliveries, crashes and recoveries per process in equal slices of its run's time; times count from its start."""
    spans = events.groupBy("run").agg(F.min("time_ns").alias("start_ns"), F.max("time_ns").alias("end_ns"))
    width = F.greatest(F.ceil((F.col("end_ns") - F.col("start_ns") + 1) / buckets), F.lit(1))
    since = F.col("time_ns") - F.col("start_ns")
    return (
        events.filter("kind in ('deliver', 'crash', 'recover')")
        .join(F.broadcast(spans), on="run", how="inner")
        .select("run", "process", "kind", width.alias("width_ns"), since.alias("since_ns"))
        .withColumn("bucket", F.floor(F.col("since_ns") / F.col("width_ns")))
        .groupBy("run", "process", "kind", "bucket", "width_ns")
        .agg(F.count(F.lit(1)).alias("count"), F.min("since_ns").alias("first_ns"))
    )
