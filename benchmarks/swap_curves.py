"""swap.txt's claims as curves, measured by Spark from traces: swap against counting, load per node, coming and going.

    python benchmarks/swap_curves.py [--sizes 8,16,32,64,128,256] [--plot docs/protocols] [--trace FOLDER]

Simulated, at a constant latency for each link, without faults. Messages are multicast along the tree, so that nobody
knows more than its neighbours; so what a delivery takes is mostly the way through the tree.

Latency is in links: until a message is multicast with its place in the order, and until its last delivery, the mean
over all messages. Sequential: 32 nodes, spread over the tree, multicast one after the other, each when the message
before is delivered everywhere; concurrent: every node multicasts at once.

Load is swap frames that a node takes in, for each of 64 messages. Two halves are the nodes below one half of the root's
children, and below the other: in a hybrid, below the virtual root, none of whose processes multicasts.

And what it costs to leave the tree and to enter it, in messages, while eight nodes multicast.

--plot draws swap_curves.svg, swap_loads.svg and moving_curves.svg in that folder. Runs that the trace's folder has
already are not simulated again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antiphon.core import ProcessId
from antiphon.pipeline.metrics import journeys, loads, mean_latencies, metrics
from antiphon.pipeline.read import read_events, read_runs
from antiphon.services.tree import TreeKind, clusters, places
from antiphon.simulation import MILLISECOND, Plan, Scenario, Tell, simulate
from antiphon.trace.parquet import write_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

GROUP = "g"
SIZES = (8, 16, 32, 64, 128, 256)
SEQUENTIAL = 32  # requests, one after the other
LOAD = 64  # messages
AT_ONCE = 8  # nodes of a half that multicast at the same time
TURN = 40 * MILLISECOND  # longer than anything takes in these trees
ENTERING = 2_000 * MILLISECOND  # when all is quiet again


class Kind(NamedTuple):
    name: str
    protocol: str
    options: dict[str, str]

    @property
    def is_counting(self) -> bool:
        return self.protocol == "counting"


KINDS = (
    Kind("arrow, swap", "arrow", {}),
    Kind("arrow, counting", "counting", {"by": "arrow"}),
    Kind("combining, swap", "combining", {}),
    Kind("combining, counting", "counting", {"by": "combining"}),
    Kind("hybrid", "hybrid", {}),
)
LOADED = (
    Kind("arrow", "arrow", {}),
    Kind("combining", "combining", {}),
    Kind("hybrid, root=4", "hybrid", {"root": "4"}),
)
WHEN = ("sequential", "concurrent")
TREES: tuple[TreeKind, ...] = ("balanced", "star")
PATTERNS = (
    "one sender",
    "halves take turns, node by node",
    f"halves take turns, {AT_ONCE} nodes at once",
    "all senders at once",
)


class Mover(NamedTuple):
    """Who leaves, and comes back."""

    name: str
    tree: TreeKind
    number: Callable[[int], int]  # by the size of the group


MOVERS = (
    Mover("a leaf", "balanced", lambda n: n),
    Mover("the middle of a line, with 2 neighbours", "line", lambda n: n // 2),
    Mover("a node of a balanced tree, with 3 neighbours", "balanced", lambda n: 2),
    Mover("the middle of a star, with n-1 neighbours", "star", lambda n: 1),
)
MOVED = ("arrow", "combining")


class Measured(NamedTuple):
    """Of one run. In links: until a message is multicast, and until it is delivered everywhere."""

    multicast: float
    delivery: float
    hops: int  # the most links that a swap took
    busiest: int  # swap frames that the busiest node takes in
    together: int  # and all nodes
    leaving: int  # messages
    entering: int


# What is simulated --------------------------------------------------------------------------------------------------


def members(n: int) -> tuple[ProcessId, ...]:
    return tuple(ProcessId(f"{GROUP}.{i}") for i in range(1, n + 1))


def diameter(n: int) -> int:
    """Of the balanced tree."""
    tree = places(members(n), "balanced")

    def farthest(start: ProcessId) -> tuple[int, ProcessId]:
        found, reached = {start: 0}, [start]
        for p in reached:
            for q in tree[p].neighbours:
                if q not in found:
                    found[q] = found[p] + 1
                    reached.append(q)
        return found[reached[-1]], reached[-1]

    return farthest(farthest(members(n)[0])[1])[0]


def halves(kind: Kind, n: int, tree: TreeKind) -> tuple[list[ProcessId], list[ProcessId]]:
    """The nodes below one half of the root's children, and below the other, as the protocol's own tree has them."""
    nodes = members(n)
    if kind.protocol == "hybrid":
        of_clusters = clusters(nodes, tree, 0, int(kind.options["root"]), 1)
        children = {node: place.children for node, place in of_clusters.items()}
        tops = [
            node for node, place in of_clusters.items() if place.parent and of_clusters[place.parent].parent is None
        ]
    else:
        of_nodes = places(nodes, tree)
        children = {node: place.children for node, place in of_nodes.items()}
        tops = list(children[nodes[0]])

    def below(some: Iterable[ProcessId]) -> list[ProcessId]:
        found = list(some)
        for node in found:
            found += children[node]
        return found

    middle = (len(tops) + 1) // 2
    return below(tops[:middle]), below(tops[middle:])


def spread(nodes: Sequence[ProcessId], count: int) -> list[ProcessId]:
    """So many of them, evenly, or all."""
    return list(nodes[:: max(1, len(nodes) // count)][:count])


def timed(n: int, when: str) -> list[Plan]:
    if when == "concurrent":
        return [Plan(sender, 0, (GROUP,)) for sender in members(n)]
    gap = 8 * (diameter(n) + 2) * MILLISECOND  # longer than anything takes
    step = max(1, n // SEQUENTIAL)
    senders = [members(n)[(7 * i * step) % n] for i in range(SEQUENTIAL)]
    return [Plan(sender, i * gap, (GROUP,)) for i, sender in enumerate(senders)]


def turns(kind: Kind, n: int, tree: TreeKind, pattern: str) -> list[Plan]:
    """Who multicasts at the same time, turn by turn."""
    nodes, both = members(n), halves(kind, n, tree)
    at_once: list[list[ProcessId]]
    if pattern == PATTERNS[0]:
        at_once = [[nodes[-1]]] * LOAD
    elif pattern == PATTERNS[1]:
        at_once = [[both[i % 2][3 * (i // 2) % len(both[i % 2])]] for i in range(LOAD)]
    elif pattern == PATTERNS[2]:
        at_once = [spread(both[i % 2], AT_ONCE) for i in range(LOAD)]
    else:
        at_once = [[nodes[5 * i % n] for i in range(LOAD)]]
    plans = (Plan(sender, i * TURN, (GROUP,)) for i, senders in enumerate(at_once) for sender in senders)
    return list(islice(plans, LOAD))


def record(folder: Path, name: str, scenario: Scenario) -> str:
    """Write the run's trace, if it is not there. Gives the run's name."""
    if not (folder / "runs" / f"{name}.json").exists():
        outcome = simulate(scenario)
        assert not outcome.violations, outcome.violations
        write_run(folder, msgspec.structs.replace(outcome.facts, run=name), outcome.observations.rows(receives=False))
    return name


def named(*parts: object) -> str:
    return "-".join("".join(c if c.isalnum() else "_" for c in str(part)) for part in parts)


def record_latency(folder: Path, kind: Kind, n: int, when: str) -> str:
    options = {"tree": "balanced", "multicast": "tree", **kind.options}
    plans = tuple(timed(n, when))
    scenario = Scenario(protocol=kind.protocol, options=options, groups={GROUP: n}, plans=plans)
    return record(folder, named("latency", kind.name, n, when), scenario)


def record_load(folder: Path, kind: Kind, n: int, tree: TreeKind, pattern: str) -> str:
    options = {"tree": tree, "multicast": "tree", **kind.options}
    plans = tuple(turns(kind, n, tree, pattern))
    scenario = Scenario(protocol=kind.protocol, options=options, groups={GROUP: n}, plans=plans)
    return record(folder, named("load", kind.name, n, tree, pattern), scenario)


def record_moves(folder: Path, protocol: str, mover: Mover, n: int) -> str:
    """One leaves while nodes all over the tree multicast, and enters when all is quiet."""
    told = members(n)[mover.number(n) - 1]
    scenario = Scenario(
        protocol=protocol,
        options={"moving": "true", "multicast": "tree", "tree": mover.tree},
        groups={GROUP: n},
        plans=tuple(Plan(sender, 0, (GROUP,)) for sender in members(n)[:: n // 8]),
        commands=(Tell(told, MILLISECOND // 2, "leave"), Tell(told, ENTERING, "enter")),
    )
    return record(folder, named("moves", protocol, n, mover.name), scenario)


# What Spark measures ------------------------------------------------------------------------------------------------

SPREAD, MOVING = "layer like '%/multicast'", "layer like '%/moving'"


def measure(events: DataFrame, runs: DataFrame) -> dict[str, Measured]:
    """All runs in one job; what comes back is one row for each."""
    from pyspark.sql import functions as F

    ways = journeys(events)
    multicast = ways.filter(SPREAD).groupBy("run").agg(F.avg("after_ms").alias("multicast"))
    swaps = ways.filter(f"not {SPREAD}").groupBy("run", "message").agg(F.sum("frames").alias("frames"))
    taken = loads(events).filter(f"not {SPREAD}").groupBy("run", "process").agg(F.sum("frames").alias("frames"))
    tables = [
        multicast,
        mean_latencies(metrics(events, runs).latencies).select("run", F.col("last_ms_mean").alias("delivery")),
        swaps.groupBy("run").agg(F.max("frames").alias("hops")),
        taken.groupBy("run").agg(F.max("frames").alias("busiest"), F.sum("frames").alias("together")),
        upkeep(events.filter(F.col("time_ns") < ENTERING), "leaving"),
        upkeep(events.filter(F.col("time_ns") >= ENTERING), "entering"),
    ]
    found = runs.select("run")
    for table in tables:
        found = found.join(table, on="run", how="left")
    rows = found.fillna(0).collect()
    return {row["run"]: Measured(*(row[field] for field in Measured._fields)) for row in rows}


def upkeep(events: DataFrame, name: str) -> DataFrame:
    """What the part that lets nodes move sends of its own, besides the messages that it carries for others."""
    from pyspark.sql import functions as F

    return loads(events).filter(MOVING).groupBy("run").agg(F.sum("upkeep").alias(name))


# What is shown ------------------------------------------------------------------------------------------------------

Found = Mapping[str, Measured]


def heads(names: Iterable[object]) -> None:
    cells = ["", *(str(name) for name in names)]
    print(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    print("| --- " * len(cells) + "|")


def row(name: str, cells: Iterable[object]) -> None:
    print(f"| {name} | {' | '.join(str(cell) for cell in cells)} |", flush=True)


def tell_latencies(found: Found, sizes: Sequence[int]) -> None:
    for when in WHEN:
        print(f"\n{when}: until it is multicast / until delivered everywhere, in links; the most hops of a swap\n")
        heads(f"n = {n} (diameter {diameter(n)})" for n in sizes)
        for kind in KINDS:
            points = [found[named("latency", kind.name, n, when)] for n in sizes]
            hops = ["" if kind.is_counting else f"; {p.hops}" for p in points]  # numbers travel, too
            row(kind.name, (f"{p.multicast:.1f} / {p.delivery:.1f}{h}" for p, h in zip(points, hops, strict=True)))


def load(found: Found, kind: Kind, n: int, tree: TreeKind, pattern: str) -> tuple[float, float]:
    """For each message: frames that the busiest node takes in, and all nodes together."""
    point = found[named("load", kind.name, n, tree, pattern)]
    return point.busiest / LOAD, point.together / LOAD


def tell_loads(found: Found, sizes: Sequence[int]) -> None:
    n = 64 if 64 in sizes else sizes[-1]
    print(f"\nswap frames for each message, n = {n}: at the busiest node, and at all nodes together\n")
    heads(PATTERNS)
    for tree in TREES:
        for kind in LOADED:
            points = [load(found, kind, n, tree, pattern) for pattern in PATTERNS]
            row(f"{tree}: {kind.name}", (f"{busiest:.2f}, {together:.2f}" for busiest, together in points))


def tell_moves(found: Found, sizes: Sequence[int]) -> None:
    print("\nto leave / to enter, in messages\n")
    heads(f"n = {n}" for n in sizes)
    for mover in MOVERS:
        by_protocol = [[found[named("moves", protocol, n, mover.name)] for n in sizes] for protocol in MOVED]
        costs = [[(point.leaving, point.entering) for point in points] for points in by_protocol]
        assert costs[0] == costs[1], "arrow and combining take the same"
        row(mover.name, (f"{leaving} / {entering}" for leaving, entering in costs[0]))


# What is drawn ------------------------------------------------------------------------------------------------------


def curve(
    axes: Axes, sizes: Sequence[int], name: str, values: Sequence[float], line: str = "-", width: float = 1.3
) -> None:
    axes.plot(sizes, values, line, marker="o", markersize=width + 1.7, linewidth=width, label=name)


def finish(axes: Axes, sizes: Sequence[int], title: str = "") -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.25)


def draw_latencies(found: Found, sizes: Sequence[int]) -> Figure:
    from matplotlib import pyplot as plt

    figure, rows = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", sharex=True)
    for column, when in enumerate(WHEN):
        for line, (field, label) in enumerate(
            (("multicast", "until it is multicast"), ("delivery", "until delivered"))
        ):
            axes = rows[line][column]
            for kind in KINDS:
                values = [getattr(found[named("latency", kind.name, n, when)], field) for n in sizes]
                curve(axes, sizes, kind.name, values, "--" if kind.is_counting else "-")
            finish(axes, sizes, f"{when}: {label}")
            axes.set_ylim(bottom=0)
            rows[line][0].set_ylabel("links")
            rows[1][column].set_xlabel("nodes")
    rows[0][1].legend(fontsize=8)
    return figure


def draw_loads(found: Found, sizes: Sequence[int]) -> Figure:
    """Where curves are the same, the narrower ones lie on the wider ones."""
    from matplotlib import pyplot as plt

    shape = (len(TREES), len(PATTERNS))
    figure, rows = plt.subplots(*shape, figsize=(12, 5.4), layout="constrained", sharex=True, sharey=True)
    for line, tree in enumerate(TREES):
        for column, pattern in enumerate(PATTERNS):
            axes = rows[line][column]
            for kind, mark, width in zip(LOADED, ("-", "--", ":"), (5.0, 2.6, 1.3), strict=True):
                values = [load(found, kind, n, tree, pattern)[0] for n in sizes]
                curve(axes, sizes, kind.name, values, mark, width)
            finish(axes, sizes, f"{tree}: {pattern}")
            axes.set_ylim(0, 1.08)
            rows[-1][column].set_xlabel("nodes")
        rows[line][0].set_ylabel("frames at the busiest node")
    figure.legend(*rows[0][0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=len(LOADED))
    return figure


def draw_moves(found: Found, sizes: Sequence[int]) -> Figure:
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    entering = [0] * len(sizes)  # the most that anybody needs
    for mover in MOVERS:
        points = [found[named("moves", MOVED[0], n, mover.name)] for n in sizes]
        curve(axes, sizes, f"to leave: {mover.name}", [point.leaving for point in points])
        entering = [max(most, point.entering) for most, point in zip(entering, points, strict=True)]
    curve(axes, sizes, "to enter: anybody", entering, "--")
    finish(axes, sizes)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=20))  # every power, written as a number
    axes.yaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("nodes")
    axes.set_ylabel("messages")
    figure.legend(fontsize=8, loc="outside lower center")
    return figure


PICTURES = {"swap_curves.svg": draw_latencies, "swap_loads.svg": draw_loads, "moving_curves.svg": draw_moves}


def draw(folder: Path, found: Found, sizes: Sequence[int], names: Iterable[str] = PICTURES) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    for name in names:
        PICTURES[name](found, sizes).savefig(folder / name, metadata={"Date": None})


def record_all(folder: Path, sizes: Sequence[int]) -> None:
    for n in sizes:
        for kind in KINDS:
            for when in WHEN:
                record_latency(folder, kind, n, when)
        for kind in LOADED:
            for tree in TREES:
                for pattern in PATTERNS:
                    record_load(folder, kind, n, tree, pattern)
        for protocol in MOVED:
            for mover in MOVERS:
                record_moves(folder, protocol, mover, n)


def main() -> None:
    from antiphon.pipeline.session import spark_session

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(str(size) for size in SIZES))
    parser.add_argument("--plot", type=Path, help="draw the curves into this folder")
    parser.add_argument("--trace", type=Path, help="keep the runs here")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="swap_curves") as temporary:
        folder = arguments.trace or Path(temporary)
        record_all(folder, sizes)
        spark = spark_session("swap_curves")
        found = measure(read_events(spark, folder), read_runs(spark, folder))
        spark.stop()
    for tell in (tell_latencies, tell_loads, tell_moves):
        tell(found, sizes)
    if arguments.plot is not None:
        draw(arguments.plot, found, sizes)


if __name__ == "__main__":
    main()
