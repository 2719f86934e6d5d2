"""Tables for terminals, from rows as Spark gives them."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType

from antiphon.cli import tables
from antiphon.trace import RunFacts


def shown(table: RenderableType) -> str:
    console = Console(width=200, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_for_how_many_machines_a_message_waits() -> None:
    row = {"run": "a", "deliveries": 1312, "tau": 5.31, "omega": 1.2, "latency_ms": 60.98, "periodic_ms": None}
    rest = {"rho_periodic": None, "poisson_ms": 66.64, "rho_poisson": 0.093}
    text = shown(tables.index_metrics([{**row, **rest}]))
    assert text.splitlines()[1].split() == ["1,312", "5.31", "1.20", "60.98", "-", "-", "66.64", "0.09"]


def verdict(run: str, **statuses: str) -> list[dict[str, Any]]:
    return [{"run": run, "property": name, "status": status} for name, status in statuses.items()]


def measured(run: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(tables._RUN_LINES, 1)
    return {**row, "run": run, "bytes": 1_234_567, "latency_ms_p50": 0.25, "steps_max": None}


def test_a_few_runs_stand_side_by_side() -> None:
    text = shown(tables.verdict_table(verdict("a", integrity="holds") + verdict("b", integrity="unchecked")))
    assert text.split() == ["property", "a", "b", "integrity", "holds", "unchecked"]


def test_of_many_runs_the_broken_ones_are_shown_first() -> None:
    rows = [row for i in range(30) for row in verdict(f"run{i:02}", fifo="broken" if i == 29 else "holds")]
    text = shown(tables.verdict_table(rows))
    assert "run29  broken" in text
    assert "and 10 more runs" in text


def test_a_violation_names_property_processes_and_messages() -> None:
    console = Console(width=120)
    row = {"run": "r", "property": "fifo", "processes": ["g1.1"], "messages": ["c1:1", "c1:2"], "detail": "[why]"}
    with console.capture() as capture:
        tables.explain_violations(console, [row] * 13)
    text = capture.get()
    assert "fifo is broken in r\n  [why]\n  processes: g1.1\n  messages:  c1:1, c1:2" in text
    assert "and 1 more" in text


def test_what_was_not_judged_is_explained() -> None:
    console = Console(width=120)
    facts = RunFacts(
        run="r",
        driver="runtime",
        protocol="skeen",
        groups={},
        promises=["validity", "kindness"],
        drained=False,
        faulty=["orders.1"],
        incomplete=["orders.2"],
    )
    with console.capture() as capture:
        tables.explain_unchecked(console, verdict("r", validity="unchecked", kindness="unchecked"), [facts])
    assert capture.get() == (
        "\nr ended before everything was delivered (orders.1 was down).\n"
        "\nRows of orders.2 are missing in r.\n"
        "\nNothing here checks kindness, which r promises.\n"
    )


def test_metrics_of_a_few_and_of_many_runs() -> None:
    few = shown(tables.run_metrics([measured("a")]))
    assert "1,234,567" in few
    assert "0.25" in few
    many = shown(tables.run_metrics([measured(f"run{i:02}") for i in range(25)]))
    assert "and 5 more runs" in many


def test_latency_by_number_of_groups() -> None:
    row: dict[str, Any] = dict.fromkeys(tables._GROUP_COLUMNS, 2.5)
    text = shown(tables.group_metrics([{**row, "run": "a", "groups": 1, "messages": 10, "deliveries": 30}]))
    assert "a " not in text.splitlines()[1]
    assert "2.50" in text
