"""A cheap first look: one narrow row per message, enough to prove that most messages are fine.

Almost all rows of a trace are frames, and almost all messages are fine. So a run's members and groups are numbered,
sets of them are the bits of a long, and hash aggregations with nothing but numbers in their buffers reduce a message
to: who delivered it, who touched it, whom it was addressed to. What these prove needs no second look. Every other
message is a *suspect*, which `delivery` and `genuineness` judge from lists of names. Nothing is ever called a violation
here.

A long has room for 63 members. Messages to further members of a larger run are suspects, and are judged all the same.
So are those whose names do not begin with their sender's: a process outside all groups has no bit, and may touch a
message if the message's name says that it is the sender.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.messages import NEEDS_DRAINED

BITS = 63
BY_MESSAGE = frozenset(NEEDS_DRAINED) - {"receipts"}


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


def touched(frames: DataFrame, roster: DataFrame) -> DataFrame:
    """One row per message that frames are about: the bits of all who sent or received these, and whether there were
    `strangers`, who have no bit and whose name is not in the message's. Of frames about none, one row per run."""
    about_none = F.coalesce(F.array_size("about"), F.lit(0)) == 0  # a receiver need not know what a frame is about
    rows = (
        frames.filter(F.col("kind").isin("send", "receive") & ~((F.col("kind") == "receive") & about_none))
        .select("run", "process", "peers", F.explode_outer("about").alias("message"))
        .select("run", "process", "message", F.explode_outer("peers").alias("peer"))
    )
    ends = with_bits(rows, roster).join(
        F.broadcast(roster.select("run", F.col("process").alias("peer"), F.col("bit").alias("peer_bit"))),
        on=["run", "peer"],
        how="left",
    )

    def strange(name: str, bit: str) -> Column:
        return F.col(bit).isNull() & (F.col(name) != origin())

    strangers = F.coalesce(strange("process", "bit") | strange("peer", "peer_bit"), F.lit(True))
    both = F.coalesce("bit", zero()).bitwiseOR(F.coalesce("peer_bit", zero()))
    bare = F.col("bit").isNull() | (F.col("peer_bit").isNull() & F.col("peer").isNotNull())
    return ends.groupBy("run", "message").agg(
        F.bit_or(both).alias("touched"), F.max(F.when(bare, strangers).otherwise(F.lit(False))).alias("strangers")
    )


def origin() -> Column:
    """The process that a message's name says is its sender."""
    return F.substring_index("message", ":", 1)


def _outcomes(outcomes: DataFrame, roster: DataFrame, group_roster: DataFrame) -> DataFrame:
    """One row per message and key: what its multicast and deliver rows say, in numbers."""
    multicast, deliver = F.col("kind") == "multicast", F.col("kind") == "deliver"
    # A nameless delivery is one of a message that nobody multicast; a nameless multicast is none.
    to = F.col("destinations")
    repeated = F.when(F.size(to) > 1, F.size(F.array_distinct(to)) < F.size(to)).otherwise(F.lit(False))
    named = outcomes.filter(deliver | (multicast & F.col("message").isNotNull())).select(
        *("run", "process", "seq", "kind", "layer", "order_key", repeated.alias("repeated")),
        F.coalesce("message", F.lit("")).alias("message"),
        F.coalesce(F.array_size("requests"), F.lit(0)).cast("long").alias("requests"),
        F.posexplode_outer("destinations").alias("place", "group"),
    )
    rows = with_bits(named, roster).join(F.broadcast(group_roster), on=["run", "group"], how="left")
    first = F.coalesce("place", F.lit(0)) == 0  # one row of each event
    group = F.coalesce("group_bit", zero())
    of_causal = F.coalesce(F.col("layer") == "causal", F.lit(False))
    return rows.groupBy("run", "message", F.when(deliver, F.col("order_key")).alias("key")).agg(
        counted(multicast & first).alias("multicasts"),
        F.min(F.when(multicast, F.col("seq"))).alias("sender_seq"),
        F.bit_or(F.when(multicast, F.coalesce("bit", zero())).otherwise(zero())).alias("sender_bits"),
        F.bit_or(F.when(multicast, group).otherwise(zero())).alias("sent_to"),
        F.bit_or(F.when(multicast, F.coalesce("member_bits", zero())).otherwise(zero())).alias("addressed"),
        counted(multicast & of_causal).alias("causals"),
        # What cannot be said in bits: another sender than the name says; groups that have none, or are named twice.
        counted(F.when(multicast, F.col("process") != origin()).otherwise(F.lit(False))).alias("misnamed"),
        counted(F.col("group_bit").isNull() | F.col("repeated")).alias("odd_groups"),
        counted(deliver & first).alias("deliveries"),
        F.bit_or(F.when(deliver, F.coalesce("bit", zero())).otherwise(zero())).alias("delivered"),
        F.bit_or(F.when(deliver, group).otherwise(zero())).alias("delivered_to"),
        counted(deliver).alias("groups_delivered_to"),
        counted(multicast).alias("groups_sent_to"),
        F.min(F.when(deliver, F.col("requests"))).alias("fewest"),
        F.max(F.when(deliver, F.col("requests"))).alias("most"),
    )


