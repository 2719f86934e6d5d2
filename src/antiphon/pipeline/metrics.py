"""What a trace cost and how long it took: counts, frames per multicast, steps, latencies, rates."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.latency_index import LatencyIndex, latency_index

PER_OCTAVE = 128  # latency buckets between x and 2x: a percentile is a latency that occurred, at most 0.6 % too high
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
EACH, LAST = "latency_ms", "last_ms"  # multicast to each delivery; multicast to the message's last delivery
SENT = "multicasts"


@dataclass(frozen=True)
class Metrics:
    """A few small tables, however long the trace: they grow with runs, layers and numbers of groups only.

    `deliveries` counts messages, `payloads` what came with them, each at every process; latencies are of messages.
    """

    runs: DataFrame  # one row per run
    by_groups: DataFrame  # one row per run and number of destination groups
    by_layer: DataFrame  # one row per run and component that sent frames
    latencies: DataFrame  # the histogram behind the percentiles
    index: LatencyIndex | None  # of the runs with causal graphs, if there are any


def metrics(events: DataFrame, runs: DataFrame) -> Metrics:
    """Measure every run. Two passes over the trace; everything else is computed from their small results.

    Where there are causal graphs, one more measures for how many machines a message waits.
    """
    totals = _totals(events).localCheckpoint()
    latencies = latency_histogram(events).localCheckpoint()
    rows = runs.select("run", "protocol").join(_by_run(totals), on="run", how="left")
    rows = rows.join(_percentiles(latencies, ["run"]), on="run", how="left").transform(_with_rates)
    frames = totals.filter("kind = 'send'").select("run", "layer", "sends", "bytes")
    by_layer = frames.join(F.broadcast(rows.select("run", "multicasts")), on="run", how="left").select(
        "run", "layer", "sends", "bytes", _per("sends", "multicasts").alias("sends_per_multicast")
    )
    by_groups = _percentiles(latencies, ["run", "groups"]).withColumnRenamed("multicasts", "messages")
    with_graph = runs.join(F.broadcast(totals.filter("kind = 'enter'")), on="run", how="left_semi")
    return Metrics(
        rows.orderBy("run"),
        by_groups.orderBy("run", "groups"),
        by_layer.orderBy("run", "layer"),
        latencies,
        None if with_graph.isEmpty() else latency_index(events, with_graph),
    )


def _per(amount: str, count: str) -> Column:
    return F.try_divide(F.col(amount).cast("double"), F.col(count).cast("double"))


def _totals(events: DataFrame) -> DataFrame:
    """Everything that plain counting gives, per run, kind and layer."""
    sent = F.when(F.col("kind") == "send", F.col("layer"))
    receivers = F.when(F.col("kind") == "send", F.coalesce(F.array_size("peers"), F.lit(0)).cast("long"))
    payloads = F.aggregate(
        F.coalesce(F.col("requests.payloads"), F.array().cast("array<bigint>")),
        F.lit(0).cast("long"),
        lambda total, number: total + number,
    )
    counted = events.filter("kind in ('multicast', 'deliver', 'send', 'enter')")
    rows = counted.groupBy("run", "kind", sent.alias("layer"))
    return rows.agg(
        F.count(F.lit(1)).alias("rows"),
        # One row names all receivers, and each of them gets the frame.
        F.sum(receivers).alias("sends"),
        F.sum(F.col("bytes") * receivers).alias("bytes"),
        F.sum(payloads).alias("payloads"),
        F.max("step").alias("steps_max"),
        F.avg("step").alias("steps_mean"),
        F.min("time_ns").alias("first_ns"),
        F.max("time_ns").alias("last_ns"),
    )


def _by_run(totals: DataFrame) -> DataFrame:
    def of(kind: str, column: str) -> Column:
        return F.when(F.col("kind") == kind, F.col(column))

    return totals.groupBy("run").agg(
        F.coalesce(F.sum(of("deliver", "rows")), F.lit(0)).alias("deliveries"),
        F.coalesce(F.sum(of("deliver", "payloads")), F.lit(0)).alias("payloads"),
        F.coalesce(F.sum(of("send", "sends")), F.lit(0)).alias("sends"),
        F.coalesce(F.sum(of("send", "bytes")), F.lit(0)).alias("bytes"),
        F.max(of("deliver", "steps_max")).alias("steps_max"),
        F.max(of("deliver", "steps_mean")).alias("steps_mean"),
        ((F.max(of("deliver", "last_ns")) - F.min(of("multicast", "first_ns"))) / 1e9).alias("seconds"),
    )


def _with_rates(rows: DataFrame) -> DataFrame:
    latencies = [f"{measure}_{name}" for measure in (EACH, LAST) for name in QUANTILES]
    return rows.select(
        *("run", "protocol", "multicasts", "deliveries", "payloads", "sends", "bytes"),
        *("steps_max", "steps_mean", "seconds"),
        _per("sends", "multicasts").alias("sends_per_multicast"),
        _per("bytes", "multicasts").alias("bytes_per_multicast"),
        _per("deliveries", "seconds").alias("deliveries_per_second"),
        _per("payloads", "seconds").alias("payloads_per_second"),
        *latencies,
    )


def latency_histogram(events: DataFrame) -> DataFrame:
    """Latencies counted in narrow buckets, by run, measure and number of destination groups.

    Buckets keep the largest latency in them. Unlike a sketch they add up exactly, so one small table gives the
    percentiles of a run, of each number of groups, and the picture. The measure `multicasts` has one entry per message,
    delivered or not.
    """
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    messages = (
        events.filter(multicast | deliver)
        .groupBy("run", "message")
        .agg(
            F.min(F.when(multicast, F.col("time_ns"))).alias("sent_ns"),
            F.max(F.when(multicast, F.size("destinations"))).alias("groups"),
            F.collect_list(F.when(deliver, F.col("time_ns"))).alias("delivered_ns"),
        )
        .filter("sent_ns is not null")
    )
    each = F.transform("delivered_ns", lambda at: _entry(EACH, at))
    last = F.when(F.size("delivered_ns") > 0, _entry(LAST, F.array_max("delivered_ns")))
    entries = F.concat(each, F.array_compact(F.array(last, _entry(SENT, F.col("sent_ns")))))
    latency = F.col("latency_ns")
    bucket = F.when(latency > 0, F.floor(F.log2(latency) * PER_OCTAVE)).otherwise(F.lit(-1))  # clocks may be apart
    return (
        messages.select("run", "groups", F.inline(entries))
        .groupBy("run", "measure", "groups", bucket.alias("bucket"))
        .agg(F.count(F.lit(1)).alias("count"), F.max("latency_ns").alias("top_ns"))
    )


def _entry(measure: str, at: Column) -> Column:
    return F.struct(F.lit(measure).alias("measure"), (at - F.col("sent_ns")).alias("latency_ns"))


def _percentiles(latencies: DataFrame, by: list[str]) -> DataFrame:
    """The smallest bucket's top with at least that share of all latencies at or below it."""
    merged = latencies.groupBy(*by, "measure", "bucket").agg(
        F.sum("count").alias("count"), F.max("top_ns").alias("top_ns")
    )
    all_ = Window.partitionBy(*by, "measure")
    up_to = all_.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = merged.withColumns({"below": F.sum("count").over(up_to), "total": F.sum("count").over(all_)})
    columns = [F.sum(F.when(F.col("measure") == SENT, F.col("count"))).alias("multicasts")]
    if "groups" in by:  # plain counting gives a run's deliveries, but not by the number of groups
        deliveries = F.sum(F.when(F.col("measure") == EACH, F.col("count")))
        columns.append(F.coalesce(deliveries, F.lit(0)).alias("deliveries"))
    for measure in (EACH, LAST):
        for name, share in QUANTILES.items():
            reached = (F.col("measure") == measure) & (F.col("below") >= F.ceil(F.col("total") * share))
            columns.append((F.min(F.when(reached, F.col("top_ns"))) / 1e6).alias(f"{measure}_{name}"))
    return ranked.groupBy(*by).agg(*columns)


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
