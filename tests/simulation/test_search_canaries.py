"""Small wrong protocols, each with one thing that the search must find or report."""

from __future__ import annotations

from typing import ClassVar

import pytest

from antiphon.core import (
    Assumptions,
    Buffers,
    Declaration,
    Failures,
    Heap,
    Message,
    MessageId,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Timer,
    Transport,
    Wire,
)
from antiphon.core.requests import encode_request
from antiphon.protocols.tom import Tom
from antiphon.simulation.search import explore
from antiphon.simulation.search.states import REDUCTION, UNORDERED
from antiphon.simulation.values import INVARIANT
from mutants.scopes import (
    AB,
    INSIDE,
    ONES,
    THREE,
    TWOS,
    A,
    assert_replays,
    ones,
    replaced,
)


class Ping(Wire, frozen=True, tag=1):
    message: Message


class Hasty(OrderingProtocol):
    """Delivers what comes as it comes."""

    declaration = Declaration(
        name="hasty",
        title="",
        source="",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=(Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER),
    )

    def multicast(self, m: Message) -> None:
        self.send(self.topology.addressees(m.destinations), Ping(m))

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        self.deliver(ping.message)

    def pending(self) -> int:
        return 0


class Late(Hasty):
    """The first message is ignored; but it must not come after the second."""

    begun: bool

    def initialise(self) -> None:
        self.begun = False

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        assert not self.begun, "too late"
        self.begun = ping.message.id == MessageId(ProcessId("c"), 2)


class Fragile(Hasty):
    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        assert sender != "d", "nobody listens to d"


@pytest.mark.parametrize("breadth", ["steps", "deviations"])
def test_a_wrong_order_is_found(breadth: str) -> None:
    for groups, broken in ((ONES, Promise.ACYCLIC_ORDER), (TWOS, Promise.TOTAL_ORDER)):
        found = explore(ones("hasty", groups=groups, breadth=breadth), Hasty)
        assert found.violations[0].property in (broken, Promise.ACYCLIC_ORDER)
        assert_replays(found, Hasty)
    assert len(explore(ones("hasty"), Hasty).path) == 6, "by steps, the shortest path: two multicasts, four receipts"


def test_a_failed_assertion_is_found() -> None:
    found = explore(ones("hasty"), Fragile)
    assert found.violations[0].property == INVARIANT
    assert "nobody listens to d" in found.violations[0].detail
    assert found.story == ["d multicasts d:1 to a and b", found.story[1]]
    assert_replays(found, Fragile)


def test_a_reduction_that_hides_something_says_so() -> None:
    """An inert frame is taken out of flight at once; here that hides what it would have done later."""
    scope = ones("hasty", plans=(("c", A), ("c", A)))
    found = explore(scope, Late)
    assert [v.property for v in found.violations] == [REDUCTION]
    assert not found.complete
    assert [v.property for v in explore(replaced(scope, reduce=False), Late).violations] == [INVARIANT]


# What has an order is said by types, not by names ------------------------------------------------------------------


class Flush(Timer, frozen=True):
    """Some time after two messages came."""


class FirstInFirstOut(Hasty):
    """Wrong: it delivers two messages at a time, in the order in which they happened to come."""

    NAME: ClassVar[str]  # of the list in which they wait

    def initialise(self) -> None:
        setattr(self, self.NAME, [])

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        waiting: list[Message] = getattr(self, self.NAME)
        waiting.append(ping.message)
        if len(waiting) == 2:
            self.set_timer(Flush(), 1)

    def on_flush(self, timer: Flush) -> None:
        for message in getattr(self, self.NAME):
            self.deliver(message)
        setattr(self, self.NAME, [])


class WithQueue(FirstInFirstOut):
    NAME = "queue"
    queue: list[Message]


class WithLine(FirstInFirstOut):
    NAME = "line"
    line: list[Message]


class WithHeap(FirstInFirstOut):
    """Says of its list that the order cannot show. It does."""

    NAME = "line"
    line: Heap[Message]


@pytest.mark.parametrize("wrong", [WithQueue, WithLine])
def test_a_wrong_order_is_found_whatever_the_list_is_called(wrong: type[OrderingProtocol]) -> None:
    for breadth in ("steps", "deviations"):
        found = explore(ones("hasty", breadth=breadth), wrong)
        assert [v.property for v in found.violations] == [Promise.ACYCLIC_ORDER]
        assert_replays(found, wrong)


def test_a_list_that_is_wrongly_declared_to_be_a_heap_is_reported() -> None:
    assert explore(ones("hasty"), WithHeap).complete, "two states are taken for one, and only one is gone on from"
    found = explore(ones("hasty", shuffle=True), WithHeap)
    assert [v.property for v in found.violations] == [UNORDERED]
    assert "WithHeap" in found.violations[0].detail
    assert found.story[-1].endswith("timer Flush() fires")


