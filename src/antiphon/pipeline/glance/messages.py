"""Messages: who delivered each, who touched it, whom it was addressed to; and whether that is plainly in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
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
    number_of,
    pairs,
    pieces,
    ranked,
    united,
    whole,
)
from antiphon.pipeline.glance.cells import addresses
from antiphon.pipeline.glance.found import HOLES, SUSPECTS, TALLIES
from antiphon.pipeline.glance.history import SENT, block_buckets
from antiphon.pipeline.glance.run_index import RunIndex, TracePart

COLUMNS = [
    *("run", "process", "seq", "kind", "message", "destinations", "requests", "peers", "about", "layer", "order_key"),
]
MESSAGES = "messages"
SUMS = ("multicasts", "causals", "misnamed", "odd", "deliveries", "keyless", "clashes", "strangers")
UNIONS = ("sender_bits", "addressed", "delivered", "touched")
LEAST, MOST = ("to_least", "seq", "fewest"), ("to_most", "most")
_members = attrgetter("members")


# ---- in each part of the trace


def glance_at_messages(part: TracePart, buckets: int) -> Iterator[pa.RecordBatch]:
    """One narrow row per message that the part says something of."""
    frames, outcomes = _Frames(part), _Outcomes(part)
    both = pa.chunked_array([frames.message, outcomes.message]).unify_dictionaries()
    codes, names = coded(both)
    run = np.concatenate([part.run[frames.row], part.run[outcomes.row]])
    which, run_of, name_of = pairs(run, codes, max(len(names), 1))
    about, of_outcomes = which[: len(frames.row)], which[len(frames.row) :]
    n = len(run_of)
    origin = _origins(names, part.processes)[name_of]
    table = {
        "run": named(pa.array(list(part.index.names)), run_of),
        "message": named(names, name_of),
        **outcomes.by_message(n, of_outcomes, origin),
        "touched": united(n, about, frames.bits),
        "strangers": count(n, about[frames.strange(origin[about])]),
    }
    bucket = (hashed(names)[name_of] + run_of) % buckets
    yield from pieces(MESSAGES, pa.table(table), bucket)
    chatter = {"run": named(pa.array(list(part.index.names)), frames.about_none), "chatter": frames.about_none >= 0}
    yield from pieces(TALLIES, pa.table(chatter), np.zeros(len(frames.about_none), dtype=np.int64))


def _origins(names: pa.Array, processes: pa.Array) -> Ints:
    """The number of the process that each message's name says is its sender."""
    if not len(names):
        return np.zeros(0, dtype=np.int64)
    first = pc.list_element(pc.split_pattern(names, ":", max_splits=1), 0)
    return ints(pc.index_in(first, processes), -3)


class _Frames:
    """What is sent and received, in runs in which genuineness is judged: an entry per frame and message."""

    def __init__(self, part: TracePart) -> None:
        table = part.table
        judged = part.index.flags("genuine", part.run).astype(bool) if len(part.run) else part.run.astype(bool)
        framed = part.of("send", "receive") & judged
        row, message = lists(table.column("about"))
        if not framed[row].all():
            wanted = framed[row]
            row, message = row[wanted], message.filter(pa.array(wanted))
        empty = np.ones(len(framed), dtype=bool)
        empty[row] = False
        idle = framed & empty & part.of("send")  # a receiver need not know what a frame is about
        nameless = is_null(message)
        self.about_none = np.unique(part.run[np.concatenate([np.flatnonzero(idle), row[nameless]])])
        if nameless.any():
            row, message = row[~nameless], message.filter(pa.array(~nameless))
        self.row, self.message = row, message
        of_rows, self._outsider = self._ends(part, framed)
        self.bits = of_rows[row]

    def _ends(self, part: TracePart, framed: Bools) -> tuple[Ints, Ints]:
        """Of each frame: the bits of those at its ends, and who has none: -1 nobody, -2 several."""
        rows = np.arange(len(part.run))
        bits = part.numbers(_members, part.processes, rows, part.process)
        peer_row, peer = lists(part.table.column("peers"))
        wanted = framed[peer_row] & ~is_null(peer)
        if not wanted.all():
            peer_row, peer = peer_row[wanted], peer.filter(pa.array(wanted))
        code, names = coded(peer)
        peer_bits = part.numbers(_members, names, peer_row, code)
        as_process = ints(pc.index_in(names, part.processes), -4) if len(names) else code
        lone = np.flatnonzero(framed & (bits == 0))
        outside = peer_bits == 0
        at = np.concatenate([lone, peer_row[outside]])
        who = np.concatenate([part.process[lone], _strangers(as_process, code)[outside]])
        first, last = (f(len(rows), at, who) for f in (least, most))
        outsider = np.where(first == LARGEST, -1, np.where(first == last, first, -2))
        np.bitwise_or.at(bits, peer_row, peer_bits)
        return bits, outsider

    def strange(self, origin: Ints) -> Bools:
        """Whether somebody is at its ends who has no bit and is not the one that its message's name tells."""
        outsider = self._outsider[self.row]
        found: Bools = (outsider != -1) & (outsider != origin)
        return found


