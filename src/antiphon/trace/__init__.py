"""The record of what every process saw and did: the contract with Spark and with any other reader.

Rows and facts are here; the events on disk are in ``antiphon.trace.parquet``, which loads pyarrow.
"""

from antiphon.trace.facts import (
    event_files,
    read_all_facts,
    read_facts,
    remove_facts,
    run_of,
    write_facts,
    write_many_facts,
)
from antiphon.trace.rows import RowMaker, names_of, receive_row, rows_of
from antiphon.trace.schema import MAJORITY, TRACE_VERSION, EventKind, RequestCell, Row, RunFacts

__all__ = [
    "MAJORITY",
    "TRACE_VERSION",
    "EventKind",
    "RequestCell",
    "Row",
    "RowMaker",
    "RunFacts",
    "event_files",
    "names_of",
    "read_all_facts",
    "read_facts",
    "receive_row",
    "remove_facts",
    "rows_of",
    "run_of",
    "write_facts",
    "write_many_facts",
]
