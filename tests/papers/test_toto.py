"""toto.txt: Table 1, and the definitions of section 4 as they are and as they are kept (Figures 3 and 4)."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core import Buffers, Message, MessageId, Process, ProcessId, Topology
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Multicast
from antiphon.protocols.toto import Activation, ToTo, vector_timestamp
from antiphon.reproduce.r5 import DELIVERED, FIGURE_1, graph_of, name, table_1
from antiphon.reproduce.toto_graph import example, letter, moments, picture
from antiphon.services import toto as paper
from antiphon.services.dag import Ack, Cast, Dag, Node
from antiphon.services.toto import CHI, INFINITY, Graph, Name
from antiphon.simulation import Crash, Outcome, Plan, Scenario, random_scenario, simulate
from antiphon.simulation.graph import graph_json, refuse_without_a_graph
from benchmarked import benchmark
from mutants.toto import UNSEEN, DoesNotAskWhetherASourceHasAMajority

A, B, C, D, E = (ProcessId(p) for p in "abcde")


def test_r5_table_1() -> None:
    rows = table_1()
    assert len(rows) == 13
    assert [row.missed() for row in rows if not row.holds] == []
    assert name("c2") in paper.pending(FIGURE_1, DELIVERED)


def test_comparisons_of_table_1() -> None:
    m_p = paper.candidates(FIGURE_1, DELIVERED)
    b1, c1, e2 = (paper.vt(FIGURE_1, m_p, m) for m in m_p)
    assert paper.win(c1, b1, phi=3) == CHI
    assert paper.future(c1, b1, phi=3) == {CHI}
    assert paper.sources(dict(zip(m_p, (b1, c1, e2), strict=True)), phi=3) == m_p
    assert paper.deliverable(FIGURE_1, DELIVERED, phi=3) == m_p, "all five were heard"


def test_an_entry_of_whom_nothing_is_known_compares_with_nothing() -> None:
    graph = graph_of("abc", {"a1": "", "b1": ""})
    m_p = paper.candidates(graph, ())
    one, other = (paper.vt(graph, m_p, m) for m in m_p)
    assert tuple(one.values()) == (1, INFINITY, None)
    assert not paper.is_less(None, 1)
    assert not paper.is_at_most(None, None)
    assert paper.future(one, other, phi=2) == {CHI}


# The definitions as they are kept ------------------------------------------------------------------------------------


def random_graph(rng: random.Random, n: int, count: int) -> Graph:
    """Machines that receive what they receive, and send now and then, as Transis would."""
    machines = tuple(ProcessId(chr(ord("a") + i)) for i in range(n))
    graph = Graph(machines, {}, {})
    here: dict[ProcessId, list[Name]] = {p: [] for p in machines}
    for _ in range(count):
        p = rng.choice(machines)
        for m in graph.arcs:
            if m not in here[p] and all(f in here[p] for f in graph.arcs[m]) and rng.random() < 0.7:
                here[p].append(m)
        followed = {f for m in here[p] for f in graph.arcs[m]}
        m = Name(p, 1 + sum(m.sender == p for m in here[p]))
        graph.arcs[m] = tuple(sorted(f for f in here[p] if f not in followed))
        graph.services[m] = rng.choice(("agreed", "agreed", "agreed", "causal", "ack"))
        here[p].append(m)
    return graph


def some_order(rng: random.Random, graph: Graph) -> list[Name]:
    """An order in which they may enter somebody's graph."""
    left, order = list(graph.arcs), []
    while left:
        m = rng.choice([m for m in left if all(f in order for f in graph.arcs[m])])
        left.remove(m)
        order.append(m)
    return order


NOTHING = Message(MessageId(A, 1), (), 1, Buffers())


def as_cast(graph: Graph, m: Name) -> Cast | Ack:
    service = graph.services[m]
    return Ack(m, graph.arcs[m]) if service == "ack" else Cast(m, service, graph.arcs[m], NOTHING)


