"""`antiphon up | node | tell | replace | down`: a cluster of real processes on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from antiphon.cli.flags import DirFlag, JsonFlag, OptionFlag, parse_option_flags
from antiphon.cli.printing import print_table
from antiphon.cli.progress import StepsBar
from antiphon.cli.status import status_command, unused
from antiphon.core.commands import parse_command
from antiphon.core.declaration import Failures
from antiphon.core.errors import UsageError
from antiphon.core.model import parse_groups
from antiphon.core.options import parse_options
from antiphon.protocols import DEFAULT_PROTOCOL, in_words, protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

REPLACE_STEPS = 4


def register(app: typer.Typer) -> None:
    app.command("up")(up_command)
    app.command("node")(node_command)
    app.command("status")(status_command)
    app.command("replace")(replace_command)
    app.command("tell")(tell_command)
    app.command("down")(down_command)


def up_command(
    dir: DirFlag,
    groups: Annotated[str | None, typer.Option(help="For a new cluster: 3x3, or orders=3,billing=3.")] = None,
    protocol: Annotated[str | None, typer.Option(help=f"The protocol; default: {DEFAULT_PROTOCOL}.")] = None,
    option: OptionFlag = [],  # noqa: B006 - typer wants a list
    journal: Annotated[
        bool, typer.Option(help="Keep journals; without one, a process that ends cannot return.")
    ] = True,
    trace: Annotated[bool, typer.Option(help="Record what every process sees and does.")] = True,
    base_port: Annotated[int | None, typer.Option(help="The first port; default: any free ports.")] = None,
    gather: Annotated[
        int | None,
        typer.Option(min=1, help="The most requests that a member may put into one message; 1: it gathers none."),
    ] = None,
    multicast: Annotated[
        bool, typer.Option(help="Send datagrams to all by IP multicast, where the system offers it.")
    ] = True,
    drop: Annotated[
        int, typer.Option(help="Throw away this per cent of the datagrams that come, to try a network that loses them.")
    ] = 0,
    run: Annotated[str | None, typer.Option(help="The run's name in the trace.")] = None,
    spare: Annotated[
        list[str],
        typer.Option(
            metavar="<process>",
            help="For a new cluster: do not start this process, such as orders.4, before it is needed.",
        ),
    ] = [],  # noqa: B006 - typer wants a list
    retain: Annotated[
        list[str],
        typer.Option(
            metavar="<limit>",
            help="Let go of the oldest deliveries beyond a size such as 10GB, an age such as 7d, or either of both; "
            "all: keep everything. A cluster that runs is told.",
        ),
    ] = [],  # noqa: B006 - typer wants a list
    replace: Annotated[
        str | None, typer.Option(help="This process has lost its journal: start a spare of its group in its place.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Start a cluster's processes in the background.

    On an existing cluster, start whatever is down.

    Example: antiphon up --groups orders=3,billing=3 --dir shop
    """
    chosen: dict[str, Any] = {"journal": journal, "trace": trace, "base_port": base_port, "run": run}
    chosen |= {"multicast": multicast, "drop": drop, "spares": spare, "retain": retain}
    if gather is not None:
        chosen["gather"] = gather
    folder = _open_or_create(dir, groups, protocol, parse_option_flags(option), chosen)
    config = folder.config
    kind = protocol_named(config.protocol)
    failures = kind.assumes(parse_options(kind, config.options)).failures
    if not config.journal and failures is Failures.CRASH_RECOVERY:
        typer.echo(f"Without a journal no process can return, and {config.protocol} waits for each of them.", err=True)
    with folder.commanded(_say_that_it_waits):
        joining = [] if replace is None else [cluster.replace(folder, replace)]
        started = cluster.start(folder, [*folder.in_use(), *joining])
    config = folder.config  # another command may have replaced a member meanwhile
    if json:
        listed = {"cluster": config.cluster, "addresses": config.addresses, "started": started}
        print(msgspec.json.encode(listed).decode())
        return
    table = Table("process", "address", "state", box=None)
    used = folder.in_use()
    for process in config.processes:
        state = "started" if process in started else "was running" if process in used else unused(folder, process)
        table.add_row(process, config.addresses[process], state)
    print_table(table)
    if retain:
        print(f"Of what it delivers each process keeps {folder.retained()}.")


def _say_that_it_waits() -> None:
    typer.echo("Another command of antiphon's is at work on this folder: waiting.", err=True)


def _open_or_create(
    path: Path,
    groups: str | None,
    protocol: str | None,
    options: dict[str, str],
    chosen: dict[str, Any],
) -> ClusterFolder:
    sizes = None if groups is None else parse_groups(groups)
    if not ClusterFolder.exists(path):
        if sizes is None:
            raise UsageError(f"{path} is not a cluster yet: name its groups, as in --groups orders=3,billing=3.")
        return cluster.create(path, sizes, protocol=protocol or DEFAULT_PROTOCOL, options=options, **chosen)
    folder = ClusterFolder.load(path)
    found = {group: len(members) for group, members in folder.config.groups.items()}
    if sizes is not None and sizes != found:
        listed = ",".join(f"{group}={size}" for group, size in found.items())
        raise UsageError(f"There is already a cluster in {path}, with the groups {listed}.")
    config = folder.config
    if protocol not in (None, config.protocol) or (options and options != config.options):
        named = "".join(f" -o {name}={value}" for name, value in config.options.items())
        kept = f"{config.protocol}{named}" if named else f"{config.protocol} and its usual options"
        raise UsageError(f"There is already a cluster in {path}, with the protocol {kept}: these stay as they are.")
    if chosen.get("gather", config.gather) != config.gather:
        raise UsageError(f"There is already a cluster in {path}, with --gather {config.gather}.")
    if chosen["spares"] and chosen["spares"] != config.spares:
        raise UsageError(f"There is already a cluster in {path}, with the spares {', '.join(config.spares) or 'none'}.")
    if chosen["drop"] not in (0, config.drop):
        raise UsageError(f"There is already a cluster in {path}, with --drop {config.drop}.")
    if chosen["retain"]:
        folder.retain(chosen["retain"])  # this may change
    return folder


