"""Where each microsecond goes: one multicast at a time, from the call to a reader, through a cluster of real processes.

    python benchmarks/latency.py [--protocol skeen] [--groups 1x3] [--messages 1000]

Members run here with their clocks in view: they note when bytes come in, when the turn ends, when the journal's block
is written and synced, and when all that came of it is let out. With one message under way, whatever is noted belongs to
it; going back from the reader to the call, each turn was waited for by the one after it. Noting takes a few
microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from antiphon.client import connect
from antiphon.core import parse_groups
from antiphon.core.model import Roster
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

WARM_UP = 100
PARTS = (
    "from the process before",
    "read, check, handle",
    "put the block together",
    "write it",
    "sync",
    "let out what came of it",
)


class Turn(NamedTuple):
    """What a member noted of one turn, in nanoseconds of the machine's clock."""

    member: str
    read: int
    ended: int
    writing: int
    syncing: int
    synced: int
    released: int

    def parts(self, before: int) -> list[int]:
        edges = (before, self.read, self.ended, self.writing, self.syncing, self.synced, self.released)
        return [after - start for start, after in pairwise(edges)]


class Call(NamedTuple):
    begun: int
    receipt: int
    delivered: int


# A member ------------------------------------------------------------------------------------------------------------


def serve_noting(folder: Path, name: str) -> int:
    """A process of the cluster that notes when things happen, and leaves its notes when it ends."""
    from antiphon.runtime.disk.committer import Committer
    from antiphon.runtime.disk.log import SegmentedLog
    from antiphon.runtime.net.stream import FrameStream
    from antiphon.runtime.node import serve
    from antiphon.runtime.node.driver import Driver

    turns: list[tuple[int, ...]] = []
    noted = {"read": 0, "ended": 0, "writing": 0, "syncing": 0, "synced": 0}
    journal: list[SegmentedLog] = []

    def note(owner: Any, method: str, mark: str, *, keep: bool = False) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        def noting(self: Any, *arguments: Any) -> Any:
            if not (keep and noted[mark]):
                noted[mark] = time.monotonic_ns()
            return original(self, *arguments)

        setattr(owner, method, noting)

    note(FrameStream, "buffer_updated", "read", keep=True)
    note(Driver, "_end_turn", "ended")
    write_blocks, fdatasync, release = SegmentedLog.write_blocks, os.fdatasync, Driver._release

    def noting_write(self: SegmentedLog, taken: Any) -> None:
        if self is journal[0]:
            noted["writing"] = time.monotonic_ns()
        write_blocks(self, taken)

    def noting_sync(fd: int) -> None:
        is_journal = fd == journal[0]._writer.fd
        begun = time.monotonic_ns()
        fdatasync(fd)
        if is_journal:
            noted["syncing"], noted["synced"] = begun, time.monotonic_ns()

    def noting_release(self: Driver, index: int) -> None:
        release(self, index)
        turns.append((*noted.values(), time.monotonic_ns()))
        noted["read"] = 0

    commit_later = Committer.commit_later

    def noting_later(self: Committer) -> None:
        commit_later(self)
        noted["read"] = 0  # of that turn nothing comes

    begin = Driver.begin

    def beginning(self: Driver, roster: Roster) -> None:
        assert self.journal is not None
        journal.append(self.journal)
        begin(self, roster)

    Driver.begin = beginning  # type: ignore[method-assign]
    SegmentedLog.write_blocks = noting_write  # type: ignore[method-assign]
    os.fdatasync = noting_sync  # type: ignore[assignment]
    Driver._release = noting_release  # type: ignore[method-assign]
    Committer.commit_later = noting_later  # type: ignore[method-assign]
    try:
        return serve(folder, name)
    finally:
        (folder / f"{name}.turns").write_text(json.dumps(turns))


# The cluster and its client ------------------------------------------------------------------------------------------


def start(folder: ClusterFolder) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, __file__, "--folder", str(folder.path), "--member"]
    members = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in folder.config.processes]
    for member in members:
        assert member.stdout is not None
        assert b"listens" in member.stdout.readline(), "a member did not start"
    return members