class Machine:
    """Figures 3 and 4 as the protocol keeps them, and the plain graph beside them."""

    def __init__(self, machines: tuple[ProcessId, ...], phi: int) -> None:
        self.phi = phi
        self.dag, self.activation = Dag.among(machines), Activation.among(len(machines))
        self.plain = Graph(machines, {}, {})
        self.defunc: list[ProcessId] = []
        self.order: list[Name] = []

    def receive(self, graph: Graph, m: Name) -> Node:
        self.plain.arcs[m], self.plain.services[m] = graph.arcs[m], graph.services[m]
        node = self.dag.enter(as_cast(graph, m))
        self.activation.receive(self.dag, node)
        return node

    def crash(self, q: ProcessId) -> None:
        self.defunc.append(q)
        self.activation.crash(self.dag.places[q])

    def deliver(self) -> bool:
        s_p = self.activation.deliverable(self.phi)
        self.order += sorted([m.name for m in s_p], key=lambda m: paper.place(self.plain, m))
        if s_p:
            self.activation.remove(self.dag, s_p)
        return bool(s_p)

    def check(self) -> None:
        """Everything that is kept is what is defined."""
        kept, machines = self.activation, self.plain.machines
        m_p = paper.candidates(self.plain, self.order)
        stamps = {m: paper.vt(self.plain, m_p, m, self.defunc) for m in m_p}
        assert sorted(kept.m_p) == sorted(m_p)
        for m, c in kept.m_p.items():
            assert {p for p, in_it in zip(machines, c.tail, strict=True) if in_it} == paper.tail(self.plain, m)
            assert c.ntail == len(paper.tail(self.plain, m))
            assert vector_timestamp(kept, c, machines) == stamps[m]
            assert c.nvt == paper.nvt(stamps[m])
            for other, o in kept.m_p.items():
                if other != m:
                    assert kept.can_win(c, o, self.phi) == (1 in paper.future(stamps[m], stamps[other], self.phi))
                    assert (c.wins[other] > self.phi) == (paper.win(stamps[m], stamps[other], self.phi) == 1)
                    assert (c.wins[other] > self.phi) == (paper.future(stamps[m], stamps[other], self.phi) == {1})
        assert kept.ntail == len(paper.whole_tail(self.plain, m_p, self.defunc))
        assert {s.node.name for s in kept.sources(self.phi)} == set(paper.sources(stamps, self.phi))
        found = sorted([m.name for m in kept.deliverable(self.phi)], key=lambda m: paper.place(self.plain, m))
        assert found == paper.deliverable(self.plain, self.order, self.phi, self.defunc)


def thresholds(n: int) -> list[int]:
    return [phi for phi in range(n) if 2 * phi >= n] or [0]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 9), st.integers(1, 16), st.booleans())
def test_what_is_kept_is_what_is_defined(rng: random.Random, n: int, count: int, forgetting: bool) -> None:
    """After each message, each crash and each delivery; also when what is stable was forgotten."""
    graph = random_graph(rng, n, count)
    machine = Machine(graph.machines, rng.choice(thresholds(n)))
    dying = rng.sample(graph.machines, rng.randint(0, n - 1))
    for m in some_order(rng, graph):
        for q in [q for q in dying if q not in machine.defunc and rng.random() < 0.3]:
            if all(m in machine.plain.arcs for m in graph.arcs if m.sender == q):
                machine.crash(q)
                machine.check()
        machine.receive(graph, m)
        machine.check()
        while machine.deliver():
            machine.check()
        if forgetting:
            machine.dag.forget_stable()


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 9), st.integers(1, 40))
def test_all_machines_have_the_same_order(rng: random.Random, n: int, count: int) -> None:
    """However the graph is revealed to them. It extends the causal order, and what all follow does not wait."""
    graph = random_graph(rng, n, count)
    phi = rng.choice(thresholds(n))
    orders = []
    for _ in range(3):
        machine = Machine(graph.machines, phi)
        for m in some_order(rng, graph):
            machine.receive(graph, m)
            while machine.deliver():
                pass
            assert all(c.ntail < n for c in machine.activation.m_p.values())
        orders.append(machine.order)
    assert orders[1:] == orders[:-1], "they have received the same messages in the end"
    for at, m in enumerate(orders[0]):
        assert not paper.past(graph, m).intersection(orders[0][at + 1 :])


