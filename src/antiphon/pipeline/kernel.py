"""The exact checks of acyclic and causal orders for one run that its keys do not prove: numpy, inside a Spark task.

They follow chains through all processes of a run, which no fixed number of joins can. So Spark hands each such run, or
each piece of a long one (`spans`), to one task as an Arrow table of its messages, many in parallel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.core.promises import Promise
from antiphon.pipeline.cycles import Cycle, merge, shortest_cycle
from antiphon.pipeline.earliest import earliest, shortest_way, too_late

Ints = npt.NDArray[np.int64]
RowPlace = dict[str, Any]  # of a row: its process and seq
NEVER = 2**62  # the position of what is addressed but not delivered
UNADDRESSED = -1
WITNESSES_MAX = 3

COLUMNS = [
    *("run", "judged", "message", "causal", "sender", "sender_seq", "addressed", "delivered_at", "delivered_seq"),
    *("multicast_ns", "first_delivery", "clock_error_ns"),
]
CHECKS = (Promise.ACYCLIC_ORDER, Promise.REAL_TIME_ORDER, Promise.CAUSAL, Promise.CAUSAL_EXTENSION)
OUTPUT = pa.schema(
    [
        ("run", pa.string()),
        ("property", pa.string()),
        ("processes", pa.list_(pa.string())),
        ("messages", pa.list_(pa.string())),
        ("detail", pa.string()),
        ("rows", pa.list_(pa.struct([("process", pa.string()), ("seq", pa.int64())]))),
        ("missing", pa.list_(pa.string())),
        ("rank", pa.int64()),
    ]
)


@dataclass
class Run:
    """One run with messages and processes as numbers: a message is its row, a process its place in `processes`."""

    messages: pa.ChunkedArray
    processes: list[str]
    orders: list[Ints]  # of each process, the messages in the order of their first deliveries
    delivered: tuple[Ints, Ints, Ints]  # (message, process, position) of each first delivery
    delivered_seq: Ints
    addressed: tuple[Ints, Ints]  # (message, process)
    sent: tuple[Ints, Ints, Ints]  # (message, process, seq) of messages with a sender

    def name(self, message: int) -> str:
        return str(self.messages[int(message)].as_py())


def disorder(table: pa.Table) -> pa.Table:
    """The violations among these messages of one run, of those properties that are to be judged."""
    run, judged = _numbered(table), table["judged"][0].as_py()
    found: list[dict[str, Any]] = []
    orders = [promise for promise in (Promise.ACYCLIC_ORDER, Promise.REAL_TIME_ORDER) if promise in judged]
    if orders:
        # What was asked for as causal has no place in the order; what has no name is no message.
        agreed = pc.and_(pc.invert(table["causal"]), pc.not_equal(table["message"], ""))
        ordered = table if pc.all(agreed).as_py() else table.filter(agreed)
        numbered = run if ordered is table else _numbered(ordered)
        found = cycles(numbered, orders)
        if Promise.REAL_TIME_ORDER in orders and not found and ordered.num_rows:
            found = inversions_of_time(numbered, ordered)
    for promise in (Promise.CAUSAL, Promise.CAUSAL_EXTENSION):
        if promise in judged:
            found += inversions(run, promise)
    return _rows(table, found)


def view_order(table: pa.Table) -> pa.Table:
    """The same among those that go on together from one view; called by Spark once for each such company."""
    ordered = table.sort_by([("process", "ascending"), ("place", "ascending")])
    processes, messages = (ordered[name].combine_chunks().dictionary_encode() for name in ("process", "message"))
    at, message = _ints(processes.indices), _ints(messages.indices)
    starts = np.flatnonzero(np.diff(at, prepend=-1)).tolist()
    orders = [message[a:b].tolist() for a, b in pairwise([*starts, len(at)])]
    stuck = merge(orders, np.bincount(message).tolist())
    if not stuck:
        return _rows(table, [])
    cycle = shortest_cycle(orders, stuck)
    names = [messages.dictionary[m].as_py() for m, _ in cycle]
    who = [processes.dictionary[at[starts[p]]].as_py() for _, p in cycle]
    detail = f"in view {table['view'][0].as_py()}, {_told(names, who)}"
    return _rows(table, [_row(Promise.VIEW_ORDER.value, sorted(set(who)), names, detail, 0)])


def _rows(table: pa.Table, found: list[dict[str, Any]]) -> pa.Table:
    name = table["run"][0].as_py()
    return pa.Table.from_pylist([{"run": name, **row} for row in found], schema=OUTPUT)


def _ints(values: Any) -> Ints:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)


def _flat(lists: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    one = lists.combine_chunks()
    return _ints(pc.list_parent_indices(one)), pc.list_flatten(one)


def _numbered(table: pa.Table) -> Run:
    delivered_m, delivered_at = _flat(table["delivered_at"])
    addressed_m, addressed_at = _flat(table["addressed"])
    has_sender = table["sender"].is_valid()
    sent_m = np.flatnonzero(has_sender.to_numpy())
    senders = table["sender"].filter(has_sender).combine_chunks()
    names = sorted(set().union(*(pc.unique(a).to_pylist() for a in (delivered_at, addressed_at, senders))))
    place = pa.array(names, pa.string())
    seq = _ints(_flat(table["delivered_seq"])[1])
    at = _ints(pc.index_in(delivered_at, place))
    by_process = np.lexsort((seq, at))
    m, p, s = delivered_m[by_process], at[by_process], seq[by_process]
    _, firsts = np.unique(p * table.num_rows + m, return_index=True)
    firsts.sort()  # a message delivered twice counts where it was delivered first: the rest is integrity's affair
    m, p, s = m[firsts], p[firsts], s[firsts]
    starts = np.searchsorted(p, np.arange(len(names) + 1))
    return Run(
        messages=table["message"],
        processes=names,
        orders=[m[a:b] for a, b in pairwise(starts.tolist())],
        delivered=(m, p, np.arange(len(m)) - starts[p]),
        delivered_seq=s,
        addressed=(addressed_m, _ints(pc.index_in(addressed_at, place))),
        sent=(sent_m, _ints(pc.index_in(senders, place)), _ints(table["sender_seq"].filter(has_sender))),
    )


# ---- acyclic_order


def cycles(run: Run, promises: Sequence[Promise] = (Promise.ACYCLIC_ORDER,)) -> list[dict[str, Any]]:
    """Merge all processes' sequences into one order; where that gets stuck, there is a cycle: it breaks all these."""
    counts = np.bincount(run.delivered[0], minlength=len(run.messages))
    # A cycle enters and leaves each sequence through messages that others have too: what one process alone delivers
    # can be left out of it.
    orders = [order[counts[order] > 1].tolist() for order in run.orders]
    stuck = merge(orders, counts.tolist())
    if not stuck:
        return []
    row = _cycle_row(run, shortest_cycle(orders, stuck))
    return [{**row, "property": promise.value} for promise in promises]


