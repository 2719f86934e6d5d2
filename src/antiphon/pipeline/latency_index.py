"""The index of latency (toto.txt, section 6): for how many machines a delivery waits, in traces with causal graphs.

Of message m at machine p: ω is the sender, and the machines that have a message concurrent to m in p's graph when m
enters it; τ, the index of latency, is the machines with a message concurrent to m or after it when p delivers m.

What m follows is what was in its sender's graph when it was sent. So no chain of messages is walked: of each graph it
is enough to know the newest message of each machine at every moment, and that is a running maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.local import kept
from antiphon.pipeline.schema import as_columns, columns

KINDS = ("multicast", "enter", "deliver", "view")
OF_RUNS = columns(
    "run protocol",
    "n deliveries",
    "interval_ms tau omega latency_ms periodic_ms poisson_ms rho_periodic rho_poisson",
)
OF_PAIRS = columns("run", "tau omega deliveries own_deliveries", "own_latency_ms")
POSITION_BITS = 40  # of a number that has a view above and a position below


@dataclass(frozen=True)
class LatencyIndex:
    """Two small tables, of the runs that have a causal graph; a run has at most n² rows of the second (n machines).

    They count what was delivered while all machines that ever send were still sending: afterwards a message waits for
    machines that have nothing to say, until they acknowledge.
    """

    runs: DataFrame  # one row per run: the means, formulas (1) and (2), and how far they are off
    pairs: DataFrame  # the joint distribution of (τ, ω)


def latency_index(events: DataFrame, runs: DataFrame) -> LatencyIndex:
    sources = kept(_sources(events))
    counted = waits(events, runs).join(F.broadcast(sources), on="run", how="inner").filter("delivered_ns <= end_ns")
    by_pair = counted.groupBy("run", "tau", "omega").agg(
        F.count(F.lit(1)).alias("deliveries"),
        F.count("latency_ms").alias("own_deliveries"),
        F.sum("latency_ms").alias("own_latency_ms"),
    )
    pairs = kept(as_columns(OF_PAIRS, by_pair))
    return LatencyIndex(_by_run(pairs, runs, sources).orderBy("run"), pairs.orderBy("run", "tau", "omega"))


def waits(events: DataFrame, runs: DataFrame) -> DataFrame:
    """τ and ω of each message at each machine that delivered it; the latency where it is the sender's own."""
    machines = runs.select("run", _machines().alias("machines"))
    most = machines.agg(F.max(F.size("machines")).alias("most")).collect()[0].most or 0  # of one run: a few dozen
    is_entry, is_delivery = F.col("kind") == "enter", F.col("kind") == "deliver"
    sender = F.when(is_entry, F.get("peers", F.lit(0)))
    rows = (
        events.filter(F.col("kind").isin(*KINDS))
        .join(F.broadcast(machines), on="run", how="inner")
        .select("run", "process", "seq", "time_ns", "kind", "message", "position", sender.alias("sender"), "machines")
        .withColumn("place", F.array_position("machines", F.col("sender")))
        .transform(_with_what_was_there, most)
        .filter("message is not null and kind <> 'view'")
    )
    # What m follows stands in its sender's row. The sender's own part is of the message before m.
    at_sender = F.when(is_entry & (F.col("process") == F.col("sender")), F.col("newest"))
    rows = rows.withColumn("followed", F.max(at_sender).over(Window.partitionBy("run", "message")))
    newer = [F.when(F.get("newest", F.lit(k)) > F.get("followed", F.lit(k)), 1).otherwise(0) for k in range(most)]
    beside = F.when(F.col("followed").isNotNull(), reduce(add, newer, F.lit(0)))
    return (
        rows.withColumn("beside", beside)
        .groupBy("run", "message", "process")
        .agg(
            F.max(F.when(is_delivery, F.col("beside"))).alias("tau"),  # m itself is there: the sender is among them
            F.max(F.when(is_entry, F.col("beside") + 1)).alias("omega"),  # m is not there yet
            F.min(F.when(F.col("kind") == "multicast", F.col("time_ns"))).alias("sent_ns"),
            F.min(F.when(is_delivery, F.col("time_ns"))).alias("delivered_ns"),
        )
        .filter("tau is not null and omega is not null")
        .withColumn("latency_ms", (F.col("delivered_ns") - F.col("sent_ns")) / 1e6)  # only the sender has `sent_ns`
    )


def _machines() -> Column:
    return F.flatten(F.map_values("groups"))


def _with_what_was_there(rows: DataFrame, most: int) -> DataFrame:
    """Beside each row: the number of each machine's newest message in the graph before it. A view begins with none."""
    before = Window.partitionBy("run", "process").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("view", F.count(F.when(F.col("kind") == "view", 1)).over(before))
    # View and position as one number: so everything is a running maximum within one sort.
    entry = F.shiftleft("view", POSITION_BITS) + F.col("position")
    last = [F.max(F.when(F.col("place") == place, entry)).over(before) for place in range(1, most + 1)]
    newest = [F.when(F.shiftright(n, POSITION_BITS) == F.col("view"), n.bitwiseAND(2**POSITION_BITS - 1)) for n in last]
    return rows.withColumn("newest", F.array(*(F.coalesce(n, F.lit(0)) for n in newest)))


