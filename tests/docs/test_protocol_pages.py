"""The code's line comments and the pages' numbered lines are the same lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiphon.core import Failures
from antiphon.core.component import OrderingProtocol
from antiphon.core.options import parse_options
from antiphon.protocols import protocols

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    [*(ROOT / "src/antiphon/protocols").glob("[a-z]*.py"), *(ROOT / "src/antiphon/services").glob("[a-z]*.py")]
)
PAGES = sorted((ROOT / "docs/protocols").glob("*.md"))


def lines_of_page(page: Path) -> list[str]:
    return re.findall(r"^\| ([A-Z]\d+) \|", page.read_text(), flags=re.MULTILINE)


def lines_of_code(source: Path) -> list[str]:
    marks = re.findall(r"# ([A-Z]\d+(?: [A-Z]\d+)*)\b", source.read_text())
    return [line for mark in marks for line in mark.split()]


def test_operations_says_under_which_protocols_a_process_begins_with_a_majority() -> None:
    page = " ".join((ROOT / "docs/operations.md").read_text().split())
    (named,) = re.findall(r"a majority \(itself counted\) under (.*?), and with `-o membership=true`", page)

    def is_enough(kind: type[OrderingProtocol], options: dict[str, str]) -> bool:
        return kind.assumes(parse_options(kind, options)).failures is not Failures.CRASH_RECOVERY

    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(n for n, kind in protocols().items() if is_enough(kind, {}))
    with_views = [protocols()[name] for name in ("allack", "toto", "transis")]
    assert all(is_enough(kind, {"membership": "true"}) for kind in with_views)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.stem}-{path.stem}")
def test_each_line_of_the_page_appears_once_in_the_code(source: Path) -> None:
    page = ROOT / "docs/protocols" / f"{source.stem}.md"
    in_code = lines_of_code(source)
    assert page.exists() or (source.parent.stem == "services" and not in_code), "every protocol has a page"
    if in_code:
        assert sorted(in_code) == sorted(lines_of_page(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_lines_of_a_page_are_numbered_in_order(page: Path) -> None:
    series: dict[str, list[int]] = {}
    for line in lines_of_page(page):
        series.setdefault(line[0], []).append(int(line[1:]))
    assert series, "a page has numbered pseudo-code"
    for numbers in series.values():
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda path: path.stem)
def test_links_and_named_tests_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, f"{page.name} names {name}"
