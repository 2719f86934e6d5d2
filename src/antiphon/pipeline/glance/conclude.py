"""Proves the order properties of a run from its order keys; says what stays unproven, and what else is in doubt.

A key that sorts as the protocol orders its messages is a witness. Suppose that in a run

  one key      every message is delivered with one and the same key everywhere,
  increasing   every process delivers in strictly increasing order of keys, and
  no holes     whatever a process was addressed by and never delivered has a greater key than all it delivered.

Then the keys order all deliveries, so there is no cycle (acyclic_order). Members of one group, when groups are
disjoint and nobody delivers what it is not addressed by, each delivered exactly the group's messages up to some key:
prefixes of one another (total_order). And if each message's key exceeds the keys of whatever its sender multicast
before (fifo), or multicast or delivered before (causal), then a predecessor has the smaller key, transitively; a
process addressed by both has either delivered it earlier, or left a hole below, which was excluded; where only what is
delivered counts (causal_extension), a hole does no harm. A predecessor that nobody delivered has no key: its sender's
later messages are unproven. What has no cycle is all the more in order from view to view (view_order).

None of this asks where a key comes from. So messages without keys can be given some: any will do, if with it the
conditions hold (`merge`).

A message that its sender wants delivered causally has no place in a total order, and no key: for the orders of the
others it is left out, and where there is one, the orders that speak of all are not proved by keys.

Nothing follows where a condition fails. Such runs are checked exactly, in `order`, `precedence` and `kernel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column

from antiphon.core.promises import Promise
from antiphon.pipeline.glance.arrays import (
    LARGEST,
    Bools,
    Ints,
    coded,
    count,
    ints,
    is_null,
    most,
    pairs,
    ranked,
    top_before,
)
from antiphon.pipeline.glance.found import BLOCKS, HOLES, OWN, SESSIONS, TALLIES
from antiphon.pipeline.glance.run_index import OF_REQUESTS, RunIndex

Condition = TypeVar("Condition", Bools, Column)  # of each run here, or of a row in Spark
ORDERS = tuple(
    str(promise)
    for promise in (
        Promise.TOTAL_ORDER,
        Promise.ACYCLIC_ORDER,
        Promise.REAL_TIME_ORDER,
        Promise.FIFO,
        Promise.CAUSAL,
        Promise.CAUSAL_EXTENSION,
        Promise.VIEW_ORDER,
    )
)
# What the first look may leave open, beside the names of the orders that are not proved.
ODD_SUSPECTS, ODD_REQUESTS, ODD_SESSIONS, PLACES = "suspects", "requests", "sessions", "places"
KEYLESS, CHATTER = "keyless", "chatter"
UNCLEAR, CAUSAL_ONES = "unclear", "causal messages"  # in a run without keys: why holes, or what precedes, is not known
FLAGS = (
    *("suspect", "keyless", "chatter", "uneven", "broken", "unclear", "causal"),
    *("odd_requests", "unruly", "odd_sessions"),
)


def proofs(
    increasing: Condition, no_holes: Condition, disjoint: Condition, fifo: Condition, causal: Condition
) -> dict[Promise, Condition]:
    """Which of the conditions above prove which order; `fifo` and `causal` are said of keys."""
    prefixes = increasing & no_holes
    return {
        Promise.ACYCLIC_ORDER: increasing,
        Promise.REAL_TIME_ORDER: increasing,  # and what `moments` asks
        Promise.TOTAL_ORDER: prefixes & disjoint,
        Promise.FIFO: prefixes & fifo,
        Promise.CAUSAL: prefixes & causal,
        Promise.CAUSAL_EXTENSION: increasing & causal,
        Promise.VIEW_ORDER: increasing,
    }


def conclusions(found: dict[str, pa.Table], index: RunIndex) -> Iterator[tuple[int, str]]:
    """(run, doubt) of what has come together here."""
    n = len(index.names)
    told = _told(found.get(TALLIES), index)
    kept = {name: np.ones(n, dtype=bool) for name in ("increasing", "fifo_keys", "causal_keys", "in_place", "no_holes")}
    if BLOCKS in found:
        _compare_blocks(found[BLOCKS], found.get(HOLES), index, kept)
    increasing = kept["increasing"] & ~told["broken"]
    no_holes = kept["no_holes"] & ~told["unclear"]
    fifo, causal = (kept[name] & ~told["causal"] for name in ("fifo_keys", "causal_keys"))
    disjoint = ~(told["ordered"] & index.overlapping())
    unproven = {promise: ~proof for promise, proof in proofs(increasing, no_holes, disjoint, fifo, causal).items()}
    unproven[Promise.REQUEST_ORDER] = told["uneven"] | told["unruly"] | (told["admitted"] != told["delivered"])
    of_requests = index.judges(*OF_REQUESTS)
    of_sessions = index.judges(Promise.INTEGRITY, Promise.CLIENT_ORDER)
    doubts = {
        **{str(promise): index.judges(promise) & open_ for promise, open_ in unproven.items()},
        PLACES: index.judges(Promise.INTEGRITY) & ~kept["in_place"],
        ODD_SUSPECTS: told["suspect"],
        KEYLESS: told["keyless"],
        UNCLEAR: told["keyless"] & told["unclear"],
        CAUSAL_ONES: told["keyless"] & told["causal"],
        CHATTER: told["chatter"],
        ODD_REQUESTS: of_requests & told["odd_requests"],
        ODD_SESSIONS: of_sessions & (told["odd_sessions"] | _crooked(found, index)),
    }
    for name, doubt in doubts.items():
        for run in np.flatnonzero(doubt).tolist():
            yield run, name


def _told(tallies: pa.Table | None, index: RunIndex) -> dict[str, Any]:
    """What was said of each run."""
    n = len(index.names)
    told = {name: np.zeros(n, dtype=bool) for name in FLAGS}
    told |= {name: np.zeros(n, dtype=np.int64) for name in ("admitted", "delivered")}
    told["ordered"] = np.zeros(n, dtype=bool)  # whether its messages came together here
    if tallies is not None:
        run = _runs(tallies, index)
        told["ordered"][run] = True
        for name in set(FLAGS).intersection(tallies.column_names):
            told[name] = count(n, run[ints(tallies.column(name).cast(pa.int64())) == 1]) > 0
        for name in {"admitted", "delivered"}.intersection(tallies.column_names):
            told[name] = np.bincount(run, ints(tallies.column(name)), minlength=n).astype(np.int64)
    return told


def _runs(table: pa.Table, index: RunIndex) -> Ints:
    run, names = coded(table.column("run"))
    found: Ints = index.runs(names)[run]
    return found


def _compare_blocks(blocks: pa.Table, holes: pa.Table | None, index: RunIndex, kept: dict[str, Bools]) -> None:
    """From each block of a process to its next: what holds in each must hold over all, and the ends must fit."""
    run, (process, processes) = _runs(blocks, index), coded(blocks.column("process"))
    order = np.lexsort((ints(blocks.column("block")), process, run))
    blocks, run, process = blocks.take(pa.array(order)), run[order], process[order]
    starts = np.ones(len(run), dtype=bool)
    starts[1:] = (run[1:] != run[:-1]) | (process[1:] != process[:-1])
    at = np.cumsum(starts) - 1
    names = ("first_key", "last_key", "first_sent", "last_sent")
    columns = [blocks.column(name).combine_chunks() for name in names]
    columns.append(pa.nulls(0, pa.binary()) if holes is None else holes.column("key").combine_chunks())
    code, keys = coded(pa.chunked_array(columns, pa.binary()))
    places, _ = ranked(keys)
    rank = np.where(code < 0, -1, places[code] if len(places) else -1)
    n = len(run)
    first_key, last_key, first_sent, last_sent = (rank[i * n : (i + 1) * n] for i in range(4))
    top_delivered, top_sent = (top_before(at, starts, last, last >= 0, len(keys)) for last in (last_key, last_sent))
    lost_before = top_before(at, starts, np.zeros(n, dtype=np.int64), _flag(blocks, "lost"), 1) >= 0
    sends = first_sent >= 0
    not_fifo = sends & (lost_before | (first_sent <= top_sent))
    wrong = {
        "increasing": ~_flag(blocks, "increasing") | ((first_key >= 0) & (first_key <= top_delivered)),
        "fifo_keys": ~_flag(blocks, "fifo_keys") | not_fifo,
        "causal_keys": ~_flag(blocks, "causal_keys") | not_fifo | (sends & (first_sent <= top_delivered)),
        "in_place": ~_flag(blocks, "in_place") | _out_of_place(blocks, at),
    }
    for name, where in wrong.items():
        kept[name][run[where]] = False
    if holes is not None:
        last = most(int(at[-1]) + 1, at, last_key)
        of_process = {(r, p): one for r, p, one in zip(run.tolist(), process.tolist(), at.tolist(), strict=True)}
        at_process = ints(_index(holes.column("process"), processes), -1)
        for r, p, key in zip(_runs(holes, index).tolist(), at_process.tolist(), rank[4 * n :].tolist(), strict=True):
            if (r, p) in of_process and key <= last[of_process[r, p]]:
                kept["no_holes"][r] = False


def _index(values: pa.ChunkedArray, names: pa.Array) -> pa.Array:
    return pc.index_in(values.combine_chunks().cast(names.type), names)


def _flag(table: pa.Table, name: str) -> Bools:
    found: Bools = ints(table.column(name).cast(pa.int64())) == 1
    return found


def _out_of_place(blocks: pa.Table, at: Ints) -> Bools:
    """Blocks of which the first does not stand where the last of the block before says."""
    wrong = np.zeros(len(at), dtype=bool)
    rows = np.flatnonzero(_flag(blocks, "stands"))
    if len(rows):
        place, then = blocks.column("position"), blocks.column("following")
        first = np.ones(len(rows), dtype=bool)
        first[1:] = at[rows][1:] != at[rows][:-1]
        expected, unknown = np.roll(ints(then)[rows], 1), np.roll(is_null(then)[rows], 1)
        expected, unknown = np.where(first, 0, expected), unknown & ~first
        wrong[rows] = ~is_null(place)[rows] & ~unknown & (ints(place)[rows] != expected)
    return wrong


def _crooked(found: dict[str, pa.Table], index: RunIndex) -> Bools:
    """Runs with sessions that are not straight: each request where the one before it ended.

    A straight session breaks neither integrity nor the client's order. Where a client multicasts on its own behalf, or
    its missing rows may say so, growing numbers are straight.
    """
    crooked = np.zeros(len(index.names), dtype=bool)
    rows = found.get(SESSIONS)
    if rows is None:
        return crooked
    own = set(index.in_part)
    if OWN in found:
        own |= set(zip(*(found[OWN].column(name).to_pylist() for name in ("run", "client")), strict=True))
    run, (process, _), (client, clients) = _runs(rows, index), *(coded(rows.column(n)) for n in ("process", "client"))
    to, block = ints(rows.column("to")), ints(rows.column("block"))
    order = np.lexsort((block, to, client, process, run))
    sorted_ = [values[order] for values in (run, process, client, to)]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in sorted_])
    first, last, last_own = (ints(rows.column(name))[order] for name in ("first", "last", "last_own"))
    before, before_own = (np.where(starts, -1, np.roll(values, 1)) for values in (last, last_own))
    follows = (before != LARGEST) & (first == np.where(before == LARGEST, 0, before) + 1)
    straight, growing = (_flag(rows, name)[order] for name in ("straight", "growing"))
    names = list(index.names)
    pair, pair_run, pair_client = pairs(sorted_[0], sorted_[2], max(len(clients), 1))
    known = clients.to_pylist()
    is_own = np.array([(names[r], known[c]) in own for r, c in zip(pair_run, pair_client, strict=True)], dtype=bool)
    fine = np.where(is_own[pair], growing & (first > before_own), straight & follows)
    crooked[sorted_[0][~fine]] = True
    return crooked
