"""Spark for the commands: started without its greetings, with one sentence when it fails, and around damaged files."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.cli.progress import StepsBar
from antiphon.core.errors import AntiphonError, DamagedInside, NotJudged, UsageError
from antiphon.trace import event_files

if TYPE_CHECKING:
    from antiphon.pipeline.read import Trace
    from antiphon.trace.survey import Survey

Made = TypeVar("Made")

FILES_CHECKED = 256  # before Spark starts; the pipeline checks all


def need_spark(master: str | None = None) -> None:
    """Refuse in one sentence if Spark cannot start here; takes no more than a moment."""
    from antiphon.pipeline import session

    session.need(master)


def quiet_session(trace: Path | str | int, master: str | None = None) -> Any:
    """A session whose JVM does not write to our standard error: it greets there, and warns of what nobody can help.

    ``trace``: what it is for, or about how many rows that will have. ``master``: where to run, if somebody says so.
    """
    from antiphon.pipeline.session import spark_session

    if isinstance(trace, Path):
        refuse_elsewhere(str(trace), master)
    rows = trace if isinstance(trace, int) else _rows(trace) if isinstance(trace, Path) else None
    with tempfile.TemporaryFile() as words:
        terminal = os.dup(2)
        os.dup2(words.fileno(), 2)
        try:
            return spark_session(rows=rows, master=master)
        except AntiphonError:
            raise
        except Exception as error:
            words.seek(0)
            said = words.read().decode(errors="replace").strip().splitlines()
            raise NotJudged(f"Spark did not start: {said[-1] if said else error}") from None
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def check_trace(trace: Path | str, master: str | None = None) -> Survey | None:
    """Look at a trace's files before Spark takes its seconds to start; of more than a few, Spark is quicker: None.

    Refuses a trace of which nothing can be read. At one that only Spark can see, Spark looks.
    """
    from antiphon.trace.survey import survey

    found = survey(trace) if isinstance(trace, Path) and len(event_files(trace)) <= FILES_CHECKED else None
    need_spark(master)
    return found


def as_far_as_readable(
    trace: Path | str, found: Survey | None, steps: StepsBar, master: str | None, work: Callable[[Trace], Made]
) -> tuple[Made, Survey]:
    """What this work makes of a trace, and what was not read. Should a file turn out to be damaged inside, all are read
    through to find which ones are, and the work begins again without these."""
    steps.next("starting Spark")
    with one_sentence():
        spark = quiet_session(trace, master)
        from antiphon.pipeline.read import open_trace

        steps.next("reading the trace")
    try:
        with one_sentence():
            opened = open_trace(spark, trace, found)
            return work(opened), opened.survey
    except DamagedInside as error:
        steps.next("looking for damaged files")
        with one_sentence():
            opened = open_trace(spark, trace, thorough=True)
            if not opened.survey.complaints:
                raise error  # whatever Spark cannot read there, Arrow can
            return work(opened), opened.survey


def _rows(trace: Path) -> int:
    """About how many rows a trace has: the mean of the first files stands for the others."""
    files = event_files(trace)
    counted = [_rows_of(file) for file in files[:FILES_CHECKED]]
    return int(sum(counted) * len(files) / max(1, len(counted)))


def _rows_of(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return 0  # a damaged file is not read


def mounted(place: str, use: str) -> Path:
    """The folder that a path or a file's address names. ``use``: the beginning of a sentence that refuses others."""
    parts = urlsplit(place)
    if "://" in place and (parts.scheme != "file" or parts.netloc):
        raise UsageError(f"{use} a folder that can be mounted, not {place}.")
    return Path(unquote(parts.path)) if "://" in place else Path(place)


def placed(place: str, master: str | None) -> Path | str:
    """Where something is read: a path if this machine reads it, else the address that Spark is to read."""
    refuse_elsewhere(place, master)
    far = "://" in place and (runs_elsewhere(master) or not place.startswith("file://"))
    return place.rstrip("/") if far else mounted(place, "A trace is read from")


def runs_elsewhere(master: str | None) -> str | None:
    """Where tasks run, by the flag or by what spark-submit or the environment says, unless that is here."""
    from antiphon.pipeline.masters import HERE, chosen_master, is_remote

    where = master or chosen_master() or HERE
    return where if is_remote(where) else None


def refuse_elsewhere(place: str, master: str | None, flag: str = "") -> None:
    """A plain path is one of this machine: whoever runs tasks on others says that they have it, too."""
    elsewhere = runs_elsewhere(master)
    if elsewhere and "://" not in place:
        raise UsageError(
            f"{place} is a path of this machine, and {elsewhere} runs tasks on others: "
            f"if all of them have this folder, say so with {flag}{Path(place).resolve().as_uri()}."
        )


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn a failure inside Spark into one sentence, which names the file if one was the reason. A mistake of ours is
    shown as it is; the exit code that Python has for one would say that a promise is broken."""
    try:
        yield
    except (AntiphonError, BrokenPipeError):
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            traceback.print_exception(error)
            raise NotJudged(f"Nothing can be said of the trace: {type(error).__name__}: {error}") from None
        said = str(error)
        kind = DamagedInside if _DAMAGED.search(said) else NotJudged
        raise kind(_why(said) or f"Spark failed: {type(error).__name__}") from None


_DAMAGED = re.compile(r"while reading file (file:/+)?([^\s{]\S*?)\.?\s")  # not where a line of Python is quoted


def _why(said: str) -> str | None:
    """What is to be said of a failure inside Spark: the reason, if it is one that people can do something about."""
    file = _DAMAGED.search(said)
    if file:
        return f"Spark cannot read {'/' if file[1] else ''}{file[2]}: it is damaged."
    module = re.search(r"ModuleNotFoundError: No module named '([^']+)'", said)
    if module:
        return (
            f"The Python of Spark's workers has no {module[1]}: "
            "install it there, or name one that has it with PYSPARK_PYTHON (docs/spark.md)."
        )
    lines = [line.strip().removeprefix(": ") for line in said.splitlines()]
    told = next((line for line in lines if line and not line.startswith("An error occurred while calling")), None)
    return told and f"Spark failed: {told}"


def collected(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]
