"""The trace of a real process: what was released becomes rows, and enough rows become a file (trace_files.py).

Rows are made on a thread, some at a time, and wait as tables: so what they are made of, turns and their frames, is soon
forgotten. That thread never waits for a disk; while it has too much to do, the process reads nothing more. What no file
holds yet is lost in a crash, and written when the journal is replayed: a snapshot only counts when every row before it
stands in a finished file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import time_ns

from antiphon.core import Process
from antiphon.core.effects import Log, Send
from antiphon.core.host import Turn
from antiphon.core.inputs import Receive
from antiphon.runtime.node.observer import Then, TurnObserver
from antiphon.runtime.node.trace_files import GapMark, RowTable, TraceWriter
from antiphon.trace import Row, rows_of
from antiphon.trace.parquet import to_table

ROWS_PER_TABLE = 4096
BYTES_PER_TABLE = 8 << 20  # of frames and payloads that the rows speak of
UNMADE_TABLES_MAX = 16

Released = tuple[int, Turn]  # a time, and what was released then


class Recorder(TurnObserver):
    wants_records = True

    def __init__(self, folder: Path, run: str, process: Process, own: GapMark) -> None:
        super().__init__()
        self._process = process
        self._files = TraceWriter(folder, run, process.me, own, self._report)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trace")
        self._seen: deque[Released] = deque()
        self._count = 0
        self._bytes = 0
        self._taken = 0  # tables to be made, ever; counted by the event loop ...
        self._made = 0  # ... and those that are, by the thread

    @property
    def state(self) -> str:
        """What is wrong with the trace; empty: nothing."""
        return self._files.state

    @property
    def is_of_this_life(self) -> bool:
        """Whether the process, as it is, has seen all that the files have of it: else its journal is not the one with
        which they were written, and what is missing in them nobody can make."""
        return self._files.written <= self._process.state.seq

    @property
    def is_due(self) -> bool:
        """Whether there is enough for a table."""
        return self._count >= ROWS_PER_TABLE or self._bytes >= BYTES_PER_TABLE

    @property
    def is_behind(self) -> bool:
        """Whether much is still to be made into rows."""
        return self._taken - self._made > UNMADE_TABLES_MAX

    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
        """What was just released; or, after a crash, what was, as far as no file has it."""
        if replayed:
            for turn in turns:
                self._keep(turn.happened.at, turn)
        else:
            self.add(turns, time_ns())
            if self.is_due:
                self.hand_over()

    def add(self, turns: Sequence[Turn], at: int) -> None:
        for turn in turns:
            self._keep(at, turn)

    def _keep(self, at: int, turn: Turn) -> None:
        count = turn.seq_last - max(turn.seq - 1, self._files.written)
        if count <= 0:
            return
        self._seen.append((at, turn))
        self._count += count
        if type(turn.happened) is Receive:
            self._bytes += turn.happened.frame.size
        for effect in turn.effects:
            if type(effect) is Send:
                self._bytes += effect.frame.size
            elif type(effect) is Log:
                self._bytes += sum([len(request.data) for request in effect.event.requests])

    def hand_over(self) -> None:
        """Have rows made of what was seen; when there are enough, they are written."""
        self._submit(lambda: None)

    def write(self, then: Then) -> None:
        """Have all that was seen written, durably; ``then`` is told, on some thread, whether no replay need make it."""
        self._submit(lambda: self._files.write(then))

    def finish(self, seconds: float | None = None) -> bool:
        """Write all that was seen, and wait for it. False: a replay has to make it."""
        is_safe: Future[bool] = Future()
        try:
            self._submit(lambda: self._files.write(is_safe.set_result)).result(seconds)
            return is_safe.result(seconds)
        except TimeoutError:
            return False

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._files.close()

    def _submit(self, and_then: Callable[[], None]) -> Future[None]:
        seen, self._seen = self._seen, deque()
        size = self._bytes
        self._count = self._bytes = 0
        self._taken += 1

        def make() -> None:
            try:
                self._files.add(RowTable(to_table(self._rows_of(seen)), size))
            finally:
                self._made += 1
            and_then()

        made = self._thread.submit(make)
        made.add_done_callback(self._report)
        return made

    def _report(self, done: Future[None]) -> None:
        self.on_done(done)

    def _rows_of(self, seen: deque[Released]) -> Iterator[Row]:
        """The rows of what was seen, which is forgotten on the way."""
        begun = self._files.written
        while seen:
            at, turn = seen.popleft()
            yield from rows_of(self._process, turn, at, after=begun)
