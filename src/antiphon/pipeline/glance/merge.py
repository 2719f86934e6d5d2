"""Keys for messages that have none: the order in which all processes' histories can be merged into one.

A message's place is where it stands in the history of each process that delivers it and of the one that multicast it.
It can be taken when it is the next one everywhere. The numbers in which messages are taken are keys as `conclude` wants
them: they grow along each process's deliveries, so that there is no cycle; a message is taken after all that its sender
had delivered or multicast before it; and what a process was addressed by and never delivers comes after all that it
delivers. Where the last two cannot be had, they are given up, and are not proved so.

Messages come in about the order in which they were delivered. What is held are those that came and cannot be taken yet:
as many as are in flight, and as clocks are apart; and of every message that ever came a number, to see that none comes
again: in parts it would be merged as several messages, and a cycle through it would not be seen.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from antiphon.pipeline.glance.arrays import (
    PIECES_IN_SPARK,
    coded,
    count,
    hashed,
    ints,
    least,
    named,
    pairs,
    pieces,
    put_together,
)
from antiphon.pipeline.glance.cells import addresses
from antiphon.pipeline.glance.history import block_buckets, blocks_of
from antiphon.pipeline.glance.run_index import RunIndex, TracePart
from antiphon.pipeline.scan import Scan

COLUMNS = ["run", "process", "seq", "kind", "message", "destinations", "time_ns"]
EVENTS, SIZES, PLACED = "events", "sizes", "placed"
IN_A_PIECE = 1024  # messages that come at once
UNMERGED_MAX = 100_000  # messages: before more are held, it is looked whether anything can still be taken
IN_TIME = "run string, time long, piece binary"
PROVED = "run string, stuck boolean, holes boolean, fifo boolean, causal boolean"
_members = attrgetter("members")
EventFacts = tuple[str, str, int, int, bool, int, int]  # what is said of an event, by the names in `add`
PlaceInHistory = tuple[int, int]  # a process and the place in its history


def merged(scan: Scan, index: RunIndex) -> DataFrame:
    """(run, stuck, holes, fifo, causal) of the runs in the index: whether their histories cannot be merged; whether a
    process delivers something behind what it left out; and whether keys grow along what each sends, or also along what
    it delivers."""
    n = scan.buckets()
    events = scan.map(partial(_events, index, n), COLUMNS, PIECES_IN_SPARK).repartitionById(n, "bucket")
    placed = events.mapInArrow(partial(_placed, n), PIECES_IN_SPARK).repartitionById(n, "bucket")
    in_time = placed.mapInArrow(_in_time, IN_TIME).repartition(n, "run").sortWithinPartitions("run", "time")
    return in_time.mapInArrow(partial(_merged, index), PROVED)


def _events(index: RunIndex, buckets: int, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        part = TracePart(table, index)
        multicast = part.of("multicast")
        rows = np.flatnonzero(part.of("deliver") | multicast)
        if not len(rows):
            continue
        at = pa.array(rows)
        _, addressed, _ = addresses(part, rows)
        found = pa.table(
            {
                "run": named(pa.array(list(index.names)), part.run[rows]),
                "process": named(part.processes, part.process[rows]),
                "seq": ints(part.table.column("seq").take(at)),
                "time": ints(part.table.column("time_ns").take(at)),
                "message": part.table.column("message").take(at).cast(pa.string()).fill_null(""),
                "sent": multicast[rows],
                "bit": part.numbers(_members, part.processes, rows, part.process[rows]),
                "addressed": np.where(multicast[rows], addressed, 0),
            }
        )
        yield from pieces(EVENTS, found, block_buckets(found, buckets))


def _placed(buckets: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each event with its place in its block; and how many events a block has."""
    for table in put_together(batches).values():
        (run, runs), (process, processes) = (coded(table.column(name)) for name in ("run", "process"))
        b = blocks_of(run, process, ints(table.column("seq")))
        firsts = np.flatnonzero(b.starts)
        place = np.arange(len(b.at)) - firsts[b.at]
        sorted_ = table.take(pa.array(b.order)).append_column("block", pa.array(b.block[b.at]))
        code, names = coded(sorted_.column("message"))
        bucket = (hashed(names)[code] + 31 * hashed(runs)[run[b.order]]) % buckets  # by names: numbers differ by task
        yield from pieces(PLACED, sorted_.append_column("place", pa.array(place)).drop_columns("seq"), bucket)
        sizes = {"run": named(runs, b.run), "process": named(processes, b.process), "block": b.block}
        yield from pieces(SIZES, pa.table({**sizes, "size": count(len(b), b.at)}), np.zeros(len(b), dtype=np.int64))


