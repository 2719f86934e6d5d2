"""slides.txt, sentence by sentence."""

from __future__ import annotations

import pytest

from antiphon.core import Process, ProcessId, Topology, Transport
from antiphon.core.effects import Log, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Multicast, Receive
from antiphon.protocols.reliable import Reliable
from antiphon.protocols.sequencer import Sequencer
from antiphon.reproduce.r9 import DRAWN, Isis, played
from antiphon.simulation import Crash, Plan, Scenario, simulate


def test_r9_the_isis_example_queue_by_queue() -> None:
    assert tuple(played()) == DRAWN
    isis = Isis()
    for m in ("m1", "m2", "m3"):
        isis.announce(m)
    assert all(not site.protocol.holdback for site in isis.sites.values())


def test_a_proposal_is_larger_than_any_timestamp_proposed_or_received_in_the_past() -> None:
    isis = Isis()
    for m in ("m1", "m2", "m3"):
        isis.announce(m)
    assert [site.protocol.clock for site in isis.sites.values()] == [19, 19, 19]


def one_multicast(protocol: str, sender: str, groups: dict[str, int], destinations: tuple[str, ...], **options: str):
    plans = (Plan(sender, 0, destinations),)
    return simulate(Scenario(protocol=protocol, options=options, groups=groups, plans=plans, steps=True))


@pytest.mark.parametrize("n", range(2, 17))
def test_the_sequencer_multicasts_to_all_other_destinations(n: int) -> None:
    """One message to the sequencer and n-1 from it, from a member or from outside; 2 steps, 1 from the sequencer."""
    for sender, messages, steps in (("c1", n, 2), ("g.2", n, 2), ("g.1", n - 1, 1)):
        outcome = one_multicast("sequencer", sender, {"g": n}, ("g",))
        assert (outcome.messages_sent, outcome.steps_max) == (messages, steps)


@pytest.mark.parametrize("n", range(2, 17))
def test_the_sequencer_multicasts_the_number_of_what_its_sender_multicasts(n: int) -> None:
    """R1, row 1: 2(n-1) from a member; from outside the sequencer is one more to send to. 2 steps, 1 from itself."""
    for sender, messages, steps in (("g.2", 2 * (n - 1), 2), ("c1", 2 * n - 1, 2), ("g.1", n - 1, 1)):
        outcome = one_multicast("sequencer", sender, {"g": n}, ("g",), variant="broadcast")
        assert (outcome.messages_sent, outcome.steps_max) == (messages, steps)


@pytest.mark.parametrize("n", range(2, 17))
def test_uniform_numbering_takes_two_more_steps(n: int) -> None:
    """Every other member says that it has the message, and hears that all have it."""
    for variant, messages in (("relay", n), ("broadcast", 2 * (n - 1))):
        outcome = one_multicast("sequencer", "g.2", {"g": n}, ("g",), variant=variant, numbering="uniform")
        assert (outcome.messages_sent, outcome.steps_max) == (messages + 2 * (n - 1), 4)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_isis_takes_two_rounds_of_communication(d: int, n: int) -> None:
    """Message, proposal, final timestamp: three messages for each destination process."""
    groups = {f"g{i}": n for i in range(4)}
    outcome = one_multicast("skeen", "c1", groups, tuple(groups)[:d])
    assert (outcome.messages_sent, outcome.steps_max) == (3 * d * n, 3)
    assert outcome.deliveries == d * n


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_atomic_multicast_sends_a_copy_to_all_other_sites(d: int, n: int) -> None:
    """From outside d²n² messages, one step; from a member (dn-1)², for nobody forwards to the origin."""
    groups = {f"g{i}": n for i in range(4)}
    outside = one_multicast("reliable", "c1", groups, tuple(groups)[:d])
    assert (outside.messages_sent, outside.steps_max) == (d * d * n * n, 1)
    inside = one_multicast("reliable", "g0.1", groups, tuple(groups)[:d])
    assert (inside.messages_sent, inside.steps_max) == ((d * n - 1) ** 2, min(1, d * n - 1))


def test_if_any_site_receives_the_message_and_remains_operational_all_sites_will_receive_it() -> None:
    """The sender dies after one of its copies left."""
    crash = Crash("c1", at=0, effects=1)
    plans = (Plan("c1", 1, ("g",)),)
    outcome = simulate(Scenario(protocol="reliable", groups={"g": 4}, plans=plans, faults=(crash,), sent_survives=True))
    assert [row.peers for row in outcome.rows if row.kind == "send" and row.process == "c1"] == [("g.1",)]
    assert outcome.deliveries == 4
    assert outcome.violations == []


def test_the_sequencer_refuses_several_groups() -> None:
    with pytest.raises(UsageError, match=r"one group, not to several: a, b; primcast and skeen can\."):
        one_multicast("sequencer", "c1", {"a": 2, "b": 2}, ("a", "b"))


def test_messages_are_held_back_until_all_previous_messages_are_delivered() -> None:
    topology = Topology.sized({"g": 2})
    sequencer, other = (Process(ProcessId(p), topology, Sequencer) for p in ("g.1", "g.2"))
    sends: list[Send] = []
    for _ in range(2):
        effects = sequencer.step(Multicast(0, topology.destinations({"g"}), (b"",)))
        sends += [e for e in effects if isinstance(e, Send)]
    first, second = sends

    def delivered(number: int, send: Send) -> list[str]:
        effects = other.step(Receive(0, sequencer.me, Transport.FIFO, number, send.frame))
        return [str(e.event.id) for e in effects if isinstance(e, Log)]

    assert delivered(1, second) == []
    assert delivered(2, first) == ["g.1:1", "g.1:2"]


def test_a_duplicate_is_detected_in_bounded_memory() -> None:
    plans = tuple(Plan("c1", 1_000_000 * i, ("a", "b") if i % 2 else ("a",)) for i in range(200))
    seen: list[Process] = []

    class Spied(Reliable):
        def initialise(self) -> None:
            super().initialise()
            seen.append(self.process)

    simulate(Scenario(protocol="reliable", groups={"a": 2, "b": 2}, plans=plans), Spied)
    boxes = [box for process in seen for box in process.protocol.multicasting.seen.streams.values()]
    assert {box.received for box in boxes} == {200, 100}
    assert not any(box.early for box in boxes)


@pytest.mark.parametrize("options", [{"variant": "relay"}, {"variant": "broadcast"}, {"numbering": "uniform"}])
@pytest.mark.parametrize("sender", ["g.1", "g.2", "c1"])
def test_r1_the_size_of_a_sequencers_messages_is_constant(sender: str, options: dict[str, str]) -> None:
    sizes = []
    for n in (2, 5, 16):
        plans = (Plan(sender, 0, ("g",)),)
        rows = simulate(Scenario(protocol="sequencer", options=options, groups={"g": n}, plans=plans)).rows
        sizes.append({row.bytes for row in rows if row.kind == "send"})
    assert sizes[0] == sizes[1] == sizes[2]
