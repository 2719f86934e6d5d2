"""R3, tom.txt, Figure 2 and Table 2: TOM on real processes, one message and sets of messages per consensus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from antiphon.reproduce import tom
from antiphon.reproduce.draw import COLOURS, Curve, Panel
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.table import (
    PaperResult,
    Picture,
    ResultRow,
    ResultTable,
    at_least,
    below,
    equal,
    grows,
    only_shown,
)
from antiphon.reproduce.tom import SIZES, MeasuredPoint, Reproduction

TITLE = "TOM on real processes"
PAPER_DELIVERY_MS = {10: (2.4, 4.5, 5.2), 500: (2.4, 8.6, 10.4), 1000: (3.0, 13.9, 16.0)}
PAPER_RATIO = {10: 5.6, 1000: 2.7}
RATIO_AT_LEAST = 5.6  # at 10 bytes


def reproduce(lab: Lab) -> PaperResult:
    found = tom.measured(lab)
    (lab.place("r3") / "tom.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return result(lab, found)


def result(lab: Lab, found: Reproduction) -> PaperResult:
    """Of what was measured now, or of a record."""
    return PaperResult(
        name="r3",
        title=TITLE,
        source="tom.txt, Figure 2 and Table 2",
        setting="Three groups of three real processes on this machine, Hurfin-Raynal, no journal but where it says so. "
        f"Up to {max(point.messages for point in found.points):,} multicasts to all groups for each point. Times are "
        "from a client's call to its own subscription, one message at a time.",
        tables=tables(found),
        pictures=[_picture(lab, found)],
        notes=[
            "Our times grow with the number of groups, as the paper's do, but hardly with the size of a message: on "
            "one machine a kilobyte is next to nothing. Nor does the gain from sets shrink for larger messages.",
            "The times need a machine without other work.",
        ],
    )


def tables(found: Reproduction) -> list[ResultTable]:
    return [
        ResultTable(title="Highest delivery rate", labels=("bytes",), rows=list(_best(found))),
        ResultTable(title="Figure 2", labels=("bytes", "per consensus", "sent"), rows=list(_figure_2(found))),
        ResultTable(title="Consensus executions", labels=("bytes",), rows=list(_executions(found))),
        ResultTable(title="Table 2: mean delivery time", labels=("bytes", "groups"), rows=list(_times(found))),
    ]


def _best(found: Reproduction) -> Iterator[ResultRow]:
    for size in SIZES:
        single, sets = found.best(sets=False, size=size), found.best(sets=True, size=size)
        yield only_shown((str(size),), "one message per consensus, messages/s", None, single)
        yield only_shown((str(size),), "sets, messages/s", None, sets)
        if size == 10:
            yield at_least((str(size),), "ratio", PAPER_RATIO[size], sets / single, RATIO_AT_LEAST)
        else:
            yield only_shown((str(size),), "ratio", PAPER_RATIO.get(size), sets / single)
    yield only_shown(("10",), "sets, journal on, messages/s", None, found.best(sets=True, size=10, journal=True))


def _figure_2(found: Reproduction) -> Iterator[ResultRow]:
    for point in found.points:
        kind = ("sets" if point.sets else "one message") + (", journal on" if point.journal else "")
        asked = f"{point.sent_per_s:g}/s" if point.sent_per_s else "as fast as possible"
        yield only_shown((str(point.size), kind, asked), "delivered/s", None, point.delivered_per_s)


def _executions(found: Reproduction) -> Iterator[ResultRow]:
    """For each message, from the lowest rate to the highest. One by one, each message takes two."""
    for size in SIZES:
        alone = found.curve(sets=False, size=size)
        total = sum(point.consensus for point in alone) / sum(point.messages for point in alone)
        yield equal((str(size),), "executions per message, one by one", 2, total)
        points = found.curve(sets=True, size=size)
        shares = [point.consensus / point.messages for point in points]
        first, last = shares[0], shares[-1]
        yield below((str(size),), "executions per message, as fast as possible", "falling", last, first)


def _times(found: Reproduction) -> Iterator[ResultRow]:
    by_size: dict[int, list[float]] = {}
    for each in found.delivery_times:
        paper = PAPER_DELIVERY_MS[each.size][each.groups - 1]
        yield below((str(each.size), str(each.groups)), "ms", paper, each.mean_ms, paper)
        by_size.setdefault(each.size, []).append(each.mean_ms)
    for size, times in by_size.items():
        yield grows((str(size), "1, 2, 3"), "ms", "growing", times)
    for groups in (1, 2, 3):
        paper, ours = (times[1000][groups - 1] / times[10][groups - 1] for times in (PAPER_DELIVERY_MS, by_size))
        yield only_shown(("1000 to 10", str(groups)), "ratio", paper, ours)


def _picture(lab: Lab, found: Reproduction) -> Picture:
    curves = []
    for size, colour in zip(SIZES, COLOURS, strict=False):
        for sets, dashes in ((False, "--"), (True, "-")):
            name = f"{size} bytes, {'sets' if sets else 'one message'} per consensus"
            curves.append(rate_curve(name, found.curve(sets=sets, size=size), dashes, colour))
    panel = Panel("Figure 2", "messages sent per second", "delivered per second", curves, log_x=True, log_y=True)
    return lab.draw("r3", "figure2.svg", "Figure 2: delivery rate against sending rate", [panel])


def rate_curve(name: str, points: Sequence[MeasuredPoint], dashes: str = "-", colour: str = "") -> Curve:
    ordered = sorted(points, key=lambda point: point.reached_per_s)
    return Curve(name, [p.reached_per_s for p in ordered], [p.delivered_per_s for p in ordered], dashes, colour)
