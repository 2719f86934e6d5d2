"""Who did how much, and when: the load of each process, rates over time, what waits to be delivered, and sizes.

Every table is small beside the trace: it grows with runs, processes, layers, slices of time and the sizes that occur.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.schema import as_columns, columns

SLICES = 120  # of equal length, into which a run's time is divided


COLUMNS = {
    "loads": columns("run process", "multicasts deliveries payloads sent sent_bytes received received_bytes"),
    "rates": columns("run", "slice multicasts deliveries payloads frames bytes", "start_s seconds payloads_per_second"),
    "held": columns("run process", "messages held_max", "held_mean wait_ms_mean wait_ms_max"),
    "held_over_time": columns("run process", "slice held", "end_s"),
    "participants": columns("run", "groups participants messages"),
    "batches": columns("run", "payloads requests messages"),
    "together": columns("run layer", "messages sets frames"),
}


def work(events: DataFrame) -> dict[str, DataFrame]:
    """The tables by their names. `deliveries` and `messages` count messages, `payloads` what came with them; a frame is
    counted as often as it is received."""
    times = spans(events)
    waits = _waits(events)
    tables = {
        "loads": loads_by_process(events),  # one row per run and process
        "rates": rates(events, times),  # one row per run and slice of its time in which anything happened
        "held": held(waits, times),  # one row per run and process that delivered: what waited there
        "held_over_time": held_over_time(waits, times),  # the same at the end of each slice in which it changed
        "participants": participants(events),  # one row per run, number of groups, and number of processes
        "batches": batches(events),  # one row per run and size of a message
        "together": together(events),  # one row per run, layer, and number of messages that a frame is about
    }
    return {name: as_columns(COLUMNS[name], table) for name, table in tables.items()}


# Per process ---------------------------------------------------------------------------------------------------------


def loads_by_process(events: DataFrame) -> DataFrame:
    """What each process multicast, delivered, sent and received. A frame to three receivers was sent three times."""
    receivers = F.coalesce(F.array_size("peers"), F.lit(0)).cast("long")

    def of(kind: str, amount: Column) -> Column:
        return F.coalesce(F.sum(F.when(F.col("kind") == kind, amount)), F.lit(0).cast("long"))

    return (
        events.filter("kind in ('multicast', 'deliver', 'send', 'receive')")
        .groupBy("run", "process")
        .agg(
            of("multicast", F.lit(1)).alias("multicasts"),
            of("deliver", F.lit(1)).alias("deliveries"),
            of("deliver", _payloads()).alias("payloads"),
            of("send", receivers).alias("sent"),
            of("send", F.col("bytes") * receivers).alias("sent_bytes"),
            of("receive", F.lit(1)).alias("received"),
            of("receive", F.col("bytes")).alias("received_bytes"),
        )
    )


def _payloads() -> Column:
    """Of the row's requests, all together."""
    numbers = F.coalesce(F.col("requests.payloads"), F.array().cast("array<bigint>"))
    return F.aggregate(numbers, F.lit(0).cast("long"), lambda total, number: total + number)


# Over time -----------------------------------------------------------------------------------------------------------


def spans(events: DataFrame) -> DataFrame:
    """When each run began and ended, and the length of one of its slices: one row per run."""
    ends = events.groupBy("run").agg(F.min("time_ns").alias("start_ns"), F.max("time_ns").alias("end_ns"))
    width = F.greatest(F.ceil((F.col("end_ns") - F.col("start_ns") + 1) / SLICES), F.lit(1)).cast("long")
    return ends.withColumn("width_ns", width)


def _slice(at: str) -> Column:
    return F.floor((F.col(at) - F.col("start_ns")) / F.col("width_ns"))


def rates(events: DataFrame, times: DataFrame) -> DataFrame:
    def of(kind: str, amount: Column) -> Column:
        return F.coalesce(F.sum(F.when(F.col("kind") == kind, amount)), F.lit(0).cast("long"))

    receivers = F.coalesce(F.array_size("peers"), F.lit(0)).cast("long")
    counted = (
        events.filter("kind in ('multicast', 'deliver', 'send')")
        .join(F.broadcast(times), on="run", how="inner")
        .groupBy("run", "width_ns", _slice("time_ns").alias("slice"))
        .agg(
            of("multicast", F.lit(1)).alias("multicasts"),
            of("deliver", F.lit(1)).alias("deliveries"),
            of("deliver", _payloads()).alias("payloads"),
            of("send", receivers).alias("frames"),
            of("send", F.col("bytes") * receivers).alias("bytes"),
        )
    )
    seconds = F.col("width_ns") / 1e9
    return counted.withColumns(
        {
            "start_s": F.col("slice") * seconds,
            "seconds": seconds,
            "payloads_per_second": F.col("payloads") / seconds,
        }
    )


# What waits ----------------------------------------------------------------------------------------------------------


def _waits(events: DataFrame) -> DataFrame:
    """From when to when a process held back each message that it delivered: (run, process, message, known_ns, out_ns).

    It knows a message from the first frame about it that arrives, from its entry into the causal graph, or from its own
    multicast. What is never delivered there has no row: whether it is held for ever, or only passes through, a trace
    does not tell.
    """
    own = events.filter("kind in ('multicast', 'deliver', 'enter') and message is not null").select(
        "run", "process", "message", (F.col("kind") == "deliver").alias("out"), "time_ns"
    )
    return (
        _arrivals(events)
        .unionByName(own)
        .groupBy("run", "process", "message")
        .agg(
            F.min("time_ns").alias("known_ns"),
            F.min(F.when(F.col("out"), F.col("time_ns"))).alias("out_ns"),
        )
        .filter("out_ns is not null")
    )


