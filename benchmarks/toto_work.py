"""The work that ToTo takes, against the bounds of its paper: with 8 to 64 machines.

    python benchmarks/toto_work.py [N ...]

What is counted is not time but steps of the interpreter, in the methods of `Activation` (protocols/toto.py) and in
those of the graph that they call, while one machine's graph grows. With n_c candidates and n_p pending messages the
paper has O(n_p + n_c²) for a message, O(n · n_c²) for the delivery of a set, O(n_c²) for a crash. Shown is the most
that any of them took, divided by that: a number that does not grow is within the bound.

- narrow: one to four machines at a time send without hearing of each other
- wide: all of them do
- stalled: half of the machines are silent, so that nothing is delivered and messages pend; then they speak
- deaf: most machines speak, n times each, before they hear of a second candidate; the last of them lets the first go
- crash: as stalled, but the silent ones do not speak: a Crash of each is told
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from antiphon.core import Buffers, Message, MessageId, ProcessId
from antiphon.protocols.toto import Activation
from antiphon.services.dag import Cast, Dag, Name, NodeService
from antiphon.services.toto import threshold

SIZES = (8, 16, 32, 64)
KINDS = ("message", "delivery", "crash")


class Taken(NamedTuple):
    """One event of a kind, and what it took."""

    steps: int
    bound: int
    candidates: int
    pending: int


class Steps:
    """Counts the instructions that these functions take, with what is written inside of them."""

    def __init__(self, kind: type[Activation]) -> None:
        functions = [f for cls in kind.__mro__ for f in vars(cls).values() if hasattr(f, "__code__")]
        self.codes: set[CodeType] = set()
        for function in (*functions, Dag.is_followed, Dag.first_following):
            self._add(function.__code__)
        self.count = 0

    def _add(self, code: CodeType) -> None:
        self.codes.add(code)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._add(inner)

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code not in self.codes:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._on_step

    def _on_step(self, frame: FrameType, event: str, value: Any) -> Any:
        self.count += event == "opcode"
        return self._on_step


class Machine:
    """The agreement at one machine, as protocols/toto.py does it, and what each event takes."""

    def __init__(self, n: int, kind: type[Activation]) -> None:
        self.machines = tuple(ProcessId(f"p{i:02}") for i in range(n))
        self.phi = threshold(None, n)
        self.dag, self.activation = Dag.among(self.machines), kind.among(n)
        self.taken: dict[str, list[Taken]] = defaultdict(list)
        self.steps = Steps(kind)
        self.delivered = 0

    @property
    def candidates(self) -> int:
        return len(self.activation.m_p)

    @property
    def pending(self) -> int:
        return self.candidates + sum(map(len, self.activation.waiting.values()))

    def send(self, sender: ProcessId, follows: Iterable[Name], service: NodeService = "agreed") -> Name:
        """It comes from there, and follows these."""
        name = Name(sender, self.dag.counts[self.dag.places[sender]] + 1)
        message = Message(MessageId(sender, name.number), (), 1, Buffers())
        node = self.dag.enter(Cast(name, service, tuple(follows), message))
        self.take("message", lambda: self.activation.receive(self.dag, node))
        return name

    def crash(self, machine: ProcessId) -> None:
        self.take("crash", lambda: self.activation.crash(self.dag.places[machine]))

    def take(self, kind: str, change: Callable[[], None]) -> None:
        """Something happens, and then all is delivered that can be."""
        n_c, n_p = self.candidates, self.pending
        due: list[Any] = []

        def look() -> None:
            due[:] = self.activation.deliverable(self.phi)

        self.count(kind, n_c, n_p, change, look)
        while due:
            n_c, n_p = self.candidates, self.pending
            self.delivered += len(due)
            self.count("delivery", n_c, n_p, lambda: self.activation.remove(self.dag, [*due]), look)

    def count(self, kind: str, n_c: int, n_p: int, *changes: Callable[[], None]) -> None:
        before = self.steps.count
        with self.steps.counted():
            for change in changes:
                change()
        n_c, n_p = max(n_c, self.candidates, 1), max(n_p, self.pending)
        bound = {"message": n_p + n_c**2, "delivery": len(self.machines) * n_c**2, "crash": n_c**2}[kind]
        self.taken[kind].append(Taken(self.steps.count - before, bound, n_c, n_p))


def rounds(machine: Machine, senders: Iterable[Iterable[ProcessId]]) -> None:
    """Those who send at the same time follow all that was before, and not each other."""
    for those in senders:
        leaves = tuple(machine.dag.leaves)
        for sender in those:
            machine.send(sender, leaves)


def narrow(machine: Machine) -> None:
    rng = random.Random(len(machine.machines))
    rounds(machine, [rng.sample(machine.machines, rng.randint(1, 4)) for _ in range(3 * len(machine.machines))])


def wide(machine: Machine) -> None:
    rounds(machine, [machine.machines] * 3)


def stalled(machine: Machine) -> None:
    half = machine.machines[: len(machine.machines) // 2]
    rounds(machine, [half[i % len(half) :][:2] for i in range(4 * len(machine.machines))])
    assert not machine.delivered
    rounds(machine, [[p] for p in machine.machines] * 4)


def deaf(machine: Machine) -> None:
    """All but its last have spoken for the larger camp's message, again and again, before they hear of the other's. So
    when the last one speaks, all that they said in between is looked at."""
    larger = machine.machines[: machine.phi + 1]
    other = machine.send(machine.machines[-1], ())
    first = last = machine.send(larger[0], ())
    for _ in range(len(machine.machines)):
        for sender in larger[:-1]:
            last = machine.send(sender, [last], "causal")
    for sender in larger[:-1]:
        last = machine.send(sender, [last, other] if sender == larger[0] else [last], "causal")
    assert not machine.delivered
    machine.send(larger[-1], [first])
    assert machine.delivered


def crash(machine: Machine) -> None:
    half = machine.machines[: len(machine.machines) // 2]
    rounds(machine, [half] * 4)
    assert not machine.delivered
    for q in machine.machines:
        machine.crash(q)
    assert not machine.candidates


SCENES: tuple[Callable[[Machine], None], ...] = (narrow, wide, stalled, deaf, crash)


def work(n: int, scene: Callable[[Machine], None], kind: type[Activation] = Activation) -> Machine:
    machine = Machine(n, kind)
    scene(machine)
    return machine


def most(machine: Machine, kind: str) -> float:
    """Steps for each unit of the bound."""
    return max((each.steps / each.bound for each in machine.taken[kind]), default=0.0)


def in_all(machine: Machine) -> float:
    """The same of the whole run: what a delivery looks at, messages have brought."""
    every = [each for kind in KINDS for each in machine.taken[kind]]
    return sum(each.steps for each in every) / sum(each.bound for each in every)


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or SIZES
    print("| graph | n | messages | candidates | pending | a message | a delivery | a crash | in all |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for scene in SCENES:
        for n in sizes:
            machine = work(n, scene)
            every = [each for kind in KINDS for each in machine.taken[kind]]
            largest = [max(each.candidates for each in every), max(each.pending for each in every)]
            ratios = [f"{most(machine, kind):.1f}" if machine.taken[kind] else "" for kind in KINDS]
            cells = [scene.__name__, n, len(machine.taken["message"]), *largest, *ratios, f"{in_all(machine):.1f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
