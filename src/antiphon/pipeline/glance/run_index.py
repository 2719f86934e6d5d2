"""What the runs of a trace consist of, in numbers: their members and groups are the bits of longs.

A long has room for 63 members. Who has no bit is not lost: what concerns it is doubted, and judged by names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from antiphon.core.promises import Promise
from antiphon.pipeline.glance.arrays import Bools, Ints, coded, distinct
from antiphon.pipeline.messages import NEEDS_DRAINED

BITS = 63
OF_RECEIPTS = (Promise.RECEIPTS, Promise.DURABLE_RECEIPTS)
OF_REQUESTS = (Promise.INTEGRITY, *OF_RECEIPTS, Promise.REQUEST_ORDER)
BY_MESSAGE = frozenset(NEEDS_DRAINED).difference(OF_RECEIPTS)


@dataclass
class Layout:
    """Groups that one or many runs have."""

    members: dict[str, int]  # the bit of each member that has one
    groups: dict[str, int]  # the bit of each group that has one
    addressed: dict[str, int]  # of each group whose members all have bits: these
    plain: dict[str, int]  # 1 for each of these groups
    sizes: dict[str, int]  # how many members each group has
    overlapping: bool  # whether somebody is in several groups


@dataclass
class RunIndex:
    """Of each run, by its name or its place in what follows: what the first look asks."""

    names: dict[str, int] = field(default_factory=dict)
    layouts: list[Layout] = field(default_factory=list)
    layout: list[int] = field(default_factory=list)
    faulty: list[int] = field(default_factory=list)
    must: list[bool] = field(default_factory=list)  # whether something must be delivered everywhere
    genuine: list[bool] = field(default_factory=list)
    of_deliveries: list[bool] = field(default_factory=list)
    of_receipts: list[bool] = field(default_factory=list)
    judged: list[frozenset[str]] = field(default_factory=list)
    in_part: set[tuple[str, str]] = field(default_factory=set)  # (run, process): only its multicasts are looked at

    def known(self, groups: Mapping[str, Sequence[str]], layouts: dict[str, int]) -> int:
        """The layout that these groups have; many runs have the same one, which `layouts` tells."""
        key = repr(groups)
        if key not in layouts:
            layouts[key] = len(self.layouts)
            self.layouts.append(_layout(groups))
        return layouts[key]

    def runs(self, names: pa.Array) -> Ints:
        """The runs' places, -1 for a run of which nothing is known."""
        return np.array([self.names.get(name, -1) for name in names.to_pylist()], dtype=np.int64)

    def table(self, runs: Ints, names: pa.Array, what: Callable[[Layout], dict[str, int]]) -> tuple[Ints, Ints]:
        """Numbers by layout and name, 0 where there is none and for what is null; and each run's row of that table."""
        layout = np.array(self.layout, dtype=np.int64)
        used, row = distinct(layout[distinct(runs, len(layout))[0]], len(self.layouts))
        known = names.to_pylist()
        numbers = [[*(what(self.layouts[one]).get(name, 0) for name in known), 0] for one in used.tolist()]
        return np.array(numbers, dtype=np.int64), row[layout]

    def judges(self, *promises: str) -> Bools:
        """Of each run, whether one of these is judged."""
        wanted = frozenset(map(str, promises))
        return np.array([not judged.isdisjoint(wanted) for judged in self.judged], dtype=bool)

    def overlapping(self) -> Bools:
        """Of each run, whether its groups overlap."""
        return np.array([self.layouts[layout].overlapping for layout in self.layout], dtype=bool)

    def flags(self, what: str, runs: Ints) -> Any:
        return np.array(getattr(self, what))[runs]


def index_of_groups(runs: Iterable[tuple[str, Mapping[str, Sequence[str]]]]) -> RunIndex:
    """Runs of which nothing is judged: their names and groups."""
    index, known = RunIndex(), dict[str, int]()
    for name, groups in runs:
        index.names[name] = len(index.layout)
        index.layout.append(index.known(groups, known))
    return index


def index_of(facts: DataFrame, incomplete: DataFrame | None = None) -> RunIndex:
    """The facts of all runs, which the driver has anyway. `incomplete`: (run, client) of whom only the multicasts
    count."""
    index, known, sets = RunIndex(), dict[str, int](), dict[frozenset[str], frozenset[str]]()
    for row in facts.select("run", "groups", "faulty", "whole", "judged").collect():
        layout = index.known(row.groups, known)
        judged = frozenset(row.judged)
        bits = index.layouts[layout].members
        index.names[row.run] = len(index.layout)
        index.layout.append(layout)
        index.faulty.append(sum({bits.get(name, 0) for name in row.faulty}))
        index.judged.append(sets.setdefault(judged, judged))
        index.must.append(not judged.isdisjoint(BY_MESSAGE))
        index.genuine.append(Promise.GENUINENESS in judged)
        index.of_deliveries.append(Promise.INTEGRITY in judged and row.whole)
        index.of_receipts.append(not judged.isdisjoint(OF_RECEIPTS))
    if incomplete is not None:
        index.in_part = {(row.run, row.client) for row in incomplete.distinct().collect()}
    return index


def _layout(groups: Mapping[str, Sequence[str]]) -> Layout:
    everybody = [name for names in groups.values() for name in names]
    members = {name: 1 << place for place, name in enumerate(list(dict.fromkeys(everybody))[:BITS])}
    bits = {group: 1 << place for place, group in enumerate(groups) if place < BITS}
    addressed = {
        group: sum({members[name] for name in names})
        for group, names in groups.items()
        if group in bits and all(name in members for name in names)
    }
    sizes = {group: len(names) for group, names in groups.items()}
    return Layout(members, bits, addressed, dict.fromkeys(addressed, 1), sizes, len(everybody) > len(set(everybody)))


class TracePart:
    """Some rows of a trace, of runs that are known, with their run, process and kind as numbers; `all_rows`: also those
    of whom only the multicasts are looked at when something is judged."""

    def __init__(self, table: pa.Table, index: RunIndex, *, all_rows: bool = False) -> None:
        self.index = index
        table = table.unify_dictionaries()
        run, names = coded(table.column("run"))
        place = index.runs(names)
        known = place[run] >= 0
        process, self.processes = coded(table.column("process"))
        kind, kinds = coded(table.column("kind"))
        if index.in_part and not all_rows:
            multicast = np.array([name == "multicast" for name in kinds.to_pylist()], dtype=bool)[kind]
            known &= multicast | ~self._in_part(names, run, process)
        if not known.all():
            table, run, process, kind = table.filter(pa.array(known)), run[known], process[known], kind[known]
        self.table, self.kind, self.kinds, self.process = table, kind, kinds.to_pylist(), process
        self.run_codes, self.run_names = run, names
        self.run = place[run]

    def _in_part(self, names: pa.Array, run: Ints, process: Ints) -> Bools:
        told = [[(r, p) in self.index.in_part for p in self.processes.to_pylist()] for r in names.to_pylist()]
        found: Bools = np.array(told, dtype=bool).reshape(len(names), len(self.processes))[run, process]
        return found

    def of(self, *kinds: str) -> Bools:
        wanted = np.array([kind in kinds for kind in self.kinds], dtype=bool)
        found: Bools = wanted[self.kind]
        return found

    def numbers(self, what: Callable[[Layout], dict[str, int]], names: pa.Array, rows: Ints, at: Ints) -> Ints:
        """For names in these rows, by their number, what the layout of the row's run says of them."""
        runs = self.run[rows]
        table, row = self.index.table(runs, names, what)
        found: Ints = table[row[runs], at] if len(at) else at  # what is null is the last column
        return found
