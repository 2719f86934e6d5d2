"""A process's events in their order: whether its keys, positions and clients' numbers grow as they should.

Events are put together in blocks of neighbours by `seq`, whatever file they were in, and sorted there; what is to be
said of a block are its ends. So a process's history need not fit one task, and the few blocks of a process are compared
in the end (`conclude`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.glance.arrays import (
    LARGEST,
    Bools,
    Ints,
    coded,
    count,
    hashed,
    ints,
    is_null,
    least,
    lists,
    most,
    named,
    pieces,
    ranked,
    top_before,
)
from antiphon.pipeline.glance.cells import Cells
from antiphon.pipeline.glance.found import TALLIES
from antiphon.pipeline.glance.run_index import TracePart

COLUMNS = ["run", "process", "seq", "kind", "destinations", "requests", "order_key", "position"]
STEPS, SENT, CELLS = "steps", "sent", "cells"
BLOCK_BITS = 18
MODEST = 2**40  # beyond such numbers a sum may not fit; who has them is looked at again


def block_buckets(table: pa.Table, buckets: int) -> Ints:
    """Where the block of a process's event comes together."""
    process, processes = coded(table.column("process"))
    run, runs = coded(table.column("run"))
    block = ints(table.column("seq")) >> BLOCK_BITS
    where: Ints = (hashed(processes)[process] + 31 * hashed(runs)[run] + block) % buckets
    return where


# ---- in each part of the trace


def glance_at_history(part: TracePart, buckets: int) -> Iterator[pa.RecordBatch]:
    """Deliveries, gaps, views and adoptions; and the requests that are delivered."""
    deliver = part.of("deliver")
    rows = np.flatnonzero(deliver | part.of("gap", "view", "adopt"))
    if not len(rows):
        return
    names = pa.array(list(part.index.names))
    is_delivery = deliver[rows]
    at = pa.array(rows)
    position = part.table.column("position").take(at)
    taken, odd = _taken(part, rows, is_delivery)
    placed = ~is_null(position)
    place = ints(position)
    odd |= placed & (np.abs(place) > MODEST)
    key = part.table.column("order_key").take(pa.array(rows, mask=~is_delivery))
    seq = ints(part.table.column("seq"))
    table = pa.table(
        {
            "run": named(names, part.run[rows]).dictionary_encode(),
            "process": named(part.processes, part.process[rows]).dictionary_encode(),
            "seq": seq[rows],
            "is_delivery": is_delivery,
            "key": key,
            "position": pa.array(place, mask=~placed),
            "following": pa.array(np.where(odd, 0, place + taken), mask=~placed),
            "odd": odd & placed,
        }
    )
    yield from pieces(STEPS, table, block_buckets(table, buckets))
    cells = Cells(part, np.flatnonzero(deliver))
    told = pa.table(
        {
            "run": named(names, cells.run).dictionary_encode(),
            "process": named(part.processes, part.process[cells.row]).dictionary_encode(),
            "client": named(cells.clients, cells.client).dictionary_encode(),
            "to": cells.to,
            "seq": seq[cells.row],
            "place": cells.place,
            "first": cells.first,
            "payloads": cells.payloads,
        }
    )
    if len(told):
        yield from pieces(CELLS, told, block_buckets(told, buckets))
    odd_runs = {"run": named(names, cells.odd_runs), "odd_sessions": cells.odd_runs >= 0}
    yield from pieces(TALLIES, pa.table(odd_runs), np.zeros(len(cells.odd_runs), dtype=np.int64))


def _taken(part: TracePart, rows: Ints, is_delivery: Bools) -> tuple[Ints, Bools]:
    """How many positions each takes: a delivery as many as it has payloads, an adoption none, all else one. And where
    that is odd."""
    parent, cell = lists(part.table.column("requests"), rows)
    payloads = pc.struct_field(cell, "payloads")
    strange = is_null(payloads)
    number = ints(payloads)
    strange |= (number < 0) | (number > MODEST)
    n = len(rows)
    total = np.bincount(parent, np.where(strange, 0, number), minlength=n).astype(np.int64)
    odd = np.zeros(n, dtype=bool)
    odd[parent[strange]] = True
    odd |= total > MODEST
    return np.where(is_delivery, total, ~part.of("adopt")[rows]), odd & is_delivery


# ---- where a block has come together


@dataclass
class SortedRows:
    """Rows sorted by process, block and seq."""

    order: Ints  # how to sort them
    at: Ints  # of each sorted row, its block
    starts: Bools  # whether it is the first of that
    run: Ints  # of each block
    process: Ints
    block: Ints

    def __len__(self) -> int:
        return len(self.run)


