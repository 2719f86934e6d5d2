"""All commands together, and what a user gets when one of them fails."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from antiphon import __version__
from antiphon.cli.interrupt import EXIT_INTERRUPTED, EXIT_NO_READER, loading
from antiphon.core.errors import AntiphonError, NotJudged, TraceError, UsageError

PLACES = {  # which file of this folder has a command
    "simulate": "simulate",
    "protocols": "simulate",
    "verify": "spark",
    "metrics": "spark",
    "report": "spark",
    "demo": "spark",
    "sweep": "sweep",
    "reproduce": "reproduce",
    "merge": "merge",
    "up": "cluster",
    "node": "cluster",
    "status": "cluster",
    "replace": "cluster",
    "tell": "cluster",
    "down": "cluster",
    "send": "clients",
    "tail": "clients",
    "bench": "bench",
    "soak": "soak",
}


class Commands(typer.core.TyperGroup):
    """All commands. The file of one is loaded when somebody asks for it: most people who ask for the status of a
    cluster do not want to wait for the simulator.

    (The types of the methods are those of the copy of click that typer carries, which has no public name.)
    """

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(PLACES)

    def get_command(self, ctx: typer.Context, name: str) -> Any:  # type: ignore[override]
        if name in PLACES and name not in self.commands:
            apart = typer.Typer(rich_markup_mode=None)
            with loading():
                import_module(f"antiphon.cli.{PLACES[name]}").register(apart)
            self.commands.update(typer.main.get_group(apart).commands)
        return self.commands.get(name)

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        with noting_that_nobody_reads():  # the version and the help are shown here
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        with noting_that_nobody_reads():
            return super().invoke(ctx)


class NoReaderError(Exception):
    """Whoever read our output has enough, as `head` does. (Of a BrokenPipeError typer would make exit code 1, which
    means something with most commands.)"""


@contextmanager
def noting_that_nobody_reads() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise NoReaderError from None


app = typer.Typer(
    name="antiphon",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# Typer carries a copy of click with it. Its errors are found from a public name, whichever copy is in use.
ClickError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"antiphon {__version__}")
        raise typer.Exit


@app.callback()
def antiphon(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Totally ordered multicast to any set of groups."""


def run() -> NoReturn:
    """Run a command. Bad input gets one sentence and exit code 2; what the cluster could not do, exit code 1; and what
    Spark could not do, 3, for 1 would say that it found a broken promise."""
    arguments = sys.argv[1:] or ["--help"]
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="antiphon", standalone_mode=False)
        sys.stdout.flush()
    except ClickError as error:
        code = _refuse(error)
    except (UsageError, TraceError) as error:
        code = _fail(str(error), 2)
    except NotJudged as error:
        code = _fail(str(error), 3)
    except AntiphonError as error:
        code = _fail(str(error), 1)
    except (typer.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except (NoReaderError, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        code = EXIT_NO_READER
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(error: Any) -> int:
    """What click cannot make sense of. A command that is there only for its subcommands shows its help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return 2
    words = str(error.format_message())
    return _fail(_what_is_wanted(words, error) or f"{words.rstrip('.')}.", 2)


def _what_is_wanted(words: str, error: Any) -> str | None:
    """What a flag must be, or that there are too many arguments; none where click says it well enough itself."""
    if extra := re.fullmatch(r"Got unexpected extra argument\S* \((.*)\)", words):
        return f"Too many arguments: {extra[1]}. A text of several words needs quotes."
    if "than or equal to" in words:
        least, most = error.param.min, error.param.max
        wanted = f"at least {least}" if most is None else f"from {least} to {most}"
    elif "unable to parse string as" in words:
        wanted = "a whole number" if "integer" in words else "a number"
    elif " is not one of " in words:
        *others, last = re.findall(r"'([^']*)'", words.partition(" is not one of ")[2])
        wanted = f"{', '.join(others)} or {last}"
    else:
        return None
    return f"{error.param.opts[0]} must be {wanted}."


def _fail(sentence: str, code: int) -> int:
    print(f"antiphon: {' '.join(sentence.split())}", file=sys.stderr)
    return code
