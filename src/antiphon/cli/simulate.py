"""`antiphon simulate` and `antiphon protocols`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from antiphon.cli.flags import JsonFlag, OptionFlag, parse_option_flags
from antiphon.cli.printing import Printer, print_table
from antiphon.core.component import OrderingProtocol
from antiphon.core.declaration import Detector, Failures
from antiphon.core.errors import UsageError
from antiphon.core.options import described_options, option_choices
from antiphon.core.promises import Promise
from antiphon.protocols import DEFAULT_PROTOCOL, options_of, protocol_named, protocols
from antiphon.simulation import (
    Outcome,
    Workload,
    as_code,
    shrink,
    simulate,
)
from antiphon.simulation.campaign import Campaign, run_campaign
from antiphon.simulation.graph import graph_json, refuse_without_a_graph
from antiphon.simulation.settings import RANDOM, Settings

NOTHING = "none"
CAMPAIGN_FLAGS = {"protocol", "option", "runs", "seed", "json"}
FAILURES = {
    Failures.CRASH_RECOVERY: "every process that crashes returns with its journal",
    Failures.MINORITY: "a minority of each group, and any sender, may crash for good",
    Failures.ALL_BUT_ONE: "all but one of each group, and any sender, may crash for good",
}


def register(app: typer.Typer) -> None:
    app.command("simulate")(simulate_command)
    app.command("protocols")(protocols_command)


def simulate_command(
    context: typer.Context,
    protocol: Annotated[str, typer.Option(help="The protocol; see `antiphon protocols`.")] = DEFAULT_PROTOCOL,
    groups: Annotated[str, typer.Option(help="The groups: 3x3, or orders=3,billing=3.")] = "3x3",
    clients: Annotated[
        int, typer.Option(min=0, max=10_000, help="Senders outside all groups; 0: the members send.")
    ] = 2,
    messages: Annotated[int, typer.Option(min=0, max=10_000_000, help="The number of multicasts in all.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 0,
    fanout: Annotated[int | None, typer.Option(help="Groups per message; default: random sets.")] = None,
    faults: Annotated[
        str, typer.Option(help="all, none, some of crash,pause,slow,partition,suspicion, or random: see --runs.")
    ] = "none",
    sent_survives: Annotated[
        bool, typer.Option(help="What a process has sent arrives even if it then crashes.")
    ] = False,
    workload: Annotated[Workload, typer.Option(help="When senders send.")] = Workload.CLOSED,
    interval: Annotated[float, typer.Option(min=0.001, help="Mean ms between two multicasts of one sender.")] = 1.0,
    latency: Annotated[str, typer.Option(help="The latency of a link in ms: 1, 0.5-3 or ~0.2+2.")] = "1",
    loss: Annotated[
        float, typer.Option(min=0, max=0.9, help="The share of datagrams that get lost, with a protocol on such.")
    ] = 0.0,
    causal: Annotated[
        float, typer.Option(min=0, max=1, help="The share of multicasts that ask for the causal service.")
    ] = 0.0,
    size: Annotated[int, typer.Option(min=0, help="Bytes per payload.")] = 16,
    payloads: Annotated[int, typer.Option(min=1, help="Payloads per multicast.")] = 1,
    gather: Annotated[
        int, typer.Option(min=1, help="The most requests in one message; above 1, members gather them.")
    ] = 1,
    option: OptionFlag = [],  # noqa: B006 - typer wants a list
    runs: Annotated[
        int, typer.Option(min=0, help="Run a campaign of at least this many small random runs instead.")
    ] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write the trace into this folder.")] = None,
    graph: Annotated[Path | None, typer.Option(help="Write the causal graph into this file, as JSON.")] = None,
    json: JsonFlag = False,
) -> None:
    """Run a protocol in the virtual world and check what it promises.

    Example: antiphon simulate --protocol skeen --groups 3x3 --clients 2 --messages 1000 --seed 7 --faults all

    A campaign: antiphon simulate --protocol skeen --runs 1000 --seed 1
    """
    chosen = protocol_named(protocol)
    options = parse_option_flags(option)
    options_of(chosen, options)  # refuses what is not one
    if runs:
        _refuse_what_is_random(context, "--runs", CAMPAIGN_FLAGS)
        _campaign(chosen, options, seed, runs, json)
        return
    if faults == RANDOM:
        _refuse_what_is_random(context, "--faults random", CAMPAIGN_FLAGS | {"faults", "trace", "graph"})
    if graph is not None:
        refuse_without_a_graph(protocol)
    settings = Settings(
        protocol=protocol,
        option=options,
        groups=groups,
        clients=clients,
        messages=messages,
        fanout=fanout,
        faults=faults,
        sent_survives=sent_survives,
        workload=workload,
        interval=interval,
        latency=latency,
        loss=loss,
        causal=causal,
        size=size,
        payloads=payloads,
        gather=gather,
    )
    outcome = simulate(settings.scenario(seed))
    try:
        if trace is not None:
            from antiphon.trace.parquet import write_run  # pyarrow is slow to load

            write_run(trace, outcome.facts, outcome.rows)
        if graph is not None:
            graph.write_bytes(graph_json(outcome))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}.") from None
    _show(outcome, json)


def _refuse_what_is_random(context: typer.Context, flag: str, others: set[str]) -> None:
    """Random runs choose their own groups, messages and so on: a flag for one of these would do nothing."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in others}
    given = ["--" + name.replace("_", "-") for name, source in sources.items() if source and source.name != "DEFAULT"]
    if given:
        raise UsageError(f"{flag} makes random runs of every kind, so it cannot be combined with {' or '.join(given)}.")


