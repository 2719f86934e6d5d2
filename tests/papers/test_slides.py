"""slides.txt, sentence by sentence."""

from __future__ import annotations

import pytest

from antiphon.core import Message, MessageId, Process, ProcessId, Topology
from antiphon.core.effects import Deliver, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Multicast, Receive
from antiphon.protocols.reliable import Reliable
from antiphon.protocols.sequencer import Sequencer
from antiphon.protocols.skeen import Skeen, Start
from antiphon.simulation import Crash, Plan, Scenario, simulate

SITES = Topology({"sites": ["1", "2", "3"]})
STARTED_AT = {"1": 14, "2": 15, "3": 16}  # the clocks that give the slides' proposals
ARRIVALS = {"1": ["m3", "m1", "m2"], "2": ["m2", "m1", "m3"], "3": ["m1", "m3", "m2"]}


def drawn(site: Process, delivered: list[str]) -> list[str]:
    """A hold-back queue as the slides draw it; what this step delivers is still shown at its head."""
    held = sorted((held.timestamp, id, held.deliverable) for id, held in site.protocol.holdback.items())
    return delivered + [f"{id} {ts.time}.{ts.process} {'d' if deliverable else 'u'}" for ts, id, deliverable in held]


class Isis:
    """Three sites with three messages under way; sender s sends m, collects the proposals, and announces."""

    def __init__(self) -> None:
        self.sites = {name: Process(ProcessId(name), SITES, Skeen) for name in "123"}
        self.senders = {m: Process(ProcessId(f"s{m[1]}"), SITES, Skeen) for m in ("m1", "m2", "m3")}
        self.numbers: dict[tuple[str, str], int] = {}
        self.proposals: dict[str, list[tuple[str, Send]]] = {m: [] for m in self.senders}
        for name, site in self.sites.items():
            site.protocol.clock = STARTED_AT[name]
        starts = {m: self.start(m) for m in self.senders}
        for name, arrivals in ARRIVALS.items():
            for m in arrivals:
                (send,) = self.receive(self.sites[name], self.senders[m].me, starts[m][name])
                self.proposals[m].append((name, send))

    def start(self, m: str) -> dict[str, bytes]:
        sender = self.senders[m]
        sender.step(Multicast(0, SITES.destinations({"sites"}), b""))
        # The slides call the messages m1, m2, m3; so do we.
        (collection,) = sender.protocol.collections.values()
        named = Message(MessageId(m), collection.message.destinations, b"")
        sender.protocol.collections = {named.id: type(collection)(named)}
        process_frame = bytes((0,)) + _encode(Start(named))
        return dict.fromkeys(self.sites, process_frame)

    def receive(self, process: Process, sender: str, frame: bytes) -> list[Send | Deliver]:
        key = (sender, process.me)
        self.numbers[key] = self.numbers.get(key, 0) + 1
        effects = process.step(Receive(0, ProcessId(sender), self.numbers[key], frame))
        return [effect for effect in effects if isinstance(effect, Send | Deliver)]

    def announce(self, m: str) -> dict[str, list[str]]:
        """m gets its final timestamp; returns the queues as drawn."""
        finals = [send for name, p in self.proposals[m] for send in self.receive(self.senders[m], name, p.frame)]
        pictures = {}
        for final in finals:
            before = {
                id: f"{id} {held.timestamp.time}.{held.timestamp.process} d"
                for id, held in self.sites[final.to].protocol.holdback.items()
            }
            delivered = [e.message.id for e in self.receive(self.sites[final.to], self.senders[m].me, final.frame)]
            last = f"{m} {max(p.time for p in _proposals(self, m))}.3 d"
            pictures[str(final.to)] = drawn(self.sites[final.to], [last if id == m else before[id] for id in delivered])
        return pictures


def _encode(message: object) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(message)


def _proposals(isis: Isis, m: str):
    decode = isis.senders[m].protocol.contract.decode
    return [decode(memoryview(send.frame)[1:]).proposal for _, send in isis.proposals[m]]


