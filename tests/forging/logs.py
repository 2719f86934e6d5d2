"""Whole logs, as docs/trace.md defines them: those of newcomers begin with what their donors delivered."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.trace import Row, RunFacts

LOG = ("deliver", "gap", "view", "adopt")


class Adoptions:
    """The rows of a run, numbered again, in which those who took another's place have what stands before their own."""

    def __init__(self, facts: RunFacts, rows: Sequence[Row]) -> None:
        # Of a process whose rows are not all here, only the multicasts count, and nothing is expected of it.
        kept = [row for row in rows if row.kind == "multicast" or row.process not in facts.incomplete]
        self.own: dict[str, list[Row]] = {}
        for row in sorted(kept, key=lambda row: (row.process, row.seq)):
            self.own.setdefault(row.process, []).append(row)
        newcomers = [p for p in self.own if any(q in facts.incomplete for q in self._donors(p))]
        self.incomplete = [*facts.incomplete, *(p for p in newcomers if p not in facts.incomplete)]
        for p in newcomers:
            self.own[p] = [row for row in self.own[p] if row.kind == "multicast"]
        self.rows = [
            row._replace(process=p, seq=seq)
            for p, own in self.own.items()
            for seq, row in enumerate([*self._before(p), *own])
        ]
        adopted = [row for own in self.own.values() for row in own if row.kind == "adopt"]
        self.begun_again = [row for row in adopted if row is not self._begin(row.process)]

    def _begin(self, p: str) -> Row | None:
        """The adoption with which p's log begins."""
        log = [row for row in self.own.get(p, []) if row.kind in LOG]
        return log[0] if log and log[0].kind == "adopt" else None

    def _donor(self, p: str) -> str | None:
        begin = self._begin(p)
        return begin.peers[0] if begin and begin.message is not None and len(begin.peers or ()) == 1 else None  # type: ignore[index]

    def _donors(self, p: str) -> list[str]:
        found: list[str] = []
        donor = self._donor(p)
        while donor is not None and donor not in found:
            found.append(donor)
            donor = self._donor(donor)
        return found

    def _before(self, p: str) -> list[Row]:
        """What stands before p's own rows."""
        begin, donor = self._begin(p), self._donor(p)
        if begin is None or donor is None or p in self._donors(p):
            return []
        log = [*self._before(donor), *self.own.get(donor, [])]
        for end, row in enumerate(log):
            if row.kind == "deliver" and row.message == begin.message:
                return [each for each in log[: end + 1] if each.kind in ("deliver", "gap", "view")]
        return []