def _show(outcome: Outcome, json: bool) -> None:
    planned = len(outcome.scenario.plans)
    left_out = 0 if outcome.scenario.through_members else planned - outcome.multicasts  # members gather several in one
    if json:
        print(msgspec.json.encode({**outcome.summary(), "multicasts_planned": planned}).decode())
    else:
        table = Table(show_header=False, box=None)
        for name, value in outcome.summary().items():
            if name == "faults_effective":
                table.add_row(name, f"{len(outcome.faults_effective)} of {len(outcome.scenario.faults)}")
            elif name == "multicasts" and left_out:
                table.add_row(name, f"{value} of {planned}")
            elif name == "violations":
                table.add_row(name, str(len(outcome.violations)) if outcome.violations else NOTHING)
            else:
                table.add_row(name, NOTHING if value is None else str(value))
        print_table(table)
        if left_out:
            print(_why_fewer(outcome, planned))
    if outcome.violations:
        if not json:
            _explain(outcome)
        raise typer.Exit(1)


def _why_fewer(outcome: Outcome, planned: int) -> str:
    senders = {plan.sender for plan in outcome.scenario.plans}
    gone = sorted(senders.intersection(outcome.facts.faulty))
    why = f"{', '.join(gone)} crashed for good" if gone else "the run ended before the rest were made"
    return f"{outcome.multicasts} of {planned} planned multicasts were made: {why}."


def _explain(outcome: Outcome, protocol: type[OrderingProtocol] | None = None) -> None:
    """Shrink a failing run and print it as code."""
    print("\nThis run breaks a promise. The smallest schedule found that breaks it:\n")
    smallest = shrink(outcome, protocol)
    print(as_code(smallest.scenario))
    for violation in smallest.violations:
        print(f"{violation.property}: {violation.detail}")


def _campaign(chosen: type[OrderingProtocol], options: dict[str, str], seed: int, runs: int, json: bool) -> None:
    name = chosen.declaration.name
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"simulating {name}", total=runs)
        campaign = run_campaign(name, seed, runs, options, lambda done: progress.update(bar, completed=done))
    if json:
        print(msgspec.json.encode(campaign).decode())
    else:
        _show_campaign(campaign)
    if campaign.failures:
        if not json:
            _explain(simulate(campaign.failures[0]))
        raise typer.Exit(1)


def _show_campaign(campaign: Campaign) -> None:
    table = Table(show_header=False, box=None)
    for name in campaign.__struct_fields__:
        value: Any = getattr(campaign, name)
        if name == "failures":
            value = ", ".join(str(scenario.seed) for scenario in value)
        elif isinstance(value, dict):
            value = ", ".join(f"{key} {count}" for key, count in value.items())
        table.add_row(name, NOTHING if value == "" else str(value))
    print_table(table, wrap=True)


def protocols_command(
    name: Annotated[str | None, typer.Argument(help="Only this one; default: all.")] = None, json: JsonFlag = False
) -> None:
    """List the protocols: what each assumes, promises and offers.

    Example: antiphon protocols arrow
    """
    found = list(protocols().values()) if name is None else [protocol_named(name)]
    if json:
        listed = [
            {
                **msgspec.to_builtins(kind.declaration),
                "promises": [promise.value for promise in _promised(kind)],
                "options": option_choices(kind),
                "defaults": msgspec.to_builtins(kind.Options()),
            }
            for kind in found
        ]
        print(msgspec.json.encode(listed).decode())
        return
    console = Printer(highlight=False)
    for kind in found:
        console.print(Text(f"{kind.declaration.name}: {kind.declaration.title}", style="bold"))
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for fact, words in _facts(kind).items():
            table.add_row(f"  {fact}", words)
        print_table(table, console, wrap=True)
        print()


def _facts(kind: type[OrderingProtocol]) -> dict[str, str]:
    declaration, assumes = kind.declaration, kind.assumes(kind.Options())
    facts = [FAILURES[assumes.failures]]
    facts += [f"a failure detector that is {assumes.detector}"] if assumes.detector is not Detector.NONE else []
    facts += ["a message addresses one group"] if assumes.one_group else []
    facts += ["a message addresses all groups"] if assumes.all_groups else []
    facts += ["what a process has sent arrives even if it then crashes"] if assumes.sent_survives else []
    return {
        "source": declaration.source,
        "assumes": "; ".join(facts),
        "promises": ", ".join(_promised(kind)),
        "options": "\n".join(described_options(kind)) or "none",
    }


def _promised(kind: type[OrderingProtocol]) -> tuple[Promise, ...]:
    """What holds with the options as they are when nobody chooses."""
    return kind.promises(kind.Options())
