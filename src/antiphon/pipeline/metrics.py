"""What a trace cost and how long it took: counts, frames per multicast, steps, latencies, rates."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from antiphon.pipeline.glance.figures import FIGURES, by_run, by_shape
from antiphon.pipeline.glance.look import figures_of
from antiphon.pipeline.glance.run_index import index_of_groups
from antiphon.pipeline.glance.times import LATENCIES, OF_LATENCIES, latency_buckets, totals
from antiphon.pipeline.latency_index import OF_PAIRS, OF_RUNS, LatencyIndex, latency_index
from antiphon.pipeline.local import kept, local_table
from antiphon.pipeline.scan import Scan, of_rows
from antiphon.pipeline.schema import as_columns, columns

_NAMES = [StructField(name, StringType()) for name in ("run", "protocol")]
# Of the tables that are not what a step in Python says they are: `by_groups` and `by_size` are `figures.by_shape`'s.
COLUMNS = {
    "runs": StructType([*_NAMES, *from_arrow_schema(FIGURES).fields]),
    "by_layer": columns("run layer", "sends bytes", "sends_per_multicast"),
    "latencies": from_arrow_schema(OF_LATENCIES),
}


@dataclass(frozen=True)
class Metrics:
    """A few small tables, however long the trace: they grow with runs, layers and numbers of groups only.

    `deliveries` counts messages, `payloads` what came with them, each at every process; latencies are of messages.
    """

    runs: DataFrame  # one row per run
    by_groups: DataFrame  # one row per run and number of destination groups
    by_size: DataFrame  # one row per run, number of destination groups, and number of processes in them
    by_layer: DataFrame  # one row per run and component that sent frames
    latencies: DataFrame  # the histogram behind the percentiles
    index: LatencyIndex | None  # of the runs with causal graphs, if there are any

    def tables(self) -> dict[str, DataFrame]:
        """All by their names. Those of the index are empty where there is no graph, so that who reads them need not
        ask."""
        names = ("runs", "by_groups", "by_size", "by_layer", "latencies")
        spark = self.runs.sparkSession
        index, pairs = (
            (self.index.runs, self.index.pairs)
            if self.index is not None
            else (local_table(spark, [], OF_RUNS), local_table(spark, [], OF_PAIRS))
        )
        return {**{name: getattr(self, name) for name in names}, "latency_index": index, "tau_omega": pairs}


def metrics(events: DataFrame, runs: DataFrame, *, scan: Scan | None = None) -> Metrics:
    """Measure every run. One pass over the trace; `scan`: the same events, where there is a quicker way to read them.

    Where there are causal graphs, one more measures for how many machines a message waits.
    """
    return metrics_of(_figures(events, runs, scan), events, runs)


def metrics_of(figures: DataFrame, events: DataFrame, runs: DataFrame) -> Metrics:
    """Made of what was counted in the parts of a trace; all is computed from these small tables."""
    counted, latencies = kept(totals(figures)), _latencies(figures)
    rows = kept(as_columns(COLUMNS["runs"], _rows(counted, latencies, runs)))
    frames = counted.filter("kind = 'send'").select("run", "layer", "sends", "bytes")
    by_layer = frames.join(F.broadcast(rows.select("run", "multicasts")), on="run", how="left").select(
        "run", "layer", "sends", "bytes", _per("sends", "multicasts").alias("sends_per_multicast")
    )
    by_groups = by_shape(latencies, ["groups"])
    by_size = by_shape(latencies, ["groups", "processes"])
    with_graph = runs.join(F.broadcast(counted.filter("kind = 'enter'")), on="run", how="left_semi")
    return Metrics(
        rows.orderBy("run"),
        by_groups.orderBy("run", "groups"),
        by_size.orderBy("run", "groups", "processes"),
        as_columns(COLUMNS["by_layer"], by_layer).orderBy("run", "layer"),
        latencies,
        None if with_graph.isEmpty() else latency_index(events, with_graph),
    )


def _figures(events: DataFrame, runs: DataFrame, scan: Scan | None) -> DataFrame:
    index = index_of_groups((row.run, row.groups) for row in runs.select("run", "groups").collect())
    return kept(figures_of(scan or of_rows(events), index))


def _rows(counted: DataFrame, latencies: DataFrame, runs: DataFrame) -> DataFrame:
    return runs.select("run", "protocol").join(by_run(counted, latencies), on="run", how="left")


def _latencies(figures: DataFrame) -> DataFrame:
    return kept(as_columns(COLUMNS["latencies"], latency_buckets(figures)))


def _per(amount: str, count: str) -> Column:
    return F.try_divide(F.col(amount).cast("double"), F.col(count).cast("double"))


def message_times(events: DataFrame, *more: Column) -> DataFrame:
    """When each message was multicast and delivered: (run, message, sent_ns, groups, delivered_ns), and what more is to
    be told of its multicast."""
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    return (
        events.filter(multicast | deliver)
        .groupBy("run", "message")
        .agg(
            F.min(F.when(multicast, F.col("time_ns"))).alias("sent_ns"),
            F.max(F.when(multicast, F.size("destinations"))).alias("groups"),
            F.collect_list(F.when(deliver, F.col("time_ns"))).alias("delivered_ns"),
            *more,
        )
        .filter("sent_ns is not null")
    )


def latency_histogram(events: DataFrame, runs: DataFrame, scan: Scan | None = None) -> DataFrame:
    """Latencies counted in narrow buckets, by run, measure, number of destination groups, and of processes in them.

    Buckets keep the largest latency in them. Unlike a sketch they add up exactly, so one small table gives the
    percentiles of a run, of each number of groups, the means, and the picture. The measure `multicasts` has one entry
    per message, delivered or not. Clocks may be apart: `backwards` counts latencies that are negative, and so are none.
    """
    return _latencies(_figures(events, runs, scan))


def mean_latencies(latencies: DataFrame) -> DataFrame:
    """Of a histogram, one row per run: the exact means, in milliseconds."""
    columns = []
    for measure in LATENCIES:
        count, total = (F.sum(F.when(F.col("measure") == measure, F.col(name))) for name in ("count", "sum_ns"))
        columns.append(F.try_divide(total.cast("double"), count * 1e6).alias(f"{measure}_mean"))
    return latencies.groupBy("run").agg(*columns)


def timeline(events: DataFrame, *, buckets: int = 120) -> DataFrame:
    """Deliveries, crashes, recoveries and adoptions per process in equal slices of its run's time; times count from
    its start."""
    spans = events.groupBy("run").agg(F.min("time_ns").alias("start_ns"), F.max("time_ns").alias("end_ns"))
    width = F.greatest(F.ceil((F.col("end_ns") - F.col("start_ns") + 1) / buckets), F.lit(1))
    since = F.col("time_ns") - F.col("start_ns")
    return (
        events.filter("kind in ('deliver', 'crash', 'recover', 'adopt')")
        .join(F.broadcast(spans), on="run", how="inner")
        .select("run", "process", "kind", width.alias("width_ns"), since.alias("since_ns"))
        .withColumn("bucket", F.floor(F.col("since_ns") / F.col("width_ns")))
        .groupBy("run", "process", "kind", "bucket", "width_ns")
        .agg(F.count(F.lit(1)).alias("count"), F.min("since_ns").alias("first_ns"))
    )


def journeys(events: DataFrame) -> DataFrame:
    """What each layer sent about each message: one row per run, message and layer. It grows with the messages.

    `after_ms`: from the message's multicast to the layer's first frame about it. `frames`: those that it leads; a frame
    about several messages is counted for the first of them only.
    """
    begun = events.filter("kind = 'multicast'").groupBy("run", "message").agg(F.min("time_ns").alias("sent_ns"))
    about = F.posexplode("about").alias("place", "message")
    frames = (
        events.filter("kind = 'send'")
        .select("run", "layer", "time_ns", F.array_size("peers").alias("receivers"), about)
        .groupBy("run", "message", "layer")
        .agg(
            F.min("time_ns").alias("first_ns"),
            F.coalesce(F.sum(F.when(F.col("place") == 0, F.col("receivers"))), F.lit(0)).alias("frames"),
        )
    )
    after = ((F.col("first_ns") - F.col("sent_ns")) / 1e6).alias("after_ms")
    return frames.join(begun, on=["run", "message"], how="inner").select("run", "message", "layer", after, "frames")


def loads(events: DataFrame) -> DataFrame:
    """What was sent to each process: one row per run, process and layer, with its frames.

    `upkeep` is those of them that are about no message at all. A process to which nothing was sent has no row.
    """
    sent = events.filter("kind = 'send'").select(
        "run", "layer", F.explode("peers").alias("process"), F.coalesce(F.array_size("about"), F.lit(0)).alias("about")
    )
    return sent.groupBy("run", "process", "layer").agg(
        F.count(F.lit(1)).alias("frames"), F.count_if(F.col("about") == 0).alias("upkeep")
    )