async def call(folder: ClusterFolder, messages: int) -> list[Call]:
    payload, groups = bytes(100), tuple(folder.config.groups)
    calls: list[Call] = []
    async with connect(folder.path, name="latency") as client:
        reader = client.subscribe(groups[-1])
        for _ in range(WARM_UP + messages):
            next_message = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0)
            begun = time.monotonic_ns()
            await client.multicast(groups, payload)
            receipt = time.monotonic_ns()
            await next_message
            calls.append(Call(begun, receipt, time.monotonic_ns()))
    return calls[WARM_UP:]


def run(protocol: str, groups: str, messages: int) -> tuple[list[Call], list[Turn]]:
    with tempfile.TemporaryDirectory(prefix="antiphon-latency-", dir=Path.cwd()) as temporary:
        folder = cluster.create(Path(temporary) / "cluster", parse_groups(groups), protocol=protocol, trace=False)
        members = start(folder)
        try:
            calls = uvloop.run(call(folder, messages))
        finally:
            for member in members:
                member.send_signal(signal.SIGTERM)
            for member in members:
                member.wait(20)
        turns = []
        for name in folder.config.processes:
            turns += [Turn(name, *turn) for turn in json.loads((folder.path / f"{name}.turns").read_text())]
    return calls, sorted((turn for turn in turns if turn.read), key=lambda turn: turn.released)


# The way of a message ------------------------------------------------------------------------------------------------


def way(one: Call, turns: list[Turn]) -> list[Turn]:
    """The turns that a delivery waited for, one after the other, from the call to the reader."""
    found: list[Turn] = []
    until = one.delivered
    while earlier := [turn for turn in turns if one.begun < turn.read and turn.released <= until]:
        found.append(max(earlier, key=lambda turn: turn.released))
        until = found[-1].read
    return found[::-1]


def table(calls: list[Call], turns: list[Turn]) -> str:
    ways = []
    at = 0
    for one in calls:
        while turns[at].released < one.begun:
            at += 1
        near = [turn for turn in turns[at : at + 60] if turn.released <= one.delivered]
        ways.append((one, way(one, near)))
    length = Counter(len(found) for _, found in ways).most_common(1)[0][0]
    typical = [(one, found) for one, found in ways if len(found) == length]
    sums: dict[tuple[int, int], list[int]] = defaultdict(list)
    ends = []
    for one, found in typical:
        before = one.begun
        for stage, turn in enumerate(found):
            for part, spent in enumerate(turn.parts(before)):
                sums[part, stage].append(spent)
            before = turn.released
        ends.append(one.delivered - before)
    lines = ["| median, µs | " + " | ".join(f"turn {stage + 1}" for stage in range(length)) + " | all |"]
    lines.append("| --- |" + " --- |" * (length + 1))
    total = 0.0
    for part, name in enumerate(PARTS):
        medians = [statistics.median(sums[part, stage]) / 1e3 for stage in range(length)]
        total += sum(medians)
        lines.append(f"| {name} | " + " | ".join(f"{each:.0f}" for each in medians) + f" | {sum(medians):.0f} |")
    end = statistics.median(ends) / 1e3
    lines.append("| to the reader |" + " |" * length + f" {end:.0f} |")
    lines.append("| **sum** |" + " |" * length + f" **{total + end:.0f}** |")
    receipt, delivered = (
        statistics.median([getattr(one, name) - one.begun for one in calls]) / 1e3 for name in ("receipt", "delivered")
    )
    lines.append("")
    lines.append(
        f"{len(calls)} messages; {len(typical)} of them waited for {length} turns, and these are in the table. "
        f"Measured from outside: {receipt:.0f} µs to the receipt, {delivered:.0f} µs to the reader (medians of all)."
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="skeen")
    parser.add_argument("--groups", default="1x3")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--member", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        return serve_noting(arguments.folder, arguments.member)
    print(table(*run(arguments.protocol, arguments.groups, arguments.messages)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
