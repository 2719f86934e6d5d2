"""The command line: every command a thin layer over a room of the library."""

from __future__ import annotations

import sys
from typing import Any

import typer

from antiphon import __version__
from antiphon.cli import bench, cluster, simulate, soak, spark
from antiphon.core.errors import AntiphonError, TraceError, UsageError

app = typer.Typer(
    name="antiphon",
    help="Totally ordered multicast to any set of groups.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
simulate.register(app)
spark.register(app)
cluster.register(app)
bench.register(app)
soak.register(app)

# Typer carries a copy of click with it. Its errors are found from a public name, whichever copy is in use.
ClickError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> None:
    """Run a command. Bad input gets one sentence and exit code 2; what the cluster could not do, exit code 1."""
    arguments = sys.argv[1:] or ["--help"]
    if arguments == ["--version"]:
        print(f"antiphon {__version__}")
        return
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="antiphon", standalone_mode=False)
    except ClickError as error:
        code = _fail(error.format_message(), 2)
    except (UsageError, TraceError) as error:
        code = _fail(str(error), 2)
    except AntiphonError as error:
        code = _fail(str(error), 1)
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # the reader of our output has enough, as `head` does
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> int:
    print(f"antiphon: {' '.join(sentence.split())}", file=sys.stderr)
    return code