def _arrivals(events: DataFrame) -> DataFrame:
    """When frames about a message arrive at a process. Only the row of a frame's sending tells what it is about.

    The n-th that a layer sends to a process is the n-th of that layer that it receives from there, for channels keep
    the order. (Where one does not, it is the n-th that arrives.) Datagrams get lost; but there messages enter a graph.
    """
    with_graph = events.filter("kind = 'enter'").select("run").distinct()
    events = events.filter("kind in ('send', 'receive')").join(F.broadcast(with_graph), on="run", how="left_anti")
    channel = ["run", "layer", "sender", "receiver"]
    number = F.row_number().over(Window.partitionBy(*channel).orderBy("seq")).alias("number")
    sent = events.filter("kind = 'send'").select(
        "run", "layer", "seq", F.col("process").alias("sender"), F.explode("peers").alias("receiver"), "about"
    )
    came = events.filter("kind = 'receive'").select(
        "run", "layer", "seq", F.get("peers", F.lit(0)).alias("sender"), F.col("process").alias("receiver"), "time_ns"
    )
    met = sent.select(*channel, number, "about").join(
        came.select(*channel, number, "time_ns"), on=[*channel, "number"], how="inner"
    )
    message = F.explode("about").alias("message")
    return met.select("run", F.col("receiver").alias("process"), message, F.lit(False).alias("out"), "time_ns")


def held(waits: DataFrame, times: DataFrame) -> DataFrame:
    """How many messages a process held back. The mean is the sum of their waits over the run's time (Little's law), the
    largest that at the end of a slice."""
    wait = F.col("out_ns") - F.col("known_ns")
    summed = (
        waits.groupBy("run", "process")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum(wait).alias("waited_ns"),
            (F.avg(wait) / 1e6).alias("wait_ms_mean"),
            (F.max(wait) / 1e6).alias("wait_ms_max"),
        )
        .join(F.broadcast(times), on="run", how="inner")
    )
    largest = held_over_time(waits, times).groupBy("run", "process").agg(F.max("held").alias("held_max"))
    length = F.greatest(F.col("end_ns") - F.col("start_ns"), F.lit(1))
    return summed.join(largest, on=["run", "process"], how="left").withColumn("held_mean", F.col("waited_ns") / length)


def held_over_time(waits: DataFrame, times: DataFrame) -> DataFrame:
    """How many messages each process held back at the end of a slice: one row per slice in which that changed."""
    timed = waits.join(F.broadcast(times), on="run", how="inner")
    changes = F.array(
        F.struct(_slice("known_ns").alias("slice"), F.lit(1).alias("change")),
        F.struct(_slice("out_ns").alias("slice"), F.lit(-1).alias("change")),
    )
    by_slice = (
        timed.filter(_slice("known_ns") < _slice("out_ns"))  # who comes and goes within one is not there at its end
        .select("run", "process", "width_ns", F.inline(changes))
        .groupBy("run", "process", "width_ns", "slice")
        .agg(F.sum("change").alias("change"))
    )
    until_now = Window.partitionBy("run", "process").orderBy("slice").rowsBetween(Window.unboundedPreceding, 0)
    return by_slice.withColumns(
        {"held": F.sum("change").over(until_now), "end_s": (F.col("slice") + 1) * F.col("width_ns") / 1e9}
    )


# Sizes ---------------------------------------------------------------------------------------------------------------


def participants(events: DataFrame) -> DataFrame:
    """How many processes multicast or delivered a message, or sent a frame about it or were sent one, by the number of
    its groups."""
    ends = F.explode(F.array_append("peers", F.col("process"))).alias("process")
    sent = events.filter("kind = 'send' and size(about) > 0").select("run", ends, "about")
    frames = sent.select("run", "process", F.explode("about").alias("message"), F.lit(None).cast("int").alias("groups"))
    named = events.filter("kind in ('multicast', 'deliver')").select(
        "run", "process", "message", F.size("destinations").alias("groups")
    )
    each = frames.unionByName(named).groupBy("run", "message", "process").agg(F.max("groups").alias("groups"))
    by_message = each.groupBy("run", "message").agg(
        F.count(F.lit(1)).alias("participants"), F.max("groups").alias("groups")
    )
    known = by_message.filter("groups is not null")
    return known.groupBy("run", "groups", "participants").agg(F.count(F.lit(1)).alias("messages"))


def batches(events: DataFrame) -> DataFrame:
    """How many payloads and requests messages have."""
    requests = F.coalesce(F.array_size("requests"), F.lit(0)).alias("requests")
    sized = events.filter("kind = 'multicast'").select("run", _payloads().alias("payloads"), requests)
    return sized.groupBy("run", "payloads", "requests").agg(F.count(F.lit(1)).alias("messages"))


def together(events: DataFrame) -> DataFrame:
    """About how many messages a layer's frames are at once, and about how many different sets of so many: of a
    consensus, the sizes of what was proposed."""
    receivers = F.coalesce(F.array_size("peers"), F.lit(0)).cast("long")
    about = F.array_sort(F.coalesce("about", F.array().cast("array<string>")))
    sets = (
        events.filter("kind = 'send'")
        .groupBy("run", "layer", about.alias("about"))
        .agg(F.sum(receivers).alias("frames"))
    )
    return sets.groupBy("run", "layer", F.size("about").alias("messages")).agg(
        F.count(F.lit(1)).alias("sets"), F.sum("frames").alias("frames")
    )