def node_command(
    process: Annotated[str, typer.Argument(help="The process to run, such as orders.1.")],
    dir: DirFlag,
) -> None:
    """Run one process of a cluster in the foreground.

    Example: antiphon node --dir shop orders.1
    """
    folder = ClusterFolder.load(dir)
    own = folder.process(folder.config.known(process))
    if own.pid() is not None:
        raise UsageError(f"Another process runs on {own.path}.")
    arguments = ["-m", "antiphon.runtime.node", "--dir", str(dir), "--process", process]
    os.execv(sys.executable, [sys.executable, *arguments])  # the process itself, with none of this command's threads


def tell_command(
    process: Annotated[str, typer.Argument(help="The process to be told, such as orders.2.")],
    command: Annotated[list[str], typer.Argument(help="What it is to do, a command of its protocol, such as leave.")],
    dir: DirFlag,
) -> None:
    """Tell one process to do something that its protocol can do.

    It has it in its journal when this command ends.

    Example: antiphon tell --dir shop orders.2 leave
    """
    config = ClusterFolder.load(dir).config
    told = config.known(process)
    kind = protocol_named(config.protocol)
    parse_command(kind, parse_options(kind, config.options), command)  # what it cannot do is refused, up or down
    cluster.tell(config, told, command)
    print(f"{told} was told to {' '.join(command)}.")


def replace_command(
    process: Annotated[list[str], typer.Argument(help="The members that are lost for good, such as orders.2.")],
    dir: DirFlag,
    json: JsonFlag = False,
) -> None:
    """Have newcomers take the places of lost members.

    One after the other, where these are lost for good, with disk or machine. A newcomer has a name of its own, starts
    with an empty disk, and learns from the others what it lacks.

    Example: antiphon replace --dir shop orders.2
    """
    folder = ClusterFolder.load(dir)
    done: list[cluster.Succession] = []
    for name in dict.fromkeys(process):
        with folder.commanded(_say_that_it_waits), StepsBar(REPLACE_STEPS) as bar:
            done.append(each := cluster.replace_lost(folder, name, bar.next))
        if not json:
            print(_how_it_went(each))
    if json:
        print(msgspec.json.encode([each._asdict() for each in done]).decode())


def _how_it_went(done: cluster.Succession) -> str:
    later = f" {_have_heard(done.unaware, 'not ')} yet, and will on meeting {done.newcomer}." if done.unaware else ""
    if done.told:
        return f"{done.lost} was replaced before, by {done.newcomer}; {_have_heard(done.told)} now.{later}"
    goes_on = f"it goes on behind position {done.position - 1}" if done.position else "nothing was delivered yet"
    gone = f" Nobody keeps what is before position {done.oldest} any more." if done.oldest else ""
    return f"{done.newcomer} took the place of {done.lost} after {done.seconds:.1f} s; {goes_on}.{gone}{later}"


def _have_heard(processes: Sequence[str], negation: str = "") -> str:
    return f"{in_words(processes)} {'has' if len(processes) == 1 else 'have'} {negation}heard of it"


def down_command(dir: DirFlag, json: JsonFlag = False) -> None:
    """End a cluster's processes, when what is under way is delivered.

    It waits for that, but no longer than some seconds.

    The exit code is 1 if messages may still be under way, with which the next `up` goes on, or the trace is incomplete;
    also where nothing was running, because it was killed or ended so before.

    Example: antiphon down --dir shop
    """
    folder = ClusterFolder.load(dir)
    with folder.commanded(_say_that_it_waits):
        ending = cluster.end(folder)
    if json:
        print(msgspec.json.encode(ending._asdict()).decode())
    else:
        for sentence in _how_it_ended(ending, len(folder.in_use())):
            print(sentence)
    if not ending.drained:
        raise typer.Exit(1)


def _how_it_ended(ending: cluster.ClusterEnding, processes: int) -> Iterator[str]:
    if ending.ended:
        what = "everything was delivered" if ending.delivered else "some messages may still be under way"
        yield f"{len(ending.ended)} of {processes} processes ended; {what}."
    elif ending.delivered:
        yield "Nothing was running."
    else:
        yield "Nothing was running, but some messages may still be under way."
    unclean = [process for process in ending.unclean if process not in ending.untraced]
    if unclean:
        yield f"{in_words(unclean)} did not end cleanly: the next `up` repairs what there is to repair."
    if ending.untraced:
        lacking = ", ".join(ending.untraced)
        yield f"The trace is incomplete: a part of what {lacking} saw could not be written, or is gone."
    if ending.elsewhere:
        yield f"The trace is incomplete: what {in_words(ending.elsewhere)} saw is where it was started, not here."
