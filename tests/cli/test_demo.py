"""A small demo, end to end: real processes, a kill, Spark, and the report."""

from __future__ import annotations

from pathlib import Path

from antiphon.trace import read_rows
from cli.command import Command


def test_a_small_demo_end_to_end(antiphon: Command, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    result = antiphon("demo", "--dir", folder, "--messages", 300, "--json")
    assert result.code == 0, result.err
    outcome = result.json
    assert outcome["holds"] is True
    assert outcome["drained"] is True
    assert outcome["accepted"] == 300
    assert outcome["readers_saw_all"] is True
    counted = outcome["deliveries"]
    rows = read_rows(folder / "cluster" / "trace", "demo")
    delivered = [cell.payloads for row in rows if row.kind == "deliver" for cell in row.requests or ()]
    assert counted["expected"] == sum(delivered) > 300 * 3
    assert (counted["missing"], counted["doubled"], counted["unexpected"]) == (0, 0, 0)
    assert set(outcome["verdicts"].values()) == {"holds", "not promised"}
    assert (folder / "cluster" / "billing.2" / "incarnation").read_text() == "2\n", "it was killed and came back"
    page = (folder / "report.html").read_text()
    assert page.count("<svg") >= 3
    assert "http://" not in page.replace("http://www.w3.org/", ""), "the page needs nothing from elsewhere"
