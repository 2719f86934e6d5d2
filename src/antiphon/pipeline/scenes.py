"""What the report's pictures show, as values for its page. All of it stays small, however long the trace is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from antiphon.pipeline.local import local_table
from antiphon.pipeline.metrics import message_times, timeline

PROCESSES_DRAWN = 40
SLICES, LATENCY_SLICES = 1_200, 400  # of the run's time: what can be told apart when a part of it is looked at
BINS_PER_OCTAVE = 8  # of latencies
OUTAGES_MAX = 200  # at once; beyond that, what is close together counts as one
CANDIDATES = 200  # multicasts among which the diagram's messages are chosen
MESSAGES_DRAWN = 3
ROWS_DRAWN = 2_000

Outage = tuple[int, int]  # from, to: in nanoseconds since the run began


def scenes(groups: dict[str, list[str]], events: DataFrame) -> dict[str, Any]:
    """All pictures of one run."""
    lanes = _lanes(groups)
    drawn = [process for _, members in lanes for process in members]
    span = events.agg(F.min("time_ns").alias("start_ns"), F.max("time_ns").alias("end_ns")).first()
    start, end = (span.start_ns or 0, span.end_ns or 0) if span is not None else (0, 0)
    rows = timeline(events.filter(F.col("process").isin(drawn)), buckets=SLICES).collect()
    marks = sorted((r.first_ns, r.process, r.kind) for r in rows if r.kind != "deliver")
    down = _down(marks, end - start)
    deliveries: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.bucket):
        if row.kind == "deliver":
            deliveries[row.process].append((row.bucket, row["count"]))
    return {
        "seconds": max(end - start, 1) / 1e9,
        "slice": (rows[0].width_ns if rows else max(end - start, 1)) / 1e9,
        "lanes": lanes,
        "deliveries": deliveries,
        "marks": [(process, kind, at / 1e9) for at, process, kind in marks],
        "down": [(process, since / 1e9, until / 1e9) for process, since, until in down],
        "latency": _latency(events, start, end, _outages((since, until) for _, since, until in down)),
        "space_time": _space_time(groups, events),
    }


def _lanes(groups: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    """The groups, and as many of their members as there is room for."""
    room = PROCESSES_DRAWN
    lanes = []
    for group, members in groups.items():
        lanes.append((group, members[:room]))
        room -= len(members[:room])
    return [(group, members) for group, members in lanes if members]


def _down(marks: Iterable[tuple[int, str, str]], end: int) -> list[tuple[str, int, int]]:
    """Who was down, and from when to when."""
    since: dict[str, int] = {}
    found = []
    for at, process, kind in marks:
        if kind == "crash":
            since.setdefault(process, at)
        elif kind == "recover" and process in since:
            found.append((process, since.pop(process), at))
    return found + [(process, at, end) for process, at in since.items()]


def _outages(down: Iterable[Outage]) -> list[Outage]:
    """The times at which some process was down."""
    merged: list[Outage] = []
    for since, until in sorted(down):
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(until, merged[-1][1]))
        else:
            merged.append((since, until))
    while len(merged) > OUTAGES_MAX:  # join those with the least time in between
        gaps = [following[0] - before[1] for before, following in pairwise(merged)]
        place = gaps.index(min(gaps))
        merged[place : place + 2] = [(merged[place][0], merged[place + 1][1])]
    return merged


# ---- latency over time


def _latency(events: DataFrame, start: int, end: int, outages: Sequence[Outage]) -> dict[str, Any]:
    """Deliveries, counted by when their message was multicast, how long they took, to how many groups it goes, and
    whether a process was down in between; and the largest latency of each cell, so that percentiles are ones that
    occurred. Where clocks are apart, a delivery can seem to precede its multicast: such ones are counted by
    themselves."""
    width = max(1, -(-(end - start + 1) // LATENCY_SLICES))
    times = local_table(events.sparkSession, [([(start + a, start + b) for a, b in outages],)], _OUTAGES)
    took = F.col("at_ns") - F.col("sent_ns")
    meanwhile = F.exists("outages", lambda o: (o["since"] < F.col("at_ns")) & (o["until"] > F.col("sent_ns")))
    cells = (
        message_times(events)
        .select("sent_ns", "groups", F.explode("delivered_ns").alias("at_ns"))
        .crossJoin(F.broadcast(times))
        .groupBy(
            F.floor((F.col("sent_ns") - start) / width).alias("slice"),
            F.when(took > 0, F.floor(F.log2(took) * BINS_PER_OCTAVE)).alias("bin"),
            "groups",
            meanwhile.cast("int").alias("outage"),
        )
        .agg(F.max(took).alias("top"), F.count(F.lit(1)).alias("count"))
        .collect()
    )
    seen = [(c.slice, c.bin, c.top / 1e6, c.groups, c.outage, c["count"]) for c in cells if c.bin is not None]
    backwards = sum(c["count"] for c in cells if c.bin is None)
    return {"slice": width / 1e9, "per_octave": BINS_PER_OCTAVE, "cells": sorted(seen), "backwards": backwards}


_LONG = LongType()
_OUTAGES = StructType(
    [StructField("outages", ArrayType(StructType([StructField("since", _LONG), StructField("until", _LONG)])))]
)


# ---- a few messages in space and time


def _space_time(groups: dict[str, list[str]], events: DataFrame) -> dict[str, Any]:
    """The life of a few messages, from multicast to delivery: an arrow for each frame about them."""
    chosen, until = _overlapping(events)
    names = F.array(*(F.lit(name) for name in chosen)).cast("array<string>")
    early = events.filter(F.col("time_ns") <= until)
    marks = (
        early.filter("kind in ('multicast', 'deliver')")
        .filter(F.array_contains(names, F.col("message")))
        .select("kind", "process", "seq", "message", "time_ns")
        .limit(ROWS_DRAWN)
        .collect()
    )
    start = min((row.time_ns for row in marks if row.kind == "multicast"), default=0)

    def ms(at: int) -> float:
        return (at - start) / 1e6

    of: dict[str, list[tuple[str, str, float]]] = {"multicast": [], "deliver": []}
    for row in sorted(marks, key=lambda row: (row.process, row.seq)):
        of[row.kind].append((row.process, row.message, ms(row.time_ns)))
    frames = _frames(early, names).limit(ROWS_DRAWN).collect()
    arrows = sorted((f.sender, f.receiver, f.message, ms(f.sent_ns), ms(f.received_ns)) for f in frames)
    seen = {row.process for row in marks} | {process for arrow in arrows for process in arrow[:2]}
    shown = [(group, members) for group, members in groups.items() if seen & set(members)]
    outside = sorted(seen - {process for members in groups.values() for process in members})
    return {
        "groups": [*shown, ("", outside)] if outside else shown,
        "messages": chosen,
        "multicasts": of["multicast"],
        "deliveries": of["deliver"],
        "frames": arrows,
        "ms": max([arrow[-1] for arrow in arrows] + [at for _, _, at in of["deliver"]], default=1.0) * 1.02 or 1.0,
    }


def _frames(events: DataFrame, names: Column) -> DataFrame:
    """(sender, receiver, message, sent_ns, received_ns) of the frames about some messages, from the run's beginning on.

    A receiver need not know what a frame is about. So the k-th frame of a component that a process took from another is
    drawn as the k-th that was sent: a guess where frames overtake one another or get lost.
    """
    is_send = F.col("kind") == "send"
    ends = events.filter("kind in ('send', 'receive')").select(
        *("kind", "process", "seq", "time_ns", "layer", "about"), F.explode("peers").alias("peer")
    )
    ends = ends.withColumns(
        {
            "sender": F.when(is_send, F.col("process")).otherwise(F.col("peer")),
            "receiver": F.when(is_send, F.col("peer")).otherwise(F.col("process")),
        }
    )
    between = ["sender", "receiver", "layer"]
    numbered = ends.withColumn("number", F.row_number().over(Window.partitionBy("kind", *between).orderBy("seq")))
    sent = numbered.filter(is_send).select(
        *between,
        "number",
        F.col("time_ns").alias("sent_ns"),
        F.explode(F.array_intersect("about", names)).alias("message"),
    )
    came = numbered.filter(~is_send).select(*between, "number", F.col("time_ns").alias("received_ns"))
    same = [F.col(f"sent.{name}").eqNullSafe(F.col(f"came.{name}")) for name in (*between, "number")]
    joined = sent.alias("sent").join(came.alias("came"), on=reduce(lambda one, other: one & other, same), how="inner")
    return joined.select("sent.sender", "sent.receiver", "message", "sent_ns", "received_ns")


def _overlapping(events: DataFrame) -> tuple[list[str], int]:
    """A few consecutive messages that are under way at the same time, to several groups each if there are such; and
    when the last of them is delivered everywhere."""
    early = events.filter("kind = 'multicast'").orderBy("time_ns", "process", "seq").limit(CANDIDATES).collect()
    first = {row.message: row for row in reversed(early)}
    ends = (
        events.filter((F.col("kind") == "deliver") & F.col("message").isin(list(first)))
        .groupBy("message")
        .agg(F.max("time_ns").alias("end_ns"))
        .collect()
    )
    end = {row.message: row.end_ns for row in ends}
    names = [name for name in dict.fromkeys(row.message for row in early) if name in end]
    wide = [name for name in names if len(first[name].destinations) > 1]
    pool = wide if len(wide) >= MESSAGES_DRAWN else names

    def telling(some: Sequence[str]) -> tuple[int, bool, int]:
        """Of different senders, most of the time together under way, and soon over."""
        starts, stops = [first[name].time_ns for name in some], [end[name] for name in some]
        whole = max(stops) - min(starts)
        return len({first[name].process for name in some}), 2 * (min(stops) - max(starts)) > whole, -whole

    windows = [pool[i : i + MESSAGES_DRAWN] for i in range(len(pool) - MESSAGES_DRAWN + 1)]
    chosen = max(windows, key=telling, default=pool)
    return chosen, max((end[name] for name in chosen), default=0)
