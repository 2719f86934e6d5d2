"""What was measured beside what a paper says: rows with a deviation, and bounds that are kept or missed."""

from __future__ import annotations

from itertools import pairwise

import msgspec

CellValue = int | float | str


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """``bound``: what ours must be, in words; without one, ``holds`` is None, and the row is only shown."""

    case: tuple[str, ...]  # a cell for each of the table's labels
    measure: str
    paper: CellValue | None
    ours: CellValue
    bound: str = ""
    holds: bool | None = None

    @property
    def deviation(self) -> float | None:
        """Of ours from the paper's, as a share of it."""
        if self.paper is None or isinstance(self.paper, str) or isinstance(self.ours, str) or not self.paper:
            return None
        return self.ours / self.paper - 1

    def missed(self) -> str:
        """The row as a sentence about what was missed."""
        where = ", ".join(part for part in (*self.case, self.measure) if part)
        paper = "" if self.paper is None else f" (the paper: {shown(self.paper)})"
        return f"{where}: {shown(self.ours)}{paper} is not {self.bound}."


class ResultTable(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    labels: tuple[str, ...]
    rows: list[ResultRow]


class Picture(msgspec.Struct, frozen=True):
    file: str  # within the folder of its result
    caption: str


class PaperResult(msgspec.Struct, kw_only=True):
    """All that is shown of R1, R2, and so on."""

    name: str
    title: str
    source: str  # which tables and figures of which text
    setting: str  # what was run
    tables: list[ResultTable]
    pictures: list[Picture] = []
    notes: list[str] = []  # where the papers do not agree with themselves, and what differs here
    quick: bool = False
    seconds: float = 0.0

    @property
    def bounded(self) -> list[ResultRow]:
        return [row for table in self.tables for row in table.rows if row.holds is not None]

    @property
    def missed(self) -> list[str]:
        every = [(table.title, row) for table in self.tables for row in table.rows if row.holds is False]
        return [f"{self.name}, {title}: {row.missed()}" for title, row in every]


def shown(value: CellValue) -> str:
    """As people read it. What is exact is a whole number, what was measured has decimals."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


# Rows of each kind of bound -----------------------------------------------------------------------------------------


def only_shown(case: tuple[str, ...], measure: str, paper: CellValue | None, ours: CellValue) -> ResultRow:
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours)


def equal(
    case: tuple[str, ...], measure: str, paper: CellValue | None, ours: CellValue, aim: CellValue | None = None
) -> ResultRow:
    """``aim``: what must be met where that was worked out and is not what the paper says."""
    if aim is None:
        return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound="the same", holds=ours == paper)
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound=f"= {shown(aim)}", holds=ours == aim)


def near(case: tuple[str, ...], measure: str, paper: float, ours: float, within: float) -> ResultRow:
    holds = abs(ours - paper) <= within
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound=f"within {within:g}", holds=holds)


def near_share(
    case: tuple[str, ...], measure: str, paper: float, ours: float, share: float, aim: float | None = None
) -> ResultRow:
    """``aim``: what must be met where that is not the paper's own observation."""
    of = "" if aim is None else f" of {shown(aim)}"
    holds = abs(ours / (paper if aim is None else aim) - 1) <= share
    return ResultRow(
        case=case, measure=measure, paper=paper, ours=ours, bound=f"within {100 * share:g} %{of}", holds=holds
    )


def below(case: tuple[str, ...], measure: str, paper: CellValue | None, ours: float, limit: float) -> ResultRow:
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound=f"< {shown(limit)}", holds=ours < limit)


def at_most(case: tuple[str, ...], measure: str, paper: CellValue | None, ours: float, limit: float) -> ResultRow:
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound=f"≤ {shown(limit)}", holds=ours <= limit)


def at_least(case: tuple[str, ...], measure: str, paper: CellValue | None, ours: float, limit: float) -> ResultRow:
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound=f"≥ {shown(limit)}", holds=ours >= limit)


def between(
    case: tuple[str, ...], measure: str, paper: CellValue | None, ours: float, low: float, high: float
) -> ResultRow:
    bound = f"{shown(low)} to {shown(high)}"
    return ResultRow(case=case, measure=measure, paper=paper, ours=ours, bound=bound, holds=low <= ours <= high)


def grows(case: tuple[str, ...], measure: str, paper: CellValue | None, ours: list[float]) -> ResultRow:
    """Each larger than the one before."""
    holds = all(one < next_one for one, next_one in pairwise(ours))
    cells = ", ".join(shown(value) for value in ours)
    return ResultRow(case=case, measure=measure, paper=paper, ours=cells, bound="growing", holds=holds)
