"""What a forgery is, and the two marks that enter one into the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from antiphon.core.promises import Promise
from antiphon.trace import EventKind, Row, RunFacts
from forging.honest import Tape

Edit = Callable[[Tape], None]


@dataclass(frozen=True)
class Harmless:
    """A run that looks odd and breaks nothing."""

    name: str
    edit: Edit

    def forge(self, facts: RunFacts, rows: Sequence[Row]) -> tuple[RunFacts, list[Row]]:
        tape = Tape(facts, rows)
        self.edit(tape)
        return tape.result()


@dataclass(frozen=True)
class Forgery(Harmless):
    """A lie that breaks ``property``, and with it exactly the properties in ``also``."""

    property: str
    also: frozenset[str] = frozenset()


FORGED: list[Forgery] = []
HARMLESS: list[Harmless] = []


def breaks(name: str, *also: str) -> Callable[[Edit], Edit]:
    if Promise.ACYCLIC_ORDER in (name, *also):
        also = (*also, Promise.REAL_TIME_ORDER.value)  # a cycle is one whatever the times

    def register(edit: Edit) -> Edit:
        FORGED.append(Forgery(edit.__name__, edit, name, frozenset(also)))
        return edit

    return register


def harmless(edit: Edit) -> Edit:
    HARMLESS.append(Harmless(edit.__name__, edit))
    return edit


def claim(t: Tape, process: str, message: str, destinations: tuple[str, ...]) -> None:
    rows = t.rows[process]
    t.rows[process] = [
        row._replace(destinations=destinations) if row[3:5] == (EventKind.DELIVER, message) else row for row in rows
    ]


def without_keys(t: Tape) -> None:
    t.rows = {p: [row._replace(order_key=None) for row in rows] for p, rows in t.rows.items()}
