"""The record of what every process saw and did: the contract with Spark and with any other reader."""

from antiphon.trace.files import (
    check_columns,
    deduplicate,
    event_files,
    read_facts,
    read_rows,
    remove_facts,
    to_table,
    write_events,
    write_facts,
    write_run,
)
from antiphon.trace.rows import add_rows, receipt_row, rows_of
from antiphon.trace.schema import EVENTS, TRACE_VERSION, EventKind, RequestCell, Row, RunFacts

__all__ = [
    "EVENTS",
    "TRACE_VERSION",
    "EventKind",
    "RequestCell",
    "Row",
    "RunFacts",
    "add_rows",
    "check_columns",
    "deduplicate",
    "event_files",
    "read_facts",
    "read_rows",
    "receipt_row",
    "remove_facts",
    "rows_of",
    "to_table",
    "write_events",
    "write_facts",
    "write_run",
]