def test_the_graph_of_a_run() -> None:
    """As `simulate --graph` writes it: whoever goes through it by the definitions delivers what was delivered."""
    plans = tuple(Plan(f"g.{1 + i % 4}", i * 700_000, ("g",)) for i in range(20))
    crash = Crash("g.2", at=4_000_000, down_ns=3_000_000)
    outcome = simulate(
        Scenario(
            protocol="toto", groups={"g": 4}, plans=plans, loss=0.1, duplication=0.1, faults=(crash,), journal=True
        )
    )
    found = msgspec.json.decode(graph_json(outcome))
    assert found["machines"] == ["g.1", "g.2", "g.3", "g.4"]
    assert found["phi"] == 2
    assert sum(m["service"] == "agreed" for m in found["messages"].values()) == 20
    assert {m["service"] for m in found["messages"].values()} == {"agreed", "ack"}
    names = {id: Name(m["sender"], m["number"]) for id, m in found["messages"].items()}
    for seen in found["events"].values():
        plain, delivered, due = Graph(tuple(found["machines"]), {}, {}), [], []
        for kind, id in seen:
            if kind == "arrive":
                assert not due
                plain.arcs[names[id]] = tuple(names[f] for f in found["messages"][id]["follows"])
                plain.services[names[id]] = found["messages"][id]["service"]
                while more := paper.deliverable(plain, [*delivered, *due], found["phi"]):
                    due += more
            else:
                assert names[id] == due.pop(0)
                delivered.append(names[id])
        assert len(delivered) == 20
    with pytest.raises(UsageError, match="The skeen protocol has no causal graph; allack, toto and transis have one"):
        refuse_without_a_graph("skeen")


def test_in_the_graph_of_a_run_acknowledgements_count() -> None:
    """After an acknowledgement, a machine's second message is its third in the graph."""
    plans = (Plan("g.1", 0, ("g",)), Plan("g.2", 0, ("g",)), Plan("g.2", 40_000_000, ("g",)))
    found = msgspec.json.decode(graph_json(simulate(Scenario(protocol="toto", groups={"g": 2}, plans=plans))))
    arrived = [id for kind, id in found["events"]["g.1"] if kind == "arrive" and id.startswith("g.2")]
    assert arrived == ["g.2:1", "g.2:2", "g.2:3"]
    assert [found["messages"][id]["service"] for id in arrived] == ["agreed", "ack", "agreed"]
    assert [id for kind, id in found["events"]["g.1"] if kind == "deliver"] == ["g.1:1", "g.2:1", "g.2:3"]


def test_the_graph_has_what_its_sender_did_not_live_to_tell() -> None:
    """g.1's message leaves to one machine, and the crash comes before the row that says what it follows."""
    plans = (Plan("g.2", 0, ("g",)), Plan("g.1", 5_000_000, ("g",)))
    crash = Crash("g.1", 4_000_000, effects=1)
    scenario = Scenario(
        protocol="toto", options={"membership": "true"}, groups={"g": 3}, plans=plans, faults=(crash,), journal=True
    )
    found = msgspec.json.decode(graph_json(simulate(scenario)))
    last = next(id for id in found["messages"] if id.startswith("g.1") and found["messages"][id]["service"] == "agreed")
    arrived = {id for seen in found["events"].values() for kind, id in seen if kind == "arrive"}
    assert arrived == found["messages"].keys()
    assert last in arrived
    assert ["arrive", last] not in found["events"]["g.1"]
    assert found["messages"][last]["follows"] != []


def test_the_picture_of_a_graph_is_that_of_a_run() -> None:
    """`make pictures` draws it; a1 is delivered alone, since all but b prefer it to b1."""
    graph = example()
    drawn = [
        ([letter(at.graph, m) for m in at.candidates], [letter(at.graph, m) for m in at.due])
        for at in moments(graph, "g.1")
    ]
    assert drawn[:2] == [(["a1", "b1"], ["a1"]), (["b1", "c1", "d1", "e1"], ["b1", "c1", "d1", "e1"])]
    page = Path(__file__).parents[2] / "docs" / "protocols" / "toto_graph.svg"
    assert page.read_text() == picture(graph, "g.1")


def test_it_orders_on_half_of_the_machines_and_one() -> None:
    """Φ + 1 = 5 of 8 machines are enough, where all-ack waits for 8."""
    graph = graph_of("abcdefgh", {"a1": "", "b1": "a1", "c1": "b1", "d1": "c1", "e1": "d1", "f1": "e1"})
    machine = Machine(graph.machines, phi=4)
    for m in graph.arcs:
        assert machine.order == ([] if m <= name("e1") else [name("a1")])
        machine.receive(graph, m)
        while machine.deliver():
            pass
    assert machine.order == [name("a1"), name("b1")]
    assert (
        paper.index_of_latency(Graph(graph.machines, dict(list(graph.arcs.items())[:5]), graph.services), name("a1"))
        == 5
    )


