"""Tables for terminals, from rows as Spark gives them."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from antiphon.cli import tables
from antiphon.cli.printing import print_table
from antiphon.trace import RunFacts


def shown(table: RenderableType, width: int = 80) -> str:
    printed = io.StringIO()
    print_table(table, Console(width=width, file=printed))
    return printed.getvalue()


def test_no_cell_is_cut_and_no_line_ends_in_blanks() -> None:
    table = Table("process", "what is known of it", box=None)
    table.add_row("a-process-with-a-name-of-some-length.1", "yes")
    table.add_row("a.2", "and a cell of some length as well")
    assert shown(table, width=20) == shown(table, width=200)
    assert shown(table).splitlines()[1:] == [
        " a-process-with-a-name-of-some-length.1  yes",
        " a.2                                     and a cell of some length as well",
    ]


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


def test_what_nobody_promises_is_only_named() -> None:
    rows = verdict("a", integrity="holds", fifo="not promised", gaps="not promised", causal="not promised")
    assert [line.split() for line in shown(tables.verdict_table(rows)).splitlines()] == [
        ["property", "a"],
        ["integrity", "holds"],
        ["not", "promised:", "fifo,", "gaps,", "causal"],
    ]
    both = rows + verdict("b", integrity="holds", fifo="broken", gaps="not promised", causal="not promised")
    assert shown(tables.verdict_table(both)).splitlines()[2].split() == ["fifo", "not", "promised", "broken"]
    assert shown(tables.verdict_table(verdict("a", fifo="not promised"))).splitlines()[-1] == "not promised: fifo"


def test_of_many_runs_those_with_each_verdict_are_counted() -> None:
    rows = [
        row
        for i in range(30)
        for row in verdict(f"run{i:02}", integrity="holds", fifo="broken" if i == 29 else "not promised")
    ]
    assert [line.split() for line in shown(tables.verdict_table(rows)).splitlines()] == [
        ["30", "runs", "holds", "broken", "not", "promised"],
        ["integrity", "30", "-", "-"],
        ["fifo", "-", "1", "29"],
    ]


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
        promises=["validity", "real_time_order", "kindness"],
        drained=False,
        faulty=["orders.1"],
        incomplete=["orders.2"],
    )
    with console.capture() as capture:
        tables.explain_unchecked(console, verdict("r", validity="unchecked", kindness="unchecked"), [facts])
    assert capture.get() == (
        "\nr ended before everything was delivered (orders.1 was down).\n"
        "\nRows of orders.2 are missing in r.\n"
        "\nr does not say how far its clocks may be apart: real_time_order cannot be judged.\n"
        "\nNothing here checks kindness, which r promises.\n"
    )


def test_an_order_of_real_time_is_judged_where_the_error_of_the_clocks_is_stated() -> None:
    facts = RunFacts(
        run="r", driver="runtime", protocol="primcast", groups={}, promises=["real_time_order", "fifo"], drained=True
    )
    assert tables.untimed(facts) == ["real_time_order"]
    facts.clock_error_ns = 0
    assert tables.untimed(facts) == []


def test_metrics_of_a_few_and_of_many_runs() -> None:
    few = shown(tables.run_metrics([measured("a")]))
    assert "1,234,567" in few
    assert "0.25" in few
    many = shown(tables.run_metrics([measured(f"run{i:02}") for i in range(25)]))
    assert "and 5 more lines: --json has all" in many
    assert max(map(len, many.splitlines())) <= 80


def test_latency_by_number_of_groups() -> None:
    row: dict[str, Any] = dict.fromkeys(tables._GROUP_COLUMNS, 2.5)
    text = shown(tables.group_metrics([{**row, "run": "a", "groups": 1, "messages": 10, "deliveries": 30}]))
    assert "a " not in text.splitlines()[1]
    assert "2.50" in text
    many = shown(tables.group_metrics([{**row, "run": f"run{i}", "groups": 1} for i in range(61)]))
    assert "and 1 more line: --json has all" in many
