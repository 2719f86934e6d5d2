"""Processes that take another's place: their logs begin with what their donors delivered (docs/trace.md).

Adoptions are few: the driver works out which stretches of which logs stand before which others. The deliveries, which
are many, are copied by the executors: to the newcomer, with numbers below all of its own, and in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from antiphon.core.errors import DamagedInside
from antiphon.pipeline import schema
from antiphon.pipeline.local import local_table

SOURCE = ["source", "source_seq"]  # of a row: the process and the number that it has in the trace
FIRST, LAST = -(2**63), 2**63 - 1

MemberOfRun = tuple[str, str]  # a run and a process
Places = dict[tuple[str, str, str], list[int]]  # by run, process and message: the numbers of its deliveries

_MEMBER = StructType([schema.RUN["run"], StructField("process", schema.TEXT)])
_MESSAGE = StructType([schema.RUN["run"], StructField("message", schema.TEXT)])
_CLIENT = StructType([schema.RUN["run"], StructField("client", schema.TEXT)])
_MISPLACED = StructType([*_MEMBER.fields, StructField("seq", LongType()), StructField("donor", schema.TEXT)])
_STRETCH = StructType(
    [
        *(schema.RUN["run"], StructField("newcomer", schema.TEXT), StructField("process", schema.TEXT)),
        *(StructField(name, LongType()) for name in ("low", "high", "shift")),
    ]
)


class Stretch(NamedTuple):
    """What a process delivered from one number to another, and how far that is moved to stand in a newcomer's log."""

    process: str
    low: int
    high: int
    shift: int


@dataclass(frozen=True)
class Adoptions:
    """What comes of the adoptions of a trace."""

    stretches: DataFrame  # (run, newcomer, process, low, high, shift): what stands before a newcomer's own deliveries
    misplaced: DataFrame  # (run, process, seq, donor): adoptions by processes whose logs had begun
    incomplete: DataFrame | None  # (run, client): newcomers of whose logs something is missing, as it is of a donor's
    rows: dict[MemberOfRun, SparkRow]  # those with which logs begin

    def copies(self, events: DataFrame) -> DataFrame:
        """What donors delivered, as if their newcomers had; each with the row that it was made of."""
        rows = events.filter("kind in ('deliver', 'gap', 'view')")
        wanted = rows.join(F.broadcast(self.stretches), on=["run", "process"], how="inner").filter(
            F.col("seq").between(F.col("low"), F.col("high"))
        )
        moved = {"process": F.col("newcomer"), "seq": F.col("seq") + F.col("shift")}
        return with_source(wanted).withColumns(moved).select(*events.columns, *SOURCE)


def with_source(rows: DataFrame) -> DataFrame:
    return rows.withColumns(dict(zip(SOURCE, (F.col("process"), F.col("seq")), strict=True)))


def adoptions(events: DataFrame, incomplete: DataFrame | None = None) -> Adoptions | None:
    """None where there are none. `incomplete`: (run, client) of those of whom only the multicasts are looked at."""
    rows = events.filter("kind = 'adopt'").drop("requests").collect()
    if not rows:
        return None
    if any(None in (row.peers or ()) for row in rows):
        raise DamagedInside("An event of the trace has a null among its peers.")
    in_part = set() if incomplete is None else {(row.run, row.client) for row in incomplete.collect()}
    begins = _beginnings(events, {(row.run, row.process) for row in rows} - in_part)
    begun = {(row.run, row.process): row for row in rows if _begins(row, begins)}
    donors = {
        member: (row.run, row.peers[0])
        for member, row in begun.items()
        if row.message is not None and len(row.peers or ()) == 1
    }
    newcomers = {member for member in donors if not in_part.isdisjoint(line(member, donors))}
    last = {member: begun[member].message for member in donors}
    first = {member: begins[member].first for member in donors}
    stretches = stand_before(donors, last, first, _deliveries(events, {(run, last[run, p]) for run, p in donors}))
    table = [(run, newcomer, *stretch) for (run, newcomer), some in stretches.items() for stretch in some]
    behind = [row for row in rows if (row.run, row.process) not in in_part | newcomers and not _begins(row, begins)]
    misplaced = [(row.run, row.process, row.seq, " and ".join(row.peers or ()) or "nobody") for row in behind]
    spark = events.sparkSession
    return Adoptions(
        local_table(spark, table, _STRETCH),
        local_table(spark, misplaced, _MISPLACED),
        local_table(spark, sorted(newcomers), _CLIENT) if newcomers else None,
        begun,
    )