def _cycle_row(run: Run, cycle: Cycle) -> dict[str, Any]:
    names = [run.name(message) for message, _ in cycle]
    who = [run.processes[process] for _, process in cycle]
    following = [message for message, _ in (*cycle[1:], cycle[0])]
    pairs = [(m, p) for (one, p), other in zip(cycle, following, strict=True) for m in (one, other)]
    rows = [_delivery(run, m, p) for m, p in pairs]
    return _row(Promise.ACYCLIC_ORDER.value, sorted(set(who)), names, _told(names, who), len(names), rows)


def _told(names: list[str], who: list[str]) -> str:
    following = [*names[1:], names[0]]
    return ", ".join(f"{p} delivers {m} before {n}" for p, m, n in zip(who, names, following, strict=True))


def _delivery(run: Run, message: int, process: int) -> RowPlace:
    """Where a process delivers a message first."""
    m, p, _ = run.delivered
    return {"process": run.processes[process], "seq": int(run.delivered_seq[(m == message) & (p == process)][0])}


def _row(
    name: str, processes: list[str], messages: list[str], detail: str, rank: int, rows: list[RowPlace] | None = None
) -> dict[str, Any]:
    found = {"property": name, "processes": processes, "messages": messages, "detail": detail, "rank": rank}
    return {**found, "rows": rows or [], "missing": []}


# ---- real_time_order


def inversions_of_time(run: Run, table: pa.Table) -> list[dict[str, Any]]:
    """What was multicast after the delivery of something that comes after it, in an order without cycles."""
    first = table["first_delivery"].combine_chunks()
    delivered_ns = _ints(pc.fill_null(pc.struct_field(first, "time_ns"), np.iinfo(np.int64).max))
    multicast_ns = _ints(pc.fill_null(table["multicast_ns"], np.iinfo(np.int64).min))
    since = earliest(delivered_ns, run.orders)
    late = too_late(multicast_ns, since, table["clock_error_ns"][0].as_py())[:WITNESSES_MAX].tolist()
    return [_late_row(run, first, delivered_ns, message, int(since[message])) for message in late]


def _late_row(run: Run, first: pa.Array, delivered_ns: Ints, message: int, since: int) -> dict[str, Any]:
    way, end = shortest_way(message, delivered_ns, since, run.orders)
    place = first[end].as_py()
    (sender,) = _multicast(run, message)
    detail = f"{place['process']} delivers {run.name(end)} before {sender['process']} multicasts {run.name(message)}"
    steps = list(zip(way, [*(m for m, _ in way[1:]), end], strict=False))  # none, where it is the message itself
    if steps:
        told = [f"{run.processes[p]} delivers {run.name(m)} before {run.name(n)}" for (m, p), n in steps]
        detail += f", but {', '.join(told)}"
    rows = [sender, {"process": place["process"], "seq": place["seq"]}]
    rows += [_delivery(run, m, p) for (one, p), other in steps for m in (one, other)]
    names = [run.name(m) for m, _ in way] + [run.name(end)]
    who = sorted({place["process"], *(run.processes[p] for _, p in way)})
    return _row(Promise.REAL_TIME_ORDER.value, who, names, detail, len(way), rows)


# ---- causal


