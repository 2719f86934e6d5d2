"""`antiphon merge`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table as Shown

from antiphon.cli.flags import JsonFlag, MasterFlag, RemoteFlag, master_of
from antiphon.cli.progress import StepsBar
from antiphon.cli.session import mounted, need_spark, one_sentence, quiet_session, refuse_elsewhere
from antiphon.core.keys import first_number
from antiphon.merge import (
    Asked,
    Floor,
    MergedTable,
    await_disks,
    behind,
    check_protocol,
    find_logs,
    floors_of,
    is_running,
)
from antiphon.merge import advance as advanced
from antiphon.protocols import in_words
from antiphon.runtime.cluster import ClusterFolder

ROWS_EXPECTED = 1_000_000  # Java compiles quickly, and does not divide small work into smaller
MANY_BYTES = 1 << 30  # of logs; from there on it had better compile well


def register(app: typer.Typer) -> None:
    app.command("merge")(merge_command)


def merge_command(
    logs: Annotated[
        list[str],
        typer.Argument(help="A cluster's folder; or folders of its processes' logs, copied, with its cluster.json."),
    ],
    out: Annotated[str, typer.Option(help="The table's folder; an earlier merge there goes on.")],
    master: MasterFlag = None,
    remote: RemoteFlag = None,
    advance: Annotated[
        bool, typer.Option(help="Ask groups of a running cluster that hold up the others to raise their floors.")
    ] = True,
    wait: Annotated[float, typer.Option(min=0, help="So many seconds are given to them.")] = 10.0,
    json: JsonFlag = False,
) -> None:
    """Make one ordered table of what all groups delivered.

    A row is a payload: its position in the order of all groups, its message, the groups that delivered it, its client.
    The next merge adds what came since, and changes nothing that is there. A row is added when nothing can come before
    it any more: a group's floor is the place in the order up to which it has delivered everything.

    Exit code 1: the logs contradict each other.

    Example: antiphon merge shop --out ledger
    """
    where = master_of(master, remote)
    for place in (*logs, out):
        refuse_elsewhere(place, where, "--out " * (place == out))
    folders = [mounted(place, "Logs are read from") for place in logs]
    config, found = find_logs(folders)
    check_protocol(config)
    table = MergedTable.prepare(mounted(out, "A table is written into"), config)
    need_spark(where)
    with table.locked(), StepsBar(3) as steps, one_sentence():
        steps.next("looking how far the groups are")
        running = _running(folders)
        if running is not None:
            await_disks(running, found)
        before = table.newest()
        floors, asked = floors_of(config, found, before=before), Asked([], [], [])
        if running is not None and advance:
            floors, asked = advanced(running, found, floors, wait, before=before)
        steps.next("starting Spark")
        spark = quiet_session(ROWS_EXPECTED, where)
        from antiphon.merge import merge

        steps.next("merging")
        merged = merge(spark, floors, table)
    if json:
        print(msgspec.json.encode(_for_machines(floors, asked, merged, table)).decode())
    else:
        console = Console(highlight=False)
        console.print(_floors_table(floors))
        for sentence in _sentences(floors, asked, merged, table):
            console.print(sentence, soft_wrap=True)


def _running(folders: list[Path]) -> ClusterFolder | None:
    """The cluster whose own folder is given, if it runs."""
    home = ClusterFolder.load(folders[0]) if len(folders) == 1 and ClusterFolder.exists(folders[0]) else None
    return home if home is not None and is_running(home) else None


def _for_machines(floors: dict[str, Floor], asked: Asked, merged: Any, table: MergedTable) -> dict[str, Any]:
    return {
        "table": str(table.path),
        "rows": merged.rows,
        "waiting": merged.waiting,
        "increment": merged.increment,
        "asked": asked,
        "floors": {
            group: {
                "process": floor.log.process if floor.log is not None else None,
                "key": floor.key.hex() if floor.key is not None else None,
            }
            for group, floor in floors.items()
        },
    }


def _floors_table(floors: dict[str, Floor]) -> Shown:
    shown = Shown("group", "read from", "floor", box=None)
    for group, floor in floors.items():
        shown.add_row(group, floor.log.process if floor.log is not None else "", _place(floor))
    return shown


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _place(floor: Floor) -> str:
    return "nothing yet" if floor.key is None else f"{first_number(floor.key)}"


def _sentences(floors: dict[str, Floor], asked: Asked, merged: Any, table: MergedTable) -> Iterator[str]:
    increment = merged.increment
    if increment is None:
        yield f"Nothing was added: {table.path} has {_counted(merged.rows, 'row')}."
    else:
        added = increment.end - increment.first
        yield (
            f"{_counted(added, 'row')} of {_counted(increment.messages, 'message')} {'was' if added == 1 else 'were'} "
            f"added, from position {increment.first:,} on: {table.folder(increment.number)}"
        )
    if merged.waiting:
        waited_for = list(behind(floors))
        has = "has" if len(waited_for) == 1 else "have"
        wait = "waits" if merged.waiting == 1 else "wait"
        yield f"{_counted(merged.waiting, 'more row')} {wait} for {in_words(waited_for)}, which {has} not come so far."
    for group in asked.silent:
        yield f"Nobody of {group} answers: it was not asked to advance."
    for group in asked.late:
        yield f"{group} was asked to advance and has not done so in time: what it delivers next may wait for others."
