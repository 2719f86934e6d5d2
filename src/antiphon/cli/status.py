"""`antiphon status`: how every process of a cluster is doing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain

import msgspec
import typer
from rich.table import Table

from antiphon.cli.flags import DirFlag, JsonFlag
from antiphon.cli.printing import print_table
from antiphon.core.model import ProcessId
from antiphon.protocols import in_words
from antiphon.runtime import cluster
from antiphon.runtime.cluster import Answered, ClusterFolder
from antiphon.runtime.net.frames import Rejected, StatusAnswer

DISK_SLOW_SECONDS = 2.0  # for something that is under way


def status_command(dir: DirFlag, json: JsonFlag = False) -> None:
    """Show how every process of a cluster is doing.

    Example: antiphon status --dir shop
    """
    folder = ClusterFolder.load(dir)
    pids = cluster.alive(folder)
    answers = cluster.answers(folder)
    stalled, unreached = cluster.without_majority(folder, answers), cluster.unreached(answers)
    if json:
        print(_status_json(folder, pids, answers, stalled, unreached))
    elif cluster.is_stopped(folder, answers):
        print(f"Every process was stopped cleanly: start them with `antiphon up --dir {dir}`.")
    else:
        table = Table("process", "pid", "alive", "delivered", "pending", "journal MiB", "sync ms", "refused", box=None)
        used = folder.in_use()
        for process, answer in answers.items():
            state = "no" if process in used else unused(folder, process)
            table.add_row(process, *_cells(pids[process], answer, state))
        print_table(table)
        said = (_notes(answers), _comings(folder), _cuts(unreached), _views(answers), _stalls(stalled))
        for sentence in chain.from_iterable(said):
            print(sentence)
    if not cluster.is_well(folder, answers):
        raise typer.Exit(1)


def _status_json(
    folder: ClusterFolder,
    pids: Mapping[ProcessId, int | None],
    answers: Mapping[ProcessId, Answered],
    stalled: Mapping[str, float | None],
    unreached: Mapping[ProcessId, list[ProcessId]],
) -> str:
    group_of = {member: group for group, members in folder.config.groups.items() for member in members}
    listed = {
        process: {
            "pid": pids[process],
            "status": msgspec.to_builtins(answer) if isinstance(answer, StatusAnswer) else None,
            "rejected": answer.sentence if isinstance(answer, Rejected) else None,
            "unreached": unreached.get(process, []),
            "group_has_majority": group_of[process] not in stalled,
            "group_without_majority_since": stalled.get(group_of[process]),
        }
        for process, answer in answers.items()
    }
    return msgspec.json.encode(listed).decode()


def _cells(pid: int | None, status: Answered, down: str = "no") -> list[str]:
    """``down``: what is said of a process that is."""
    if not isinstance(status, StatusAnswer):
        alive = "turns away" if status is not None else down if pid is None else "no answer"
        return [str(pid or ""), alive, "", "", "", "", ""]
    refused = ", ".join(f"{reason} {count}" for reason, count in status.refused.items())
    states = {
        "disk slow": status.disk_seconds >= DISK_SLOW_SECONDS,
        "disk full": status.full,
        "draining": status.draining,
        "waiting": bool(status.returning),
        "learning": status.learns,
    }
    state = next((name for name, holds in states.items() if holds), "")
    return [
        str(pid or ""),
        f"yes, {state}" if state else "yes",
        str(status.delivered),
        str(status.pending),
        f"{status.journal_bytes / (1 << 20):.1f}",
        f"{max(status.last_sync_ms, status.disk_seconds * 1000):.2f}",
        refused or "none",
    ]


def _notes(answers: Mapping[ProcessId, Answered]) -> Iterator[str]:
    """What does not fit into a cell."""
    for process, status in answers.items():
        if isinstance(status, Rejected):
            yield f"{process} turns this command away: {status.sentence}"
        if not isinstance(status, StatusAnswer):
            continue
        if status.disk_seconds >= DISK_SLOW_SECONDS:
            yield f"{process} has waited for its disk for {status.disk_seconds:.0f} seconds; if that goes on, it ends."
        if status.returning:
            yield f"{process} has just been started and waits for {', '.join(status.returning)} before it takes part."
        if status.waits_for:
            yield f"{process} waits for {', '.join(status.waits_for)} before it can deliver its oldest message."
        if status.begins:
            size = f"{status.delivered_bytes / (1 << 20):.1f} MiB"
            yield f"{process} keeps what it delivered from position {status.begins} on, in {size}."
        if status.retain:
            yield f"{process} lets go of nothing that it delivered, for it cannot tell what to retain: {status.retain}"
        if status.trace == "no room":
            yield f"{process} finds no room for its trace."
        elif status.trace == "slow":
            yield f"{process} waits for the disk of its trace."
        elif status.trace:
            yield f"{process} could not write a part of its trace, which is not whole."


def _comings(folder: ClusterFolder) -> Iterator[str]:
    for each in folder.config.replaced:
        if not each.counts and each.newcomer in folder.config.addresses:
            again = f"antiphon replace --dir {folder.path} {each.lost}"
            yield f"{each.newcomer} is to take the place of {each.lost}, which was not seen to its end: call `{again}`."


def _views(answers: Mapping[ProcessId, Answered]) -> Iterator[str]:
    """Who goes on with whom, where the protocol has views. A member of a view may be elsewhere: it has gone on already,
    is not there yet, or is gone, and the others have not noticed."""
    parted: dict[str, list[str]] = {}
    members_of: dict[str, list[str]] = {}
    for process, status in answers.items():
        if isinstance(status, StatusAnswer) and status.view is not None:
            view, members = status.view
            parted.setdefault(view, []).append(process)
            members_of.setdefault(view, members)
    for view, processes in parted.items():
        others = [ProcessId(process) for process in members_of[view] if process not in processes]
        silent = [process for process in others if not isinstance(answers.get(process), StatusAnswer)]
        elsewhere = [process for process in others if process not in silent]
        known = [f"{in_words(elsewhere)} {'is' if len(elsewhere) == 1 else 'are'} not in it now"] if elsewhere else []
        known += [f"{in_words(silent)} {'does' if len(silent) == 1 else 'do'} not answer"] if silent else []
        more = f" Of its other members, {', and '.join(known)}." if known else ""
        if len(processes) == 1:
            yield f"{processes[0]} is in view {view}{'' if others else ', alone'}.{more}"
        else:
            yield f"{in_words(processes)} are together in view {view}.{more}"


def _cuts(unreached: Mapping[ProcessId, list[ProcessId]]) -> Iterator[str]:
    for process, others in unreached.items():
        there = "it is there" if len(others) == 1 else "they are there"
        yield f"{process} does not reach {in_words(others)}, though {there}."


def _stalls(stalled: Mapping[str, float | None]) -> Iterator[str]:
    for group, since in stalled.items():
        has = "has" if since is None else "has had"
        when = "" if since is None else f" since {datetime.fromtimestamp(since):%Y-%m-%d %H:%M:%S}"
        yield f"Group {group} {has} no majority{when}: what is addressed to it waits for enough of its members."


def unused(folder: ClusterFolder, process: ProcessId) -> str:
    return "lost" if folder.process(process).is_lost else "spare"