class WithHeapOfIds(Hasty):
    """The same, though what first comes here is laid out as a heap: no other layout of it shows anything."""

    line: Heap[MessageId]
    messages: dict[MessageId, Message]

    def initialise(self) -> None:
        self.line, self.messages = [], {}

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        self.line.append(ping.message.id)
        self.messages = dict(sorted({**self.messages, ping.message.id: ping.message}.items()))
        if len(self.line) == 2:
            self.set_timer(Flush(), 1)

    def on_flush(self, timer: Flush) -> None:
        for id in self.line:
            self.deliver(self.messages[id])


def test_states_that_were_taken_for_one_are_compared() -> None:
    found = explore(ones("hasty", shuffle=True), WithHeapOfIds)
    assert [v.property for v in found.violations] == [UNORDERED]


class TomWithTable(Tom):
    """Proposes what is fresh, oldest first; so it does show in which order that came."""

    fresh: Table[MessageId, None]


def test_a_protocol_of_ours_with_a_wrong_word_is_reported() -> None:
    scope = ones("tom", groups=THREE, plans=(*INSIDE, ("d", A)), breadth="deviations", states_max=1_000, shuffle=True)
    found = explore(scope, TomWithTable)
    assert [v.property for v in found.violations] == [UNORDERED]


# Transports and turns ----------------------------------------------------------------------------------------------


class InTurn(Hasty):
    """Takes it that what a sender sends comes in that order."""

    newest: dict[ProcessId, int]

    def initialise(self) -> None:
        self.newest = {}

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        assert self.newest.get(sender, 0) < ping.message.id.number, "overtaken"
        self.newest[sender] = ping.message.id.number


class InTurnOverFifo(InTurn):
    transport = Transport.FIFO


def test_the_channels_of_a_fifo_part_keep_their_order() -> None:
    scope = ones("hasty", plans=(("c", A), ("c", A), ("d", A)))
    assert [v.property for v in explore(scope, InTurn).violations] == [INVARIANT]
    assert explore(replaced(scope, fifo=True), InTurn).complete
    assert explore(scope, InTurnOverFifo).complete


class Certain(Hasty):
    declaration = replaced(Hasty.declaration, promises=(Promise.VALIDITY,))


class Uncertain(Certain):
    transport = Transport.DATAGRAM


def test_a_datagram_may_be_lost() -> None:
    assert explore(ones("hasty"), Certain).complete
    assert [v.property for v in explore(ones("hasty"), Uncertain).violations] == [Promise.VALIDITY]


class OneByOne(Hasty):
    """Errs where two messages come in one turn."""

    came: int

    def initialise(self) -> None:
        self.came = 0

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        self.came += 1
        self.at_turn_end()

    def on_turn_end(self) -> None:
        assert self.came == 1, "two in one turn"
        self.came = 0


def test_a_turn_is_one_input_or_several() -> None:
    assert explore(ones("hasty", restarts=True), OneByOne).complete
    found = explore(ones("hasty", restarts=True, long_turns=True), OneByOne)
    assert [v.property for v in found.violations] == [INVARIANT]
    assert found.story[-1] in ("a.1 ends its turn", "b.1 ends its turn")
    assert_replays(found, OneByOne)


# Promises by message -----------------------------------------------------------------------------------------------


class Forger(Hasty):
    """Delivers other bytes than those that were multicast."""

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        m = ping.message
        body = Buffers(encode_request(m.id.origin, m.id.number, 0, (b"forged",)))
        self.deliver(Message(m.id, m.destinations, 1, body))


def test_forged_payloads_are_found() -> None:
    found = explore(ones("hasty"), Forger)
    assert [v.property for v in found.violations] == [Promise.INTEGRITY]
    assert_replays(found, Forger)


class Hello(Wire, frozen=True, tag=2):
    pass


class Gossip(Hasty):
    """Each frame is about both messages, though not all of its receivers are concerned with both."""

    declaration = replaced(Hasty.declaration, promises=(Promise.GENUINENESS,))

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return MessageId(ProcessId("c"), 1), MessageId(ProcessId("d"), 1)


def test_genuineness_is_judged_by_all_messages_that_a_frame_is_about() -> None:
    both = ones("hasty", plans=(("c", AB), ("d", AB)))
    assert [v.messages for v in explore(both, Gossip).violations] == [("d:1",)], "c has no part in d's message"
    found = explore(ones("hasty", plans=(("c", AB),)), Gossip)
    assert [v.property for v in found.violations] == [Promise.GENUINENESS]


class Greeter(Gossip):
    def begin(self) -> None:
        self.send([p for p in self.topology.processes if p != self.me], Hello())

    def on_hello(self, sender: ProcessId, hello: Hello) -> None:
        pass

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return ()


def test_what_is_done_at_the_beginning_is_judged_too() -> None:
    found = explore(ones("hasty", plans=(("c", A),)), Greeter)
    assert [v.property for v in found.violations] == [Promise.GENUINENESS]
    assert found.path == []
    assert_replays(found, Greeter)


class Overtaking(Hasty):
    declaration = replaced(Hasty.declaration, promises=(Promise.FIFO,))


def test_a_senders_order_is_judged() -> None:
    scope = ones("hasty", plans=(("c", A), ("c", A)))
    assert [v.property for v in explore(scope, Overtaking).violations] == [Promise.FIFO]
    assert explore(replaced(scope, fifo=True), Overtaking).complete
