"""What the types of state variables say of the order in their values: which states are one, and which are not."""

from __future__ import annotations

from heapq import heappush
from itertools import permutations
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest

from antiphon.core import Heap, MessageId, ProcessId, Table
from antiphon.core.buffers import encode_inside
from antiphon.core.unordered import UNORDERED
from antiphon.simulation.search.shapes import shape_of


class Pair(NamedTuple):
    name: str
    votes: Table[str, int]


class Plain(NamedTuple):
    name: str
    number: int


class Box(msgspec.Struct):
    kept: Table[int, list[int]] = {}
    rest: dict[int, int] = {}


class Sealed(msgspec.Struct, frozen=True):
    inside: Box


class Left(msgspec.Struct, tag=True):
    votes: Table[str, int]


class Right(msgspec.Struct, tag=True):
    votes: Table[str, int]


class Tree(msgspec.Struct):
    below: Table[str, Tree] = {}


def form(hint: Any, value: Any) -> bytes:
    canonical = shape_of(hint).canonical
    return encode_inside(value if canonical is None else canonical(value))


XY, YX = {"x": 1, "y": 2}, {"y": 2, "x": 1}

ONE = [
    (Table[str, int], XY, YX),
    (Heap[int], [1, 2, 3], [1, 3, 2]),
    (Heap[Plain], [Plain("x", 1), Plain("y", 2)], [Plain("y", 2), Plain("x", 1)]),
    (Heap[Box], [Box({1: []}), Box({2: []})], [Box({2: []}), Box({1: []})]),
    (Table[str, Table[str, int]], {"a": XY}, {"a": YX}),
    (Table[frozenset[str], int], {frozenset("x"): 1, frozenset("y"): 2}, {frozenset("y"): 2, frozenset("x"): 1}),
    (dict[str, Table[str, int]], {"a": XY, "b": YX}, {"a": YX, "b": XY}),
    (list[Table[str, int]], [XY], [YX]),
    (tuple[int, Table[str, int]], (1, XY), (1, YX)),
    (tuple[Table[str, int], ...], (XY, YX), (YX, XY)),
    (Pair, Pair("a", XY), Pair("a", YX)),
    (Table[str, int] | None, XY, YX),
    (Left | Right | None, Left(XY), Left(YX)),
    (Sealed, Sealed(Box({1: [], 2: []})), Sealed(Box({2: [], 1: []}))),
    (Tree, Tree({"x": Tree(), "y": Tree()}), Tree({"y": Tree(), "x": Tree()})),
    (Tree, Tree({"z": Tree({"x": Tree(), "y": Tree()})}), Tree({"z": Tree({"y": Tree(), "x": Tree()})})),
]

TWO = [
    (dict[str, int], XY, YX),
    (list[int], [1, 2], [2, 1]),
    (Table[str, int], XY, {"x": 2, "y": 1}),
    (Table[str, list[int]], {"x": [1, 2]}, {"x": [2, 1]}),
    (Table[str, dict[str, int]], {"a": XY}, {"a": YX}),
    (Heap[int], [1, 1, 2], [1, 2, 2]),
    (Heap[list[int]], [[1, 2]], [[2, 1]]),
    (Pair, Pair("a", XY), Pair("b", XY)),
    (Box, Box(rest={1: 1, 2: 2}), Box(rest={2: 2, 1: 1})),
    (Left | Right, Left(XY), Right(XY)),
    (Table[str, int] | None, {}, None),
    (set[str], {"x"}, {"y"}),
    (Any, XY, YX),
]


@pytest.mark.parametrize(("hint", "one", "other"), ONE, ids=str)
def test_what_differs_only_in_what_has_no_order_is_one(hint: Any, one: Any, other: Any) -> None:
    assert form(hint, one) == form(hint, other)


@pytest.mark.parametrize(("hint", "one", "other"), TWO, ids=str)
def test_everything_else_tells_states_apart(hint: Any, one: Any, other: Any) -> None:
    assert form(hint, one) != form(hint, other)


def test_a_set_counts_by_what_it_holds() -> None:
    one, other = set(range(0, 800, 8)), set(range(792, -8, -8))
    assert [*one] != [*other], "sets of the same numbers, in different orders"
    assert form(set[int], one) == form(set[int], other)
    assert form(dict[int, set[int]], {1: one}) == form(dict[int, set[int]], {1: other})


def test_what_has_nothing_unordered_inside_is_left_as_it_is() -> None:
    for hint in (int, ProcessId, MessageId, tuple[int, ...], dict[MessageId, list[Plain]], Plain, int | None):
        assert shape_of(hint).canonical is None
        assert shape_of(hint).turned is None


@pytest.mark.parametrize("hint", [Table[str, int] | int, set[Any], list, dict, tuple])
def test_odd_types_have_a_shape(hint: Any) -> None:
    shape_of(hint)


def test_a_turned_heap_is_another_layout_of_the_same_heap() -> None:
    turned = shape_of(Heap[int]).turned
    assert turned is not None
    for size in range(6):
        for order in permutations(range(size)):
            heap: list[int] = []
            for number in order:
                heappush(heap, number)
            other = turned(heap)
            assert sorted(other) == sorted(heap)
            assert all(other[(i - 1) // 2] <= other[i] for i in range(1, size)), "still a heap"
            assert other != heap or size < 3, "with three elements there is always another layout"


def test_what_is_no_heap_is_turned_round() -> None:
    turned = shape_of(Heap[int]).turned
    assert turned is not None
    assert turned([2, 1]) == [1, 2]
    assert turned([3, 1, 2]) == [2, 1, 3]


def test_turning_reaches_everything_inside_and_nothing_else() -> None:
    turned = shape_of(dict[int, Sealed]).turned
    assert turned is not None
    found = turned({1: Sealed(Box({1: [1, 2], 2: []}, {1: 1, 2: 2})), 2: Sealed(Box())})
    assert list(found) == [1, 2]
    assert list(found[1].inside.kept.items()) == [(2, []), (1, [1, 2])]
    assert list(found[1].inside.rest) == [1, 2]
    pair = shape_of(tuple[Pair, Left | None]).turned
    assert pair is not None
    (_, votes), left = pair((Pair("a", XY), Left(YX)))
    assert [*votes] == ["y", "x"]
    assert [*left.votes] == ["x", "y"]
    assert pair((Pair("a", XY), None))[1] is None


def test_only_dicts_and_lists_can_be_marked() -> None:
    with pytest.raises(TypeError, match="dicts and lists"):
        shape_of(Annotated[tuple[int, ...], UNORDERED])
