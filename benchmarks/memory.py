"""Does a protocol's memory stay bounded? Drives its processes directly and prints how large their state is.

    python benchmarks/memory.py [--protocol scalatom] [--messages 1000000] [-o name=value]

The state is the size of a snapshot of all processes together, in bytes, with every message delivered.
"""

from __future__ import annotations

import argparse
import time
from collections import deque

from antiphon.core import Process, ProcessId, Topology
from antiphon.core.effects import Log, Send, SetTimer
from antiphon.core.inputs import AnyInput, Begin, Fire, Multicast, Receive, TurnEnd
from antiphon.protocols import protocol_named


class Bare:
    """Processes, and frames between them in the order in which they were sent; no faults, no time, no trace."""

    def __init__(self, protocol: str, options: dict[str, str], groups: dict[str, int]) -> None:
        self.topology = Topology.sized(groups)
        names = (*self.topology.processes, ProcessId("c1"))
        kind = protocol_named(protocol)
        self.processes = {name: Process(name, self.topology, kind, options) for name in names}
        self.frames: deque[tuple[ProcessId, Send]] = deque()
        self.timers: deque[tuple[ProcessId, Fire]] = deque()
        self.deliveries = 0
        for name in names:
            self.processes[name].traced = False
            self.step(name, Begin(0))

    def step(self, name: ProcessId, happened: AnyInput) -> None:
        process = self.processes[name]
        for effect in process.step(happened):
            if isinstance(effect, Send):
                self.frames.append((name, effect))
            elif isinstance(effect, Log):
                self.deliveries += 1
            elif isinstance(effect, SetTimer):
                self.timers.append((name, Fire(effect.due, effect.part, effect.timer, effect.due)))
        if not isinstance(happened, TurnEnd) and process.turn_is_open:
            self.step(name, TurnEnd(0))

    def multicast(self, destinations: tuple[str, ...]) -> None:
        self.step(ProcessId("c1"), Multicast(0, self.topology.destinations(destinations), (b"x",)))
        while self.frames or self.timers:  # a timer comes when nothing is under way
            if self.frames:
                sender, send = self.frames.popleft()
                for to, number in zip(send.to, send.numbers or (0,) * len(send.to), strict=True):
                    self.step(to, Receive(0, sender, send.transport, number, send.frame))
            else:
                self.step(*self.timers.popleft())

    def state_bytes(self) -> int:
        return sum(len(process.snapshot()) for process in self.processes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", default="scalatom")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("-o", "--option", action="append", default=[])
    arguments = parser.parse_args()
    options = dict(option.split("=", 1) for option in arguments.option)
    bare = Bare(arguments.protocol, options, {"a": 2, "b": 1})
    sets = (("a", "b"), ("a",), ("b",))
    start, shown = time.perf_counter(), 100
    print(f"{'messages':>10} {'state bytes':>12} {'deliveries':>11} {'seconds':>8}")
    for count in range(1, arguments.messages + 1):
        bare.multicast(sets[count % len(sets)])
        if count in (shown, arguments.messages):
            shown *= 10
            print(f"{count:10} {bare.state_bytes():12} {bare.deliveries:11} {time.perf_counter() - start:8.1f}")


if __name__ == "__main__":
    main()
