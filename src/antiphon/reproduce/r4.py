"""R4, tom.txt, Figure 3: TOM on real processes when one coordinator has crashed in each group."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.reproduce import tom
from antiphon.reproduce.draw import Panel
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.r3 import rate_curve
from antiphon.reproduce.table import PaperResult, ResultRow, ResultTable, at_least, only_shown
from antiphon.reproduce.tom import CRASHED_SIZE, GROUPS, MeasuredPoint, Reproduction

TITLE = "TOM with crashed coordinators"


def reproduce(lab: Lab) -> PaperResult:
    return result(lab, Reproduction(points=tom.measured(lab).points + tom.measured_after_crashes(lab).points))


def result(lab: Lab, found: Reproduction) -> PaperResult:
    """Of what was measured now, or of a record."""
    whole, crashed = curves(found)
    panel = Panel(
        "Figure 3: sets of messages of 500 bytes",
        "messages sent per second",
        "delivered per second",
        [rate_curve("no crash", whole), rate_curve("one coordinator killed in each group", crashed)],
        log_x=True,
        log_y=True,
    )
    return PaperResult(
        name="r4",
        title=TITLE,
        source="tom.txt, Figure 3",
        setting="As R3, with messages of 500 bytes in sets; the first member of each group was killed with SIGKILL.",
        tables=tables(found),
        pictures=[lab.draw("r4", "figure3.svg", "Figure 3: with and without crashed coordinators", [panel])],
        notes=[
            "The paper's reason, larger sets behind each slower consensus, does not show where all processes share one "
            "machine: after the crash there are more executions, not fewer, since six processes have the processor to "
            "themselves instead of nine. In the simulator it shows: `pytest tests/papers/test_tom.py -k behind`.",
        ],
    )


def curves(found: Reproduction) -> tuple[list[MeasuredPoint], list[MeasuredPoint]]:
    """Without a crash, and with one in each group."""
    whole, crashed = (found.curve(sets=True, size=CRASHED_SIZE, crashed=number) for number in (0, len(GROUPS)))
    return whole, crashed


def tables(found: Reproduction) -> list[ResultTable]:
    return [ResultTable(title="Figure 3", labels=("sent",), rows=list(_rows(*curves(found))))]


def _rows(whole: list[MeasuredPoint], crashed: list[MeasuredPoint]) -> Iterator[ResultRow]:
    """The paper has a drawing only, which is lost: the cluster without a crash is set beside."""
    for point in crashed:
        asked = f"{point.sent_per_s:g}/s" if point.sent_per_s else "as fast as possible"
        for kind, some in (("no crash", whole), ("killed", crashed)):
            (at,) = [each for each in some if each.sent_per_s == point.sent_per_s]
            yield only_shown((asked,), f"{kind}: delivered/s", None, at.delivered_per_s)
            yield only_shown((asked,), f"{kind}: messages per consensus", None, at.messages / max(1, at.consensus))
    before, after = (max(point.delivered_per_s for point in some) for some in (whole, crashed))
    yield at_least(("highest",), "killed: delivered/s", "still followed", after, before)
