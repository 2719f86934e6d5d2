"""Genuineness: nobody works for a message but its sender and those it addresses."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged, members_of, nobody
from antiphon.pipeline.violations import found, listed, rows_of, together, violation, words


def genuineness(evidence: Evidence) -> DataFrame | None:
    """Of frames about messages, message by message; and of frames about none, pair by pair."""
    of_messages = None if evidence.suspects is None else found(evidence.suspects, _strangers())
    return together(of_messages, _idle_chatter(evidence) if evidence.has_chatter else None)


def _strangers() -> Column:
    concerned = F.array_append("addressed", F.col("sender"))
    strangers = F.array_sort(F.array_except("touched", concerned))
    # In a run that is not whole, the row that says whom the message concerns may be a missing one.
    broken = (F.col("known") | F.col("whole")) & (F.size(strangers) > 0)
    detail = words(listed(strangers), " took part in ", F.col("message"), ", being neither its sender nor an addressee")
    struct = violation(Promise.GENUINENESS, strangers, F.array("message"), detail)
    return F.when(judged(Promise.GENUINENESS.value) & broken, struct)


def _idle_chatter(evidence: Evidence) -> DataFrame:
    """Two may talk about no message only if some message of the run concerns both."""
    genuine = evidence.facts.filter(judged(Promise.GENUINENESS.value) & F.col("whole")).select("run", "groups")
    receivers = F.coalesce("peers", nobody())
    to = F.when(F.size(receivers) > 0, receivers).otherwise(F.array("process"))
    # Few rows, however long the run: pairs of processes that talk, and circles that some message concerns.
    pairs = (
        evidence.events.filter((F.col("kind") == "send") & (F.size(F.coalesce("about", nobody())) == 0))
        .join(F.broadcast(genuine), on="run", how="left_semi")
        .select("run", "process", "seq", F.explode(to).alias("peer"))
        .groupBy("run", "process", "peer")
        .agg(F.min("seq").alias("seq"))
    )
    circles = (
        evidence.outcomes.filter("kind = 'multicast' and message is not null")
        .groupBy("run", "message")
        .agg(F.min(F.struct(F.col("process").alias("sender"), "seq", "destinations")).alias("multicast"))
        .select("run", "multicast.sender", F.coalesce("multicast.destinations", nobody()).alias("destinations"))
        .distinct()
        .join(F.broadcast(genuine), on="run", how="inner")
        .select("run", F.array_append(members_of("destinations"), F.col("sender")).alias("circle"))
    )
    both = (
        (F.col("pairs.run") == F.col("circles.run"))
        & F.array_contains("circles.circle", F.col("pairs.process"))
        & F.array_contains("circles.circle", F.col("pairs.peer"))
    )
    strangers = pairs.alias("pairs").join(circles.alias("circles"), on=both, how="left_anti")
    ends = F.array_distinct(F.array("process", "peer"))
    detail = words("no message of the run concerns ", F.array_join(ends, " and "), ", which exchange frames")
    return found(strangers, violation(Promise.GENUINENESS, ends, nobody(), detail, rows=rows_of(("process", "seq"))))