def test_figure_4_a_machine_from_which_no_more_comes_is_not_waited_for() -> None:
    """Nobody raises Crash(q) yet."""
    group = Topology.sized({"g": 3}).destinations({"g"})
    process = Process(ProcessId("g.1"), Topology.sized({"g": 3}), ToTo, {})
    process.step(Multicast(0, group, (b"x",)))
    protocol = process.protocol
    assert isinstance(protocol, ToTo)
    assert protocol.waits_for() == ("g.2", "g.3")
    protocol.crash(ProcessId("g.2"))
    assert (protocol.pending(), protocol.waits_for()) == (1, ("g.3",))
    protocol.crash(ProcessId("g.3"))
    assert (protocol.pending(), protocol.delivered) == (0, 1)


@pytest.mark.parametrize(("given_phi", "n", "phi"), [(None, 8, 4), (None, 5, 3), (None, 2, 1), (None, 1, 0)])
def test_the_threshold(given_phi: int | None, n: int, phi: int) -> None:
    assert paper.threshold(given_phi, n) == phi


def test_a_given_threshold_is_clamped_to_the_configuration() -> None:
    assert [paper.threshold(6, n) for n in (1, 2, 5, 8, 12, 20)] == [0, 1, 4, 6, 6, 10]


@pytest.mark.parametrize("kind", UNSEEN)
def test_what_no_promise_shows_is_seen_by_the_definitions(kind: type[Activation]) -> None:
    """a1 has five first followers of eight, b1 and c1 have three followers each, and need four."""
    firsts = {"a1": "", "b1": "", "c1": "", "d1": "a1 b1", "e1": "a1 b1", "f1": "a1 c1", "g1": "a1 c1"}
    graph = graph_of("abcdefgh", firsts)
    honest, early = Machine(graph.machines, phi=4), Machine(graph.machines, phi=4)
    early.activation = kind.among(8)
    for m in graph.arcs:
        for machine in (honest, early):
            machine.receive(graph, m)
        honest.check()
        assert not honest.deliver()
    assert early.deliver()
    assert [str(m) for m in early.order] == ["a:1", "b:1", "c:1"]


def order_of(graph: Graph, phi: int, kind: type[Activation], entering: list[Name]) -> list[Name]:
    """What is delivered of a view that ends: when all is in its graph, a Crash of each machine is told."""
    machine = Machine(graph.machines, phi)
    machine.activation = kind.among(len(graph.machines))
    for m in entering:
        machine.receive(graph, m)
        while machine.deliver():
            pass
    for q in graph.machines:
        machine.crash(q)
        while machine.deliver():
            pass
    return machine.order


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 9), st.integers(1, 24))
def test_what_no_promise_shows_orders_alike(rng: random.Random, n: int, count: int) -> None:
    """Also where machines go; and another mistake of the same line does not."""
    graph = random_graph(rng, n, count)
    phi = rng.choice(thresholds(n))
    honest = order_of(graph, phi, Activation, list(graph.arcs))
    assert sorted(honest) == sorted(m for m in graph.arcs if graph.services[m] == "agreed")
    assert [order_of(graph, phi, kind, some_order(rng, graph)) for kind in UNSEEN] == [honest] * len(UNSEEN)


def test_who_asks_for_no_majority_orders_otherwise() -> None:
    """What the test before this one looks for can be found."""
    rng = random.Random(1)
    graphs = [random_graph(rng, 5, 16) for _ in range(200)]
    found = [order_of(g, 3, DoesNotAskWhetherASourceHasAMajority, some_order(rng, g)) for g in graphs]
    assert found != [order_of(g, 3, Activation, list(g.arcs)) for g in graphs]


# The work -------------------------------------------------------------------------------------------------------------


work = benchmark("toto_work")
STEPS_MAX = {"message": 300, "delivery": 600, "crash": 100}  # for each unit of the bound: about twice what is taken


class LooksAtAllThatPends(Activation):
    """Each message is compared with all that pends, and that among itself."""

    def receive(self, dag: Dag, m: Node) -> None:
        pending = [node for queue in self.waiting.values() for node in queue]
        sum(dag.is_followed(one.name, other) for one in pending for other in pending)
        super().receive(dag, m)


class LooksThroughAllThatWasSaid(Activation):
    """A delivery goes through the messages of a machine one by one, as far as its first that follows a candidate."""

    def hear_again(self, dag: Dag, machine: ProcessId, place: int, before: int) -> None:
        said = [number for number in dag.rows[machine] if number >= before > 0]
        for number in said:
            if any(dag.is_followed(name, dag.rows[machine][number]) for name in self.m_p):
                break
        super().hear_again(dag, machine, place, before)


