"""Forges small traces with any kind of violation or none, and compares three judges: docs/trace.md's definitions as
`forged_definitions` reads them, the checks in process, and Spark. All runs are one trace: one job for Spark.

Nothing is shared with the suite's forgeries: generator and definitions are written apart, to be wrong elsewhere. Views,
adoptions and missing rows are not made here; the suite has these.

Example: python benchmarks/forged.py --runs 300 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from forged_definitions import PROMISES, Definitions

from antiphon import checks
from antiphon.trace import RequestCell, Row, RunFacts
from antiphon.trace.parquet import write_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Groups = frozenset[str]
Events = dict[str, list[Row]]  # of each process, in its order


# ---- an honest run


class Forge:
    """A run that one sequencer might have made: messages have one order, everybody delivers along it, some later."""

    def __init__(self, seed: int) -> None:
        self.r = r = random.Random(seed)
        names = [f"p{i}" for i in range(r.randint(2, 7))]
        groups: dict[str, list[str]] = {f"g{i}": [] for i in range(r.randint(1, min(3, len(names))))}
        for place, name in enumerate(names):
            groups[list(groups)[place % len(groups)]].append(name)
        if r.random() < 0.2:  # somebody is in two groups
            groups[r.choice(list(groups))] += [r.choice(names)]
            groups = {group: list(dict.fromkeys(members)) for group, members in groups.items()}
        self.groups, self.members = groups, names
        self.senders = [*names, "outside"]
        self.events: Events = {name: [] for name in self.senders}
        self.now = 0
        self.next: dict[tuple[str, Groups], int] = defaultdict(int)
        self.turn: dict[str, int] = defaultdict(int)
        self.keyed = r.random() < 0.6
        self.faulty: list[str] = []
        order = [self._multicast(i) for i in range(r.randint(3, 14))]
        self._deliver_all(order)
        if r.random() < 0.3:
            self.faulty.append(r.choice(names))
        self.drained = r.random() < 0.85
        self.clock_error_ns = r.choice([None, 0, 0, 5, 1_000])

    def act(self, process: str, kind: str, **cells: object) -> None:
        self.now += self.r.randint(1, 9)
        self.events[process].append(Row(process, 0, self.now, kind, **cells))  # type: ignore[arg-type]

    def _multicast(self, number: int) -> tuple[str, tuple[str, ...], list[RequestCell]]:
        r = self.r
        sender = r.choice(self.senders)
        sent = sum(row.kind == "multicast" for row in self.events[sender])
        name = f"{sender}:{sent + 1}"
        to = tuple(r.sample(list(self.groups), r.randint(1, len(self.groups))))
        cells = []
        for client in r.sample(["ann", "ben"], r.randint(0, 2)):
            payloads, session = r.randint(1, 3), (client, frozenset(to))
            cells.append(RequestCell(client, self.next[session], payloads, r.randint(0, 99)))
            self.next[session] += payloads
        if not cells:
            cells = [RequestCell(sender, sent + 1, r.randint(1, 2), r.randint(0, 99))]
        self.act(sender, "multicast", message=name, destinations=to, requests=tuple(cells))
        concerned = [p for p in self.members if any(p in self.groups[g] for g in to)]
        for peer in r.sample(concerned, r.randint(0, len(concerned))):
            layer = r.choice(["forge", "forge", "forge/order"])
            self.act(sender, "send", peers=(peer,), about=(name,), layer=layer, bytes=9)
            self.act(peer, "receive", peers=(sender,), about=r.choice([None, (name,)]), layer=layer, bytes=9)
        for member in concerned:
            if r.random() < 0.3:
                self.act(member, "enter", message=name, peers=(sender,), position=0, layer="graph")
        if r.random() < 0.3 and concerned:
            for cell in cells:
                turn = self.turn[cell.client] if r.random() < 0.5 else None
                self.act(
                    r.choice(concerned), "receipt", destinations=to, requests=(cell,), position=turn,
                    layer=r.choice([None, "majority"]) if turn is None else None,
                )  # fmt: skip
                self.turn[cell.client] += r.random() < 0.5
        return name, to, cells

    def _deliver_all(self, order: list[tuple[str, tuple[str, ...], list[RequestCell]]]) -> None:
        """Each behind its multicast, so everything precedes what it must; some processes are asleep for a while."""
        waiting = {p: [one for one in enumerate(order) if self._addressed(p, one[1][1])] for p in self.members}
        place = dict.fromkeys(self.members, 0)
        while any(waiting.values()):
            p = self.r.choice([p for p in self.members if waiting[p]])
            number, (name, to, cells) = waiting[p].pop(0)
            key = b"%04d" % number if self.keyed else None
            requests = tuple(cells)
            self.act(
                p, "deliver", message=name, destinations=to, requests=requests, order_key=key, position=place[p]
            )  # fmt: skip
            place[p] += sum(cell.payloads for cell in cells)

    def _addressed(self, process: str, to: tuple[str, ...]) -> bool:
        return any(process in self.groups[group] for group in to)

    def result(self, run: str) -> tuple[RunFacts, list[Row]]:
        rows = [row._replace(seq=seq) for own in self.events.values() for seq, row in enumerate(own)]
        facts = RunFacts(
            run=run, driver="simulation", protocol="forged", groups=self.groups, promises=list(PROMISES),
            drained=self.drained, faulty=self.faulty, clock_error_ns=self.clock_error_ns,
        )  # fmt: skip
        return facts, rows


# ---- and what may be wrong with it


def _rows(f: Forge, *kinds: str) -> list[tuple[str, int]]:
    return [(p, i) for p, own in f.events.items() for i, row in enumerate(own) if row.kind in kinds]


def _change(f: Forge, at: tuple[str, int], **cells: object) -> None:
    p, i = at
    f.events[p][i] = f.events[p][i]._replace(**cells)  # type: ignore[arg-type]


def lost(f: Forge, at: tuple[str, int]) -> None:
    del f.events[at[0]][at[1]]


def moved(f: Forge, at: tuple[str, int]) -> None:
    own = f.events[at[0]]
    row = own.pop(at[1])
    own.insert(f.r.randint(0, len(own)), row)


def swapped(f: Forge, at: tuple[str, int]) -> None:
    """With the next one of its kind; what stands where stays."""
    own = f.events[at[0]]
    later = [i for i in range(at[1] + 1, len(own)) if own[i].kind == own[at[1]].kind]
    if later:
        one, other = own[at[1]], own[later[0]]
        own[at[1]] = other._replace(time_ns=one.time_ns, position=one.position)
        own[later[0]] = one._replace(time_ns=other.time_ns, position=other.position)


def again(f: Forge, at: tuple[str, int]) -> None:
    own = f.events[at[0]]
    own.insert(f.r.randint(at[1], len(own)), own[at[1]])


def elsewhere(f: Forge, at: tuple[str, int]) -> None:
    other = f.r.choice(list(f.events))
    own = f.events[other]
    own.insert(f.r.randint(0, len(own)), f.events[at[0]][at[1]]._replace(process=other))


def otherwise_addressed(f: Forge, at: tuple[str, int]) -> None:
    names = list(f.groups)
    _change(f, at, destinations=tuple(f.r.choices([*names, "nowhere"], k=f.r.randint(0, 3))))


def misnamed(f: Forge, at: tuple[str, int]) -> None:
    known = [f.events[p][i].message for p, i in _rows(f, "multicast")]
    _change(f, at, message=f.r.choice([*known, None, "ghost:1"]))


def other_requests(f: Forge, at: tuple[str, int]) -> None:
    cells = list(f.events[at[0]][at[1]].requests or ())
    if cells:
        i = f.r.randrange(len(cells))
        what = f.r.choice([{"digest": 100}, {"payloads": 4}, {"first": cells[i].first + 1}, {"client": "eve"}, None])
        cells[i : i + 1] = [cells[i]._replace(**what)] if what else f.r.choice([[], [cells[i], cells[i]]])
        _change(f, at, requests=tuple(cells))


def out_of_place(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, position=f.r.choice([None, 0, 7]))


def at_another_time(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, time_ns=f.r.randint(0, f.now))


def other_ends(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, peers=tuple(f.r.choices(list(f.events), k=f.r.randint(0, 2))))


def about_others(f: Forge, at: tuple[str, int]) -> None:
    known = [f.events[p][i].message or "" for p, i in _rows(f, "multicast")]
    _change(f, at, about=tuple(f.r.choices([*known, "ghost:1"], k=f.r.randint(0, 2))))


def consensus_there(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, layer=f.r.choice(["consensus", "a/consensus", "consensus/a"]))


def a_gap_before(f: Forge, at: tuple[str, int]) -> None:
    f.events[at[0]].insert(at[1], Row(at[0], 0, f.events[at[0]][at[1]].time_ns, "gap"))


def other_key(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, order_key=f.r.choice([None, b"0000", b"9999"]))


def of_no_order(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, layer=f.r.choice(["causal", "agreed"]))


def of_a_turn(f: Forge, at: tuple[str, int]) -> None:
    _change(f, at, position=f.r.randint(0, 2), layer=f.r.choice([None, "majority"]))


OUTCOMES, FRAMES = ("multicast", "deliver", "deliver", "receipt"), ("send", "receive")
WRONGS: list[tuple[Callable[[Forge, tuple[str, int]], None], tuple[str, ...]]] = [
    (lost, OUTCOMES), (lost, ("deliver",)), (moved, OUTCOMES), (moved, ("deliver",)), (swapped, ("deliver",)),
    (swapped, ("multicast", "deliver")), (again, OUTCOMES), (elsewhere, (*OUTCOMES, *FRAMES)),
    (otherwise_addressed, OUTCOMES), (misnamed, OUTCOMES), (other_requests, OUTCOMES), (out_of_place, ("deliver",)),
    (at_another_time, OUTCOMES), (other_ends, FRAMES), (about_others, FRAMES), (consensus_there, FRAMES),
    (a_gap_before, ("deliver",)), (other_key, ("deliver",)), (of_no_order, ("multicast",)), (of_a_turn, ("receipt",)),
    (misnamed, ("enter",)),
]  # fmt: skip


def forged(seed: int) -> tuple[RunFacts, list[Row]]:
    f = Forge(seed)
    for _ in range(f.r.choice([0, 1, 1, 1, 2, 4])):
        wrong, kinds = f.r.choice(WRONGS)
        places = _rows(f, *kinds)
        if places:
            wrong(f, f.r.choice(places))
    return f.result(f"forged-{seed}")


# ---- the comparison


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in-process", action="store_true", help="leave Spark out")
    arguments = parser.parse_args()
    runs = [forged(seed) for seed in range(arguments.seed, arguments.seed + arguments.runs)]
    expected = {(facts.run, name) for facts, rows in runs for name in Definitions(facts, rows).broken()}
    judges = {"in process": {(f.run, v.property) for f, rows in runs for v in checks.check_run(f, rows)}}
    if not arguments.in_process:
        with tempfile.TemporaryDirectory(prefix="antiphon-") as folder:
            from antiphon.pipeline.session import spark_session

            spark = spark_session("forged", rows=sum(len(rows) for _, rows in runs))
            judges["Spark"] = on_spark(Path(folder), runs, spark)
    broken = {run for run, _ in expected}
    print(f"{len(runs)} runs, {len(broken)} of them broken, in {len({name for _, name in expected})} properties")
    for judge, found in judges.items():
        wrong = sorted({*(expected - found), *(found - expected)})
        print(f"{judge}: {len(wrong)} verdicts differ")
        for run, name in wrong[:20]:
            print(f"  {run} {name}: {'broken' if (run, name) in found else 'holds'}, by the definitions otherwise")
    sys.exit(any(found != expected for found in judges.values()))


def on_spark(folder: Path, runs: list[tuple[RunFacts, list[Row]]], spark: SparkSession) -> set[tuple[str, str]]:
    from antiphon.pipeline.read import open_trace
    from antiphon.pipeline.verify import verify

    write_runs(folder, "forged", runs)
    trace = open_trace(spark, folder)
    return {(row.run, row.property) for row in verify(trace.events, trace.runs, scan=trace.scan).collect()}


if __name__ == "__main__":
    main()
