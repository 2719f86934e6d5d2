"""R1, scalatom.txt, Table 2: what one multicast costs with six protocols, and how large their messages are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from antiphon.reproduce.draw import Curve, Panel
from antiphon.reproduce.lab import Lab, Swept
from antiphon.reproduce.table import PaperResult, Picture, ResultRow, ResultTable, at_most, between, equal, only_shown
from antiphon.simulation import MILLISECOND, Plan, Scenario
from antiphon.simulation.values import Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "the cost of six protocols"
# Chandra-Toueg's consensus as the table counts it: no estimates in round 1, no decision back to who decided first.
AS_COUNTED = {"consensus": "ct", "estimates": "false", "flood_origin": "false", "reliable": "eager"}
BACK_TO_ORIGIN = {**AS_COUNTED, "echo_origin": "true"}

SenderRole = Literal["a member", "the sequencer", "the coordinator", "all at once"]
Formula = Callable[[int], int]


class PaperRow(NamedTuple):
    """A row of the table, as we read it: who sends, and the paper's sum. `worked_out`: ours, where that is another."""

    row: int
    name: str
    sender: SenderRole
    protocol: str
    options: dict[str, str]
    messages: Formula
    steps: int
    worked_out: Formula | None = None
    steps_worked_out: int | None = None


def _six(d: int) -> int:
    return 3 * (d - 1) ** 2 + 4 * (d - 1)


def _histories(d: int) -> int:
    return _six(d) + (d - 1) ** 2


def _histories_worked_out(d: int) -> int:
    return _six(d) + d * (d - 1)


def _four(n: int) -> int:
    return 2 * (n - 1) ** 2 + 2 * (n - 1)


RELAY, BROADCAST = {"variant": "relay"}, {"variant": "broadcast"}
ROWS = (
    PaperRow(1, "sequencer", "a member", "sequencer", BROADCAST, lambda n: 2 * (n - 1), 2),
    PaperRow(1, "sequencer", "the sequencer", "sequencer", BROADCAST, lambda n: 2 * (n - 1), 1, lambda n: n - 1),
    PaperRow(1, "sequencer, the slides'", "a member", "sequencer", RELAY, lambda n: 2 * (n - 1), 2, lambda n: n),
    PaperRow(
        1, "sequencer, the slides'", "the sequencer", "sequencer", RELAY, lambda n: 2 * (n - 1), 1, lambda n: n - 1
    ),
    PaperRow(3, "symmetric", "a member", "symmetric", {}, lambda n: (n - 1) + n * (n - 1), 2, lambda n: n * (n - 1)),
    PaperRow(
        3, "symmetric", "all at once", "symmetric", {}, lambda n: n * ((n - 1) + n * (n - 1)), 1, lambda n: n * (n - 1)
    ),
    PaperRow(4, "Chandra-Toueg", "a member", "ctbroadcast", AS_COUNTED, _four, 4),
    PaperRow(4, "Chandra-Toueg", "the coordinator", "ctbroadcast", AS_COUNTED, _four, 4, steps_worked_out=3),
    PaperRow(5, "MTO", "the coordinator", "mto", BACK_TO_ORIGIN, _six, 5),
    PaperRow(5, "MTO", "a member", "mto", BACK_TO_ORIGIN, _six, 5),
    PaperRow(6, "SCALATOM", "the coordinator", "scalatom", BACK_TO_ORIGIN, _histories, 6, _histories_worked_out),
    PaperRow(6, "SCALATOM", "a member", "scalatom", BACK_TO_ORIGIN, _histories, 6, _histories_worked_out),
    PaperRow(
        6, "SCALATOM, piggybacked", "the coordinator", "scalatom", {**BACK_TO_ORIGIN, "piggyback": "true"}, _six, 5
    ),
)
MAJORITY_IS_TWO = ("mto", "scalatom")  # a sender beside the coordinator is then heard with it, a step earlier


class Counted(Value, frozen=True):
    """One multicast within one group, or one by each of its members."""

    row: int
    n: int

    def scenario(self, _seed: int, /) -> Scenario:
        row = ROWS[self.row]
        senders = {"a member": ["g.2"], "all at once": [f"g.{i + 1}" for i in range(self.n)]}.get(row.sender, ["g.1"])
        plans = tuple(Plan(sender, 0, ("g",)) for sender in senders)
        return Scenario(protocol=row.protocol, options=row.options, groups={"g": self.n}, plans=plans)


class AwaitedToken(Value, frozen=True):
    """Row 2. g.1 multicasts and passes the token on; when it is with the third member, one that is so many hops ahead
    of it multicasts, and waits for it."""

    n: int
    hops: int

    def scenario(self, _seed: int, /) -> Scenario:
        waiting = f"g.{1 + (2 + self.hops) % self.n}"
        plans = (Plan("g.1", 0, ("g",)), Plan(waiting, 2 * MILLISECOND, ("g",)))
        return Scenario(protocol="token", groups={"g": self.n}, plans=plans)


