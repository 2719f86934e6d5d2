"""Spanning trees over the members of a group. All work out the same tree; each looks at its own place only."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple

import msgspec

from antiphon.core import ProcessId
from antiphon.core.errors import UsageError

TreeKind = Literal["balanced", "line", "star", "random"]


class Place(msgspec.Struct, frozen=True):
    """All that a node knows of a tree. The root has no parent."""

    parent: ProcessId | None = None
    children: tuple[ProcessId, ...] = ()

    @property
    def neighbours(self) -> tuple[ProcessId, ...]:
        return self.children if self.parent is None else (self.parent, *self.children)


class ClusterPlace(msgspec.Struct, frozen=True):
    """The same where each node of the tree is a cluster of processes, which form a tree of their own."""

    within: Place = Place()
    parent: ProcessId | None = None  # a process of the cluster above; none in the root
    children: tuple[ProcessId, ...] = ()  # processes of clusters below
    neighbours: tuple[ProcessId, ...] = ()  # in one spanning tree of all processes


@lru_cache(maxsize=1024)
def places(nodes: tuple[ProcessId, ...], kind: TreeKind, seed: int = 0) -> dict[ProcessId, Place]:
    """The tree, place by place. The root is the first node; of a random tree, any one."""
    nodes = _in_order(nodes, kind, seed)
    parents = {nodes[i]: nodes[parent] for i, parent in enumerate(_parents(nodes, kind, seed), start=1)}
    children: dict[ProcessId, list[ProcessId]] = {node: [] for node in nodes}
    for node, parent in parents.items():
        children[parent].append(node)
    return {node: Place(parents.get(node), tuple(children[node])) for node in nodes}


@lru_cache(maxsize=1024)
def lightest(nodes: tuple[ProcessId, ...], weights: str, dead: tuple[ProcessId, ...] = ()) -> dict[ProcessId, Place]:
    """The tree of the least weight that spans a graph, from its first node on. ``weights``: see ``parse_weights``.

    Without the dead a graph may fall into pieces; then each has a tree of its own, from its own first node on.
    """
    edges = [edge for edge in parse_weights(weights) if max(edge.one, edge.other) <= len(nodes)]
    living = [i for i, node in enumerate(nodes, start=1) if node not in dead]
    edges = [edge for edge in edges if edge.one in living and edge.other in living]
    children: dict[int, list[int]] = {}
    parents: dict[int, int] = {}
    for first in living:
        if first in children:
            continue
        if children and not dead:
            missing = [node for i, node in enumerate(nodes, start=1) if i not in children]
            *others, last = missing
            names = f"{', '.join(others)} and {last}" if others else last
            raise UsageError(
                f"The weights {weights!r} span no tree: no path leads from {nodes[0]} to {names}; "
                "sequencer and token need none."
            )
        children[first] = []
        while crossing := [edge for edge in edges if (edge.one in children) != (edge.other in children)]:
            _, one, other = min(crossing)
            parent, child = (one, other) if one in children else (other, one)
            children[parent].append(child)
            children[child], parents[child] = [], parent
    return {
        nodes[i - 1]: Place(nodes[parents[i] - 1] if i in parents else None, tuple(nodes[c - 1] for c in below))
        for i, below in children.items()
    }


@lru_cache(maxsize=1024)
def pieces(
    nodes: tuple[ProcessId, ...], weights: str, dead: tuple[ProcessId, ...]
) -> dict[ProcessId, tuple[ProcessId, ...]]:
    """For each node that lives: those that are in the same piece of the graph, the root of its tree first."""
    tree = lightest(nodes, weights, dead)
    found: dict[ProcessId, tuple[ProcessId, ...]] = {}
    for root in (node for node, place in tree.items() if place.parent is None):
        piece = tuple(_from_the_root(tree, root))
        found |= dict.fromkeys(piece, piece)
    return found


def _from_the_root(tree: dict[ProcessId, Place], root: ProcessId) -> list[ProcessId]:
    """Level by level."""
    found = [root]
    for node in found:
        found += tree[node].children
    return found


class Edge(NamedTuple):
    """Between two members of a group, by their numbers."""

    weight: int
    one: int
    other: int


def parse_weights(text: str) -> list[Edge]:
    """``1-2:3,2-3:5``: the first and the second member are 3 apart, the second and the third 5."""
    edges = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,4})-(\d{1,4}):(\d{1,9})", part.strip())
        one, other, weight = map(int, found.groups()) if found is not None else (0, 0, 0)
        if one == other or not (one and other):
            raise UsageError(
                f"{part!r} is not an edge with its weight: write 1-2:3 for members 1 and 2, which are 3 apart."
            )
        edges.append(Edge(weight, one, other))
    return edges


def check_weights(weights: str, largest: int) -> None:
    """Refuse edges to members that not even the largest group has; in a smaller one those beyond it are left out."""
    for edge in parse_weights(weights):
        if max(edge.one, edge.other) > largest:
            raise UsageError(
                f"The weights {weights!r} have an edge {edge.one}-{edge.other}, "
                f"but there is no member {max(edge.one, edge.other)}: the largest group has {largest}."
            )


@lru_cache(maxsize=1024)
def clusters(
    nodes: tuple[ProcessId, ...], kind: TreeKind, seed: int, root: int, inner: int
) -> dict[ProcessId, ClusterPlace]:
    """A tree of clusters: ``root`` processes in the root, ``inner`` in each other one.

    The processes of a cluster have different parents in the cluster above, as far as there are any.
    """
    nodes = _in_order(nodes, kind, seed)
    groups = [nodes[:root], *(nodes[at : at + inner] for at in range(root, len(nodes), inner))]
    parents: dict[ProcessId, ProcessId] = {}
    for i, above in enumerate(_parents(tuple(group[0] for group in groups), kind, seed), start=1):
        parents |= {node: groups[above][(i + j) % len(groups[above])] for j, node in enumerate(groups[i])}
    found: dict[ProcessId, ClusterPlace] = {}
    for group in groups:
        for node, within in places(group, kind, seed).items():
            children = tuple(child for child, parent in parents.items() if parent == node)
            above_and_below = [parents[node]] if node == group[0] and node in parents else []
            above_and_below += [child for child in children if any(child == other[0] for other in groups)]
            found[node] = ClusterPlace(
                within, parents.get(node), children, tuple(dict.fromkeys((*within.neighbours, *above_and_below)))
            )
    return found


@lru_cache(maxsize=1024)
def weighted_clusters(
    nodes: tuple[ProcessId, ...], weights: str, dead: tuple[ProcessId, ...], root: int
) -> dict[ProcessId, ClusterPlace]:
    """The lightest tree, of which the first ``root`` nodes from its root on are one cluster; each other is one."""
    tree = lightest(nodes, weights, dead)
    found = {}
    for node, place in tree.items():
        top = pieces(nodes, weights, dead)[node][:root]
        within = tuple(child for child in place.children if node in top and child in top)
        children = tuple(child for child in place.children if child not in within)
        inside = Place(place.parent if node in top else None, within)
        found[node] = ClusterPlace(inside, None if node in top else place.parent, children, place.neighbours)
    return found


def ring(n: int) -> str:
    """The weights of a graph that holds together without any one node."""
    return _weights([*_path(n, 1), (1, n)] if n > 2 else _path(n, 1))


def band(n: int) -> str:
    """Each node with the next two: it holds together as long as no two neighbours are gone."""
    return _weights([*_path(n, 1), *_path(n, 2)])


def _path(n: int, step: int) -> list[tuple[int, int]]:
    return [(i, i + step) for i in range(1, n + 1 - step)]


def _weights(edges: list[tuple[int, int]]) -> str:
    return ",".join(f"{one}-{other}:{(3 * one + other) % 5 + 1}" for one, other in edges)


def _in_order(nodes: tuple[ProcessId, ...], kind: TreeKind, seed: int) -> tuple[ProcessId, ...]:
    return tuple(sorted(nodes, key=lambda node: _drawn(seed, node))) if kind == "random" else nodes


def _parents(nodes: tuple[ProcessId, ...], kind: TreeKind, seed: int) -> list[int]:
    """For each node but the first: which of those before it it hangs on."""
    return [_parent(kind, seed, i, node) for i, node in enumerate(nodes) if i > 0]


def _parent(kind: TreeKind, seed: int, i: int, node: ProcessId) -> int:
    if kind == "line":
        return i - 1
    if kind == "star":
        return 0
    if kind == "balanced":
        return (i - 1) // 2
    return _drawn(seed, f"parent of {node}") % i


def _drawn(seed: int, name: str) -> int:
    """A number that looks random, and is the same everywhere."""
    return int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest())
