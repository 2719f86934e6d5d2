"""Every command and program in the pages is run, in the page's order, and prints what the page says.

`python tests/docs/update.py PAGE` writes down what is printed now.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.trace.parquet import read_rows
from docs.pages import PAGES, Example, examples
from docs.stage import Stage, agrees, masked

PLAYED = [page for page in PAGES if any(example.why_not_run is None for example in examples(page))]
NOT_RUN = 14
DEMO_MESSAGES = 300  # as in the README


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


SPARK = ("antiphon demo", "antiphon verify", "antiphon metrics", "antiphon sweep")


def test_the_pages_that_need_spark_share_its_worker() -> None:
    """Whoever adds one says so in tests/conftest.py."""
    found = [p.stem for p in PLAYED if any(line.startswith(SPARK) for e in examples(p) for line in e.source)]
    assert sorted(found) == ["README", "metrics", "spark", "sweeps", "tutorial"]


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.stem)
def test_a_page_shows_what_is_printed(page: Path, stage: Stage) -> None:
    for example in examples(page):
        if example.why_not_run is None:
            printed = stage.play(example)
            assert agrees(example, printed), f"{example} has drifted:\n{difference(example, printed)}"
            if "antiphon demo" in example.source:
                check_demo(stage.folder / "antiphon-demo", printed)


def check_demo(folder: Path, printed: str) -> None:
    """The page's numbers differ from run to run; that they add up is checked here, on this run."""
    rows = read_rows(folder / "cluster" / "trace", "demo")
    delivered = sum(cell.payloads for row in rows if row.kind == "deliver" for cell in row.requests or ())
    assert delivered > DEMO_MESSAGES * 3
    counts = f"{delivered:,} deliveries due: 0 missing, 0 doubled, 0 stray."
    assert f"{DEMO_MESSAGES} messages accepted, {counts}" in printed
    assert (folder / "cluster" / "billing.2" / "incarnation").read_text() == "2\n", "it was killed and came back"
    report = (folder / "report.html").read_text()
    assert report.count("<svg") >= 3
    assert "http://" not in report.replace("http://www.w3.org/", ""), "the page needs nothing from elsewhere"


def difference(example: Example, printed: str) -> str:
    said = masked(example, "\n".join(example.expected or ())).splitlines()
    return "\n".join(difflib.unified_diff(said, masked(example, printed).splitlines(), "the page", "now", lineterm=""))


def test_what_is_not_run_is_counted() -> None:
    """Whoever leaves one more out says so here."""
    left_out = [example for page in PAGES for example in examples(page) if example.why_not_run]
    assert len(left_out) == NOT_RUN, "\n".join(f"{example}: {example.why_not_run}" for example in left_out)


# The reader of pages ---------------------------------------------------------------------------------------------


def page_of(tmp_path: Path, text: str) -> list[Example]:
    page = tmp_path / "page.md"
    page.write_text(text)
    return examples(page)


def test_examples_are_found_with_their_outputs(tmp_path: Path) -> None:
    first, second, third = page_of(
        tmp_path,
        "```sh\necho a\necho b\n```\nIt prints:\n```output\na\n...\n```\n"
        "<!-- exits with 1: false -->\n```console\n$ false\n\n$ echo c\nc\n```\n",
    )
    assert (first.source, first.expected) == (["echo a", "echo b"], ["a", "..."])
    assert (second.source, second.expected, second.exit_code("false")) == (["false"], [], 1)
    assert (third.source, third.expected, third.exit_code("echo c")) == (["echo c"], ["c"], 0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```\nantiphon status\n```\n", "say what this block is"),
        ("```text\n$ antiphon status\n```\n", "stand in a block called sh or console"),
        ("```output\na\n```\n", "no command prints this"),
        ("Do this:\n\n    antiphon status\n", "in a fenced block, not in an indented one"),
        ("<!-- not run: why -->\nwords\n", "belongs to no block"),
        ("```sh\nantiphon up\nantiphon status --dir shop\n```\n", "stands right below it"),
    ],
)
def test_a_page_that_could_drift_unseen_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        page_of(tmp_path, text)


def test_drift_is_seen(tmp_path: Path, stage: Stage) -> None:
    text = "```console\n$ echo client-0123456789ab:1 has 2\nclient-ba9876543210:1 has 2\n```\n"
    (example,) = page_of(tmp_path, text)
    printed = stage.play(example)
    assert agrees(example, printed)
    assert not agrees(example, printed.replace("has 2", "has 3"))
    assert not agrees(example, printed + "more\n")
    assert not agrees(example, "")


def test_a_look_is_repeated_until_what_the_page_says_has_come(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = page_of(tmp_path, "```console\n$ antiphon tail --dir shop orders\n0 a\n```\n")
    looks = [(1, ""), (0, ""), (0, "0 a\n"), (0, "0 a\n1 b\n")]
    monkeypatch.setattr(stage, "_run", lambda command: looks.pop(0))
    assert agrees(example, stage.play(example))
    monkeypatch.setattr("docs.stage.SETTLE_SECONDS", 0.0)
    assert not agrees(example, stage.play(example)), "and not for ever"


def test_a_wrong_exit_code_is_seen(tmp_path: Path, stage: Stage) -> None:
    (example,) = page_of(tmp_path, "```sh\nantiphon frobnicate\n```\n")
    with pytest.raises(AssertionError, match="exits with 2"):
        stage.play(example)
