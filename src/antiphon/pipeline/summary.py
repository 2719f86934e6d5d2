"""A cheap first look: one narrow row per message, enough to prove that most messages are fine.

Almost all rows of a trace are frames, and almost all messages are fine. So a run's members are numbered, sets of them
are the bits of a long, and two hash aggregations with nothing but numbers in their buffers reduce a message to: who
delivered it, who touched it, whom it was addressed to. What these prove needs no second look. Every other message is a
*suspect*, and `delivery` judges it from lists of names. Nothing is ever called a violation here.

A long has room for 63 members. Messages to further members of a larger run are suspects, and are judged all the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.messages import NEEDS_DRAINED, about_messages, facts

BITS = 63


def numbered(runs: DataFrame) -> DataFrame:
    """The facts of each run with its members numbered: `members`, and the bits of each group and of the faulty."""
    return (
        facts(runs)
        .withColumn("members", F.array_distinct(F.flatten(F.map_values("groups"))))
        .withColumn("group_bits", F.expr(f"transform_values(groups, (g, names) -> {_bits_of('names')})"))
        .withColumn("faulty_bits", F.expr(_bits_of("array_intersect(members, faulty)")))
    )


def _bits_of(names: str) -> str:
    """SQL for the names' bits; null when one of them is beyond the last bit."""
    place = "cast(array_position(members, name) as int) - 1"
    return f"aggregate({names}, 0L, (seen, name) -> seen | if({place} < {BITS}, shiftleft(1L, {place}), null))"


def summaries(events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per message: whether it is plain, its key and sender if it has one, and its holes."""
    by_message = _by_message(_by_part(events, runs))
    return by_message.join(F.broadcast(numbered(runs)), on="run", how="inner").transform(_judged)


def _by_part(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Aggregate a message's multicasts, deliveries and touches each into about one row, before the first shuffle.

    Names that are bits need no place of their own. Those that are not, senders and processes outside all groups, are
    part of the grouping key, so that the buffers hold only numbers.
    """
    roster = numbered(runs).select("run", F.posexplode("members").alias("place", "process"))
    roster = roster.filter(F.col("place") < BITS).select("run", "process", F.expr("shiftleft(1L, place)").alias("bit"))
    peers = roster.withColumnsRenamed({"process": "peer", "bit": "peer_bit"})
    rows = (
        about_messages(events, runs)
        .join(F.broadcast(roster), on=["run", "process"], how="left")
        .join(F.broadcast(peers), on=["run", "peer"], how="left")
    )
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    touch = ~multicast & ~deliver
    outside, peer_outside = F.col("bit").isNull(), touch & F.col("peer_bit").isNull()
    who = F.when(multicast | outside, F.col("process")).when(peer_outside, F.col("peer"))
    bits = F.when(multicast, F.lit(0)).otherwise(
        F.coalesce("bit", F.lit(0)).bitwiseOR(F.coalesce("peer_bit", F.lit(0)))
    )
    return rows.groupBy(
        "run",
        "message",
        F.when(touch, F.lit("touch")).otherwise(F.col("kind")).alias("what"),
        who.alias("who"),
        F.when(~touch, F.col("destinations")).alias("destinations"),
        F.when(deliver, F.col("order_key")).alias("key"),
    ).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bit_or(bits).alias("bits"),
        F.min("seq").alias("seq"),
        F.count_if(outside & peer_outside).alias("both_outside"),
    )


def _by_message(parts: DataFrame) -> DataFrame:
    what = F.col("what")
    multicast, deliver, touch = what == "multicast", what == "deliver", what == "touch"
    groups = F.array_sort(F.coalesce("destinations", F.array().cast("array<string>")))
    zero = F.lit(0).cast("long")
    # A message's parts come from different tasks: aggregating before this shuffle would only cost.
    return (
        parts.repartition("run", "message")
        .groupBy("run", "message")
        .agg(
            F.collect_set(F.when(multicast, F.col("who"))).alias("senders"),
            F.min(F.when(multicast, F.col("seq"))).alias("first_seq"),
            F.collect_set(F.when(multicast, groups)).alias("multicast_to"),
            F.collect_set(F.when(deliver, groups)).alias("delivered_to"),
            F.coalesce(F.sum(F.when(deliver, F.col("rows"))), zero).alias("deliveries"),
            F.coalesce(F.bit_or(F.when(deliver, F.col("bits"))), zero).alias("delivered"),
            F.collect_set(F.when(deliver, F.col("key"))).alias("keys"),
            F.max(deliver & F.col("key").isNull()).alias("without_key"),
            F.coalesce(F.bit_or(F.when(touch, F.col("bits"))), zero).alias("touched"),
            F.collect_set(F.when(touch, F.col("who"))).alias("outsiders"),
            F.sum("both_outside").alias("both_outside"),
        )
    )


def _judged(table: DataFrame) -> DataFrame:
    addressed = F.aggregate(
        F.array_distinct(F.flatten("multicast_to")),
        F.lit(0).cast("long"),
        lambda seen, group: seen.bitwiseOR(F.try_element_at("group_bits", group)),
    )
    senders = F.expr(_bits_of("array_intersect(members, senders)"))
    table = table.withColumns({"addressed": addressed, "sender_bits": senders})
    one_sender = F.size("senders") == 1
    holes = _minus("addressed", "delivered")
    return table.select(
        "run",
        "message",
        "judged",
        (~F.coalesce(_plain(), F.lit(False))).alias("suspect"),
        (F.col("deliveries") > 0).alias("is_delivered"),
        F.when((F.size("keys") == 1) & ~F.col("without_key"), F.get("keys", F.lit(0))).alias("key"),
        F.when(one_sender, F.get("senders", F.lit(0))).alias("sender"),
        F.when(one_sender, F.col("first_seq")).alias("sender_seq"),
        # The addressed who did not deliver it; null where others delivered it or the addressed have no bits.
        F.when((_minus("delivered", "addressed") == 0) & _no_outsider_delivered(), _names(holes)).alias("holes"),
    )


def _names(bits: Column) -> Column:
    return F.filter(
        "members",
        lambda _, place: (place < BITS) & (F.call_function("shiftright", bits, place).bitwiseAND(F.lit(1)) == 1),
    )


def _minus(these: str, those: str) -> Column:
    return F.col(these).bitwiseAND(F.bitwise_not(F.col(those)))


def _no_outsider_delivered() -> Column:
    return F.col("deliveries") == F.bit_count("delivered")  # nor did a member twice


def _plain() -> Column:
    """Enough for integrity, the agreements, validity and genuineness to hold of the message; not necessary."""
    same_groups = (F.size("multicast_to") == 1) & (F.size(F.array_except("delivered_to", "multicast_to")) == 0)
    only_addressed = _minus("delivered", "addressed") == 0
    missing = _minus("addressed", "delivered").bitwiseAND(F.bitwise_not(F.col("faulty_bits")))
    may_miss = ~F.arrays_overlap("judged", F.array(*(F.lit(name) for name in NEEDS_DRAINED)))
    concerned = F.col("addressed").bitwiseOR(F.col("sender_bits"))
    strangers = F.col("touched").bitwiseAND(F.bitwise_not(concerned))
    genuine = (strangers == 0) & (F.size(F.array_except("outsiders", "senders")) == 0) & (F.col("both_outside") == 0)
    return same_groups & only_addressed & _no_outsider_delivered() & ((missing == 0) | may_miss) & genuine
