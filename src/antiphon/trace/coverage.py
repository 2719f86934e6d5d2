"""Whether all rows of a process are there. The names of its files tell: `<process>-<first seq>-<last seq>.parquet`.

A real process leaves no number out. So a file that is gone shows as a hole between two others; or, if it was the last,
by the number of the last row, which the facts of the run have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

_NAME = re.compile(r"(?P<process>.+)-(?P<first>\d{12,})-(?P<last>\d{12,})\.parquet")


def last_rows(folder: Path, run: str, known: Mapping[str, int]) -> dict[str, int]:
    """The number of the last row of each process; ``known``: of those that it once had."""
    return _last_rows(_ranges(_names(folder, run)), known)


def torn(folder: Path, run: str, known: Mapping[str, int]) -> list[str]:
    """The processes of which rows are missing."""
    return torn_by_names(_names(folder, run), known)


def torn_by_names(names: Iterable[str], known: Mapping[str, int]) -> list[str]:
    """The same, by the names of the run's files."""
    ranges = _ranges(names)
    lasts = _last_rows(ranges, known)
    return [process for process, last in lasts.items() if _reach(ranges.get(process, [])) < last]


def _last_rows(ranges: Mapping[str, list[tuple[int, int]]], known: Mapping[str, int]) -> dict[str, int]:
    found = {process: max(last for _, last in own) for process, own in ranges.items()}
    return {process: max(found.get(process, 0), known.get(process, 0)) for process in sorted({*found, *known})}


def _reach(ranges: list[tuple[int, int]]) -> int:
    """Up to which number there is every row."""
    reach = 0
    for first, last in ranges:
        if first > reach + 1:
            break
        reach = max(reach, last)
    return reach


def _names(folder: Path, run: str) -> list[str]:
    return [path.name for path in folder.glob(f"events/run={run}/*.parquet")]


def _ranges(names: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """The first and the last number in each file, by process, in order."""
    found = map(_NAME.fullmatch, names)
    named = [(match["process"], int(match["first"]), int(match["last"])) for match in found if match]
    return {p: [(first, last) for _, first, last in each] for p, each in groupby(sorted(named), lambda name: name[0])}
