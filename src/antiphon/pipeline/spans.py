"""Divides a run of which an order is unproven, so that no task holds more than a piece of it.

Number the messages of a run in any order; one in which they are mostly delivered will do best, as that of their keys.
What breaks an order is a cycle: of steps from a message to one that some process delivers later, to one that is
multicast later by who had delivered or multicast it, or, where that is asked for, by anybody after its delivery. What a
process was addressed by and never delivers comes after all that it delivers. Most steps lead to a greater number. A
cycle must somewhere go back; and whatever number lies between its least and its greatest, some step of it goes back
over that. So all of a cycle lies within one *span*: a stretch of numbers that the steps that go back cover without a
gap. All orders can be judged in each span for itself. Where all is in order but for one message, it is a few messages.

A span may be as long as the run, where somebody delivers the first message last, or one is never delivered. It is
looked at through windows that overlap: what is broken there is broken, as all steps between messages that are there are
seen. Only a long span in whose windows nothing is found, of a property that is broken nowhere else, is judged by one
task that holds all of it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import kernel, schema
from antiphon.pipeline.blocks import EVENTS_IN_BLOCK, running_max
from antiphon.pipeline.local import kept
from antiphon.pipeline.messages import judges

PIECE = 50_000  # messages that a task holds at least, if there are so many
NUMBERS = 1 << 15  # spans and messages meet in blocks of so many numbers
BLOCK_NS = 100_000_000
CAUSALS = (Promise.CAUSAL, Promise.CAUSAL_EXTENSION)


def disorder(unordered: DataFrame) -> DataFrame:
    """What the kernel finds of its properties, piece by piece."""
    table = of_kernel(unordered)
    counts = table.groupBy("run").count()
    large = counts.filter(F.col("count") > PIECE).select("run")
    whole = table if large.isEmpty() else table.join(F.broadcast(large), on="run", how="left_anti")
    found = _judged(whole.select(*kernel.COLUMNS), "run")
    if large.isEmpty():
        return kept(found)
    rows = numbered(table.join(F.broadcast(large), on="run", how="left_semi"))
    return kept(found.unionByName(_by_spans(rows)))


def of_kernel(unordered: DataFrame) -> DataFrame:
    """The messages of runs with something for the kernel."""
    at = {"delivered_at": F.col("deliveries.process"), "delivered_seq": F.col("deliveries.seq")}
    return unordered.filter(judges(*kernel.CHECKS)).withColumns(at)


def _judged(rows: DataFrame, *by: str) -> DataFrame:
    found: DataFrame = rows.groupBy(*by).applyInArrow(kernel.disorder, schema.FOUND)
    return found


def numbered(table: DataFrame) -> DataFrame:
    """The messages with their numbers: by their keys; of a run without, by the time of their first delivery.

    One without a key, in a run that has them, stands where its sender's other messages stand.
    """
    by_sender = Window.partitionBy("run", "sender", F.expr(f"sender_seq div {NUMBERS}"))
    nearest = F.last("key", ignorenulls=True)  # a frame up to the end would be gone through for each row
    before, behind = (
        nearest.over(by_sender.orderBy(order).rowsBetween(Window.unboundedPreceding, -1))
        for order in (F.col("sender_seq"), F.col("sender_seq").desc())
    )
    time = F.coalesce(F.col("first_delivery.time_ns"), F.col("multicast_ns"))
    rows = table.withColumns({"place": F.coalesce("key", before, behind), "time": time}).select(
        *kernel.COLUMNS, "place", "time"
    )
    part, row = F.col("id").bitwiseAND(F.lit(~((1 << 33) - 1))), F.col("id").bitwiseAND(F.lit((1 << 33) - 1))
    in_order = kept(rows.orderBy("run", "place", "time", "message").withColumn("id", F.monotonically_increasing_id()))
    sizes = in_order.groupBy(part.alias("part")).count()
    earlier = Window.orderBy("part").rowsBetween(Window.unboundedPreceding, -1)  # of parts there are few
    offsets = sizes.select("part", F.coalesce(F.sum("count").over(earlier), F.lit(0)).alias("offset"))
    parted = in_order.withColumn("part", part).join(F.broadcast(offsets), on="part", how="inner")
    return kept(parted.select(*kernel.COLUMNS, (F.col("offset") + row).alias("number")))


def _by_spans(rows: DataFrame) -> DataFrame:
    spans = kept(united(kept(backward(rows))))
    blocks = spans.withColumn("block", F.explode(F.sequence(_block("low"), _block("high"))))
    inside = (
        rows.withColumn("block", _block("number"))
        .join(blocks, on=["run", "block"], how="inner")
        .filter("number between low and high")
    )
    is_long = F.col("high") - F.col("low") >= PIECE
    short = inside.filter(~is_long).withColumn("piece", F.expr(f"low div {PIECE}"))
    found = _judged(short.select(*kernel.COLUMNS, "piece"), "run", "piece")
    long_ = inside.filter(is_long)
    if spans.filter(is_long).isEmpty():
        return found
    half = F.expr(f"number div {PIECE // 2}")
    windows = long_.withColumn("piece", F.explode(F.array(half, half - 1)))
    found = kept(found.unionByName(_judged(windows.select(*kernel.COLUMNS, "piece"), "run", "piece")))
    found = found.dropDuplicates(["run", "property", "processes", "messages"])
    known = found.groupBy("run").agg(F.collect_set("property").alias("known"))
    left = F.array_except("judged", F.coalesce("known", F.array().cast("array<string>")))
    rest = long_.join(F.broadcast(known), on="run", how="left").withColumn("judged", left)
    rest = rest.filter(judges(*kernel.CHECKS)).select(*kernel.COLUMNS, "low")
    return found.unionByName(_judged(rest, "run", "low"))


def _block(number: str) -> Column:
    return F.expr(f"{number} div {NUMBERS}")


# ---- steps that go back


def backward(rows: DataFrame) -> DataFrame:
    """(run, low, high): over which numbers a step goes back, whatever it is that is judged in the run."""
    deliveries = rows.select("run", "number", F.inline(F.arrays_zip("delivered_at", "delivered_seq"))).toDF(
        "run", "number", "process", "seq"
    )
    sent = rows.filter(judges(*CAUSALS) & F.col("sender").isNotNull()).select(
        "run", "number", F.col("sender").alias("process"), F.col("sender_seq").alias("seq"), F.lit(True).alias("sent")
    )
    history = deliveries.withColumn("sent", F.lit(False)).unionByName(sent)
    values = {"any": F.col("number"), "delivered": F.when(~F.col("sent"), F.col("number"))}
    seen = running_max(history, ["run", "process"], "seq", values, size=EVENTS_IN_BLOCK)
    high = F.when(F.col("sent"), F.col("any")).otherwise(F.col("delivered"))
    steps = seen.select("run", F.col("number").alias("low"), high.alias("high"))
    found = steps.unionByName(_missing(rows, deliveries)).unionByName(_in_time(rows))
    return found.filter("high >= low")


def _missing(rows: DataFrame, deliveries: DataFrame) -> DataFrame:
    """From the last of what a process delivers to what it never does."""
    tops = deliveries.groupBy("run", "process").agg(F.max("number").alias("high"))
    who = F.explode(F.array_except("addressed", "delivered_at")).alias("process")
    never = rows.filter(judges(Promise.CAUSAL)).select("run", F.col("number").alias("low"), who)
    return never.join(F.broadcast(tops), on=["run", "process"], how="inner").select("run", "low", "high")


def _in_time(rows: DataFrame) -> DataFrame:
    """From what was delivered to what is multicast after that, whatever the error of the clocks."""
    timed = rows.filter(judges(Promise.REAL_TIME_ORDER))
    known_at = F.try_add(F.col("first_delivery.time_ns"), F.col("clock_error_ns"))  # null: later than anything can be
    moments = F.array(
        F.struct(F.col("multicast_ns").alias("at"), F.lit(False).alias("delivered")),
        F.struct(known_at.alias("at"), F.lit(True).alias("delivered")),
    )
    all_ = timed.select("run", "number", F.inline(moments)).filter("at is not null")
    top = {"top": F.when(F.col("delivered"), F.col("number"))}
    # A delivery at that very moment is not before it.
    seen = running_max(all_, ["run"], "at", top, size=BLOCK_NS, then=["delivered"])
    return seen.filter("not delivered").select("run", F.col("number").alias("low"), F.col("top").alias("high"))


# ---- spans


def united(steps: DataFrame) -> DataFrame:
    """(run, low, high): the stretches that these cover without a gap."""
    once = kept(steps.groupBy("run", "low").agg(F.max("high").alias("high")))
    reached = kept(running_max(once, ["run"], "low", {"reached": F.col("high")}, size=NUMBERS))
    apart = F.col("reached").isNull() | (F.col("low") > F.col("reached"))
    first = {"before": F.when(apart, F.col("low"))}
    starts = running_max(reached, ["run"], "low", first, size=NUMBERS)
    start = F.when(apart, F.col("low")).otherwise(F.col("before"))
    return (
        starts.groupBy("run", start.alias("start")).agg(F.max("high").alias("high")).withColumnRenamed("start", "low")
    )