def _begins(row: SparkRow, begins: Mapping[MemberOfRun, SparkRow]) -> bool:
    """Whether its process's log begins with it."""
    member = (row.run, row.process)
    return member in begins and begins[member].log == row.seq


def _beginnings(events: DataFrame, members: Iterable[MemberOfRun]) -> dict[MemberOfRun, SparkRow]:
    """By run and process: the number of the row with which its `log` begins, and of the `first` that matters at all."""
    wanted = local_table(events.sparkSession, members, _MEMBER)
    of_log = F.when(F.col("kind") != "multicast", F.col("seq"))
    rows = (
        events.filter("kind in ('deliver', 'gap', 'view', 'adopt', 'multicast')")
        .join(F.broadcast(wanted), on=["run", "process"], how="left_semi")
        .groupBy("run", "process")
        .agg(F.min(of_log).alias("log"), F.min("seq").alias("first"))
    )
    return {(row.run, row.process): row for row in rows.collect()}


def _deliveries(events: DataFrame, messages: Iterable[tuple[str, str]]) -> Places:
    wanted = local_table(events.sparkSession, messages, _MESSAGE)
    rows = events.filter("kind = 'deliver'").join(F.broadcast(wanted), on=["run", "message"], how="left_semi")
    found: Places = {}
    for row in rows.select("run", "process", "message", "seq").collect():
        found.setdefault((row.run, row.process, row.message), []).append(row.seq)
    return found


# Who stands on whom --------------------------------------------------------------------------------------------------


def line(member: MemberOfRun, donors: Mapping[MemberOfRun, MemberOfRun]) -> dict[MemberOfRun, None]:
    """Its donor, that one's donor, and so on: each once."""
    found: dict[MemberOfRun, None] = {}
    while member in donors and (member := donors[member]) not in found:
        found[member] = None
    return found


def stand_before(
    donors: Mapping[MemberOfRun, MemberOfRun],
    last: Mapping[MemberOfRun, str],
    first: Mapping[MemberOfRun, int],
    deliveries: Places,
) -> dict[MemberOfRun, list[Stretch]]:
    """By newcomer: what stands before its own log. `last`: up to which message of its donor's; `first`: the least
    number of its own."""
    found: dict[MemberOfRun, list[Stretch]] = {}
    for member in donors:
        above = line(member, donors)
        for newcomer in reversed((member, *above)):  # a donor's own log first
            if newcomer in donors and newcomer not in found:
                rests_on_itself = newcomer in line(newcomer, donors)
                log = [] if rests_on_itself else _log(donors[newcomer], found)
                found[newcomer] = _cut(newcomer[0], log, last[newcomer], first[newcomer], deliveries)
    return found


def _log(member: MemberOfRun, found: Mapping[MemberOfRun, list[Stretch]]) -> list[Stretch]:
    return [*found.get(member, ()), Stretch(member[1], FIRST, LAST, 0)]


def _cut(run: str, log: list[Stretch], message: str, first: int, deliveries: Places) -> list[Stretch]:
    """A donor's log up to its first delivery of the message, below `first`; nothing where it never delivered that."""
    places = [
        seq + part.shift
        for part in log
        for seq in deliveries.get((run, part.process, message), ())
        if part.low <= seq <= part.high
    ]
    if not places:
        return []
    end = min(places)
    shift = first - 1 - end
    return [
        Stretch(part.process, part.low, min(part.high, end - part.shift), part.shift + shift)
        for part in log
        if part.low + part.shift <= end
    ]
