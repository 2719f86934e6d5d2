"""Small random damage to a run, to compare the fast checks with the oracle on runs nobody thought of."""

from __future__ import annotations

import random
from collections.abc import Callable

from antiphon.trace import EventKind, RequestCell, Row
from forging.honest import Tape

Mutation = Callable[[Tape, random.Random], None]


def _pick(t: Tape, r: random.Random, *kinds: str) -> tuple[list[Row], int]:
    """A random row of these kinds, as its process's rows and the index among them."""
    places = [(rows, i) for _, rows in sorted(t.rows.items()) for i, row in enumerate(rows) if row.kind in kinds]
    return r.choice(places) if places else ([Row("c1", 0, 0, "crash")], 0)


def _process(t: Tape, r: random.Random) -> str:
    return r.choice(sorted({*t.rows, *(p for members in t.facts.groups.values() for p in members)}))


def _copy(t: Tape, r: random.Random, row: Row) -> None:
    """Let the same happen somewhere at another process."""
    process = _process(t, r)
    rows = t.rows.setdefault(process, [])
    rows.insert(r.randrange(len(rows) + 1), row._replace(process=process))


def lose_a_delivery(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    del rows[i]


def lose_a_message(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    lost = rows[i].message or ""
    for process in list(t.rows):
        t.drop(process, lost)


def cut_a_process_short(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows[i:] = [row for row in rows[i:] if row.kind != "deliver"]


def move_an_act(t: Tape, r: random.Random) -> None:
    """To any place in its process: deliveries change their order, multicasts come before their causes."""
    rows, i = _pick(t, r, "deliver", "multicast")
    rows.insert(r.randrange(len(rows)), rows.pop(i))


def swap_in_a_group(t: Tape, r: random.Random) -> None:
    members = t.facts.groups[r.choice(sorted(t.facts.groups))]
    order = t.delivered(members[0])
    if len(order) > 1:
        x, y = r.sample(order, 2)
        for p in members:
            if {x, y} <= set(t.delivered(p)):
                t.swap(p, x, y)


def swap_at_one(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    order = t.delivered(rows[i].process)
    if len(order) > 1:
        t.swap(rows[i].process, *r.sample(order, 2))


def repeat_an_act(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver", "multicast")
    rows.insert(r.randrange(len(rows) + 1), rows[i])


def multicast_elsewhere(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "multicast")
    _copy(t, r, rows[i])


def erase_a_multicast(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "multicast")
    del rows[i]


def deliver_elsewhere(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    _copy(t, r, rows[i])


def change_destinations(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver", "multicast")
    groups = sorted(t.facts.groups)
    rows[i] = rows[i]._replace(destinations=tuple(r.sample(groups, r.randint(0, len(groups)))))


def change_the_message(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows[i] = rows[i]._replace(message=r.choice([*sorted(t.destinations), "ghost:1", None]))


def change_the_subjects(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "send", "receive")
    names = [*sorted(t.destinations), "ghost:1"]
    rows[i] = rows[i]._replace(about=tuple(r.sample(names, r.randint(0, min(3, len(names))))))


def change_the_peers(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "send", "receive")
    rows[i] = rows[i]._replace(peers=tuple(_process(t, r) for _ in range(r.randint(0, 3))))


def untag(t: Tape, r: random.Random) -> None:
    t.event(_process(t, r), EventKind.SEND, peers=(_process(t, r),), about=r.choice([None, ()]))


def _pick_request(t: Tape, r: random.Random, *kinds: str) -> tuple[list[Row], int, int]:
    """A random request of rows of these kinds: rows, index of the row, index of the request."""
    places = [
        (rows, i, k)
        for _, rows in sorted(t.rows.items())
        for i, row in enumerate(rows)
        if row.kind in kinds
        for k in range(len(row.requests or ()))
    ]
    return r.choice(places) if places else ([Row("c1", 0, 0, "crash", requests=(RequestCell("c1", 0, 1, 0),))], 0, 0)


def lose_a_request(t: Tape, r: random.Random) -> None:
    rows, i, k = _pick_request(t, r, "multicast", "deliver", "deliver", "deliver")
    cells = rows[i].requests or ()
    rows[i] = rows[i]._replace(requests=cells[:k] + cells[k + 1 :])


def change_a_request(t: Tape, r: random.Random) -> None:
    rows, i, k = _pick_request(t, r, "multicast", "deliver", "receipt")
    cells = list(rows[i].requests or ())
    change = r.choice(
        [
            {"digest": cells[k].digest + 1},
            {"payloads": r.randint(1, 3)},
            {"first": max(0, cells[k].first + r.randint(-1, 2))},
            {"client": r.choice(["alice", "bob", "zoe", rows[i].process])},
        ]
    )
    cells[k] = cells[k]._replace(**change)  # type: ignore[arg-type]
    rows[i] = rows[i]._replace(requests=tuple(cells))


def repeat_a_request(t: Tape, r: random.Random) -> None:
    """In another row, where it may be another set's or never have been multicast to it."""
    rows, i, k = _pick_request(t, r, "multicast", "deliver", "receipt")
    cell = (rows[i].requests or ())[k]
    others, j = _pick(t, r, "multicast", "deliver", "deliver")
    cells = list(others[j].requests or ())
    cells.insert(r.randint(0, len(cells)), cell)
    others[j] = others[j]._replace(requests=tuple(cells))


def shuffle_requests(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    cells = list(rows[i].requests or ())
    r.shuffle(cells)
    rows[i] = rows[i]._replace(requests=tuple(cells))


def acknowledge(t: Tape, r: random.Random) -> None:
    """A request that there is, at any process, for its own set or for another."""
    rows, i, k = _pick_request(t, r, "multicast", "deliver")
    cell = (rows[i].requests or ())[k]
    groups = sorted(t.facts.groups)
    destinations = r.choice([rows[i].destinations or (), tuple(r.sample(groups, r.randint(1, len(groups))))])
    t.receipt(
        _process(t, r),
        cell,
        *destinations,
        kind=r.choice([None, "majority", "member"]),
        turn=r.choice([None, None, 1, 2]),
    )


def count_turns(t: Tape, r: random.Random) -> None:
    """Members say of some requests in which turn their clients sent them."""
    for _, rows in sorted(t.rows.items()):
        for i, row in enumerate(rows):
            if row.kind == "receipt" and r.random() < 0.4:
                rows[i] = row._replace(position=r.choice([1, 2]))


def lose_rows(t: Tape, r: random.Random) -> None:
    """Some rows of a process are missing, and the facts say so."""
    process = _process(t, r)
    t.facts.incomplete.append(process)
    rows = t.rows.get(process, [])
    start, end = sorted(r.randint(0, len(rows)) for _ in range(2))
    del rows[start:end]


def change_the_service(t: Tape, r: random.Random) -> None:
    """Of some messages: as if their senders had not minded the order."""
    for _ in range(r.choice((1, 3, 10))):
        rows, i = _pick(t, r, "multicast")
        rows[i] = rows[i]._replace(layer=r.choice(("causal", "causal", "agreed")))


def drop_keys(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows[i] = rows[i]._replace(order_key=None)


def change_who_is_faulty(t: Tape, r: random.Random) -> None:
    process = _process(t, r)
    faulty = t.facts.faulty
    t.facts.faulty = [p for p in faulty if p != process] if process in faulty else [*faulty, process]


def call_it_consensus(t: Tape, r: random.Random) -> None:
    """All frames of one process."""
    rows, _ = _pick(t, r, "send", "receive")
    layer = r.choice(["consensus", "forge/consensus"])
    rows[:] = [row._replace(layer=layer) if row.kind in ("send", "receive") else row for row in rows]


def do_not_drain(t: Tape, r: random.Random) -> None:
    t.facts.drained = False


def skew_a_clock(t: Tape, r: random.Random) -> None:
    process = _process(t, r)
    shift = r.randint(-(10**6), 10**6)
    t.rows[process] = [row._replace(time_ns=row.time_ns + shift) for row in t.rows.get(process, ())]


def change_the_clock_error(t: Tape, r: random.Random) -> None:
    """What the facts say of it: nothing, nothing that matters, or about as much as a few events take."""
    t.facts.clock_error_ns = r.choice((None, 10**9, 1_000, 3_000, 10_000))


def announce_a_gap(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows.insert(i, Row(rows[i].process, 0, rows[i].time_ns, "gap"))


def lose_a_delivery_and_say_so(t: Tape, r: random.Random) -> None:
    rows, i = _pick(t, r, "deliver")
    rows[i] = Row(rows[i].process, 0, rows[i].time_ns, "gap")


def begin_in_a_view(t: Tape, r: random.Random) -> None:
    """All, or all but one, are in one view from the beginning."""
    members = [p for group in t.facts.groups.values() for p in group]
    named = tuple(members)
    if r.random() < 0.1:
        members.remove(r.choice(members))
    for process in members:
        t.rows.setdefault(process, []).insert(0, Row(process, 0, 0, "view", "1@v", peers=named))


def change_the_view(t: Tape, r: random.Random) -> None:
    """All or some members are in one view, or in two, from somewhere on."""
    if not any(row.kind == "view" for rows in t.rows.values() for row in rows):
        begin_in_a_view(t, r)
    members = [p for group in t.facts.groups.values() for p in group]
    moving = [p for p in members if r.random() < r.choice([1, 0.7])]
    sides = [tuple(moving)] if r.random() < 0.5 else [tuple(moving[::2]), tuple(moving[1::2])]
    for k, side in enumerate(sides):
        for process in side:
            rows = t.rows.setdefault(process, [])
            at = len(rows) if r.random() < 0.8 else r.randint(min(1, len(rows)), len(rows))
            rows.insert(at, Row(process, 0, t.now, "view", f"2@{k}", peers=side))


def deliver_a_view(t: Tape, r: random.Random) -> None:
    """A view with a name that others may have, too."""
    rows, i = _pick(t, r, "deliver", "view")
    name = r.choice([None, "1@v", "2@0", "2@1", "3@v"])
    rows.insert(i, Row(rows[i].process, 0, rows[i].time_ns, "view", name, peers=(rows[i].process,)))


def enter_the_graphs(t: Tape, r: random.Random) -> None:
    """A message enters the graphs of all members; some of them never deliver it."""
    rows, i = _pick(t, r, "deliver")
    process, message = rows[i].process, rows[i].message or ""
    for member in (p for group in t.facts.groups.values() for p in group):
        t.event(member, EventKind.ENTER, message=message, peers=(member,))
        if member == process or r.random() < 0.2:
            t.drop(member, message)


def replace_a_member(t: Tape, r: random.Random) -> None:
    """Somebody new goes on behind any member, and delivers all that this one delivered since; or says so where the
    member is new itself, or has delivered nothing."""
    group = r.choice(sorted(t.facts.groups))
    members = t.facts.groups[group]
    donor = r.choice(members if r.random() < 0.9 else sorted(t.rows))
    newcomer = f"{group}.{max(int(p.rpartition('.')[2]) for p in members) + 1}"
    t.join(newcomer, group)
    mine = [row for row in t.rows.get(donor, []) if row.kind == "deliver" and row.message]
    last = r.choice(mine) if mine and r.random() < 0.8 else None
    if last is None or t.rows[donor][0].kind == "adopt":
        t.event(newcomer, EventKind.ADOPT, message=mine[-1].message if mine else None, peers=(donor,), position=0)
        return
    t.adopt(newcomer, donor, last.message)
    later = t.rows[donor][t.rows[donor].index(last) + 1 :]
    t.rows[newcomer] += [row._replace(process=newcomer) for row in later if row.kind in ("deliver", "gap")]


def change_an_adoption(t: Tape, r: random.Random) -> None:
    """Its donor, its last message or its position; or it is there twice, or not where it should be."""
    rows, i = _pick(t, r, "adopt")
    donor, message = _process(t, r), r.choice([*sorted(t.destinations), "ghost:1", None])
    change = r.choice([{"peers": (donor,)}, {"peers": r.choice([(), None])}, {"message": message}, {"position": 1}, {}])
    if change:
        rows[i] = rows[i]._replace(**change)  # type: ignore[arg-type]
    elif r.random() < 0.5:
        rows.insert(r.randrange(len(rows) + 1), rows[i])
    else:
        rows.insert(r.randrange(len(rows)), rows.pop(i))


MUTATIONS: tuple[Mutation, ...] = (
    lose_a_delivery,
    lose_a_message,
    cut_a_process_short,
    move_an_act,
    swap_in_a_group,
    swap_at_one,
    repeat_an_act,
    multicast_elsewhere,
    erase_a_multicast,
    deliver_elsewhere,
    change_destinations,
    change_the_message,
    change_the_subjects,
    change_the_peers,
    untag,
    call_it_consensus,
    lose_a_request,
    change_a_request,
    repeat_a_request,
    shuffle_requests,
    acknowledge,
    count_turns,
    lose_rows,
    drop_keys,
    change_who_is_faulty,
    do_not_drain,
    skew_a_clock,
    change_the_clock_error,
    announce_a_gap,
    lose_a_delivery_and_say_so,
    begin_in_a_view,
    change_the_view,
    change_the_service,
    deliver_a_view,
    enter_the_graphs,
    replace_a_member,
    replace_a_member,
    change_an_adoption,
)