class Sized(Value, frozen=True):
    """One multicast to two groups of three, among so many processes in all."""

    protocol: str
    n: int

    def scenario(self, _seed: int, /) -> Scenario:
        groups = {f"g{i:03}": 3 if i < 2 else 1 for i in range(self.n - 4)}
        return Scenario(protocol=self.protocol, groups=groups, plans=(Plan("c1", 0, ("g000", "g001")),))


class WholeVector(Value, frozen=True):
    """Every member of a group sends one message, and then the first another, which has the whole vector with it."""

    timestamps: str
    n: int

    def scenario(self, _seed: int, /) -> Scenario:
        gap = 5 * MILLISECOND
        plans = [Plan(f"g.{i}", i * gap, ("g",)) for i in range(1, self.n + 1)]
        last = Plan("g.1", (self.n + 9) * gap, ("g",))
        options = {"timestamps": self.timestamps}
        return Scenario(protocol="causal", options=options, groups={"g": self.n}, plans=(*plans, last))


CostCase = Counted | AwaitedToken | Sized | WholeVector


class LastMessageCost(NamedTuple):
    """Of a run's last message but for `sends`, which are all."""

    sends: int
    about: int  # frames about it
    others: int  # frames about no message, from its multicast to its last delivery
    steps: int
    bytes_per_frame: float  # of those about it


def costs(events: DataFrame) -> DataFrame:
    """One row per run. A link takes 1 ms."""
    from pyspark.sql import functions as F

    sent = events.filter("kind = 'multicast'").groupBy("run")
    newest = sent.agg(F.max_by("message", "time_ns").alias("newest"), F.max("time_ns").alias("sent_ns"))
    rows = events.filter("kind in ('send', 'deliver')").join(F.broadcast(newest), on="run", how="inner")
    own = rows.filter("kind = 'deliver' and message = newest").groupBy("run").agg(F.max("time_ns").alias("last_ns"))
    receivers = F.array_size("peers")
    is_about = F.array_contains("about", F.col("newest"))
    is_other = (F.coalesce(F.array_size("about"), F.lit(0)) == 0) & (F.col("time_ns") >= F.col("sent_ns"))
    meanwhile = is_other & (F.col("time_ns") < F.col("last_ns"))
    frames = rows.filter("kind = 'send'").join(F.broadcast(own), on="run", how="inner").groupBy("run")
    return frames.agg(
        F.sum(receivers).alias("sends"),
        F.coalesce(F.sum(F.when(is_about, receivers)), F.lit(0)).alias("about"),
        F.coalesce(F.sum(F.when(meanwhile, receivers)), F.lit(0)).alias("others"),
        F.round(F.first((F.col("last_ns") - F.col("sent_ns")) / MILLISECOND)).cast("int").alias("steps"),
        F.try_divide(
            F.sum(F.when(is_about, receivers * F.col("bytes"))).cast("double"), F.sum(F.when(is_about, receivers))
        ).alias("bytes_per_frame"),
    )


def measured(swept: Swept) -> dict[CostCase, LastMessageCost]:
    rows = {row.run: row for row in costs(swept.events).collect()}  # one per run, of which there are some hundred
    found = {}
    for point, case in enumerate(swept.points):
        (name,) = swept.names(point)
        found[case] = LastMessageCost(*(rows[name][field] for field in LastMessageCost._fields))
    return found  # type: ignore[return-value]