def _by_message(parts: DataFrame) -> DataFrame:
    """Most messages have two parts, one without a key and one with the key of all deliveries."""
    deliver = F.col("deliveries") > 0
    sums = ["multicasts", "causals", "misnamed", "odd_groups", "deliveries", "groups_delivered_to", "groups_sent_to"]
    unions = ["sender_bits", "sent_to", "addressed", "delivered", "delivered_to"]
    return parts.groupBy("run", "message").agg(
        *(F.sum(name).alias(name) for name in sums),
        *(F.bit_or(name).alias(name) for name in unions),
        F.min("sender_seq").alias("sender_seq"),
        F.min("fewest").alias("fewest"),
        F.max("most").alias("most"),
        counted(deliver & F.col("key").isNotNull()).alias("keys"),
        counted(deliver & F.col("key").isNull()).alias("without_key"),
        F.max("key").alias("key"),
    )


def summaries(outcomes: DataFrame, frames: DataFrame | None, facts: DataFrame) -> DataFrame:
    """One row per message: whether it is a suspect, its key and sender if it has them, and its holes.

    `frames`: the events of those runs in which genuineness is judged, if there are any. Where some are about no
    message, their run has a row without one.
    """
    roster = members(facts)
    table = _by_message(_outcomes(outcomes, roster, groups(facts)))
    if frames is None:
        table = table.withColumns({"touched": zero(), "strangers": F.lit(False)})
    else:
        table = table.join(touched(frames, roster).hint("shuffle_hash"), on=["run", "message"], how="full")
    must = F.arrays_overlap("judged", F.array(*map(F.lit, sorted(BY_MESSAGE))))
    by_run = numbered(facts).select("run", must.alias("must"), "faulty_bits")
    return table.join(F.broadcast(by_run), on="run", how="inner").transform(_judged)


def _judged(table: DataFrame) -> DataFrame:
    clear = _clear() & (_minus("delivered", "addressed") == 0) & _once_each()
    one_key = (F.col("keys") == 1) & (F.col("without_key") == 0)
    sent_once = (F.col("multicasts") == 1) & (F.col("misnamed") == 0)
    return table.select(
        "run",
        "message",
        (F.col("message").isNotNull() & ~F.coalesce(_plain(), F.lit(False))).alias("suspect"),
        F.coalesce(F.col("deliveries") > 0, F.lit(False)).alias("is_delivered"),
        F.coalesce((F.col("without_key") > 0) & (F.col("keys") == 0), F.lit(False)).alias("keyless"),
        F.when(one_key, F.col("key")).alias("key"),
        F.when(sent_once, origin()).alias("sender"),
        "sender_seq",
        F.coalesce("multicasts", zero()).alias("multicasts"),
        F.coalesce(F.col("causals") > 0, F.lit(False)).alias("causal"),
        # The addressed who did not deliver it; null where others delivered it or the addressed have no bits.
        F.when(clear, _minus("addressed", "delivered")).alias("holes"),
        # How many requests each who delivered it delivered with it; null where not all delivered as many.
        F.when((F.col("fewest") == F.col("most")) & _once_each(), F.col("most")).alias("requests"),
    )


def _minus(these: str, those: str) -> Column:
    return F.col(these).bitwiseAND(F.bitwise_not(F.col(those)))


def _clear() -> Column:
    """Whether bits say whom the message is addressed to; of what nobody multicast they do: nobody."""
    return (F.col("odd_groups") == 0) & (F.col("multicasts") <= 1)


def _once_each() -> Column:
    return F.col("deliveries") == F.bit_count("delivered")  # no outsider, and no member twice


def _plain() -> Column:
    """Enough for integrity, the agreements, validity and genuineness to hold of the message; not necessary."""
    one_sender = (F.col("multicasts") == 1) & (F.col("misnamed") == 0) & (F.col("odd_groups") == 0)
    to = F.bit_count("sent_to")
    # All deliveries together name the groups of the multicast and no others, and as many as if each named them all.
    same_groups = (
        (F.col("groups_sent_to") == to)
        & ((F.col("deliveries") == 0) | (F.col("delivered_to") == F.col("sent_to")))
        & (F.col("groups_delivered_to") == F.col("deliveries") * to)
    )
    only_addressed = _minus("delivered", "addressed") == 0
    missing = _minus("addressed", "delivered").bitwiseAND(F.bitwise_not(F.col("faulty_bits")))
    concerned = F.col("addressed").bitwiseOR(F.col("sender_bits"))
    strangers = F.coalesce("touched", zero()).bitwiseAND(F.bitwise_not(concerned))
    genuine = (strangers == 0) & ~F.coalesce("strangers", F.lit(False))
    return one_sender & same_groups & only_addressed & _once_each() & ((missing == 0) | ~F.col("must")) & genuine
