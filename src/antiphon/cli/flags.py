"""Flags that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.core.errors import UsageError

DirFlag = Annotated[Path, typer.Option("--dir", help="The cluster's folder.")]
OptionFlag = Annotated[
    list[str], typer.Option("--option", "-o", metavar="<name=value>", help="Set a protocol's option, as name=value.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
MasterFlag = Annotated[
    str | None,
    typer.Option(
        metavar="<url>", help="Where Spark runs: local[4], spark://..., yarn, k8s://...; default: here, on all cores."
    ),
]
RemoteFlag = Annotated[
    str | None, typer.Option(metavar="<url>", help="Run through the Spark Connect server at sc://host:port instead.")
]


def master_of(master: str | None, remote: str | None) -> str | None:
    """Where Spark is to run, by the two flags: a master's URL, or the address of a Spark Connect server."""
    if master is not None and remote is not None:
        raise UsageError("Give --master or --remote, not both: a Spark Connect server has a master of its own.")
    if master is not None and master.startswith("sc://"):
        raise UsageError(f"{master} is a Spark Connect server, not a master: give it as --remote {master}.")
    if remote is not None and not remote.startswith("sc://"):
        raise UsageError(f"{remote} is not the address of a Spark Connect server: write it as sc://host:port.")
    return master or remote


def parse_option_flags(flags: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals or not name:
            raise UsageError(f"{flag!r} is not an option: write it as name=value.")
        options[name] = value
    return options