def reproduce(lab: Lab) -> PaperResult:
    sizes = (3, 4, 5) if lab.quick else (*range(2, 10), 16)
    systems = (6, 9, 14, 24) if lab.quick else (6, 9, 14, 24, 44)
    groups = (2, 4, 8, 16) if lab.quick else (2, 4, 8, 16, 32)
    counted = [Counted(row, n) for row in range(len(ROWS)) for n in sizes]
    waiting = [AwaitedToken(n, hops) for n in sizes for hops in sorted({0, n // 2, n - 1})]
    sized = [Sized(protocol, n) for protocol in ("scalatom", "mto") for n in systems]
    causal = [WholeVector(timestamps, n) for timestamps in ("whole", "nearest") for n in groups]
    found = measured(lab.sweep("r1", [*counted, *waiting, *sized, *causal]))
    return PaperResult(
        name="r1",
        title=TITLE,
        source="scalatom.txt, Table 2",
        setting="One multicast within one group of n processes; links of 1 ms, no failures; counted in the trace. The "
        "table has no single counting rule, so each row says who sends; the bound is what was worked out.",
        tables=[
            ResultTable(
                title="Messages and steps", labels=("row", "protocol", "sender", "n"), rows=list(_rows(counted, found))
            ),
            ResultTable(title="Rotating token", labels=("row", "n", "hops"), rows=list(_token_rows(waiting, found))),
            ResultTable(title="Bytes of a message", labels=("protocol", "of"), rows=_size_rows(sized, causal, found)),
        ],
        pictures=[_picture(lab, found, systems, groups)],
        notes=[
            "Sequencer: the table's 2(n-1) is the variant in which the sender multicasts the message, the sequencer "
            "its number. The slides' variant sends the message to the sequencer, which multicasts it: n.",
            "Rotating token: the table's 1 to n-1 steps leave out the message's own; when it counts, n are the worst.",
            "Symmetric: the table adds n-1 messages and n(n-1) acknowledgements; as everybody needs to hear from "
            "everybody once, n(n-1) in all are enough. When all send at once that is enough for all messages.",
            "MTO: the sum in the paper's text, d + (d-1)² + d(d-1) + 2(d-1) + (d-1)², is one larger than the table's "
            "total, 3(d-1)² + 4(d-1).",
            "SCALATOM: histories within one group cost d(d-1) messages, and not (d-1)² as the table has it; tom.txt "
            "counts them as d(d-1), too. Piggybacked they cost none and save a step: the [5].",
            "MTO and SCALATOM take one step less with 2 or 3 processes when another than the coordinator sends: two "
            "timestamps are a majority then.",
        ],
    )


def _rows(cases: list[Counted], found: dict[CostCase, LastMessageCost]) -> Iterator[ResultRow]:
    for case in cases:
        row, n, cost = ROWS[case.row], case.n, found[case]
        name = (str(row.row), row.name, row.sender, str(n))
        aim = row.worked_out(n) if row.worked_out else None
        yield equal(name, "messages", row.messages(n), cost.sends, aim)
        early = row.protocol in MAJORITY_IS_TWO and row.sender == "a member" and n <= 3
        steps = row.steps_worked_out or (row.steps - 1 if early else None)
        yield equal(name, "steps", row.steps, cost.steps, steps)


def _token_rows(cases: list[AwaitedToken], found: dict[CostCase, LastMessageCost]) -> Iterator[ResultRow]:
    for case in cases:
        cost, name = found[case], ("2", str(case.n), str(case.hops))
        yield equal(name, "messages about it", case.n - 1, cost.about)
        yield at_most(name, "of the token", case.n, cost.others, case.n)
        yield between(name, "steps", f"1 to {case.n - 1}", cost.steps, 1, case.n)


def _size_rows(
    sized: list[Sized], causal: list[WholeVector], found: dict[CostCase, LastMessageCost]
) -> list[ResultRow]:
    rows = []
    first = found[sized[0]].bytes_per_frame
    for case in sized:
        cost, name = found[case], (case.protocol.upper(), f"{case.n} processes, 6 addressed")
        if case.protocol == "scalatom":
            rows.append(equal(name, "bytes", "f(d)", cost.bytes_per_frame, first))
        else:  # from the two smallest systems, what a part of n² costs
            small, next_one = (found[Sized("mto", one.n)].bytes_per_frame for one in sized[:2])
            slope = (next_one - small) / (sized[1].n ** 2 - sized[0].n ** 2)
            rows.append(
                equal(name, "bytes", "f(n²)", cost.bytes_per_frame, small + slope * (case.n**2 - sized[0].n ** 2))
            )
    for of in causal:
        cost, name = found[of], (f"causal, {of.timestamps}", f"a group of {of.n}")
        rows.append(only_shown(name, "bytes", None, cost.bytes_per_frame))
    return rows


def _picture(
    lab: Lab, found: dict[CostCase, LastMessageCost], systems: tuple[int, ...], groups: tuple[int, ...]
) -> Picture:
    panels = [
        Panel(
            "two groups of three addressed",
            "processes in the system",
            "bytes of a message",
            [
                Curve(name, systems, [found[Sized(protocol, n)].bytes_per_frame for n in systems])
                for protocol, name in (("scalatom", "SCALATOM"), ("mto", "MTO"))
            ],
            ticks=systems,
        ),
        Panel(
            "causal multicast within a group",
            "members of the group",
            "bytes of a message",
            [
                Curve(name, groups, [found[WholeVector(option, n)].bytes_per_frame for n in groups])
                for option, name in (("whole", "whole vectors"), ("nearest", "what others imply left out"))
            ],
            ticks=groups,
        ),
    ]
    return lab.draw("r1", "sizes.svg", "The size of a message against the size of the system, and of the group", panels)
