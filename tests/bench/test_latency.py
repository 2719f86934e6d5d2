"""The table of microseconds: the way of a message is found, and its parts add up."""

from __future__ import annotations

from types import ModuleType

import pytest

from benchmarked import benchmark


@pytest.fixture
def latency() -> ModuleType:
    return benchmark("latency")


def turns_at(latency: ModuleType, *begun: tuple[str, int]) -> list[object]:
    """A turn of each member that begins then and takes 50 microseconds."""
    found = [latency.Turn(name, *(start + 1000 * step for step in (0, 10, 20, 30, 40, 50))) for name, start in begun]
    return sorted(found, key=lambda turn: turn.released)


def test_a_delivery_waited_for_the_last_of_those_before_it(latency: ModuleType) -> None:
    turns = turns_at(latency, ("a", 100_000), ("b", 160_000), ("c", 190_000), ("a", 260_000), ("b", 900_000))
    way = latency.way(latency.Call(50_000, 155_000, 350_000), turns)
    assert [(turn.member, turn.read) for turn in way] == [("a", 100_000), ("c", 190_000), ("a", 260_000)]


def test_what_was_let_out_before_the_call_is_no_part_of_it(latency: ModuleType) -> None:
    turns = turns_at(latency, ("a", 0), ("a", 100_000))
    assert len(latency.way(latency.Call(60_000, 155_000, 200_000), turns)) == 1


def test_the_parts_add_up(latency: ModuleType) -> None:
    turns = turns_at(latency, ("a", 100_000), ("b", 160_000))
    lines = latency.table([latency.Call(90_000, 155_000, 230_000)], turns).splitlines()
    assert lines[2] == "| from the process before | 10 | 10 | 20 |"
    assert all(line.endswith("| 10 | 10 | 20 |") for line in lines[3:8])
    assert lines[8] == "| to the reader | | | 20 |"
    assert lines[9] == "| **sum** | | | **140** |"