def _sources(events: DataFrame) -> DataFrame:
    """Of each run: when the first machine sent its last message, and the mean time between two of one machine."""
    own = (F.col("kind") == "enter") & F.col("message").isNotNull() & (F.col("process") == F.get("peers", F.lit(0)))
    by_machine = (
        events.filter(own)
        .groupBy("run", "process")
        .agg(F.min("time_ns").alias("first_ns"), F.max("time_ns").alias("last_ns"), F.count(F.lit(1)).alias("sent"))
    )
    span, gaps = F.sum(F.col("last_ns") - F.col("first_ns")), F.sum(F.col("sent") - 1)
    return by_machine.groupBy("run").agg(
        F.min("last_ns").alias("end_ns"),
        (F.try_divide(span.cast("double"), gaps.cast("double")) / 1e6).alias("interval_ms"),
    )


def _by_run(pairs: DataFrame, runs: DataFrame, sources: DataFrame) -> DataFrame:
    facts = runs.select("run", "protocol", F.size(_machines()).alias("n"))
    deliveries = F.sum("deliveries")

    def mean(of: Column) -> Column:
        return F.try_divide(F.sum(of * F.col("deliveries")).cast("double"), deliveries.cast("double"))

    rows = (
        sources.join(facts, on="run", how="inner")
        .join(pairs, on="run", how="left")
        .groupBy("run", "protocol", "n", "interval_ms")
        .agg(
            F.coalesce(deliveries, F.lit(0)).alias("deliveries"),
            mean(F.col("tau")).alias("tau"),
            mean(F.col("omega")).alias("omega"),
            F.try_divide(F.sum("own_latency_ms"), F.sum("own_deliveries").cast("double")).alias("latency_ms"),
            (F.col("interval_ms") * mean(periodic(F.col("tau"), F.col("omega"), F.col("n")))).alias("periodic_ms"),
            (F.col("interval_ms") * mean(poisson(F.col("tau"), F.col("omega"), F.col("n")))).alias("poisson_ms"),
        )
    )
    rhos = {f"rho_{source}": _rho(F.col(f"{source}_ms")) for source in ("periodic", "poisson")}
    return as_columns(OF_RUNS, rows.withColumns(rhos))


def poisson(tau: Column, omega: Column, n: Column) -> Column:
    """Formula (1), of one (τ, ω), in mean times between two messages of a machine: Σ 1/(n-k), k from ω to τ-1."""
    heard = F.when(tau > omega, F.sequence(omega, tau - 1)).otherwise(F.array().cast("array<int>"))
    return F.aggregate(heard, F.lit(0.0), lambda total, k: total + 1 / (n - k))


def periodic(tau: Column, omega: Column, n: Column) -> Column:
    """Formula (2), in the same way."""
    return (tau - omega) / (n - omega + 1)


def _rho(model_ms: Column) -> Column:
    return F.try_divide(F.abs(model_ms - F.col("latency_ms")), F.col("latency_ms"))


def acknowledged(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Of each message at each machine: when its graph first held, from every machine, a message that follows it.

    One row for each such moment: (run, process, message, acknowledged_ns, delivered_ns). For runs without views.
    """
    machines = runs.select("run", _machines().alias("machines"))
    most = machines.agg(F.max(F.size("machines")).alias("most")).collect()[0].most or 0
    sender = F.get("peers", F.lit(0))
    entries = (
        events.filter("kind = 'enter'")
        .join(F.broadcast(machines), on="run", how="inner")
        .select(
            *("run", "process", "seq", "time_ns", "kind", "message", "position", "machines"), sender.alias("sender")
        )
        .withColumn("place", F.array_position("machines", F.col("sender")))
        .transform(_with_what_was_there, most)
    )
    by_sender = Window.partitionBy("run", "place").orderBy("position")
    before = F.coalesce(F.lag("newest").over(by_sender), F.array_repeat(F.lit(0).cast("long"), most))
    # What each message is the first of its sender to follow: so many are new since the message before.
    new = F.transform("spans", lambda s: F.when(s["to"] > s["from"], F.sequence(s["from"] + 1, s["to"])))
    spans = F.zip_with("before", "newest", lambda a, b: F.struct(a.alias("from"), b.alias("to")))
    firsts = (
        entries.filter("process = sender")
        .withColumn("before", before)
        .withColumn("spans", spans)
        .select("run", "place", "position", F.posexplode(new).alias("of", "numbers"))
        .select("run", "place", "position", (F.col("of") + 1).alias("of"), F.explode("numbers").alias("number"))
    )
    heard = (
        entries.select("run", "process", "place", "position", "time_ns", F.size("machines").alias("n"))
        .join(firsts, on=["run", "place", "position"], how="inner")
        .groupBy("run", "process", "of", "number")
        .agg(F.max("time_ns").alias("acknowledged_ns"), (F.count_distinct("place") == F.first("n")).alias("by_all"))
        .filter("by_all")
    )
    messages = entries.filter("message is not null").select(
        *("run", "process", "message"), F.col("place").alias("of"), F.col("position").alias("number")
    )
    deliveries = events.filter("kind = 'deliver'").select(
        "run", "process", "message", F.col("time_ns").alias("delivered_ns")
    )
    return (
        heard.join(messages, on=["run", "process", "of", "number"], how="inner")
        .join(deliveries, on=["run", "process", "message"], how="left")
        .select("run", "process", "message", "acknowledged_ns", "delivered_ns")
    )
