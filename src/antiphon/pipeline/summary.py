"""One narrow row per message of a run without keys: whom it was addressed to and who delivered it, in bits.

For the proof from places in views (`witness`). A long has room for 63 members; what concerns others is not proved so.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BITS = 63


def zero() -> Column:
    return F.lit(0).cast("long")


def counted(condition: Column) -> Column:
    """How many rows are so, as a number that always is there."""
    return F.sum(F.when(condition, F.lit(1).cast("long")).otherwise(zero()))


def numbered(facts: DataFrame) -> DataFrame:
    """The facts of each run with its members numbered: `bit_of` each, and the bits of each group and of the faulty."""
    names = F.slice(F.array_distinct(F.flatten(F.map_values("groups"))), 1, BITS)
    bits = F.transform("members", lambda _, place: _bit(place))
    return (
        facts.withColumn("members", names)
        .withColumn("bit_of", F.map_from_arrays("members", bits))
        .withColumn("group_bits", F.transform_values("groups", lambda _, names: _all_bits(names)))
        .withColumn("faulty_bits", _bits(F.col("faulty")))
    )


def _bits(names: Column) -> Column:
    """The bits of those names that have one."""
    return F.aggregate(
        names, zero(), lambda seen, name: seen.bitwiseOR(F.coalesce(F.try_element_at("bit_of", name), zero()))
    )


def _all_bits(names: Column) -> Column:
    """The names' bits; null when one of them has none."""
    return F.aggregate(names, zero(), lambda seen, name: seen.bitwiseOR(F.try_element_at("bit_of", name)))


def _bit(place: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), place)


def members(facts: DataFrame) -> DataFrame:
    """(run, process, bit) of the members that have one."""
    return numbered(facts).select("run", F.explode("bit_of").alias("process", "bit"))


def groups(facts: DataFrame) -> DataFrame:
    """(run, group, group_bit, member_bits) of the groups whose members have bits."""
    listed = numbered(facts).select("run", F.posexplode("group_bits").alias("place", "group", "member_bits"))
    some = listed.filter((F.col("place") < BITS) & F.col("member_bits").isNotNull())
    return some.select("run", "group", _bit(F.col("place")).alias("group_bit"), "member_bits")


def with_bits(rows: DataFrame, roster: DataFrame) -> DataFrame:
    """The rows with `bit`, of their process, null where that has none."""
    return rows.join(F.broadcast(roster), on=["run", "process"], how="left")


def origin() -> Column:
    """The process that a message's name says is its sender."""
    return F.substring_index("message", ":", 1)


def _by_message(rows: DataFrame) -> DataFrame:
    """What a message's multicast and deliver rows say, in numbers."""
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    first = F.coalesce("place", F.lit(0)) == 0  # one row of each event
    of_causal = F.coalesce(F.col("layer") == "causal", F.lit(False))
    return rows.groupBy("run", "message").agg(
        counted(multicast & first).alias("multicasts"),
        F.min(F.when(multicast, F.col("seq"))).alias("sender_seq"),
        F.bit_or(F.when(multicast, F.coalesce("member_bits", zero())).otherwise(zero())).alias("addressed"),
        counted(multicast & of_causal).alias("causals"),
        # What cannot be said in bits: another sender than the name says; groups that have none, or are named twice.
        counted(F.when(multicast, F.col("process") != origin()).otherwise(F.lit(False))).alias("misnamed"),
        counted(F.col("group_bit").isNull() | F.col("repeated")).alias("odd_groups"),
        counted(deliver & first).alias("deliveries"),
        F.bit_or(F.when(deliver, F.coalesce("bit", zero())).otherwise(zero())).alias("delivered"),
    )


def _outcomes(outcomes: DataFrame, roster: DataFrame, group_roster: DataFrame) -> DataFrame:
    """Multicasts and deliveries, a row for each group that they name."""
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    # A nameless delivery is one of a message that nobody multicast; a nameless multicast is none.
    to = F.col("destinations")
    repeated = F.when(F.size(to) > 1, F.size(F.array_distinct(to)) < F.size(to)).otherwise(F.lit(False))
    named = outcomes.filter(deliver | (multicast & F.col("message").isNotNull())).select(
        *("run", "process", "seq", "kind", "layer", repeated.alias("repeated")),
        F.coalesce("message", F.lit("")).alias("message"),
        F.posexplode_outer("destinations").alias("place", "group"),
    )
    return with_bits(named, roster).join(F.broadcast(group_roster), on=["run", "group"], how="left")


def summaries(outcomes: DataFrame, facts: DataFrame) -> DataFrame:
    """One row per message: whether it is delivered, its sender if it has one, and its holes."""
    table = _by_message(_outcomes(outcomes, members(facts), groups(facts)))
    clear = _clear() & (_minus("delivered", "addressed") == 0) & _once_each()
    sent_once = (F.col("multicasts") == 1) & (F.col("misnamed") == 0)
    return table.select(
        "run",
        "message",
        (F.col("deliveries") > 0).alias("is_delivered"),
        F.when(sent_once, origin()).alias("sender"),
        "sender_seq",
        "multicasts",
        (F.col("causals") > 0).alias("causal"),
        # The addressed who did not deliver it; null where others delivered it or the addressed have no bits.
        F.when(clear, _minus("addressed", "delivered")).alias("holes"),
    )


def _minus(these: str, those: str) -> Column:
    return F.col(these).bitwiseAND(F.bitwise_not(F.col(those)))


def _clear() -> Column:
    """Whether bits say whom the message is addressed to; of what nobody multicast they do: nobody."""
    return (F.col("odd_groups") == 0) & (F.col("multicasts") <= 1)


def _once_each() -> Column:
    return F.col("deliveries") == F.bit_count("delivered")  # no outsider, and no member twice