def _strangers(as_process: Ints, code: Ints) -> Ints:
    """Peers as numbers of processes; those that are none in this part keep apart from each other."""
    found = as_process[code] if len(code) else code
    return np.where(found == -4, -10 - code, found)


class _Outcomes:
    """Multicasts and deliveries."""

    def __init__(self, part: TracePart) -> None:
        table = part.table
        multicast, deliver = part.of("multicast"), part.of("deliver")
        nameless = is_null(table.column("message"))
        # A nameless delivery is one of a message that nobody multicast; a nameless multicast is none.
        self.part, self.row = part, np.flatnonzero(deliver | (multicast & ~nameless))
        message = whole(table.column("message").take(pa.array(self.row)))
        # To fill nulls takes long, also where there are none.
        self.message = message.fill_null("") if message.null_count else message
        self.deliver, self.multicast = deliver[self.row], multicast[self.row]
        self.process = part.process[self.row]

    def by_message(self, n: int, at: Ints, origin: Ints) -> dict[str, Any]:
        part, table, d, m = self.part, self.part.table, self.deliver, self.multicast
        bits = part.numbers(_members, part.processes, self.row, self.process)
        to, addressed, odd = addresses(part, self.row)
        key, without, clashes, keys = self._keys(n, at)
        layer, layers = coded(table.column("layer").take(pa.array(self.row)))
        requests = ints(pc.list_value_length(table.column("requests").take(pa.array(self.row))))
        seq = ints(table.column("seq"))[self.row]
        return {
            "multicasts": count(n, at[m]),
            "causals": count(n, at[m & (layer == number_of(layers, "causal"))]),
            "misnamed": count(n, at[m & (self.process != origin[at])]),
            "odd": count(n, at[odd]),
            "deliveries": count(n, at[d]),
            "keyless": without,
            "clashes": clashes,
            "key": named(keys, key),
            "sender_bits": united(n, at[m], bits[m]),
            "addressed": united(n, at[m], addressed[m]),
            "delivered": united(n, at[d], bits[d]),
            "to_least": least(n, at, to),
            "to_most": most(n, at, to),
            "seq": least(n, at[m], seq[m]),
            "fewest": least(n, at[d], requests[d]),
            "most": most(n, at[d], requests[d]),
        }

    def _keys(self, n: int, at: Ints) -> tuple[Ints, Ints, Ints, pa.Array]:
        """Of each message: its key, how many deliveries have none, whether they have several; and the keys."""
        rows = self.row[self.deliver]
        code, keys = coded(self.part.table.column("order_key").take(pa.array(rows)))
        one = at[self.deliver]
        has = code >= 0
        first, last = least(n, one[has], code[has]), most(n, one[has], code[has])
        key = np.where(first == LARGEST, -1, first)
        return key, count(n, one[~has]), ((first != LARGEST) & (first != last)).astype(np.int64), keys


# ---- where all of a message has come together