def _in_time(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages, some at once, by the time of their first delivery; before all of them, the sizes of blocks."""
    found = put_together(batches)
    if SIZES in found:
        for run in found[SIZES].column("run").unique().to_pylist():
            own = found[SIZES].filter(pc.equal(found[SIZES].column("run"), run))
            yield _timed(run, -(2**62), SIZES, own)
    if PLACED not in found:
        return
    table = found[PLACED]
    (run, runs), (code, names) = (coded(table.column(name)) for name in ("run", "message"))
    at, run_of, _ = pairs(run, code, max(len(names), 1))
    first = least(len(run_of), at, ints(table.column("time")))
    order = np.lexsort((at, first[at], run_of[at]))
    table, at = table.take(pa.array(order)).combine_chunks(), at[order]
    starts = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
    of_run = run_of[at[starts]]
    cuts = np.flatnonzero(np.append(True, of_run[1:] != of_run[:-1])).tolist()
    for low, high in zip(cuts, [*cuts[1:], len(starts)], strict=True):
        for begin in range(low, high, IN_A_PIECE):
            end = min(begin + IN_A_PIECE, high)
            low_row, high_row = int(starts[begin]), int(starts[end]) if end < len(starts) else len(table)
            some = table.slice(low_row, high_row - low_row).drop_columns(["run", "time"])
            yield _timed(runs[int(of_run[begin])].as_py(), int(first[at[starts[begin]]]), PLACED, some)


def _timed(run: str, time: int, what: str, table: pa.Table) -> pa.RecordBatch:
    (piece,) = pieces(what, table, np.zeros(len(table), dtype=np.int64))
    arrays = [pa.array([run]), pa.array([time], pa.int64()), piece.column("piece")]
    return pa.RecordBatch.from_arrays(arrays, names=["run", "time", "piece"])


@dataclass
class _Message:
    events: list[PlaceInHistory]  # its deliveries
    sender: int | None
    holes: int
    waits: int = 0  # for so many deliveries to be the next ones
    is_sent: bool = True


@dataclass
class Merge:
    """The histories of one run's processes, as far as they have come."""

    index: RunIndex
    run: str
    processes: dict[str, int] = field(default_factory=dict)
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    totals: list[int] = field(default_factory=list)
    next: list[int] = field(default_factory=list)
    bits: list[int] = field(default_factory=list)
    left_out: int = 0  # the bits of those who did not deliver something taken
    waiting: dict[PlaceInHistory, tuple[_Message, bool]] = field(default_factory=dict)
    sent: list[deque[_Message]] = field(default_factory=list)  # of each process, what it has multicast and is not taken
    held: int = 0
    limit: int = field(default_factory=lambda: UNMERGED_MAX)
    came: array[int] = field(default_factory=lambda: array("q"))  # the hashes of the names of all messages
    odd: bool = False  # something is delivered twice by one process, or multicast twice; or a message came in parts
    stuck: bool = False
    holes: bool = False
    fifo: bool = True
    causal: bool = True
    lost: set[int] = field(default_factory=set)  # who multicast something that nobody delivers

    def sizes(self, table: pa.Table) -> None:
        """How many events each block has: all at once, before the messages."""
        rows = sorted(zip(*(table.column(n).to_pylist() for n in ("process", "block", "size")), strict=True))
        for process, block, size in rows:
            if process not in self.processes:
                self.processes[process] = len(self.totals)
                self.totals.append(0)
                self.next.append(0)
                self.bits.append(0)
                self.sent.append(deque())
            p = self.processes[process]
            self.offsets[p, block] = self.totals[p]
            self.totals[p] += size

    def add(self, table: pa.Table) -> None:
        if self.stuck or self.odd:
            return
        names = ("message", "process", "block", "place", "sent", "bit", "addressed")
        columns = [table.column(name).to_pylist() for name in names]
        rows = zip(*columns, strict=True)
        for name, own in groupby(rows, key=itemgetter(0)):
            self.came.append(hash(name))
            self._came(*self._gathered(own))
        if self.held > self.limit:
            self._relax()
            self.limit = max(UNMERGED_MAX, 2 * self.held)

    def _gathered(
        self, rows: Iterable[tuple[str, str, int, int, bool, int, int]]
    ) -> tuple[list[PlaceInHistory], list[PlaceInHistory], int]:
        """The deliveries of a message, its multicasts, and the bits of whom it does not reach."""
        events: list[PlaceInHistory] = []
        origins: list[PlaceInHistory] = []
        delivered = addressed = 0
        for _, process, block, place, sent, bit, to in rows:
            p = self.processes[process]
            at = (p, self.offsets[p, block] + place)
            if sent:
                origins.append(at)
                addressed |= to
            else:
                events.append(at)
                delivered |= bit
                self.bits[p] = bit
        return events, origins, addressed & ~delivered

    def _came(self, events: list[PlaceInHistory], origins: list[PlaceInHistory], holes: int) -> None:
        self.odd |= len(origins) > 1 or len({p for p, _ in events}) < len(events)
        if self.odd:
            return
        origin = origins[0] if origins else None
        message = _Message(events, None if origin is None else origin[0], holes)
        self.held += 1
        todo: list[_Message] = []
        for at in events:
            if at[1] != self.next[at[0]]:
                self.waiting[at] = (message, False)
                message.waits += 1
        if origin is not None:
            message.is_sent = False
            self.waiting[origin] = (message, True)
            self._advance(origin[0], todo)
        todo.append(message)
        self._take(todo)

    def _advance(self, p: int, todo: list[_Message]) -> None:
        """Let a process go on through what it multicasts, up to its next delivery."""
        while (found := self.waiting.pop((p, self.next[p]), None)) is not None:
            message, is_multicast = found
            if not is_multicast:
                message.waits -= 1
                todo.append(message)
                return
            message.is_sent = True
            self.next[p] += 1
            if not message.events:
                self.lost.add(p)
                self.held -= 1
            elif p in self.lost:
                self._give_up_fifo(todo)
            elif self.fifo:
                self.sent[p].append(message)
            todo.append(message)

    def _give_up_fifo(self, todo: list[_Message]) -> None:
        self.fifo = False
        for queue in self.sent:
            todo.extend(queue)
            queue.clear()

    def _take(self, todo: list[_Message]) -> None:
        while todo:
            message = todo.pop()
            if self._can_be_taken(message):
                self._taken(message, todo)

    def _can_be_taken(self, message: _Message) -> bool:
        if message.waits or not message.events:
            return False
        if not message.is_sent:
            return not self.causal
        return not self.fifo or message.sender is None or self.sent[message.sender][0] is message

    def _taken(self, message: _Message, todo: list[_Message]) -> None:
        self.held -= 1
        self.left_out |= message.holes
        events, message.events = message.events, []
        for p, _ in events:
            self.holes |= bool(self.left_out & self.bits[p])
            self.next[p] += 1
            self._advance(p, todo)
        if message.sender is not None and message.is_sent:
            queue = self.sent[message.sender]
            if queue and queue[0] is message:
                queue.popleft()
                if queue:
                    todo.append(queue[0])

    def _relax(self) -> None:
        """If all that could be next has come and nothing can be taken: give up what need not be, else it is stuck."""
        while not (self.stuck or self.odd) and self._all_came():
            heads = self._heads()
            if self.fifo:
                self._give_up_fifo(heads)
            elif self.causal:
                self.causal = False
            else:
                self.stuck = True
                return
            before = list(self.next)
            self._take(heads)
            if self.next != before:
                return

    def _all_came(self) -> bool:
        """Whether something is held, and no process waits for what has not come."""
        behind = {p for message in self._pending() for p, _ in message.events if self._is_next(message, p)}
        return all(p in behind for p, total in enumerate(self.totals) if self.next[p] < total) and self.held > 0

    def _is_next(self, message: _Message, p: int) -> bool:
        return any(q == p and place == self.next[p] for q, place in message.events)

    def _pending(self) -> list[_Message]:
        seen = {id(message): message for message, _ in self.waiting.values()}
        seen |= {id(message): message for queue in self.sent for message in queue}
        return list(seen.values())

    def _heads(self) -> list[_Message]:
        return [message for message in self._pending() if message.events and not message.waits]

    def end(self) -> None:
        for _ in range(3):
            if any(done < total for done, total in zip(self.next, self.totals, strict=True)):
                self._relax()
        self.stuck |= any(done < total for done, total in zip(self.next, self.totals, strict=True))
        came = np.sort(np.asarray(self.came))
        self.odd |= bool((came[1:] == came[:-1]).any())


def _merged(index: RunIndex, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    merge: Merge | None = None
    for batch in batches:
        for row in range(batch.num_rows):
            run = batch.column("run")[row].as_py()
            if merge is None or merge.run != run:
                if merge is not None:
                    yield _proved(merge)
                merge = Merge(index, run)
            piece = batch.slice(row, 1).select(["piece"])
            for what, table in put_together([piece]).items():
                (merge.sizes if what == SIZES else merge.add)(table)
    if merge is not None:
        yield _proved(merge)


def _proved(merge: Merge) -> pa.RecordBatch:
    merge.end()
    bad = merge.stuck or merge.odd
    fifo = merge.fifo and not bad
    cells = [[merge.run], [bad], [merge.holes or bad], [fifo], [fifo and merge.causal]]
    arrays = [pa.array(cell, pa.string() if i == 0 else pa.bool_()) for i, cell in enumerate(cells)]
    return pa.RecordBatch.from_arrays(arrays, names=["run", "stuck", "holes", "fifo", "causal"])