def inversions(run: Run, promise: Promise) -> list[dict[str, Any]]:
    """For each message and process, the last position there of anything that precedes the message.

    `own[m, p]` is the position of m at p, NEVER if p is addressed and does not deliver it. `past[m, p]` is the maximum
    of `own` over all that precede m. A delivery is wrong exactly if something of its past has a later position.
    Positions differ, so a message that precedes itself (only a forged trace has such) does not accuse itself.
    Where only what is delivered counts, the rest is as if it were not addressed.
    """
    shape = (len(run.messages), len(run.processes))
    own = np.full(shape, UNADDRESSED, dtype=np.int64)
    own[run.addressed] = NEVER
    m, p, position = run.delivered
    addressed = own[m, p] == NEVER
    own[m[addressed], p[addressed]] = position[addressed]
    if promise is Promise.CAUSAL_EXTENSION:
        own[own == NEVER] = UNADDRESSED
    past = _pasts(run, own)
    delivered = (own != UNADDRESSED) & (own != NEVER)
    wrong = np.argwhere(delivered & (past > own))
    wrong = wrong[np.argsort(own[wrong[:, 0], wrong[:, 1]], kind="stable")[:WITNESSES_MAX]]
    return [_causal_row(run, promise, own, int(past[m, p]), int(m), int(p)) for m, p in wrong]


def _history(run: Run) -> list[list[tuple[int, bool]]]:
    """Of each process, its deliveries and multicasts as (message, is multicast), in order."""
    m, p, _ = run.delivered
    sent_m, sent_p, sent_seq = run.sent
    message, process = np.concatenate([m, sent_m]), np.concatenate([p, sent_p])
    seq, sent = np.concatenate([run.delivered_seq, sent_seq]), np.arange(len(m) + len(sent_m)) >= len(m)
    order = np.lexsort((seq, process))
    starts = np.searchsorted(process[order], np.arange(len(run.processes) + 1))
    steps = list(zip(message[order].tolist(), sent[order].tolist(), strict=True))
    return [steps[a:b] for a, b in pairwise(starts.tolist())]


def _pasts(run: Run, own: Ints) -> Ints:
    """Walk every process's history, a delivery after its message's multicast, carrying what is known to precede."""
    past = np.full_like(own, UNADDRESSED)
    histories = _history(run)
    if not _walk(run, histories, own, past, patient=True):
        # Only a forged trace delivers what is multicast causally later. The maxima only grow, so walking again until
        # nothing changes gives the transitive closure there too.
        before = None
        while before is None or not np.array_equal(before, past):
            before = past.copy()
            _walk(run, histories, own, past, patient=False)
    return past


def _walk(run: Run, histories: list[list[tuple[int, bool]]], own: Ints, past: Ints, *, patient: bool) -> bool:
    """One walk; a patient one waits at a delivery until the message's past is known, and tells whether all were."""
    known = np.ones(len(own), dtype=bool)
    known[run.sent[0]] = not patient
    tops = np.full((len(histories), own.shape[1]), UNADDRESSED, dtype=np.int64)
    at = [0] * len(histories)
    waiting: dict[int, list[int]] = {}
    todo = list(range(len(histories)))
    while todo:
        p = todo.pop()
        history, top = histories[p], tops[p]
        while at[p] < len(history):
            message, sent = history[at[p]]
            if sent:
                np.maximum(past[message], top, out=past[message])
                known[message] = True
                todo += waiting.pop(message, [])
            elif not known[message]:
                waiting.setdefault(message, []).append(p)
                break
            else:
                np.maximum(top, past[message], out=top)
            np.maximum(top, own[message], out=top)
            at[p] += 1
    return not waiting


def _causal_row(run: Run, promise: Promise, own: Ints, latest: int, message: int, process: int) -> dict[str, Any]:
    missed = latest == NEVER
    earlier = _missing_before(run, own, message, process) if missed else int(run.orders[process][latest])
    how = "without" if missed else "before"
    names = [run.name(earlier), run.name(message)]
    where = run.processes[process]
    detail = f"{where} delivers {names[1]} {how} {names[0]}, which precedes it"
    rows = [*_multicast(run, earlier), *_multicast(run, message), _delivery(run, message, process)]
    rows += [] if missed else [_delivery(run, earlier, process)]
    return _row(promise.value, [where], names, detail, int(own[message, process]), rows)


def _multicast(run: Run, message: int) -> list[RowPlace]:
    m, p, seq = run.sent
    return [{"process": run.processes[p[i]], "seq": int(seq[i])} for i in np.flatnonzero(m == message)]


def _missing_before(run: Run, own: Ints, message: int, process: int) -> int:
    """Some message that precedes this one and that the process never delivers, found by walking backwards."""
    histories = _history(run)
    sent_at = dict(zip(run.sent[0].tolist(), run.sent[1].tolist(), strict=True))
    todo, seen = deque([message]), {message}
    while todo:
        later = todo.popleft()
        if later not in sent_at:
            continue
        history = histories[sent_at[later]]
        for earlier, _ in history[: history.index((later, True))]:
            if earlier in seen:
                continue
            if own[earlier, process] == NEVER:
                return earlier
            seen.add(earlier)
            todo.append(earlier)
    raise AssertionError("the past of a message has what its maximum came from")
