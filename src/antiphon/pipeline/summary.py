"""A cheap first look: one narrow row per message, enough to prove that most messages are fine.

Almost all rows of a trace are frames, and almost all messages are fine. So a run's members are numbered, sets of them
are the bits of a long, and two hash aggregations with little but numbers in their buffers reduce a message to: who
delivered it, who touched it, whom it was addressed to. What these prove needs no second look. Every other message is a
*suspect*, which `delivery` and `genuineness` judge from lists of names. Nothing is ever called a violation here.

A long has room for 63 members. Messages to further members of a larger run are suspects, and are judged all the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.messages import NEEDS_DRAINED, group_set, nobody

BITS = 63
BY_MESSAGE = frozenset(NEEDS_DRAINED) - {"receipts"}


def numbered(facts: DataFrame) -> DataFrame:
    """The facts of each run with its members numbered: `bit_of` each, and the bits of each group and of the faulty."""
    members = F.slice(F.array_distinct(F.flatten(F.map_values("groups"))), 1, BITS)
    bits = F.transform("members", lambda _, place: F.call_function("shiftleft", F.lit(1).cast("long"), place))
    return (
        facts.withColumn("members", members)
        .withColumn("bit_of", F.map_from_arrays("members", bits))
        .withColumn("group_bits", F.transform_values("groups", lambda _, names: _all_bits(names)))
        .withColumn("faulty_bits", _bits(F.col("faulty")))
    )


def _bits(names: Column) -> Column:
    """The bits of those names that have one."""
    return F.aggregate(
        names,
        F.lit(0).cast("long"),
        lambda seen, name: seen.bitwiseOR(F.coalesce(F.try_element_at("bit_of", name), F.lit(0).cast("long"))),
    )


def _all_bits(names: Column) -> Column:
    """The names' bits; null when one of them has none."""
    return F.aggregate(
        names, F.lit(0).cast("long"), lambda seen, name: seen.bitwiseOR(F.try_element_at("bit_of", name))
    )


def summaries(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """One row per message: whether it is a suspect, its key, sender and destinations if it has them, and its holes."""
    by_message = _by_message(_by_part(rows, facts))
    return by_message.join(F.broadcast(numbered(facts)), on="run", how="inner").transform(_judged)


def _by_part(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """Aggregate a message's multicasts, deliveries and touches each into about one row, before the first shuffle.

    Names that are bits need no place of their own. Those that are not, senders and processes outside all groups, are
    part of the grouping key, so that the buffers hold only numbers.
    """
    roster = numbered(facts).select("run", "members", "bit_of")
    rows = rows.join(F.broadcast(roster), on="run", how="inner")
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    touch = ~multicast & ~deliver
    ends = F.concat(F.array("process"), F.when(touch, F.coalesce("peers", nobody())).otherwise(nobody()))
    return (
        rows.withColumn("ends", F.array_compact(ends))
        .groupBy(
            "run",
            "message",
            F.when(touch, F.lit("touch")).otherwise(F.col("kind")).alias("what"),
            F.when(multicast, F.col("process")).alias("sender"),
            F.when(~multicast, F.array_except("ends", "members")).alias("outsiders"),
            F.when(~touch, F.col("destinations")).alias("destinations"),
            F.when(deliver, F.col("order_key")).alias("key"),
            "causal",
        )
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.bit_or(_bits(F.col("ends"))).alias("bits"),
            F.min("seq").alias("seq"),
            F.min("admitted").alias("least_admitted"),
            F.max("admitted").alias("most_admitted"),
        )
    )


def _by_message(parts: DataFrame) -> DataFrame:
    what = F.col("what")
    multicast, deliver, touch = what == "multicast", what == "deliver", what == "touch"
    groups = group_set()
    zero = F.lit(0).cast("long")
    # A message's parts come from different tasks: aggregating before this shuffle would only cost.
    return (
        parts.repartition("run", "message")
        .groupBy("run", "message")
        .agg(
            F.min(F.when(multicast, F.struct("sender", "seq", groups.alias("destinations"), "causal"))).alias(
                "multicast"
            ),
            F.collect_set(F.when(deliver, groups)).alias("delivered_to"),
            F.coalesce(F.sum(F.when(deliver, F.col("rows"))), zero).alias("deliveries"),
            F.coalesce(F.bit_or(F.when(deliver, F.col("bits"))), zero).alias("delivered"),
            F.collect_set(F.when(deliver, F.col("key"))).alias("keys"),
            F.max(deliver & F.col("key").isNull()).alias("without_key"),
            (F.min("least_admitted") < F.max("most_admitted")).alias("uneven"),
            F.coalesce(F.bit_or(F.when(touch, F.col("bits"))), zero).alias("touched"),
            F.flatten(F.collect_set(F.when(touch, F.col("outsiders")))).alias("outsiders"),
        )
    )


def _judged(table: DataFrame) -> DataFrame:
    table = table.withColumns({name: F.col(f"multicast.{name}") for name in ("sender", "seq", "destinations")})
    addressed = F.aggregate(
        F.coalesce("destinations", nobody()),
        F.lit(0).cast("long"),
        lambda seen, group: seen.bitwiseOR(F.try_element_at("group_bits", group)),
    )
    sender_bits = _bits(F.array_compact(F.array("sender")))
    table = table.withColumns({"addressed": addressed, "sender_bits": sender_bits})
    holes = _minus("addressed", "delivered")
    return table.select(
        "run",
        "message",
        "judged",
        (~F.coalesce(_plain(), F.lit(False))).alias("suspect"),
        (F.col("deliveries") > 0).alias("is_delivered"),
        (F.col("without_key") & (F.size("keys") == 0)).alias("keyless"),
        "uneven",  # whether not all who delivered it delivered the same requests with it
        F.when((F.size("keys") == 1) & ~F.col("without_key"), F.get("keys", F.lit(0))).alias("key"),
        "sender",
        F.col("seq").alias("sender_seq"),
        "destinations",
        F.coalesce("multicast.causal", F.lit(False)).alias("causal"),
        # The addressed who did not deliver it; null where others delivered it or the addressed have no bits.
        F.when((_minus("delivered", "addressed") == 0) & _no_outsider_delivered(), _names(holes)).alias("holes"),
    )


def _names(bits: Column) -> Column:
    return F.filter("members", lambda _, place: F.call_function("shiftright", bits, place).bitwiseAND(F.lit(1)) == 1)


def _minus(these: str, those: str) -> Column:
    return F.col(these).bitwiseAND(F.bitwise_not(F.col(those)))


def _no_outsider_delivered() -> Column:
    return F.col("deliveries") == F.bit_count("delivered")  # nor did a member twice


def _plain() -> Column:
    """Enough for integrity, the agreements, validity and genuineness to hold of the message; not necessary."""
    same_groups = F.size(F.array_except("delivered_to", F.array("destinations"))) == 0
    only_addressed = _minus("delivered", "addressed") == 0
    missing = _minus("addressed", "delivered").bitwiseAND(F.bitwise_not(F.col("faulty_bits")))
    may_miss = ~F.arrays_overlap("judged", F.array(*(F.lit(name) for name in sorted(BY_MESSAGE))))
    concerned = F.col("addressed").bitwiseOR(F.col("sender_bits"))
    strangers = F.col("touched").bitwiseAND(F.bitwise_not(concerned))
    genuine = (strangers == 0) & (F.size(F.array_except("outsiders", F.array("sender"))) == 0)
    known = F.col("sender").isNotNull()
    return known & same_groups & only_addressed & _no_outsider_delivered() & ((missing == 0) | may_miss) & genuine
