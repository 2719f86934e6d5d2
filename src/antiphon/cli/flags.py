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


def parse_option_flags(flags: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals or not name:
            raise UsageError(f"{flag!r} is not an option: write it as name=value.")
        options[name] = value
    return options
