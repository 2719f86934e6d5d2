"""The command line: every command a thin layer over a room of the library."""

from __future__ import annotations

import sys

import click
import typer

from antiphon.cli import bench, cluster, simulate, spark
from antiphon.core.errors import AntiphonError, TraceError, UsageError

app = typer.Typer(
    name="antiphon",
    help="Totally ordered multicast to any set of groups.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
simulate.register(app)
spark.register(app)
cluster.register(app)
bench.register(app)


def main() -> None:
    """Run a command. Bad input gets one sentence and exit code 2; what the cluster could not do, exit code 1."""
    try:
        code = typer.main.get_command(app).main(standalone_mode=False)
    except click.ClickException as error:
        code = _fail(error.format_message(), 2)
    except (UsageError, TraceError) as error:
        code = _fail(str(error), 2)
    except AntiphonError as error:
        code = _fail(str(error), 1)
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # the reader of our output has enough, as `head` does
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> int:
    print(f"antiphon: {' '.join(sentence.split())}", file=sys.stderr)
    return code