def test_r9_the_isis_example_queue_by_queue() -> None:
    isis = Isis()
    step_1 = {name: drawn(site, []) for name, site in isis.sites.items()}
    assert step_1 == {
        "1": ["m3 15.1 u", "m1 16.1 u", "m2 17.1 u"],
        "2": ["m2 16.2 u", "m1 17.2 u", "m3 18.2 u"],
        "3": ["m1 17.3 u", "m3 18.3 u", "m2 19.3 u"],
    }
    assert isis.announce("m1") == {  # step 2: m1 assigned final timestamp and delivered at site 3
        "1": ["m3 15.1 u", "m2 17.1 u", "m1 17.3 d"],
        "2": ["m2 16.2 u", "m1 17.3 d", "m3 18.2 u"],
        "3": ["m1 17.3 d", "m3 18.3 u", "m2 19.3 u"],
    }
    assert isis.announce("m2") == {  # step 3: m2 assigned final timestamp and m1 delivered at node 2
        "1": ["m3 15.1 u", "m1 17.3 d", "m2 19.3 d"],
        "2": ["m1 17.3 d", "m3 18.2 u", "m2 19.3 d"],
        "3": ["m3 18.3 u", "m2 19.3 d"],
    }
    assert isis.announce("m3") == {  # step 4: m3 assigned final timestamp; all messages delivered
        "1": ["m1 17.3 d", "m3 18.3 d", "m2 19.3 d"],
        "2": ["m3 18.3 d", "m2 19.3 d"],
        "3": ["m3 18.3 d", "m2 19.3 d"],
    }
    assert all(not site.protocol.holdback for site in isis.sites.values())


def test_a_proposal_is_larger_than_any_timestamp_proposed_or_received_in_the_past() -> None:
    isis = Isis()
    for m in ("m1", "m2", "m3"):
        isis.announce(m)
    assert [site.protocol.clock for site in isis.sites.values()] == [19, 19, 19]


def one_multicast(protocol: str, sender: str, groups: dict[str, int], destinations: tuple[str, ...]):
    return simulate(Scenario(protocol=protocol, groups=groups, plans=(Plan(sender, 0, destinations),)))


@pytest.mark.parametrize("n", range(2, 8))
def test_the_sequencer_multicasts_to_all_other_destinations(n: int) -> None:
    """One message to the sequencer and n-1 from it, from a member or from outside; 2 steps, 1 from the sequencer."""
    for sender, messages, steps in (("c1", n, 2), ("g.2", n, 2), ("g.1", n - 1, 1)):
        outcome = one_multicast("sequencer", sender, {"g": n}, ("g",))
        assert (outcome.messages_sent, outcome.steps_max) == (messages, steps)


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
    crash = Crash("c1", at=0, effects=2)  # its own record of the multicast, and one copy
    plans = (Plan("c1", 0, ("g",)),)
    outcome = simulate(Scenario(protocol="reliable", groups={"g": 4}, plans=plans, faults=(crash,), sent_survives=True))
    assert outcome.deliveries == 4
    assert outcome.violations == []


def test_the_sequencer_refuses_several_groups() -> None:
    with pytest.raises(UsageError, match="orders one group"):
        one_multicast("sequencer", "c1", {"a": 2, "b": 2}, ("a", "b"))


def test_messages_are_held_back_until_all_previous_messages_are_delivered() -> None:
    topology = Topology.sized({"g": 2})
    sequencer, other = (Process(ProcessId(p), topology, Sequencer) for p in ("g.1", "g.2"))
    sends = []
    for _ in range(2):
        sends += [e for e in sequencer.step(Multicast(0, topology.destinations({"g"}), b"")) if isinstance(e, Send)]
    first, second = sends
    assert not any(isinstance(e, Deliver) for e in other.step(Receive(0, sequencer.me, 2, second.frame)))
    late = [e for e in other.step(Receive(0, sequencer.me, 1, first.frame)) if isinstance(e, Deliver)]
    assert [e.message.id for e in late] == ["g.1:1", "g.1:2"]


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
