"""`antiphon reproduce`: what is written, what a missed bound does, and what is refused. Those here need no Spark."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from antiphon.reproduce import r5, r9
from antiphon.reproduce.results import NAMES, SWEPT
from antiphon.reproduce.table import (
    PaperResult,
    ResultRow,
    ResultTable,
    at_least,
    at_most,
    below,
    between,
    equal,
    grows,
    near,
    near_share,
    only_shown,
)
from cli.command import Command

FILES = {"r5": {"figure1.svg"}, "r9": {"queues.svg"}}


def test_what_is_written(antiphon: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = antiphon("reproduce", "r9", "r5", "--quick", "--out", out)
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line[:2] for line in lines] == ["r5", "r9", "Th"]
    assert lines[0].startswith("r5  toto.txt, Table 1 and Figure 1: All 13 bounds are kept (")
    page = (out / "index.html").read_text()
    for name, pictures in FILES.items():
        folder = out / name
        assert {file.name for file in folder.iterdir()} == {"table.md", "table.csv", "result.json", *pictures}
        found = json.loads((folder / "result.json").read_text())
        assert (found["name"], found["holds"], found["missed"], found["quick"]) == (name, True, [], True)
        with (folder / "table.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == sum(len(table["rows"]) for table in found["tables"])
        assert {row["holds"] for row in rows} == {"true"}
        assert all(row["paper"] == row["ours"] for row in rows)
        for picture in pictures:
            ElementTree.parse(folder / picture)
            assert f'<img src="{name}/{picture}"' in page
            assert f"]({picture})" in (folder / "table.md").read_text()
    assert "| b1 | NVT | 2 | 2 | +0.0 % | the same | yes |" in (out / "r5" / "table.md").read_text()


def test_a_result_of_an_earlier_command_stays_on_the_page(antiphon: Command, tmp_path: Path) -> None:
    for name in ("r5", "r9"):
        assert antiphon("reproduce", name, "--out", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.index('id="r5"') < page.index('id="r9"')


def test_a_bound_that_is_missed(antiphon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(r5.TABLE_1, "c1", ("a, c, d", "(2, ∞, 1, 2, ∞)", 4))
    monkeypatch.setitem(r9.DRAWN[3], "2", ["m2 19.3 d", "m3 18.3 d"])
    result = antiphon("reproduce", "r5", "r9", "--out", tmp_path / "out")
    assert result.code == 1
    assert "r5  toto.txt, Table 1 and Figure 1: 1 of 13 bounds missed" in result.out
    assert "Missed: r5, The candidates: c1, NVT: 3 (the paper: 4) is not the same.\n" in result.out
    assert "Missed: r9, Hold-back queues: 4: m3 gets 18.3, 2, queue: m3 18.3 d, m2 19.3 d (the paper:" in result.out
    found = json.loads((tmp_path / "out" / "r5" / "result.json").read_text())
    assert (found["holds"], len(found["missed"])) == (False, 1)
    assert "| c1 | NVT | 4 | 3 | -25.0 % | the same | **no** |" in (tmp_path / "out" / "r5" / "table.md").read_text()


def test_what_is_refused(antiphon: Command, tmp_path: Path) -> None:
    def refused(words: str, *arguments: object) -> None:
        result = antiphon("reproduce", *arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.count("\n") == 1
        assert words in result.err

    refused(f"There is no 'r10' to reproduce; there are {', '.join(NAMES)} and all.", "r10", "--out", tmp_path / "out")
    (tmp_path / "file").touch()
    refused("file holds something else than a reproduction", "r5", "--out", tmp_path / "file")
    refused("cannot be written: Not a directory.", "r5", "--out", tmp_path / "file" / "out")
    refused("holds something else than a reproduction", "r5", "--out", tmp_path)
    assert antiphon("reproduce", "r5", "--quick", "--out", tmp_path / "out").code == 0
    refused("out holds the quick form, and this is the full one", "r5", "--out", tmp_path / "out")
    assert not (tmp_path / "index.html").exists()


def test_java_is_asked_for_by_sweeps_only(antiphon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert antiphon("reproduce", "r5", "r9", "--out", tmp_path / "out").code == 0
    for name in sorted(SWEPT):
        result = antiphon("reproduce", name, "--out", tmp_path / "out")
        assert (result.code, result.err[:32]) == (2, "antiphon: Spark needs Java 17 or"), name


@pytest.mark.parametrize(
    ("kept", "missed"),
    [
        (equal((), "x", 3, 3), equal((), "x", 3, 4)),
        (equal((), "x", 3, 4, aim=4), equal((), "x", 3, 3, aim=4)),
        (near((), "x", 5.1, 5.49, 0.4), near((), "x", 5.1, 4.69, 0.4)),
        (near_share((), "x", 1.76, 1.65, 0.1, aim=1.82), near_share((), "x", 1.76, 1.63, 0.1, aim=1.82)),
        (below((), "ms", 2.4, 2.3, 2.4), below((), "ms", 2.4, 2.4, 2.4)),
        (at_most((), "x", None, 10.0, 10.0), at_most((), "x", None, 10.1, 10.0)),
        (at_least((), "x", None, 5.6, 5.6), at_least((), "x", None, 5.5, 5.6)),
        (between((), "x", 10, 9, 9, 10), between((), "x", 10, 8, 9, 10)),
        (grows((), "x", None, [1.0, 2.0, 3.0]), grows((), "x", None, [1.0, 3.0, 3.0])),
    ],
)
def test_each_bound_can_be_kept_and_missed(kept: ResultRow, missed: ResultRow) -> None:
    assert (kept.holds, missed.holds) == (True, False)
    assert kept.bound == missed.bound
    table = ResultTable(title="t", labels=(), rows=[kept, missed, only_shown((), "x", 2, 3)])
    result = PaperResult(name="r0", title="", source="", setting="", tables=[table])
    assert len(result.bounded) == 2
    (sentence,) = result.missed
    assert sentence.endswith(f"is not {missed.bound}.")
    assert table.rows[2].deviation == 0.5
