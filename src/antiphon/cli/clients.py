"""`antiphon send | tail`: the commands that are clients of a cluster."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import AsyncIterable, AsyncIterator, Coroutine
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from antiphon.cli.flags import DirFlag, JsonFlag
from antiphon.cli.lines import Lines
from antiphon.client import Batch, Client, Delivery, Gap, Receipt, View, connect
from antiphon.core.errors import OutcomeUnknown, Unavailable
from antiphon.core.model import Topology
from antiphon.core.requests import check_service
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

LINES_UNDER_WAY_MAX = 1000  # lines on their way at once
STANDARD_INPUT = 0


def register(app: typer.Typer) -> None:
    app.command("send")(send_command)
    app.command("tail")(tail_command)


def _need_somebody(path: Path, groups: set[str]) -> None:
    """Say at once that nobody can answer, rather than wait for it; and first what makes no sense, up or down."""
    folder = ClusterFolder.load(path)
    Topology(folder.config.groups).destinations(groups)
    if not any(cluster.alive(folder).values()):
        raise Unavailable(f"No process of {path} is running: start them with `antiphon up --dir {path}`.")


def send_command(
    dir: DirFlag,
    to: Annotated[str, typer.Option(help="The destination groups: orders,billing.")],
    text: Annotated[str | None, typer.Argument(help="The message; default: lines from standard input.")] = None,
    name: Annotated[str | None, typer.Option(help="A prefix of the messages' names.")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for a member.")] = 30.0,
    service: Annotated[
        str | None, typer.Option(help="agreed or causal, with a protocol that leaves the choice.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Multicast a message to every member of some groups.

    As far as the cluster's protocol promises it, all of them deliver it, or none does, and in the same order as
    everything else. Each line of standard input is a message of its own. Whatever ends the command early, it says how
    many were accepted until then.

    Example: antiphon send --dir shop --to orders,billing "one espresso"

    Many at once: seq 1000 | antiphon send --dir shop --to orders
    """
    destinations = {part.strip() for part in to.split(",") if part.strip()}
    if service is not None:
        check_service(service)
    _need_somebody(dir, destinations)
    sending = Sending(destinations, timeout, service)
    try:
        _run(sending.run(dir, name, text))
    except BaseException:
        if json:
            print(sending.as_json())
        elif sending.tasks and (text is None or sending.unknown):  # of a message that was refused, that says it all
            print(sending.as_text(), file=sys.stderr)
        raise
    if json:
        print(sending.as_json())
    else:
        print(sending.accepted[0] if text is not None else sending.as_text())


class Sending:
    """Messages on their way, and what has become of each so far."""

    def __init__(self, destinations: set[str], timeout: float, service: str | None = None) -> None:
        self.tasks: list[asyncio.Task[Receipt]] = []
        self._destinations = destinations
        self._timeout = timeout
        self._service: Any = service  # the client checks it
        self._room = asyncio.Semaphore(LINES_UNDER_WAY_MAX)

    async def run(self, path: Path, name: str | None, text: str | None) -> None:
        """Send the text, or the lines of standard input. The first failure ends it."""
        async with connect(path, name=name) as client:
            client.check(self._destinations)
            payloads: AsyncIterable[bytes] = Lines(STANDARD_INPUT) if text is None else _only(text.encode())
            async with asyncio.TaskGroup() as group:
                async for payload in payloads:
                    await self._room.acquire()
                    self.tasks.append(group.create_task(self._send(client, payload)))

    async def _send(self, client: Client, payload: bytes) -> Receipt:
        try:
            return await client.multicast(self._destinations, payload, timeout=self._timeout, service=self._service)
        finally:
            self._room.release()

    @property
    def accepted(self) -> list[str]:
        """The names of those with a receipt."""
        done = (task for task in self.tasks if task.done() and not task.cancelled())
        return [task.result().name for task in done if task.exception() is None]

    @property
    def unknown(self) -> int:
        """Those that were under way when they were given up: a member may have them."""
        given_up = (task for task in self.tasks if not task.done() or task.cancelled())
        unanswered = (task for task in self.tasks if task.done() and not task.cancelled())
        return sum(1 for _ in given_up) + sum(isinstance(task.exception(), OutcomeUnknown) for task in unanswered)

    def as_json(self) -> str:
        names = self.accepted
        return msgspec.json.encode({"accepted": len(names), "messages": names, "unknown": self.unknown}).decode()

    def as_text(self) -> str:
        count, unknown = len(self.accepted), self.unknown
        more = f"; up to {unknown} more may have been, but no answer had come yet" if unknown else ""
        return f"{count} message{'' if count == 1 else 's'} accepted{more}."


async def _only(payload: bytes) -> AsyncIterator[bytes]:
    yield payload


def tail_command(
    group: Annotated[str, typer.Argument(help="The group whose deliveries to show.")],
    dir: DirFlag,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="The position to begin with; default: the oldest that is kept.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    member: Annotated[str | None, typer.Option(help="Whose log to show; default: any member's.")] = None,
    json: JsonFlag = False,
) -> None:
    """Show what a group has delivered, in its order.

    A line is position, name, destination groups, payload. Where each member has an order of its own, it is that of one
    of them, and the command says whose.

    Example: antiphon tail --dir shop orders --from 0 --follow
    """
    if not follow:
        _need_somebody(dir, {group})
    _run(_tail(dir, group, start, follow, json, member))


async def _tail(
    path: Path | str, group: str, start: int | None, follow: bool, json: bool, member: str | None = None
) -> None:
    first: Any = "earliest" if start is None else start
    async with (
        connect(path) as client,
        client.subscribe(group, start=first, follow=follow, member=member) as deliveries,
    ):
        is_told = member is not None
        is_first = True
        async for event in deliveries.events():
            if not is_told:
                _say_whose_log(deliveries.member)
                is_told = True
            if is_first and start is None and event.position:
                print(f"What was before position {event.position} is no longer kept.", file=sys.stderr)
            is_first = False
            for each in event if isinstance(event, Batch) else (event,):
                print(_as_json(each) if json else _as_text(each), flush=follow)
        if not is_told:  # there was nothing in it
            _say_whose_log(deliveries.member)


def _say_whose_log(member: str | None) -> None:
    if member is not None:
        print(f"This is the log of {member}: each member has one of its own.", file=sys.stderr)


def _as_text(delivery: Delivery | Gap | View) -> str:
    if isinstance(delivery, Gap):
        return f"{delivery.position}\tmessages may be missing here"
    if isinstance(delivery, View):
        return f"{delivery.position}\tview {delivery.id}: together with {', '.join(delivery.members)} from here on"
    text = delivery.payload.decode(errors="replace")
    return f"{delivery.position}\t{delivery.name}\t{','.join(delivery.destinations)}\t{text}"


def _as_json(delivery: Delivery | Gap | View) -> str:
    if isinstance(delivery, Gap):
        return msgspec.json.encode({"position": delivery.position, "gap": True}).decode()
    if isinstance(delivery, View):
        view = {"position": delivery.position, "view": str(delivery.id), "members": delivery.members}
        return msgspec.json.encode(view).decode()
    shown: dict[str, Any] = {
        "position": delivery.position,
        "name": delivery.name,
        "destinations": delivery.destinations,
    }
    try:
        shown["text"] = delivery.payload.decode()
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(delivery.payload).decode()
    return msgspec.json.encode(shown).decode()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a command's asynchronous part; the first failure of a group of tasks stands for all."""
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except BaseExceptionGroup as failures:
        found = failures
        while isinstance(found.exceptions[0], BaseExceptionGroup):
            found = found.exceptions[0]
        raise found.exceptions[0] from None
