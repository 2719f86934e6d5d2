"""Requests: whether each was multicast as it is delivered, once and with one message; and what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from antiphon.pipeline.glance.arrays import (
    LARGEST,
    Bools,
    Ints,
    coded,
    count,
    hashed,
    ints,
    least,
    most,
    named,
    pairs,
    pieces,
    united,
)
from antiphon.pipeline.glance.cells import Cells
from antiphon.pipeline.glance.found import OWN, TALLIES
from antiphon.pipeline.glance.run_index import RunIndex, TracePart

REQUESTS = "requests"
_members = attrgetter("members")


def glance_at_requests(part: TracePart, buckets: int) -> Iterator[pa.RecordBatch]:
    """One narrow row per request that the part says something of."""
    names = pa.array(list(part.index.names))
    multicast, deliver, receipt = part.of("multicast"), part.of("deliver"), part.of("receipt")
    cells = Cells(part, np.flatnonzero(multicast | deliver | receipt))
    is_m, is_d, is_r = multicast[cells.row], deliver[cells.row], receipt[cells.row]
    message, messages = coded(part.table.column("message").take(pa.array(cells.row)))
    at, chosen = _identity(cells.run, cells.client, cells.to, cells.first)
    n = len(chosen)
    bits = part.numbers(_members, part.processes, cells.row, part.process[cells.row])
    nameless = is_d & (message < 0)
    one, other = least(n, at[is_d], message[is_d]), most(n, at[is_d], message[is_d])
    table = {
        "run": named(names, cells.run[chosen]),
        "client": named(cells.clients, cells.client[chosen]),
        "to": cells.to[chosen],
        "first": cells.first[chosen],
        "message": named(messages, np.where(one == LARGEST, -1, one)),
        "clashes": ((one != other) & (one != LARGEST)).astype(np.int64) + count(n, at[nameless]),
        "multicasts": count(n, at[is_m]),
        "deliveries": count(n, at[is_d]),
        "receipts": count(n, at[is_r]),
        "delivered": united(n, at[is_d], bits[is_d]),
        **_bounds(n, at, cells.payloads, "payloads"),
        **_bounds(n, at, cells.digest, "digest"),
        **_bounds(n, at[is_d], cells.place[is_d], "place"),
    }
    bucket = (hashed(cells.clients)[cells.client[chosen]] + cells.run[chosen] + cells.first[chosen] * 7) % buckets
    yield from pieces(REQUESTS, pa.table(table), bucket)
    odd = {"run": named(names, cells.odd_runs)}
    flags = dict.fromkeys(("odd_requests", "unruly"), np.ones(len(cells.odd_runs), bool))
    yield from pieces(TALLIES, pa.table({**odd, **flags}), np.zeros(len(cells.odd_runs), dtype=np.int64))
    yield from _own(part, cells, is_m, names)


def _own(part: TracePart, cells: Cells, is_m: Bools, names: pa.Array) -> Iterator[pa.RecordBatch]:
    """The processes that multicast on their own behalf."""
    as_client = np.array([cells.clients.index(name).as_py() for name in part.processes], dtype=np.int64)
    rows = np.flatnonzero(is_m & (as_client[part.process[cells.row]] == cells.client)) if len(cells.row) else cells.row
    _, run, client = pairs(cells.run[rows], cells.client[rows], max(len(cells.clients), 1))
    table = pa.table({"run": named(names, run), "client": named(cells.clients, client)})
    yield from pieces(OWN, table, np.zeros(len(run), dtype=np.int64))


def _identity(run: Ints, client: Ints, to: Ints, first: Ints) -> tuple[Ints, Ints]:
    """Each entry's request, and of each request an entry."""
    sets, to_at = np.unique(to, return_inverse=True)
    session, _, _ = pairs(run * (int(client.max(initial=0)) + 1) + client, to_at.astype(np.int64), max(len(sets), 1))
    numbers, at_number = np.unique(first, return_inverse=True)
    _, chosen, which = np.unique(session * max(len(numbers), 1) + at_number, return_index=True, return_inverse=True)
    return which.astype(np.int64), chosen.astype(np.int64)


def _bounds(n: int, at: Ints, values: Ints, name: str) -> dict[str, Ints]:
    return {f"least_{name}": least(n, at, values), f"most_{name}": most(n, at, values)}


def judge_requests(table: pa.Table, index: RunIndex) -> Iterator[pa.RecordBatch]:
    """Doubts about requests, by run.

    All rows that speak of a request have the same payloads and bytes (`even`), so that if it is multicast at all no
    delivery is fake; and each who delivered it did so once, with the one message and at the one place in that (`ruly`).
    """
    run, runs = coded(table.column("run"))
    client, _ = coded(table.column("client"))
    run = index.runs(runs)[run]
    to = ints(table.column("to"))
    at, chosen = _identity(run, client, to, ints(table.column("first")))
    n, run, to = len(chosen), run[chosen], to[chosen]

    def summed(name: str) -> Ints:
        return np.bincount(at, ints(table.column(name)), minlength=n).astype(np.int64)

    def same(name: str) -> Bools:
        low, high = ints(table.column(f"least_{name}")), ints(table.column(f"most_{name}"))
        found: Bools = least(n, at, low) == most(n, at, high)
        return found

    message, _ = coded(table.column("message"))
    has = message >= 0
    one_message = least(n, at[has], message[has]) == most(n, at[has], message[has])
    delivered = united(n, at, ints(table.column("delivered")))
    deliveries, even = summed("deliveries"), same("payloads") & same("digest")
    once = deliveries == np.bitwise_count(delivered)
    ruly = one_message & (summed("clashes") == 0) & once & same("place")
    is_delivered = deliveries > 0
    addressed, known = _addressed(index, run, to)
    missing = addressed & ~(index.flags("faulty", run) | delivered)
    unkept = (summed("receipts") > 0) & (~even | ~known | (missing != 0))
    fake = is_delivered & ((summed("multicasts") == 0) | ~even)
    odd = (index.flags("of_deliveries", run).astype(bool) & fake) | (
        index.flags("of_receipts", run).astype(bool) & unkept
    )
    used, names = np.unique(run), list(index.names)
    tallies: dict[str, Any] = {
        "run": [names[r] for r in used],
        "odd_requests": (count(len(names), run[odd]) > 0)[used],
        "unruly": (count(len(names), run[is_delivered & ~ruly]) > 0)[used],
        "delivered": count(len(names), run[is_delivered])[used],
    }
    yield from pieces(TALLIES, pa.table(tallies), np.zeros(len(used), dtype=np.int64))


def _addressed(index: RunIndex, run: Ints, to: Ints) -> tuple[Ints, Bools]:
    """The members of each set of groups; and whether bits say who they are."""
    layout = np.array(index.layout, dtype=np.int64)[run]
    sets, at = np.unique(np.stack([layout, to]), axis=1, return_inverse=True)
    bits, known = [], []
    for number, groups in sets.T.tolist():
        of = index.layouts[number]
        inside = [group for group, bit in of.groups.items() if groups & bit]
        known.append(all(group in of.plain for group in inside))
        union = 0
        for group in inside:
            union |= of.addressed.get(group, 0)
        bits.append(union)
    return np.array(bits, dtype=np.int64)[at.reshape(-1)], np.array(known, dtype=bool)[at.reshape(-1)]
