"""Cycles in directed graphs, without recursion: a trace may hold chains longer than any call stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def components(successors: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """The strongly connected components (Tarjan 1972). A component comes after all that it has edges to."""
    low: dict[str, int] = {}  # a node's number, then the smallest number reachable; len(successors) once it is done
    done = len(successors) + 1
    stack: list[str] = []
    for root in successors:
        if root in low:
            continue
        path = [_enter(root, low, stack, successors)]
        while path:
            node, number, edges = path[-1]
            for neighbour in edges:
                known = low.get(neighbour)
                if known is None:
                    path.append(_enter(neighbour, low, stack, successors))
                    break
                low[node] = min(low[node], known)
            else:
                path.pop()
                if low[node] == number:
                    component = _cut(stack, node)
                    low.update(dict.fromkeys(component, done))
                    yield component
                elif low[node] < low[path[-1][0]]:
                    low[path[-1][0]] = low[node]


def _enter(
    node: str, low: dict[str, int], stack: list[str], successors: Mapping[str, Sequence[str]]
) -> tuple[str, int, Iterator[str]]:
    number = low[node] = len(low)
    stack.append(node)
    return node, number, iter(successors[node])


def _cut(stack: list[str], node: str) -> list[str]:
    """Take the component off the stack: everything down to the node that was entered first."""
    component = [stack.pop()]
    while component[-1] != node:
        component.append(stack.pop())
    return component
