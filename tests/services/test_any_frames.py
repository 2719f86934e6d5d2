"""Frames of the right types with anything in them, from anybody: what passes the check breaks no handler.

A frame that made a handler raise would make it raise again at every replay, for it is journaled before it is handled.
"""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from antiphon.core import Buffers, GroupId, Message, MessageId, Process, ProcessId, Topology, Wire
from antiphon.core.component import Component
from antiphon.core.declaration import FaultModel
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.inputs import AnyInput, Begin, Fire, Multicast, Receive, Suspect, TurnEnd
from antiphon.core.options import option_choices, parse_options
from antiphon.core.requests import encode_request
from antiphon.protocols import protocol_named
from antiphon.protocols.counting import WANTED_MAX, Ask, CombiningCounter, Give

TOPOLOGY = Topology.sized({"a": 3, "b": 2})
A, B = TOPOLOGY.destinations({"a"})[0], TOPOLOGY.destinations({"b"})[0]
SENDERS = [ProcessId(name) for name in ("a.1", "a.2", "a.3", "b.1", "c")]
SMALL = (0, 1, 1, 1, 2, 3)
LARGE = (-1, 1 << 20, (1 << 32) - 1, 1 << 40, (1 << 62) - 1, 1 << 63, (1 << 64) - 1)
NOBODY = ProcessId("")
NAMES = ("fifo", "causal", "sequencer", "token", "symmetric", "skeen", "arrow", "combining", "hybrid", "counting")
NAMES += ("tom", "scalatom", "mto", "ctbroadcast", "reliable", "toto")
RUNS, STEPS = 60, 60


hints = cache(typing.get_type_hints)


class Forger:
    """Makes values of any type that a wire message has, the seed says which."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def message(self) -> Message:
        origin, number = self.rng.choice(SENDERS), self.rng.choice((1, 2, 3))
        body = Buffers(encode_request(str(origin), number - 1, 0, (b"x",)))
        return Message(MessageId(origin, number), self.rng.choice(((A,), (A,), (A,), (A, B))), 1, body)

    def value(self, kind: Any, process: Process, depth: int) -> Any:
        rng, origin, parts = self.rng, typing.get_origin(kind), typing.get_args(kind)
        plain = {
            int: lambda: rng.choice(SMALL if rng.random() < 0.75 else LARGE),
            bool: lambda: rng.random() < 0.5,
            type(None): lambda: None,
            GroupId: lambda: rng.choice((A, B)),
            ProcessId: lambda: rng.choice((*SENDERS, NOBODY)),
            str: lambda: rng.choice((*SENDERS, NOBODY)),
            Message: self.message,
            Buffers: lambda: self.frame(process, depth + 1)[1],
            bytes: lambda: msgspec.msgpack.encode(self.value(getattr(process.protocol, "Value", int), process, depth)),
        }
        if kind in plain:
            return plain[kind]()
        if origin in (typing.Union, types.UnionType):
            return self.value(rng.choice(parts), process, depth)
        if origin is typing.Literal:
            return rng.choice(parts)
        if origin is tuple and parts[1:] != (...,):
            return tuple(self.value(part, process, depth) for part in parts)
        if origin in (list, tuple, set):
            return origin(self.value(parts[0], process, depth) for _ in range(rng.choice((0, 1, 1, 2))))
        if origin is dict:
            return {self.value(parts[0], process, depth): self.value(parts[1], process, depth) for _ in range(2)}
        fields = hints(kind)
        return kind(*(self.value(fields[name], process, depth) for name in fields))

    def frame(self, process: Process, depth: int = 0) -> tuple[Component, Buffers]:
        pairs = [(part, wire) for part in process.parts for wire in part.handlers]
        if depth > 1:
            pairs = [(part, wire) for part, wire in pairs if Buffers not in hints(wire).values()]
        part, wire = self.rng.choice(pairs)
        message: Wire = self.value(wire, process, depth)
        return part, Buffers(bytes(process.encode(part, message)))


def made(name: str, forger: Forger) -> Process:
    """A process with any options that go together."""
    protocol = protocol_named(name)
    while True:
        choices = {**option_choices(protocol), **protocol.drawn_last(TOPOLOGY)}
        options = {option: forger.rng.choice(values) for option, values in choices.items()}
        try:
            protocol.check(parse_options(protocol, options), FaultModel(False, True))
        except UsageError:
            continue
        return Process(forger.rng.choice([*SENDERS[:3], SENDERS[-1]]), TOPOLOGY, protocol, options)


def happenings(forger: Forger, process: Process) -> Iterator[AnyInput]:
    rng, at, numbers = forger.rng, 0, dict[Any, int]()
    for _ in range(STEPS):
        at += rng.choice((0, 1_000_000, 30_000_000))
        kind = rng.random()
        if kind < 0.75:
            part, frame = forger.frame(process)
            try:
                process.checks.frame(frame)
            except BadFrame:
                continue
            sender = rng.choice([p for p in SENDERS if p != process.me])
            for _ in range(rng.choice((1, 1, 1, 6))):
                numbers[sender, part.transport] = number = numbers.get((sender, part.transport), 0) + 1
                yield Receive(at, sender, part.transport, number, frame)
        elif kind < 0.85:
            yield Multicast(at, (A,), (b"x",))
        elif kind < 0.95 and process.state.timers:
            (index, timer), due = rng.choice(list(process.state.timers.items()))
            at = max(at, due)
            yield Fire(at, index, timer, due)
        elif process.monitored():
            yield Suspect(at, rng.choice(process.monitored()))
        if rng.random() < 0.7:
            yield TurnEnd(at)
    yield TurnEnd(at)


@pytest.mark.parametrize("name", NAMES)
def test_whoever_sends_what_nothing_is_raised(name: str) -> None:
    for seed in range(RUNS):
        forger = Forger(f"{name}/{seed}")
        process = made(name, forger)
        process.step(Begin(0))
        for happened in happenings(forger, process):
            process.step(happened)
        process.protocol.pending()
        process.protocol.waits_for()
        again = made(name, Forger(f"{name}/{seed}"))
        again.restore(process.snapshot())


@pytest.mark.parametrize("me", ["a.1", "a.2"])
def test_who_wants_ever_more_numbers_gets_none_too_large(me: str) -> None:
    """At the root, and at a node that asks for others."""
    process = Process(ProcessId(me), TOPOLOGY, protocol_named("counting"), {"by": "combining", "tree": "line"})
    counter = next(part for part in process.parts if isinstance(part, CombiningCounter))
    above, below = ProcessId("a.1"), ProcessId("a.2" if me == "a.1" else "a.3")
    for number in range(1, 50):
        process.step(Receive(0, below, counter.transport, number, process.encode(counter, Ask(WANTED_MAX - 1))))
        if number % 10 == 0:
            process.step(TurnEnd(0))
            process.step(Receive(0, above, counter.transport, number, process.encode(counter, Give((1 << 62) - 1))))
    assert sum(count for _, count in counter.met) < WANTED_MAX
    for count in (WANTED_MAX, (1 << 62) - 1):
        with pytest.raises(BadFrame):
            process.checks.frame(process.encode(counter, Ask(count)))
