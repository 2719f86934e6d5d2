"""One name has one meaning in the whole tree: no type stands in two modules, and no named number has two values."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOUNS_OF_A_PAPER = {"Wire", "Timer"}  # a component's messages and timers are called as its paper calls them


def types_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    """The names of the types that a module makes, and what each is: a paper's noun, a class, or other types' name."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            is_noun = not NOUNS_OF_A_PAPER.isdisjoint(ast.unparse(base) for base in node.bases)
            yield node.name, "a paper's noun" if is_noun else f"class {node.lineno}"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp | ast.Name):
            names = (ast.unparse(target) for target in node.targets)
            yield from ((name, ast.unparse(node.value)) for name in names if name[:1].isupper() and not name.isupper())


def with_two_meanings(root: Path) -> dict[str, list[str]]:
    """Each name that two modules give to types, unless both name the same types, or it is a noun of two papers."""
    meanings: dict[str, set[str]] = defaultdict(set)
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        module = str(path.relative_to(root))
        for name, what in types_in(ast.parse(path.read_text())):
            meanings[name].add(f"{module}: {what}" if what.startswith("class ") else what)
            modules[name].append(module)
    return {name: modules[name] for name, found in meanings.items() if len(found) > 1}


def test_a_name_has_one_meaning() -> None:
    assert with_two_meanings(ROOT / "src" / "antiphon") == {}


LOG = "class Log:\n    pass\n"
ACK = "class Ack(Wire, frozen=True, tag=1):\n    pass\n"
SOON = "class Ack(Timer, frozen=True):\n    pass\n"
ALIAS = "Log = tuple[int, str]\n"


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (LOG, LOG, ["Log"]),
        (LOG, "class Log(NamedTuple):\n    first: int\n", ["Log"]),
        (LOG, ALIAS, ["Log"]),
        (ALIAS, "Log = int | None\n", ["Log"]),
        (ACK, "class Ack(NamedTuple):\n    number: int\n", ["Ack"]),
        (ACK, "Ack = int | None\n", ["Ack"]),
        (ACK, SOON, []),
        (ALIAS, ALIAS, []),
        (LOG, "class Logs:\n    class Log:\n        pass\n", []),
        (LOG, "LOG = 1 | 2\nlog = [1][0]\n", []),
    ],
)
def test_a_name_with_two_meanings_is_found(tmp_path: Path, one: str, other: str, found: list[str]) -> None:
    for room, text in (("soak", one), ("merge", other)):
        (tmp_path / room).mkdir()
        (tmp_path / room / "judge.py").write_text(text)
    assert list(with_two_meanings(tmp_path)) == found
    assert all(modules == ["merge/judge.py", "soak/judge.py"] for modules in with_two_meanings(tmp_path).values())


def numbers_in(module: ast.Module) -> Iterator[tuple[str, int | float]]:
    """The numbers that a module has names for: limits, sizes, times."""
    for node in module.body:
        if isinstance(node, ast.Assign) and (value := number_of(node.value)) is not None:
            names = (ast.unparse(target) for target in node.targets)
            yield from ((name, value) for name in names if name.isupper() and not name.startswith("_"))


def number_of(node: ast.expr) -> int | float | None:
    """What an expression of nothing but numbers makes."""
    only = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
    if not all(isinstance(each, only) for each in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"), {})
    return value if type(value) in (int, float) else None


def with_two_values(root: Path) -> dict[str, dict[str, int | float]]:
    """Each name that modules give to different numbers."""
    values: dict[str, dict[str, int | float]] = defaultdict(dict)
    for path in sorted(root.rglob("*.py")):
        for name, value in numbers_in(ast.parse(path.read_text())):
            values[name][str(path.relative_to(root))] = value
    return {name: found for name, found in values.items() if len(set(found.values())) > 1}


def test_a_number_with_a_name_has_one_value() -> None:
    assert with_two_values(ROOT / "src" / "antiphon") == {}


@pytest.mark.parametrize(
    ("one", "other", "is_found"),
    [
        ("BACKOFF_SECONDS = 0.1\n", "BACKOFF_SECONDS = 0.2\n", True),
        ("SIZE = 1 << 20\n", "SIZE = -1\n", True),
        ("SIZE = 1 << 20\n", "SIZE = 1_048_576\n", False),
        ("SIZE = 1\n", "_SIZE = 2\nsize = 3\nSIZE = 'large'\n", False),
    ],
)
def test_a_number_with_two_values_is_found(tmp_path: Path, one: str, other: str, is_found: bool) -> None:
    (tmp_path / "a.py").write_text(one)
    (tmp_path / "b.py").write_text(other)
    assert bool(with_two_values(tmp_path)) == is_found
