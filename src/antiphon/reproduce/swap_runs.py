"""The runs of R8, and what the pipeline measures of them: swap against counting, load per node, coming and going.

Messages are multicast along the tree, so that nobody knows more than its neighbours; so what a delivery takes is mostly
the way through the tree. Sequential: 32 nodes, spread over the tree, multicast one after the other, each when the
message before is delivered everywhere; concurrent: every node multicasts at once. Two halves are the nodes below one
half of the root's children, and below the other: in a hybrid, below the virtual root, none of whose processes sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from antiphon.core import ProcessId
from antiphon.reproduce.lab import Swept
from antiphon.services.tree import TreeKind, clusters, places
from antiphon.simulation import MILLISECOND, Instruction, Plan, Scenario
from antiphon.simulation.values import Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP, ROOT = "g", "g.1"
SEQUENTIAL = 32  # requests, one after the other
LOAD = 64  # messages
HALF_AT_ONCE = 8  # nodes of a half that multicast at the same time
TURN = 40 * MILLISECOND  # longer than anything takes in these trees
ENTERING = 2_000 * MILLISECOND  # when all is quiet again


class Contender(NamedTuple):
    name: str
    protocol: str
    options: dict[str, str]

    @property
    def is_counting(self) -> bool:
        return self.protocol == "counting"


CONTENDERS = (
    Contender("arrow, swap", "arrow", {}),
    Contender("arrow, counting", "counting", {"by": "arrow"}),
    Contender("combining, swap", "combining", {}),
    Contender("combining, counting", "counting", {"by": "combining"}),
    Contender("hybrid", "hybrid", {}),
)
LOADED = (
    Contender("arrow", "arrow", {}),
    Contender("combining", "combining", {}),
    Contender("hybrid, root=4", "hybrid", {"root": "4"}),
)
WHEN = ("sequential", "concurrent")
TREES: tuple[TreeKind, ...] = ("balanced", "star")
PATTERNS = ONE_SENDER, BY_NODE, AT_ONCE, ALL = (
    "one sender",
    "halves take turns, node by node",
    f"halves take turns, {HALF_AT_ONCE} nodes at once",
    "all senders at once",
)


class Mover(NamedTuple):
    """Who leaves, and comes back."""

    name: str
    tree: TreeKind
    degree: int | None  # how many neighbours it has; None: all others
    number: Callable[[int], int]  # by the size of the group


MOVERS = (
    Mover("a leaf", "balanced", 1, lambda n: n),
    Mover("the middle of a line", "line", 2, lambda n: n // 2),
    Mover("a node of a balanced tree", "balanced", 3, lambda n: 2),
    Mover("the middle of a star", "star", None, lambda n: 1),
)
MOVED = ("arrow", "combining")


# What is simulated --------------------------------------------------------------------------------------------------


class SwapLatency(Value, frozen=True, tag=True):
    """How long requests wait, one after the other or all at once."""

    contender: str
    n: int
    when: str

    def scenario(self, _seed: int, /) -> Scenario:
        contender = next(contender for contender in CONTENDERS if contender.name == self.contender)
        options = {"tree": "balanced", "multicast": "tree", **contender.options}
        return Scenario(
            protocol=contender.protocol, options=options, groups={GROUP: self.n}, plans=tuple(self._plans())
        )

    def _plans(self) -> list[Plan]:
        nodes = members(self.n)
        if self.when == "concurrent":
            return [Plan(sender, 0, (GROUP,)) for sender in nodes]
        gap = 8 * (diameter(self.n) + 2) * MILLISECOND  # longer than anything takes
        step = max(1, self.n // SEQUENTIAL)
        senders = [nodes[(7 * i * step) % self.n] for i in range(SEQUENTIAL)]
        return [Plan(sender, i * gap, (GROUP,)) for i, sender in enumerate(senders)]


class SwapLoad(Value, frozen=True, tag=True):
    """Who has to take in how many swaps."""

    contender: str
    n: int
    tree: str
    pattern: str

    def scenario(self, _seed: int, /) -> Scenario:
        contender = next(contender for contender in LOADED if contender.name == self.contender)
        tree = next(tree for tree in TREES if tree == self.tree)
        options = {"tree": tree, "multicast": "tree", **contender.options}
        at_once = self._turns(contender, tree)
        plans = (Plan(sender, i * TURN, (GROUP,)) for i, senders in enumerate(at_once) for sender in senders)
        first = tuple(islice(plans, LOAD))
        return Scenario(protocol=contender.protocol, options=options, groups={GROUP: self.n}, plans=first)

    def _turns(self, contender: Contender, tree: TreeKind) -> list[list[ProcessId]]:
        """Who multicasts at the same time, turn by turn."""
        nodes, both = members(self.n), halves(contender, self.n, tree)
        if self.pattern == ONE_SENDER:
            return [[nodes[-1]]] * LOAD
        if self.pattern == BY_NODE:
            return [[both[i % 2][3 * (i // 2) % len(both[i % 2])]] for i in range(LOAD)]
        if self.pattern == AT_ONCE:
            return [spread(both[i % 2], HALF_AT_ONCE) for i in range(LOAD)]
        return [[nodes[5 * i % self.n] for i in range(LOAD)]]


class Moves(Value, frozen=True, tag=True):
    """One leaves while nodes all over the tree multicast, and enters when all is quiet."""

    protocol: str
    n: int
    mover: str

    def scenario(self, _seed: int, /) -> Scenario:
        mover = next(mover for mover in MOVERS if mover.name == self.mover)
        told = members(self.n)[mover.number(self.n) - 1]
        return Scenario(
            protocol=self.protocol,
            options={"moving": "true", "multicast": "tree", "tree": mover.tree},
            groups={GROUP: self.n},
            plans=tuple(Plan(sender, 0, (GROUP,)) for sender in members(self.n)[:: self.n // 8]),
            commands=(Instruction(told, MILLISECOND // 2, "leave"), Instruction(told, ENTERING, "enter")),
        )


SwapCase = SwapLatency | SwapLoad | Moves


def members(n: int) -> tuple[ProcessId, ...]:
    return tuple(ProcessId(f"{GROUP}.{i}") for i in range(1, n + 1))


@cache
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


def halves(contender: Contender, n: int, tree: TreeKind) -> tuple[list[ProcessId], list[ProcessId]]:
    """The nodes below one half of the root's children, and below the other, as the protocol's own tree has them."""
    nodes = members(n)
    if contender.protocol == "hybrid":
        of_clusters = clusters(nodes, tree, 0, int(contender.options["root"]), 1)
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


# What Spark measures ------------------------------------------------------------------------------------------------

SPREAD, MOVING = "layer like '%/multicast'", "layer like '%/moving'"


class SwapFigures(NamedTuple):
    """Of one run. In links: until a message is multicast, and until it is delivered everywhere."""

    multicast: float
    delivery: float
    hops: int  # the most links that a swap took
    after_first: int  # swap frames about other messages than their sender's first
    busiest: int  # swap frames that the busiest node takes in
    at_root: int  # and the root
    leaving: int  # messages
    entering: int
    concerned: int  # processes that these messages are for


def measured(swept: Swept) -> dict[SwapCase, SwapFigures]:
    """All runs in one job; what comes back is one row for each."""
    rows = {row["run"]: row for row in measure(swept.events, swept.runs).collect()}
    found: dict[SwapCase, SwapFigures] = {}
    for point, case in enumerate(swept.points):
        assert isinstance(case, SwapCase)
        (name,) = swept.names(point)
        found[case] = SwapFigures(*(rows[name][field] for field in SwapFigures._fields))
    return found


def measure(events: DataFrame, runs: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    from antiphon.pipeline.metrics import journeys, latency_histogram, loads, mean_latencies

    ways = journeys(events)
    multicast = ways.filter(SPREAD).groupBy("run").agg(F.avg("after_ms").alias("multicast"))
    swaps = ways.filter(f"not {SPREAD}").groupBy("run", "message").agg(F.sum("frames").alias("frames"))
    later = F.when(~F.col("message").endswith(":1"), F.col("frames"))
    taken = loads(events).filter(f"not {SPREAD}").groupBy("run", "process").agg(F.sum("frames").alias("frames"))
    at_root = F.when(F.col("process") == ROOT, F.col("frames"))
    moving = loads(events).filter(MOVING).filter("upkeep > 0")
    tables = [
        multicast,
        mean_latencies(latency_histogram(events, runs)).select("run", F.col("last_ms_mean").alias("delivery")),
        swaps.groupBy("run").agg(F.max("frames").alias("hops"), F.sum(later).alias("after_first")),
        taken.groupBy("run").agg(F.max("frames").alias("busiest"), F.sum(at_root).alias("at_root")),
        upkeep(events.filter(F.col("time_ns") < ENTERING), "leaving"),
        upkeep(events.filter(F.col("time_ns") >= ENTERING), "entering"),
        moving.groupBy("run").agg(F.count_distinct("process").alias("concerned")),
    ]
    found = runs.select("run")
    for table in tables:
        found = found.join(table, on="run", how="left")
    return found.fillna(0)


def upkeep(events: DataFrame, name: str) -> DataFrame:
    """What the part that lets nodes move sends of its own, besides the messages that it carries for others."""
    from pyspark.sql import functions as F

    from antiphon.pipeline.metrics import loads

    return loads(events).filter(MOVING).groupBy("run").agg(F.sum("upkeep").alias(name))


class Compared(NamedTuple):
    """Of a run with swap and one with counting: the most links that any request waits longer with swap."""

    multicast: float
    delivery: float


def compared(swept: Swept) -> dict[tuple[SwapLatency, SwapLatency], Compared]:
    """Request by request: the same node's same message, in both runs."""
    numbers = {case: point for point, case in enumerate(swept.points) if isinstance(case, SwapLatency)}
    names = {case: swept.names(point)[0] for case, point in numbers.items()}
    pairs = {
        (case, other): (names[case], names[other])
        for case in numbers
        for other in numbers
        if case.contender.endswith(", swap")
        and other == SwapLatency(case.contender.replace("swap", "counting"), case.n, case.when)
    }
    rows = {row["swap"]: row for row in waits_longer(swept.events, list(pairs.values())).collect()}
    return {pair: Compared(rows[swap]["multicast"], rows[swap]["delivery"]) for pair, (swap, _) in pairs.items()}


def waits_longer(events: DataFrame, pairs: Sequence[tuple[str, str]]) -> DataFrame:
    """One row for each pair of runs (swap, counting): the largest difference of any message's waiting."""
    from pyspark.sql import functions as F

    from antiphon.pipeline.metrics import journeys, message_times

    named = F.broadcast(events.sparkSession.createDataFrame(list(pairs), "swap string, counting string"))
    after = journeys(events).filter(SPREAD).select("run", "message", F.col("after_ms").alias("multicast"))
    last = (F.array_max("delivered_ns") - F.col("sent_ns")) / 1e6
    each = message_times(events).select("run", "message", last.alias("delivery")).join(after, on=["run", "message"])
    one = each.withColumnsRenamed({"run": "swap"}).join(named, on="swap", how="inner")
    other = each.withColumnsRenamed({"run": "counting", "multicast": "multicast_2", "delivery": "delivery_2"})
    both = one.join(other, on=["counting", "message"], how="inner")
    return both.groupBy("swap").agg(
        F.max(F.col("multicast") - F.col("multicast_2")).alias("multicast"),
        F.max(F.col("delivery") - F.col("delivery_2")).alias("delivery"),
    )
