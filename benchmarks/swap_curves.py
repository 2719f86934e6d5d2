"""swap.txt's claims as curves: swap against counting on the same tree, and the load of each node.

    python benchmarks/swap_curves.py [--sizes 8,16,32,64,128,256] [--plot docs/protocols/swap_curves.svg]
    python benchmarks/swap_curves.py --moves [--plot docs/protocols/moving_curves.svg]

Simulated, at a constant latency for each link, without faults; everything from the trace. Latency is in links: until a
message is multicast with its place in the order, and until its last delivery, the mean over all messages. Sequential:
32 nodes, spread over the tree, multicast one after the other, each when the message before is delivered everywhere;
concurrent: every node multicasts at once. Messages are multicast along the tree, so that nobody knows more than its
neighbours; so what a delivery takes is mostly the way through the tree. With --moves: what it costs to leave the tree
and to enter it, in messages, while eight nodes multicast.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from antiphon.core import ProcessId
from antiphon.services.tree import places
from antiphon.simulation import MILLISECOND, Outcome, Plan, Scenario, Tell, simulate

GROUP = "g"
SEQUENTIAL = 32  # requests, one after the other
TREE = "balanced"


class Kind(NamedTuple):
    name: str
    protocol: str
    options: dict[str, str]


KINDS = (
    Kind("arrow, swap", "arrow", {}),
    Kind("arrow, counting", "counting", {"by": "arrow"}),
    Kind("combining, swap", "combining", {}),
    Kind("combining, counting", "counting", {"by": "combining"}),
    Kind("hybrid", "hybrid", {}),
)


class Latency(NamedTuple):
    """In links."""

    multicast: float
    delivery: float
    hops: int  # the most links that a swap took


def members(n: int) -> list[str]:
    return [f"{GROUP}.{i}" for i in range(1, n + 1)]


def diameter(n: int) -> int:
    tree = places(tuple(ProcessId(p) for p in members(n)), TREE)

    def farthest(start: ProcessId) -> tuple[int, ProcessId]:
        found, reached = {start: 0}, [start]
        for p in reached:
            for q in tree[p].neighbours:
                if q not in found:
                    found[q] = found[p] + 1
                    reached.append(q)
        return found[reached[-1]], reached[-1]

    return farthest(farthest(ProcessId(members(n)[0]))[1])[0]


def run(kind: Kind, n: int, plans: Sequence[Plan]) -> Outcome:
    options = {"tree": TREE, "multicast": "tree", **kind.options}
    outcome = simulate(Scenario(protocol=kind.protocol, options=options, groups={GROUP: n}, plans=tuple(plans)))
    assert not outcome.violations, outcome.violations
    return outcome


def sequential(n: int) -> list[Plan]:
    gap = 8 * (diameter(n) + 2) * MILLISECOND  # longer than anything takes
    step = max(1, n // SEQUENTIAL)
    senders = [members(n)[(7 * i * step) % n] for i in range(SEQUENTIAL)]
    return [Plan(sender, i * gap, (GROUP,)) for i, sender in enumerate(senders)]


def concurrent(n: int) -> list[Plan]:
    return [Plan(sender, 0, (GROUP,)) for sender in members(n)]


def latency(outcome: Outcome) -> Latency:
    begun: dict[str, int] = {}
    ordered: dict[str, int] = {}
    delivered: dict[str, int] = {}
    hops: Counter[str] = Counter()
    for row in outcome.rows:
        layer = row.layer or ""
        if row.kind == "multicast":
            begun[row.message or ""] = row.time_ns
        elif row.kind == "deliver":
            delivered[row.message or ""] = max(row.time_ns, delivered.get(row.message or "", 0))
        elif row.kind == "send" and layer.endswith("/multicast"):
            for message in row.about or ():
                ordered[message] = min(row.time_ns, ordered.get(message, row.time_ns))
        elif row.kind == "send" and row.about:
            hops[row.about[0]] += 1
    return Latency(
        mean(ordered[m] - at for m, at in begun.items() if m in ordered) / MILLISECOND,
        mean(delivered[m] - at for m, at in begun.items()) / MILLISECOND,
        max(hops.values(), default=0),
    )


def loads(kind: Kind, n: int) -> dict[str, tuple[int, float]]:
    """By who multicasts: frames of the swap that the busiest node takes in, and that a node takes in on average."""
    nodes = members(n)
    tree = places(tuple(ProcessId(p) for p in nodes), TREE)
    left, right = tree[ProcessId(nodes[0])].children[:2]
    patterns: dict[str, Callable[[int], str]] = {
        "one sender": lambda i: nodes[-1],
        "two halves take turns": lambda i: (left, right)[i % 2],
        "all senders": lambda i: nodes[(5 * i) % n],
    }
    found = {}
    for name, sender in patterns.items():
        plans = [Plan(sender(i), i * 40 * MILLISECOND, (GROUP,)) for i in range(128)]
        taken = Counter(
            peer
            for row in run(kind, n, plans).rows
            if row.kind == "send" and not (row.layer or "").endswith("/multicast")
            for peer in row.peers or ()
        )
        found[name] = (max(taken.values(), default=0), sum(taken.values()) / n)
    return found


class Mover(NamedTuple):
    """Who leaves, and comes back."""

    name: str
    tree: str
    number: Callable[[int], int]  # by the size of the group


MOVERS = (
    Mover("a leaf", "balanced", lambda n: n),
    Mover("the middle of a line, with 2 neighbours", "line", lambda n: n // 2),
    Mover("a node of a balanced tree, with 3 neighbours", "balanced", lambda n: 2),
    Mover("the middle of a star, with n-1 neighbours", "star", lambda n: 1),
)


def moves(protocol: str, mover: Mover, n: int) -> tuple[int, int]:
    """The messages that it takes to leave while nodes all over the tree multicast, and to enter when all is quiet."""
    told, later = members(n)[mover.number(n) - 1], 2_000 * MILLISECOND
    options = {"moving": "true", "multicast": "tree", "tree": mover.tree}
    commands = (Tell(told, MILLISECOND // 2, "leave"), Tell(told, later, "enter"))
    plans = tuple(Plan(sender, 0, (GROUP,)) for sender in members(n)[:: n // 8])
    outcome = simulate(Scenario(protocol=protocol, options=options, groups={GROUP: n}, plans=plans, commands=commands))
    assert not outcome.violations, outcome.violations
    sent = [
        (row.time_ns, len(row.peers or ()))
        for row in outcome.rows
        if row.kind == "send" and (row.layer or "").endswith("/moving") and not row.about
    ]
    return sum(count for at, count in sent if at < later), sum(count for at, count in sent if at >= later)


def tell_moves(sizes: Sequence[int], plot: Path | None) -> None:
    print("\nto leave / to enter, in messages\n")
    print(f"| | {' | '.join(f'n = {size}' for size in sizes)} |")
    print(f"| --- |{' --- |' * len(sizes)}")
    curves: dict[str, list[int]] = {}
    entering = [0] * len(sizes)  # the most that anybody needs
    for mover in MOVERS:
        points = [moves("arrow", mover, size) for size in sizes]
        assert points == [moves("combining", mover, size) for size in sizes]
        curves[f"to leave: {mover.name}"] = [left for left, _ in points]
        entering = [max(most, entered) for most, (_, entered) in zip(entering, points, strict=True)]
        print(f"| {mover.name} | {' | '.join(f'{left} / {entered}' for left, entered in points)} |", flush=True)
    if plot is not None:
        draw_moves(plot, sizes, {**curves, "to enter: anybody": entering})


def draw_moves(path: Path, sizes: Sequence[int], curves: dict[str, list[int]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for name, values in curves.items():
        line = "--" if "enter" in name else "-"
        axes.plot(sizes, values, line, marker="o", markersize=3, linewidth=1.3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("nodes")
    axes.set_ylabel("messages")
    axes.grid(alpha=0.25)
    figure.legend(fontsize=8, loc="outside lower center")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw(path: Path, sizes: Sequence[int], curves: dict[tuple[str, str], list[Latency]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, rows = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", sharex=True)
    for column, when in enumerate(("sequential", "concurrent")):
        for row, (field, label) in enumerate((("multicast", "until it is multicast"), ("delivery", "until delivered"))):
            axes = rows[row][column]
            for kind in KINDS:
                values = [getattr(point, field) for point in curves[kind.name, when]]
                dashes = "--" if "counting" in kind.name else "-"
                axes.plot(sizes, values, dashes, marker="o", markersize=3, linewidth=1.3, label=kind.name)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set_ylim(bottom=0)
            axes.set_title(f"{when}: {label}", fontsize=10)
            axes.grid(alpha=0.25)
    rows[0][0].set_ylabel("links")
    rows[1][0].set_ylabel("links")
    rows[1][0].set_xlabel("nodes")
    rows[1][1].set_xlabel("nodes")
    rows[0][1].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="8,16,32,64,128,256")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--moves", action="store_true", help="what it costs to leave and to enter")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.moves:
        tell_moves(sizes, arguments.plot)
        return
    curves: dict[tuple[str, str], list[Latency]] = {}
    for when, plans in (("sequential", sequential), ("concurrent", concurrent)):
        print(f"\n{when}: until it is multicast / until delivered everywhere, in links; the most hops of a swap\n")
        print(f"| | {' | '.join(f'n = {size} (diameter {diameter(size)})' for size in sizes)} |")
        print(f"| --- |{' --- |' * len(sizes)}")
        for kind in KINDS:
            points = curves[kind.name, when] = [latency(run(kind, size, plans(size))) for size in sizes]
            hops = ["" if "counting" in kind.name else f"; {point.hops}" for point in points]  # numbers travel, too
            cells = [f"{p.multicast:.1f} / {p.delivery:.1f}{h}" for p, h in zip(points, hops, strict=True)]
            print(f"| {kind.name} | {' | '.join(cells)} |", flush=True)
    print("\nload: swap frames that the busiest of 64 nodes takes in, and a node on average, for 128 messages\n")
    found = {kind.name: loads(kind, 64) for kind in KINDS if "counting" not in kind.name}
    patterns = list(next(iter(found.values())))
    print(f"| | {' | '.join(patterns)} |")
    print(f"| --- |{' --- |' * len(patterns)}")
    for name, by_pattern in found.items():
        print(f"| {name} | {' | '.join(f'{most}, {average:.1f}' for most, average in by_pattern.values())} |")
    if arguments.plot is not None:
        draw(arguments.plot, sizes, curves)


if __name__ == "__main__":
    main()