@dataclass
class Summed:
    """All that is said of each message."""

    run: Ints  # its place in the index
    message: pa.Array
    key: Ints  # its place among the keys, -1 where it has none
    keys: pa.Array
    keys_of: Ints  # how many different ones it has
    sums: dict[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        return self.sums[name]


def summed(table: pa.Table, index: RunIndex) -> Summed:
    code, names = coded(table.column("message"))
    run, runs = coded(table.column("run"))
    place = index.runs(runs)[run]
    at, run_of, name_of = pairs(place, code, max(len(names), 1))
    n = len(run_of)
    columns = {name: ints(table.column(name)) for name in (*SUMS, *UNIONS, *LEAST, *MOST)}
    found = {name: np.bincount(at, columns[name], minlength=n).astype(np.int64) for name in SUMS}
    found |= {name: united(n, at, columns[name]) for name in UNIONS}
    found |= {name: least(n, at, columns[name]) for name in LEAST}
    found |= {name: most(n, at, columns[name]) for name in MOST}
    key, keys = coded(table.column("key"))
    has = key >= 0
    first, last = least(n, at[has], key[has]), most(n, at[has], key[has])
    keys_of = np.where(first == LARGEST, 0, np.where(first == last, 1, 2)) + found["clashes"]
    return Summed(run_of, named(names, name_of), np.where(first == LARGEST, -1, first), keys, keys_of, found)


def judge_messages(table: pa.Table, index: RunIndex, buckets: int) -> Iterator[pa.RecordBatch]:
    """Doubts about messages, by run; the suspects; and the multicasts with their keys, for the senders' history."""
    m = summed(table, index)
    delivered, multicasts = m["deliveries"] > 0, m["multicasts"]
    once_each = m["deliveries"] == np.bitwise_count(m["delivered"])  # no outsider, and no member twice
    suspect = ~_plain(m, index, once_each)
    keyless = (m["keyless"] > 0) & (m.keys_of == 0)
    one_key = (m.keys_of == 1) & (m["keyless"] == 0)
    key = np.where(one_key, m.key, -1)
    sent_once = (multicasts == 1) & (m["misnamed"] == 0)
    causal = m["causals"] > 0
    clear = (m["odd"] == 0) & (multicasts <= 1) & (_minus(m["delivered"], m["addressed"]) == 0) & once_each
    even = (m["fewest"] == m["most"]) & once_each & delivered
    ordered = delivered & ~causal
    runs = list(index.names)
    at, n = m.run, len(index.names)
    flags = {
        "suspect": suspect,
        "keyless": keyless,
        "uneven": delivered & ~even,
        "broken": (ordered & (key < 0)) | (multicasts > 1),
        "unclear": ordered & ~clear,
        "causal": causal | ((multicasts > 0) & ~sent_once),
    }
    used = np.unique(at)
    tallies: dict[str, Any] = {name: (count(n, at[flag]) > 0)[used] for name, flag in flags.items()}
    admitted = np.where(even, m["most"], 0)
    tallies["admitted"] = np.bincount(at, admitted, minlength=n).astype(np.int64)[used]
    zero = np.zeros(len(used), dtype=np.int64)
    yield from pieces(TALLIES, pa.table({"run": [runs[r] for r in used], **tallies}), zero)
    accused = np.flatnonzero(suspect)
    named_ = {"run": [runs[r] for r in at[accused]], "message": m.message.take(pa.array(accused))}
    yield from pieces(SUSPECTS, pa.table(named_), at[accused] % buckets)
    yield from _sent(m, index, sent_once, key, buckets)
    yield from _holes(m, index, key, np.flatnonzero((key >= 0) & ~causal & clear), buckets)


def _minus(these: Ints, those: Ints) -> Ints:
    return these & ~those


def _plain(m: Summed, index: RunIndex, once_each: Bools) -> Bools:
    """Enough for integrity, the agreements, validity and genuineness to hold of the message; not necessary."""
    one_sender = (m["multicasts"] == 1) & (m["misnamed"] == 0) & (m["odd"] == 0)
    same_groups = m["to_least"] == m["to_most"]
    only_addressed = _minus(m["delivered"], m["addressed"]) == 0
    missing = _minus(m["addressed"], m["delivered"]) & ~index.flags("faulty", m.run)
    concerned = m["addressed"] | m["sender_bits"]
    genuine = (_minus(m["touched"], concerned) == 0) & (m["strangers"] == 0)
    due = index.flags("must", m.run).astype(bool)
    found: Bools = one_sender & same_groups & only_addressed & once_each & ((missing == 0) | ~due) & genuine
    return found


def _sent(m: Summed, index: RunIndex, sent_once: Bools, key: Ints, buckets: int) -> Iterator[pa.RecordBatch]:
    rows = np.flatnonzero(sent_once)
    if not len(rows):
        return
    sender = pc.list_element(pc.split_pattern(m.message.take(pa.array(rows)), ":", max_splits=1), 0)
    run = named(pa.array(list(index.names)), m.run[rows])
    seq = m["seq"][rows]
    table = {"run": run, "process": sender, "seq": seq, "key": named(m.keys, key[rows])}
    coded_table = pa.table(table)
    yield from pieces(SENT, coded_table, block_buckets(coded_table, buckets))


def _holes(m: Summed, index: RunIndex, key: Ints, rows: Ints, buckets: int) -> Iterator[pa.RecordBatch]:
    """The smallest key of what each member was addressed by and did not deliver."""
    holes = _minus(m["addressed"], m["delivered"])[rows]
    rows, holes = rows[holes != 0], holes[holes != 0]
    if not len(rows):
        return
    places, in_order = ranked(m.keys)
    rank, runs = places[key[rows]], list(index.names)
    found = []
    for run in np.unique(m.run[rows]).tolist():
        of_run = m.run[rows] == run
        for member, bit in index.layouts[index.layout[run]].members.items():
            there = of_run & ((holes & bit) != 0)
            if there.any():
                found.append((runs[run], member, in_order[int(rank[there].min())].as_py()))
    names, members, keys = zip(*found, strict=True)
    table = pa.table({"run": names, "process": members, "key": pa.array(keys, pa.binary())})
    yield from pieces(HOLES, table, np.zeros(len(found), dtype=np.int64))
