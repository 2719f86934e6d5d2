"""Spark for the commands: started without its greetings, and with one sentence when it fails."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.core.errors import AntiphonError, NotJudged, UsageError
from antiphon.trace import event_files

if TYPE_CHECKING:
    from antiphon.trace.survey import Survey

FILES_CHECKED = 256  # before Spark starts; the pipeline checks all


def need_spark() -> None:
    """Refuse in one sentence if Spark cannot start here; takes no more than a moment."""
    from antiphon.pipeline import session

    if find_spec("pyspark") is None:
        raise UsageError(session.no_pyspark())
    session._need_java()


def quiet_session(trace: Path | int, master: str | None = None) -> Any:
    """A session whose JVM does not write to our standard error: it greets there, and warns of what nobody can help.

    ``trace``: what it is for, or about how many rows that will have. ``master``: where to run, if somebody says so.
    """
    from antiphon.pipeline.session import spark_session

    rows = trace if isinstance(trace, int) else _rows(trace)
    with tempfile.TemporaryFile() as words:
        terminal = os.dup(2)
        os.dup2(words.fileno(), 2)
        try:
            return spark_session(rows=rows, master=master)
        except UsageError:
            raise
        except Exception as error:
            words.seek(0)
            said = words.read().decode(errors="replace").strip().splitlines()
            raise NotJudged(f"Spark did not start: {said[-1] if said else error}") from None
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def check_trace(trace: Path) -> Survey | None:
    """Look at a trace's files before Spark takes its seconds to start; of more than a few, Spark is quicker: None.

    Refuses a trace of which nothing can be read.
    """
    from antiphon.trace.survey import survey

    found = survey(trace) if len(event_files(trace)) <= FILES_CHECKED else None
    need_spark()
    return found


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


def refuse_elsewhere(place: str, master: str, flag: str = "") -> None:
    """A plain path is one of this machine: whoever runs tasks on others says that they have it, too."""
    from antiphon.pipeline.session import is_remote

    if is_remote(master) and "://" not in place:
        raise UsageError(
            f"{place} is a path of this machine, and {master} runs tasks on others: "
            f"if all of them have this folder, say so with {flag}{Path(place).resolve().as_uri()}."
        )


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn a failure inside Spark into one sentence, which names the file if one was the reason."""
    try:
        yield
    except AntiphonError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        said = str(error)
        file = re.search(r"while reading file (?:file:/+)?(\S+?)\.?\s", said)
        if file:
            raise NotJudged(f"Spark cannot read /{file[1].lstrip('/')}: it is damaged.") from None
        first = next((line for line in said.splitlines() if line.strip()), type(error).__name__)
        raise NotJudged(f"Spark failed: {first}") from None


def collected(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]
