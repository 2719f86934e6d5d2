"""slides.txt, "Ordered multicast" and "Causally ordered multicast", sentence by sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.core import OrderingProtocol, Process, ProcessId, Topology, Transport
from antiphon.core.effects import Log, Send
from antiphon.core.inputs import Multicast, Receive
from antiphon.protocols.causal import Causal
from antiphon.protocols.fifo import Fifo
from antiphon.simulation import MILLISECOND, Outcome, Plan, Scenario, simulate

ONE = {"g": 3}
TWO = {"a": 1, "b": 1}


class ByHand:
    """Processes whose frames are carried by hand, in any order."""

    def __init__(self, protocol: type[OrderingProtocol], groups: dict[str, int], **options: str) -> None:
        self.topology = Topology.sized(groups)
        self.processes: dict[str, Process] = {}
        self.protocol, self.options = protocol, options
        self.carried = 0

    def __getitem__(self, name: str) -> Process:
        if name not in self.processes:
            self.processes[name] = Process(ProcessId(name), self.topology, self.protocol, self.options)
        return self.processes[name]

    def multicast(self, sender: str, *groups: str) -> tuple[Send, list[str]]:
        """What is sent, and what its sender delivers at once."""
        effects = self[sender].step(Multicast(0, self.topology.destinations(groups), (b"",)))
        (send,) = [effect for effect in effects if isinstance(effect, Send)]
        return send, [str(effect.event.id) for effect in effects if isinstance(effect, Log)]

    def give(self, to: str, sender: str, send: Send) -> list[str]:
        """What a process delivers when a frame comes."""
        self.carried += 1
        assert to in send.to
        self[to].checks.frame(send.frame)
        effects = self[to].step(Receive(0, ProcessId(sender), Transport.RELIABLE, self.carried, send.frame))
        return [str(effect.event.id) for effect in effects if isinstance(effect, Log)]

    def status(self, name: str) -> tuple[int, tuple[str, ...], int]:
        """What a process holds back or misses, whom it waits for, and how many messages it misses."""
        protocol = self[name].protocol
        return protocol.pending(), protocol.waits_for(), protocol.counters()["missing"]


# FIFO ------------------------------------------------------------------------------------------------------------


def test_a_message_is_held_back_until_those_that_should_be_delivered_before_it_are_delivered() -> None:
    hand = ByHand(Fifo, ONE)
    sent = [hand.multicast("g.1", "g")[0] for _ in range(4)]
    assert hand.give("g.2", "g.1", sent[3]) == []
    assert hand.give("g.2", "g.1", sent[1]) == []
    assert hand.status("g.2") == (4, ("g.1",), 2)
    assert hand.give("g.2", "g.1", sent[0]) == ["g.1:1", "g.1:2"]
    assert hand.give("g.2", "g.1", sent[2]) == ["g.1:3", "g.1:4"]
    assert hand.status("g.2") == (0, (), 0)


@pytest.mark.parametrize("protocol", [Fifo, Causal])
def test_nobody_waits_for_what_is_not_addressed_to_its_group(protocol: type[OrderingProtocol]) -> None:
    hand = ByHand(protocol, TWO)
    hand.multicast("c", "a")
    to_both, _ = hand.multicast("c", "a", "b")
    assert hand.give("b.1", "c", to_both) == ["c:2"]
    assert hand.give("a.1", "c", to_both) == []


def test_fifo_does_not_wait_for_the_messages_of_others() -> None:
    hand = ByHand(Fifo, ONE)
    question, _ = hand.multicast("g.1", "g")
    assert hand.give("g.2", "g.1", question) == ["g.1:1"]
    answer, _ = hand.multicast("g.2", "g")
    assert hand.give("g.3", "g.2", answer) == ["g.2:1"]


# Causal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamps", ["whole", "nearest"])
def test_before_a_message_is_delivered_all_that_causally_precede_it_must_be_delivered(timestamps: str) -> None:
    """And the timestamp allows missing messages, and who originally sent them, to be identified."""
    hand = ByHand(Causal, ONE, timestamps=timestamps)
    question, _ = hand.multicast("g.1", "g")
    hand.give("g.2", "g.1", question)
    answer, _ = hand.multicast("g.2", "g")
    assert hand.give("g.3", "g.2", answer) == []
    assert hand.status("g.3") == (2, ("g.1",), 1)
    assert hand.give("g.3", "g.1", question) == ["g.1:1", "g.2:1"]
    assert hand.status("g.3") == (0, (), 0)


def test_a_multicast_message_can_be_delivered_immediately_to_its_sender() -> None:
    hand = ByHand(Causal, {"g": 3, "h": 1})
    assert hand.multicast("g.1", "g")[1] == ["g.1:1"]
    assert hand.multicast("g.1", "g", "h")[1] == ["g.1:2"]
    assert hand.multicast("g.1", "h")[1] == []
    assert hand["g.1"].protocol.vt == {"g.1": 2}


def test_a_message_can_be_delivered_only_after_all_messages_from_the_same_sender() -> None:
    hand = ByHand(Causal, ONE)
    (first, _), (second, _) = hand.multicast("g.1", "g"), hand.multicast("g.1", "g")
    assert hand.give("g.2", "g.1", second) == []
    assert hand.status("g.2") == (2, ("g.1",), 1)
    assert hand.give("g.2", "g.1", first) == ["g.1:1", "g.1:2"]


@pytest.mark.parametrize("timestamps", ["whole", "nearest"])
def test_what_precedes_is_known_through_other_groups_and_through_those_who_only_send(timestamps: str) -> None:
    hand = ByHand(Causal, TWO, timestamps=timestamps)
    first, _ = hand.multicast("c", "a")
    second, _ = hand.multicast("c", "b")
    assert hand.give("b.1", "c", second) == ["c:2"]
    third, _ = hand.multicast("b.1", "a")
    assert hand.give("a.1", "b.1", third) == []
    assert hand.status("a.1") == (2, ("c",), 1)
    assert hand.give("a.1", "c", first) == ["c:1", "b.1:1"]


def test_concurrent_messages_are_delivered_in_any_order() -> None:
    hand = ByHand(Causal, ONE)
    (one, _), (other, _) = hand.multicast("g.1", "g"), hand.multicast("g.2", "g")
    assert hand.give("g.3", "g.2", other) == ["g.2:1"]
    assert hand.give("g.3", "g.1", one) == ["g.1:1"]
    assert hand.give("g.2", "g.1", one) == ["g.1:1"], "which g.2 delivers after its own"


# Counts and sizes --------------------------------------------------------------------------------------------------


def one_multicast(protocol: str, transport: str, sender: str, groups: dict[str, int], *destinations: str) -> Outcome:
    plans = (Plan(sender, 0, destinations),)
    options = {"transport": transport}
    return simulate(Scenario(protocol=protocol, options=options, groups=groups, plans=plans, steps=True))


@pytest.mark.parametrize("protocol", ["fifo", "causal"])
@pytest.mark.parametrize(("transport", "times"), [("reliable", 1), ("datagram", 2)])
def test_a_multicast_is_one_message_to_each_addressee_and_one_step(protocol: str, transport: str, times: int) -> None:
    """Over datagrams each answers once."""
    for n in range(2, 17):
        for sender, messages in (("c", 2 * n), ("a.1", 2 * n - 1)):
            outcome = one_multicast(protocol, transport, sender, {"a": n, "b": n, "c": 1}, "a", "b")
            assert (outcome.messages_sent, outcome.steps_max) == (times * messages, 1)
            assert outcome.deliveries == 2 * n


def last_frame(n: int, timestamps: str, gap_ns: int) -> int:
    """The bytes of the last frame, after every member of a group has sent one message, and then one of them another."""
    plans = [Plan(f"g.{i}", i * gap_ns, ("g",)) for i in range(1, n + 1)]
    plans.append(Plan("g.1", (n + 9) * max(gap_ns, MILLISECOND), ("g",)))
    options = {"timestamps": timestamps}
    outcome = simulate(Scenario(protocol="causal", options=options, groups={"g": n}, plans=tuple(plans)))
    assert outcome.violations == []
    return [row.bytes or 0 for row in outcome.rows if row.kind == "send"][-1]


IN_TURN, AT_ONCE = 5 * MILLISECOND, 0
SIZES = (2, 4, 8, 16, 32)
PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "causal.md"


def test_r1_timestamps_grow_with_the_group() -> None:
    """A few bytes for each member; with nearest, for each message that is concurrent with the others."""
    whole = [last_frame(n, "whole", IN_TURN) for n in SIZES]
    assert whole == [last_frame(n, "whole", AT_ONCE) for n in SIZES]
    per_member = [(whole[i + 1] - whole[i]) / SIZES[i] for i in range(len(SIZES) - 1)]
    assert all(5 <= each <= 7 for each in per_member), "its name and a number"
    nearest, concurrent = ([last_frame(n, "nearest", gap) for n in SIZES] for gap in (IN_TURN, AT_ONCE))
    assert max(nearest) - min(nearest) <= 1, "g.10 is a longer name than g.9"
    assert concurrent == whole
    page = PAGE.read_text()
    for n, *sizes in zip(SIZES, whole, nearest, concurrent, strict=True):
        assert f"| {n} | {' | '.join(map(str, sizes))} |" in page


def test_the_group_is_what_counts_and_not_the_system() -> None:
    sizes = set()
    for others in (1, 8):
        plans = (Plan("g.1", 0, ("g",)), Plan("g.2", 9 * MILLISECOND, ("g",)))
        groups = {"g": 3, "h": others}
        outcome = simulate(Scenario(protocol="causal", groups=groups, plans=plans))
        sizes.add(max(row.bytes or 0 for row in outcome.rows if row.kind == "send"))
    assert len(sizes) == 1