def blocks_of(run: Ints, process: Ints, seq: Ints, *more: Ints) -> SortedRows:
    """Of equal seq, what is smaller by `more` comes first."""
    block = seq >> BLOCK_BITS
    order = np.lexsort((*more[::-1], seq, block, process, run))
    columns = [values[order] for values in (run, process, block)]
    starts = np.ones(len(order), dtype=bool)
    if len(order):
        starts[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    firsts = np.flatnonzero(starts)
    run_of, process_of, block_of = (values[firsts] for values in columns)
    return SortedRows(order, np.cumsum(starts) - 1, starts, run_of, process_of, block_of)


def judge_history(steps: pa.Table | None, sent: pa.Table | None) -> pa.Table | None:
    """A row for each block."""
    some = [table for table in (steps, sent) if table is not None]
    if not some:
        return None
    joined = pa.concat_tables([_plain(table) for table in some], promote_options="default").combine_chunks()
    if steps is None:
        joined = joined.append_column("is_delivery", pa.nulls(len(joined), pa.bool_()))
    run, runs = coded(joined.column("run"))
    process, processes = coded(joined.column("process"))
    b = blocks_of(run, process, ints(joined.column("seq")))
    code, keys = coded(joined.column("key"))
    places, in_order = ranked(keys)
    rank = np.where(code < 0, -1, places[code] if len(places) else -1)[b.order]
    is_sent = is_null(joined.column("is_delivery"))[b.order]
    is_delivered = ints(joined.column("is_delivery").cast(pa.int64()))[b.order] == 1
    return pa.table(
        {
            "run": named(runs, b.run),
            "process": named(processes, b.process),
            "block": b.block,
            **_keys(b, rank, is_delivered, is_sent, in_order),
            **_positions(b, joined, ~is_sent),
        }
    )


def _plain(table: pa.Table) -> pa.Table:
    """Names as texts: dictionaries of different pieces differ."""
    names = {name: table.column(name).cast(pa.string()) for name in ("run", "process")}
    return pa.table({**{name: table.column(name) for name in table.column_names}, **names})


def _keys(b: SortedRows, rank: Ints, is_delivered: Bools, is_sent: Bools, keys: pa.Array) -> dict[str, Any]:
    n = len(b)
    delivered, sent, lost = is_delivered & (rank >= 0), is_sent & (rank >= 0), is_sent & (rank < 0)
    top_delivered, top_sent = (top_before(b.at, b.starts, rank, chosen, len(keys)) for chosen in (delivered, sent))
    so_far: Ints = np.cumsum(lost) - lost
    lost_before: Bools = so_far > so_far[np.maximum.accumulate(np.where(b.starts, np.arange(len(b.at)), 0))]
    falls = delivered & (rank <= top_delivered)
    not_fifo = sent & (lost_before | (rank <= top_sent))
    not_causal = not_fifo | (sent & (rank <= top_delivered))

    def none(wrong: Bools) -> Bools:
        found: Bools = count(n, b.at[wrong]) == 0
        return found

    def end(chosen: Bools, which: Any) -> pa.Array:
        found = which(n, b.at[chosen], rank[chosen])
        return named(keys, np.where((found == LARGEST) | (found < 0), -1, found))

    return {
        "increasing": none(falls),
        "fifo_keys": none(not_fifo),
        "causal_keys": none(not_causal),
        "lost": ~none(lost),
        "first_key": end(delivered, least),
        "last_key": end(delivered, most),
        "first_sent": end(sent, least),
        "last_sent": end(sent, most),
    }


def _positions(b: SortedRows, joined: pa.Table, of_order: Bools) -> dict[str, Any]:
    """Each stands where the one before says that the following one stands; what has no position says nothing."""
    n = len(b)
    nothing = {"in_place": np.ones(n, bool), "stands": np.zeros(n, bool)}
    if "position" not in joined.column_names or not of_order.any():
        null = pa.nulls(n, pa.int64())
        return {**nothing, "position": null, "following": null}
    rows = np.flatnonzero(of_order)
    position, following = (joined.column(name).take(pa.array(b.order[rows])) for name in ("position", "following"))
    odd = ints(joined.column("odd").cast(pa.int64()).take(pa.array(b.order[rows]))) == 1
    at = b.at[rows]
    place, then, unplaced = ints(position), ints(following), is_null(position)
    first = np.ones(len(rows), dtype=bool)
    first[1:] = at[1:] != at[:-1]
    expected, unknown = np.roll(then, 1), np.roll(unplaced, 1)
    wrong = odd | (~first & ~unplaced & ~unknown & (place != expected))
    last = np.roll(first, -1)
    ends = {name: np.full(n, -1, dtype=np.int64) for name in ("position", "following")}
    ends["position"][at[first]] = np.where(unplaced[first], -1, np.flatnonzero(first))
    ends["following"][at[last]] = np.where(unplaced[last], -1, np.flatnonzero(last))
    return {
        "in_place": count(n, at[wrong]) == 0,
        "stands": count(n, at) > 0,
        "position": named(pa.array(place), ends["position"]),
        "following": named(pa.array(then), ends["following"]),
    }


def judge_sessions(cells: pa.Table) -> pa.Table:
    """A row for each client and set of groups in each block: whether its requests simply follow one another there.

    Who multicasts on its own behalf numbers requests instead of payloads, and its numbers only grow.
    """
    (run, runs), (process, processes), (client, clients) = (
        coded(cells.column(name).cast(pa.string())) for name in ("run", "process", "client")
    )
    sets, to = np.unique(ints(cells.column("to")), return_inverse=True)
    seq = ints(cells.column("seq"))
    of_process = (run * max(len(processes), 1) + process) * max(len(clients), 1) + client
    # A session takes the place of the process here.
    b = blocks_of(to.astype(np.int64), of_process, seq, ints(cells.column("place")))
    first, payloads = (ints(cells.column(name))[b.order] for name in ("first", "payloads"))
    length = np.maximum(payloads, 1) - 1
    last = np.where(first > LARGEST - length, LARGEST, first + length)
    before, before_own = np.roll(last, 1), np.roll(first, 1)
    follows = b.starts | ((before != LARGEST) & (first == np.where(before == LARGEST, 0, before) + 1))
    crooked = ~follows | (payloads <= 0)
    shrinks = ~b.starts & (first <= before_own)
    firsts = np.flatnonzero(b.starts)
    lasts = np.append(firsts[1:], len(first)) - 1
    some = b.order[firsts]
    n = len(b)
    return pa.table(
        {
            "run": named(runs, run[some]),
            "process": named(processes, process[some]),
            "client": named(clients, client[some]),
            "to": sets[to[some]],
            "block": b.block,
            "first": first[firsts],
            "last": last[lasts],
            "last_own": first[lasts],
            "straight": count(n, b.at[crooked]) == 0,
            "growing": count(n, b.at[shrinks]) == 0,
        }
    )
