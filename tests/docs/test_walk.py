"""docs/walk.stops follows one multicast through the code: each of its stops is there."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def stops() -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "docs" / "walk.stops").read_text().splitlines())
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


def test_every_stop_of_the_walk_is_there() -> None:
    walked = [stop.partition(":") for stop in stops()]
    assert [f"{file}:{name}" for file, _, name in walked if name not in names_in(file)] == []
    assert walked[0][2] == "Client.multicast"
    assert walked[-1][2] == "verdicts"
