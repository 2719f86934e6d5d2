"""The search itself: breadth first, and each configuration once. What it finds, it finds by the fewest steps."""

from __future__ import annotations

from collections import deque

from antiphon.simulation.forgetting.schedule import Schedule
from antiphon.simulation.forgetting.table import MemberTable
from antiphon.simulation.forgetting.values import Broken, ForgettingScope, SearchResult, WholeState
from antiphon.simulation.forgetting.verdicts import Verdicts


def search_forgetting(scope: ForgettingScope, configurations: int = 1_000_000) -> SearchResult:
    return ForgettingSearch(scope, configurations).run()


class ForgettingSearch:
    def __init__(self, scope: ForgettingScope, configurations: int) -> None:
        self.limit = configurations
        self.table = MemberTable(scope)
        self.schedule = Schedule(scope, self.table)
        self.verdicts = Verdicts(self.schedule)
        self.came: dict[WholeState, tuple[WholeState, str] | None] = {}  # from where, and by which move
        self.steps = 0

    def run(self) -> SearchResult:
        begun = self.schedule.beginning()
        self.came[begun] = None
        waiting = deque([begun])
        while waiting and len(self.came) < self.limit:
            at = waiting.popleft()
            last = ""
            try:
                self.verdicts.check(at)
                for with_all in (True, False) if at.crashes else ():
                    last = "at the end, with all back" if with_all else "at the end, without those who are down"
                    self.verdicts.end(at, with_all=with_all)
                last = ""
                self._go_on_from(at, waiting)
            except Broken as broken:
                return self._result(str(broken), (*self._path_to(at), *([last] if last else [])))
        return self._result(None, (), is_complete=not waiting)

    def _go_on_from(self, at: WholeState, waiting: deque[WholeState]) -> None:
        for label, after in self.schedule.moves(at):
            self.steps += 1
            if after not in self.came:
                self.came[after] = (at, label)
                waiting.append(after)

    def _path_to(self, at: WholeState) -> tuple[str, ...]:
        path: list[str] = []
        known: WholeState | None = at
        while known is not None and (before := self.came[known]) is not None:
            known, label = before
            path.append(label)
        return tuple(reversed(path))

    def _result(self, violation: str | None, path: tuple[str, ...], *, is_complete: bool = False) -> SearchResult:
        return SearchResult(len(self.came), self.steps, is_complete, len(self.table.states), violation, path)