def over_the_bound(n: int, kind: type[Activation] = Activation) -> set[str]:
    """What takes more steps than it may, and in which graph."""
    found = set()
    for scene in work.SCENES:
        machine = work.work(n, scene, kind)
        assert machine.delivered
        found |= {f"{scene.__name__} {event}" for event, most in STEPS_MAX.items() if work.most(machine, event) > most}
    return found


@pytest.mark.parametrize("n", [8, 16])
def test_the_work_stays_within_the_bounds(n: int) -> None:
    """O(pending + candidates²) for a message, O(n · candidates²) for a delivery, O(candidates²) for a crash.
    docs/protocols/toto.md has it for up to 64 machines."""
    assert over_the_bound(n) == set()


def test_work_that_grows_with_what_pends_is_found() -> None:
    assert over_the_bound(8, LooksAtAllThatPends) == {"stalled message"}
    through = work.work(32, work.deaf, LooksThroughAllThatWasSaid)
    assert work.most(through, "delivery") > 3 * work.most(work.work(32, work.deaf), "delivery")


# Counts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(2, 17))
def test_toto_sends_nothing_of_its_own(n: int) -> None:
    """One multicast: n-1 messages, and when they have been idle, n-1 acknowledgements to n-1 each, as in Transis."""
    for protocol in ("transis", "allack", "toto"):
        outcome = simulate(Scenario(protocol=protocol, groups={"g": n}, plans=(Plan("g.1", 0, ("g",)),), steps=True))
        assert outcome.messages_sent == (n - 1) + (n - 1) ** 2
        assert outcome.steps_max == (1 if protocol == "transis" else 2)
        assert outcome.deliveries == n


class SaysWhatItDelivered(ToTo):
    def deliver_next(self, node: Node) -> None:
        super().deliver_next(node)
        if not self.graph.unacknowledged:
            self.graph.note(())


def stream(protocol: str, n: int, loss: float) -> Scenario:
    rng = random.Random(n)
    plans = tuple(Plan(f"g.{rng.randint(1, n)}", rng.randint(0, 200_000_000), ("g",)) for _ in range(60))
    return Scenario(protocol=protocol, groups={"g": n}, plans=plans, loss=loss, duplication=loss)


def sent(outcome: Outcome) -> list[object]:
    """When each process sent what kind of frame to whom, and of what size."""
    rows = [row for row in outcome.rows if row.kind == "send"]
    return [(r.time_ns, r.process, r.peers, str(r.layer).partition("/")[2], r.bytes) for r in rows]


@pytest.mark.parametrize(("n", "loss"), [(4, 0.0), (8, 0.0), (8, 0.3)])
def test_toto_sends_what_transis_sends(n: int, loss: float) -> None:
    """At the same time, the same frames to the same machines: in a stream, and where a third is lost. Among what there
    is, acknowledgements of idle machines are counted apart."""
    transis, allack, toto = (simulate(stream(p, n, loss)) for p in ("transis", "allack", "toto"))
    assert sent(toto) == sent(allack) == sent(transis)
    assert toto.deliveries == transis.deliveries == 60 * n
    own = [str(row.layer) for row in toto.rows if row.kind == "enter" and row.peers == (row.process,)]
    counts = [own.count(f"toto/graph/{service}") for service in ("agreed", "ack")]
    assert counts[0] == 60
    assert loss or toto.messages_sent == (n - 1) * sum(counts)
    assert sent(simulate(stream("toto", n, loss), SaysWhatItDelivered)) != sent(transis)


def test_alone_a_message_is_delivered_at_once() -> None:
    for protocol in ("transis", "allack", "toto"):
        outcome = simulate(Scenario(protocol=protocol, groups={"g": 1}, plans=(Plan("g.1", 0, ("g",)),)))
        assert (outcome.deliveries, outcome.messages_sent, outcome.virtual_ns) == (1, 0, 0)


@pytest.mark.parametrize("phi", ["1", "4", "100"])
def test_every_threshold_keeps_the_promises(phi: str) -> None:
    for seed in range(3):
        assert simulate(random_scenario(ToTo, seed, {"phi": phi})).violations == []


def test_a_threshold_that_is_none_is_refused() -> None:
    for phi in ("0", "-1", "many"):
        words = f"must be a whole number of at least 1, not '{phi}': Φ goes from half of the machines, rounded up, to"
        with pytest.raises(UsageError, match=words):
            simulate(Scenario(protocol="toto", options={"phi": phi}, groups={"g": 1}, plans=()))
