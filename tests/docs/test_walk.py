"""docs/walk.stops and docs/walk-all.stops follow one multicast through the code: each of their stops is there."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = ("walk.stops", "walk-all.stops")


def stops(walk: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "docs" / walk).read_text().splitlines())
    return [line for line in lines if line]


@cache
def names_in(file: str) -> set[str]:
    """The functions and classes of a file, and the methods as Class.method."""
    found = set()
    for node in ast.parse((ROOT / "src" / "antiphon" / file).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


@pytest.mark.parametrize("walk", WALKS)
def test_every_stop_of_the_walk_is_there(walk: str) -> None:
    walked = [stop.partition(":") for stop in stops(walk)]
    assert [f"{file}:{name}" for file, _, name in walked if name not in names_in(file)] == []
    assert walked[0][2] == "Client.multicast"


def test_the_walks_end_with_a_verdict() -> None:
    assert [stops(walk)[-1].partition(":")[2] for walk in WALKS] == ["verdict_table", "verdicts"]


def test_the_way_alone_leads_past_nothing_that_is_not_on_the_whole_walk() -> None:
    """Its stops are stops of the other walk, in the same order: what is left out there cannot be hidden here."""
    others = iter(stops("walk-all.stops"))
    assert [stop for stop in stops("walk.stops") if stop not in others] == []
