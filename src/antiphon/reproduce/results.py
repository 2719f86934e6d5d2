"""All results by their names, made one after the other into one folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import msgspec

from antiphon.core.errors import UsageError
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.table import PaperResult
from antiphon.reproduce.write import write_index, write_result

NAMES = tuple(f"r{number}" for number in range(1, 10))
SWEPT = frozenset({"r1", "r2", "r6", "r7", "r8"})  # made by sweeps, on Spark
MARK = "reproduction.json"  # says what a folder is

Reproduce = Callable[[Lab], PaperResult]


def wanted(names: Sequence[str]) -> list[str]:
    """Those that were asked for, in their order."""
    for name in names:
        if name not in (*NAMES, "all"):
            raise UsageError(f"There is no {name!r} to reproduce; there are {', '.join(NAMES)} and all.")
    return [name for name in NAMES if name in names or "all" in names or not names]


def need_spark(names: Sequence[str]) -> bool:
    """Whether any of these is made by sweeps."""
    return not SWEPT.isdisjoint(names)


def prepare(folder: Path, *, quick: bool) -> None:
    """A new folder, or one of the same form, to go on with."""
    mark = folder / MARK
    if mark.exists():
        if msgspec.json.decode(mark.read_bytes()) != {"quick": quick}:
            made, asked = ("full", "--quick") if quick else ("quick", "the full one")
            raise UsageError(f"{folder} holds the {made} form, and this is {asked}: give another folder with --out.")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} holds something else than a reproduction: give another folder with --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_bytes(msgspec.json.encode({"quick": quick}))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None


def reproduce(lab: Lab, names: Sequence[str]) -> Iterator[PaperResult]:
    """Make each result, write it, and the page about all that the folder has."""
    for name in names:
        lab.say(name)
        start = time.monotonic()
        make: Reproduce = import_module(f"antiphon.reproduce.{name}").reproduce
        result = make(lab)
        result.quick, result.seconds = lab.quick, round(time.monotonic() - start, 1)
        write_result(lab.place(name), result)
        write_index(lab.folder, NAMES)
        yield result
