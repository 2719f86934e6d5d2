"""What a state variable's order means, said by its type.

The state search treats two states as one when they differ only in what has no order. A plain dict or list has one: that
is the default. A variable whose order can never show says so in its annotation:

- ``Table[K, V]``: a dict that is only looked up by key, or folded by max, all or any;
- ``Heap[T]``: a list kept by heapq, or a collection that is only emptied as a whole.

To the program they are a dict and a list. The search puts each such word to the test: it turns the contents round and
compares what the process does (simulation/search).
"""

from __future__ import annotations

from typing import Annotated, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Unordered:
    """The mark in the annotation."""

    def __repr__(self) -> str:
        return "UNORDERED"


UNORDERED = Unordered()

Table = Annotated[dict[K, V], UNORDERED]
Heap = Annotated[list[V], UNORDERED]
