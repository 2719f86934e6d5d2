"""What a row is addressed to, and the requests in it, as numbers."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pyarrow as pa

from antiphon.pipeline.glance.arrays import Bools, Ints, coded, count, ints, is_null, lists, united
from antiphon.pipeline.glance.run_index import TracePart

_groups, _addressed, _plain = attrgetter("groups"), attrgetter("addressed"), attrgetter("plain")


def addresses(part: TracePart, rows: Ints, *, known: bool = False) -> tuple[Ints, Ints, Bools]:
    """The destinations of these rows: as bits of groups, as bits of their members, and where bits cannot say it, as a
    group has none or is named twice, or some member has none. `known`: members do not matter."""
    parent, group = lists(part.table.column("destinations"), rows)
    code, names = coded(group)
    of_row = rows[parent]
    to = part.numbers(_groups, names, of_row, code)
    n = len(rows)
    found = united(n, parent, to)
    odd = np.bitwise_count(found) != count(n, parent)
    if not known:
        odd[parent[part.numbers(_plain, names, of_row, code) == 0]] = True
    odd |= found == 0
    return found, united(n, parent, part.numbers(_addressed, names, of_row, code)), odd


class Cells:
    """An entry per request in these rows: its row, its place there, and what it is. Where numbers cannot say that, as
    something is null or a destination unknown, the run is odd, and the entry is left out."""

    def __init__(self, part: TracePart, rows: Ints) -> None:
        parent, cell = lists(part.table.column("requests"), rows)
        fields = dict(zip((f.name for f in cell.type), cell.flatten(), strict=True))
        to, _, strange = addresses(part, rows, known=True)
        bad = strange[parent]
        for column in fields.values():
            bad |= is_null(column)
        starts = np.searchsorted(parent, np.arange(len(rows)))
        place = np.arange(len(parent)) - starts[parent]
        self.odd_runs = np.unique(part.run[rows[parent[bad]]])
        good = np.flatnonzero(~bad)
        self.row, self.place, self.to = rows[parent[good]], place[good], to[parent[good]]
        self.client, self.clients = coded(fields["client"].take(pa.array(good)))
        self.first, self.payloads, self.digest = (ints(fields[name])[good] for name in ("first", "payloads", "digest"))
        self.run = part.run[self.row]
