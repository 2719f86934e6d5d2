"""Who is outside a room comes in by its door: what the room's `__init__` offers is not fetched from behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src"
VOCABULARY = {"antiphon.core"}  # in small pieces on purpose: whoever is below most others names the piece


def doors(root: Path) -> dict[str, set[str]]:
    """What each room offers, by its name."""
    found = {}
    for door in root.rglob("__init__.py"):
        offered: set[str] = set()
        for node in ast.parse(door.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                offered = set(ast.literal_eval(node.value))
        found[".".join(door.parent.relative_to(root).parts)] = offered
    return found


def past_the_door(root: Path) -> Iterator[str]:
    rooms = doors(root)
    for path in sorted(root.rglob("*.py")):
        own = ".".join(path.parent.relative_to(root).parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None or node.module in rooms:
                continue
            room = node.module.rpartition(".")[0]
            if f"{own}.".startswith(f"{room}.") or room in VOCABULARY:
                continue
            yield from (
                f"{path.relative_to(root)}: {node.module}.{name.name}"
                for name in node.names
                if name.name in rooms.get(room, ())
            )


def test_what_a_room_offers_is_taken_at_its_door() -> None:
    assert list(past_the_door(ROOT)) == []


def test_a_way_past_the_door_is_found(tmp_path: Path) -> None:
    for room, text in (("shop", '__all__ = ["buy"]\n'), ("street", "")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(text)
    (tmp_path / "shop" / "till.py").write_text("def buy(): ...\ndef count(): ...\n")
    (tmp_path / "shop" / "shelf.py").write_text("from shop.till import buy\n")
    (tmp_path / "street" / "people.py").write_text("from shop import buy\nfrom shop.till import buy, count\n")
    assert list(past_the_door(tmp_path)) == ["street/people.py: shop.till.buy"]
