"""scalatom.txt, sentence by sentence: lemmas under faults, claims about scale, Table 2 (R1), and what it left open."""

from __future__ import annotations

import random
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise, permutations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import FaultModel, Message, MessageId, OrderingProtocol, Process, ProcessId, Topology
from antiphon.core.keys import Key
from antiphon.protocols.mto import Mto
from antiphon.protocols.scalatom import Scalatom
from antiphon.services.label import Label
from antiphon.services.matrix import MatrixOrder
from antiphon.simulation import (
    MILLISECOND,
    Crash,
    Exponential,
    FaultKind,
    Outcome,
    Partition,
    Plan,
    Scenario,
    place_faults,
    random_scenario,
    simulate,
)
from mutants.mto import (
    AnyOrder,
    CountsOnlyWhatItRDelivered,
    DoesNotRaiseTheClockOnMessages,
    DoesNotWaitForWhatIsNotHere,
    FifoOrder,
    LetsAnEqualNumberPass,
    SimpleForQualifiedQuorums,
    over_causal,
)
from mutants.scalatom import GossipsToOldAcquaintances, TakesHistoriesAsTheyCome
from mutants.services import CausalKnowsItsOwnPastOnly

# The lemmas --------------------------------------------------------------------------------------------------------


class Log(msgspec.Struct):
    """What a process did. It is part of its state, so that it is lost and comes back exactly as the process does."""

    r_delivered: dict[MessageId, tuple[str, ...]] = {}  # and the destinations
    decided: dict[MessageId, int] = {}
    pps: dict[MessageId, list[MessageId]] = {}
    before_pps: dict[MessageId, int] = {}  # how many messages had been TO-delivered when PPS was computed
    delivered: list[MessageId] = []


class Logged(Scalatom):
    log: Log

    def initialise(self) -> None:
        super().initialise()
        self.log = Log()

    def when_r_delivered(self, m: Message, label: Label) -> None:
        self.log.r_delivered[m.id] = m.destinations
        super().when_r_delivered(m, label)

    def number(self, id: MessageId, sn: int) -> None:
        self.log.decided[id] = sn
        super().number(id, sn)

    def compute_pps(self) -> None:
        before = sorted(self.computing)
        super().compute_pps()
        for key in before:
            if key not in self.computing:
                sn, id = key
                without = sorted(other for other, _ in self.pps(sn))
                self.log.pps[id] = [*without, *(o for n, o in self.queue if (n, o) < key)]
                self.log.before_pps[id] = len(self.log.delivered)

    def has_predecessor(self, sn: int) -> bool:
        found = super().has_predecessor(sn)
        assert found == bool(self.pps(sn)), "the lowest tells whether PPS(m) has any message"
        return found

    def deliver(self, m: Message, key: Key | None = None) -> None:
        self.log.delivered.append(m.id)
        super().deliver(m, key)


class Run(msgspec.Struct):
    outcome: Outcome
    correct: dict[str, tuple[str, Log]]  # by correct process: its group, and what it did

    def addressed(self, id: MessageId) -> dict[str, Log]:
        """The correct processes in Dst(m)."""
        destinations = next(log.r_delivered[id] for _, log in self.correct.values() if id in log.r_delivered)
        return {p: log for p, (group, log) in self.correct.items() if group in destinations}


def logged(scenario: Scenario) -> Run:
    processes: dict[str, Process] = {}

    class Kept(Logged):
        def initialise(self) -> None:
            super().initialise()
            processes[self.me] = self.process  # after a restart, the new one

    outcome = simulate(scenario, Kept)
    group_of = Topology.sized(scenario.groups).group_of
    return Run(
        outcome,
        {p: (group, processes[p].protocol.log) for p, group in group_of.items() if p not in outcome.facts.faulty},
    )


@cache
def runs() -> list[Run]:
    """A slice of the campaign, with restarts from the journal; and as many runs in which many crash for good."""
    return [logged(scenario(seed)) for seed in range(400, 430) for scenario in (campaign, deadly)]


def campaign(seed: int) -> Scenario:
    return random_scenario(Scalatom, seed)


def deadly(seed: int) -> Scenario:
    """A minority of each group and some senders in mid-multicast crash for good, and what they sent with them."""
    rng = random.Random(f"{seed}/deadly")
    sizes = {f"g{i}": rng.choice((3, 3, 5)) for i in range(1, rng.choice((1, 2, 3)) + 1)}
    topology = Topology.sized(sizes)
    senders = ["c1", "c2", "c3", *rng.sample(topology.processes, 2)]
    plans = []
    for _ in range(20):
        chosen = tuple(rng.sample(list(sizes), rng.randint(1, len(sizes))))
        plans.append(Plan(rng.choice(senders), rng.randrange(30 * MILLISECOND), chosen))
    kinds = (FaultKind.CRASH, FaultKind.CRASH, *FaultKind)
    span = 40 * MILLISECOND
    processes = (*topology.processes, "c1", "c2")
    return Scenario(
        protocol="scalatom",
        options={"consensus": rng.choice(("ct", "hr")), "piggyback": rng.choice(("false", "true"))},
        groups=sizes,
        plans=tuple(sorted(plans, key=lambda plan: plan.at)),
        faults=place_faults(rng, processes, kinds, 8, span, topology, returning=False, permanent=True),
        latency=Exponential(MILLISECOND // 10, 3 * MILLISECOND),
        fifo=False,
        seed=seed,
        limit_ns=60_000 * MILLISECOND,
    )


def test_the_runs_of_the_lemmas_have_faults_of_every_kind() -> None:
    kinds = {type(fault).__name__ for run in runs() for fault in run.outcome.faults_effective}
    assert kinds == {"Crash", "Pause", "Slow", "Partition", "WrongSuspicion", "Distrust"}
    assert sum(len(run.outcome.facts.faulty) for run in runs()) > 20
    assert sum(len(log.pps) for run in runs() for _, log in run.correct.values()) > 3000
    assert not any(run.outcome.violations for run in runs())


def test_lemma_1_if_a_correct_process_r_delivers_m_every_correct_addressee_decides_sn_of_m() -> None:
    for run in runs():
        for id in {id for _, log in run.correct.values() for id in log.r_delivered}:
            numbers = [log.decided[id] for log in run.addressed(id).values()]
            assert len(set(numbers)) == 1  # and the same, by the agreement of consensus


def test_lemma_2_a_correct_process_that_decides_sn_of_m_computes_pps_of_m() -> None:
    for run in runs():
        for _, log in run.correct.values():
            assert log.decided.keys() == log.pps.keys()


def test_lemma_3_a_correct_process_decides_the_number_of_every_message_in_a_pps() -> None:
    """Whoever of the group contributed it: PPS is a union of histories, and only uniform R-delivery makes this true."""
    found = 0
    for run in runs():
        for _, log in run.correct.values():
            for predecessors in log.pps.values():
                found += len(predecessors)
                assert all(id in log.decided for id in predecessors)
    assert found > 1000


def test_lemma_4_a_correct_process_that_decides_sn_of_m_to_delivers_m() -> None:
    for run in runs():
        for _, log in run.correct.values():
            assert log.decided.keys() == set(log.delivered)
            assert len(log.delivered) == len(set(log.delivered))


def test_lemma_5_a_message_with_a_lower_number_is_in_pps_or_already_delivered() -> None:
    """As R10 corrects it: "in PPS or already delivered", and for equal numbers with a lower id too."""
    in_pps = already = 0
    for run in runs():
        for _, log in run.correct.values():
            position = {id: i for i, id in enumerate(log.delivered)}
            for m1, m2 in permutations(log.decided, 2):
                if (log.decided[m1], m1) < (log.decided[m2], m2):
                    in_pps += m1 in log.pps[m2]
                    already += position[m1] < log.before_pps[m2]
                    assert m1 in log.pps[m2] or position[m1] < log.before_pps[m2]
    assert min(in_pps, already) > 1000  # as the paper states it, the lemma does not hold


def test_to1_uniform_agreement() -> None:
    """What any process TO-delivered, correct or not, every correct addressee TO-delivers."""
    for run in runs():
        rows = [row for row in run.outcome.rows if row.kind == "deliver"]
        delivered = {(row.process, row.message) for row in rows}
        for row in rows:
            for process, (group, _) in run.correct.items():
                assert group not in (row.destinations or ()) or (process, row.message) in delivered


def test_to2_termination() -> None:
    """What a correct process TO-multicasts, every correct addressee TO-delivers."""
    for run in runs():
        delivered = {(row.process, row.message) for row in run.outcome.rows if row.kind == "deliver"}
        for row in run.outcome.rows:
            if row.kind == "multicast" and row.process not in run.outcome.facts.faulty:
                for process, (group, _) in run.correct.items():
                    assert group not in (row.destinations or ()) or (process, row.message) in delivered


def test_to3_uniform_total_order() -> None:
    """m1 < m2 if any process, correct or not, TO-delivers m1 before m2: the relation is acyclic."""
    for run in runs():
        sequences: dict[str, list[str]] = {}
        for row in run.outcome.rows:
            if row.kind == "deliver":
                sequences.setdefault(row.process, []).append(row.message or "")
        before: dict[str, set[str]] = {}
        for sequence in sequences.values():
            for earlier, later in pairwise(sequence):
                before.setdefault(later, set()).add(earlier)
        tuple(TopologicalSorter(before).static_order())  # raises CycleError if there is a cycle


# Scalability, sections 1.2 and 4.3 ---------------------------------------------------------------------------------


def two_of_many(protocol: str, groups: int, messages: int = 1) -> Outcome:
    """Multicasts to two groups of three; the other groups have one member each."""
    names = [f"g{i:03}" for i in range(groups)]
    return simulate(
        Scenario(
            protocol=protocol,
            groups={name: 3 if i < 2 else 1 for i, name in enumerate(names)},
            plans=tuple(Plan("c1", i * 20 * MILLISECOND, tuple(names[:2])) for i in range(messages)),
        )
    )


@pytest.mark.parametrize("protocol", ["scalatom", "tom"])
def test_the_number_and_size_of_messages_depend_only_on_the_addressees(protocol: str) -> None:
    """Participant minimality and message size minimality: the same cost from 2 to 100 groups, to the byte."""
    small = two_of_many(protocol, 2, messages=3)
    for groups in (3, 10, 100):
        large = two_of_many(protocol, groups, messages=3)
        assert (large.messages_sent, large.bytes_sent) == (small.messages_sent, small.bytes_sent)
        assert large.deliveries == small.deliveries


def test_the_size_of_mto_messages_is_a_function_of_the_total_number_of_processes() -> None:
    """ "At least in the order of n²": a matrix of one number for each pair of processes in every message."""
    base = two_of_many("mto", 2)
    for groups in (3, 5, 10, 40):
        large = two_of_many("mto", groups)
        assert large.messages_sent == base.messages_sent  # it is genuine
        processes = 6 + groups - 2
        assert large.bytes_sent - base.bytes_sent == base.messages_sent * (processes**2 - 6**2)


def test_the_size_of_messages_of_ctbroadcast_grows_with_the_groups() -> None:
    """f(n): whoever a message is for, everybody agrees on it. The members of a group add nothing."""

    def sizes(groups: int, members: int) -> list[int]:
        topology = {f"g{i}": members for i in range(1, groups + 1)}
        options = {"consensus": "ct", "reliable": "eager"}
        plans = (Plan("g1.1", 0, tuple(topology)),)
        rows = simulate(Scenario(protocol="ctbroadcast", options=options, groups=topology, plans=plans)).rows
        return sorted({row.bytes for row in rows if row.kind == "send"})

    grown = [sizes(groups, 1) for groups in (2, 4, 8)]
    assert all(small < large for few, many in pairwise(grown) for small, large in zip(few, many, strict=True))
    assert sizes(1, 2) == sizes(1, 8)


def test_the_size_of_messages_of_scalatom_grows_with_the_addressees_only() -> None:
    """f(d): a longer label and nothing else, whether 2 or 40 groups exist."""

    def bytes_per_message(d: int, groups: int) -> float:
        names = [f"g{i:03}" for i in range(groups)]
        plans = (Plan("c1", 0, tuple(names[:d])),)
        outcome = simulate(Scenario(protocol="scalatom", groups=dict.fromkeys(names, 1), plans=plans))
        return outcome.bytes_sent / outcome.messages_sent

    sizes = [bytes_per_message(d, 8) for d in range(2, 9)]
    assert sizes == sorted(sizes)
    assert [bytes_per_message(d, 40) for d in range(2, 9)] == sizes


def strangers(outcome: Outcome) -> int:
    """Frames about a message that are sent or received by neither its sender nor an addressee."""
    allowed: dict[str, set[str]] = {}
    for row in outcome.rows:
        if row.kind == "multicast":
            members = {p for group in row.destinations or () for p in outcome.facts.groups[group]}
            allowed.setdefault(row.message or "", set()).update(members, {row.process})
    ends = [
        (id, row.process, peer)
        for row in outcome.rows
        if row.kind in ("send", "receive")
        for id in row.about or ()
        for peer in row.peers or ()
    ]
    return sum(process not in allowed[id] or peer not in allowed[id] for id, process, peer in ends)


def meddlers(outcome: Outcome) -> int:
    """Frames at the ends of which is somebody whom the message under way does not concern.

    For multicasts so far apart that only one is under way at a time: then it is known of every frame what it is for.
    """
    found, concerned = 0, set[str]()
    for row in sorted(outcome.rows, key=lambda row: (row.time_ns, row.kind != "multicast")):
        if row.kind == "multicast":
            concerned = {p for group in row.destinations or () for p in outcome.facts.groups[group]} | {row.process}
        elif row.kind in ("send", "receive"):
            found += sum(row.process not in concerned or peer not in concerned for peer in row.peers or ())
    return found


def random_destinations(
    protocol: str, seed: int, kind: type[OrderingProtocol] | None = None, *, apart_ms: int = 1
) -> Outcome:
    rng = random.Random(f"{seed}/genuine")
    groups = {f"g{i}": rng.randint(1, 3) for i in range(8)}
    plans = []
    for i in range(20):
        chosen = tuple(rng.sample(list(groups), rng.randint(1, 4)))
        plans.append(Plan(rng.choice(["c1", "c2", "g0.1", "g3.1"]), i * apart_ms * MILLISECOND, chosen))
    return simulate(Scenario(protocol=protocol, groups=groups, plans=tuple(plans), seed=seed), kind)


@pytest.mark.parametrize("protocol", ["scalatom", "tom", "mto"])
def test_only_the_sender_and_the_addressees_take_part(protocol: str) -> None:
    for seed in range(3):
        outcome = random_destinations(protocol, seed)
        assert outcome.violations == []
        assert strangers(outcome) == 0
        # A process that no message concerns does nothing at all.
        concerned = {
            p
            for row in outcome.rows
            if row.kind == "multicast"
            for p in (row.process, *(p for group in row.destinations or () for p in outcome.facts.groups[group]))
        }
        assert {row.process for row in outcome.rows} <= concerned


@pytest.mark.parametrize("protocol", ["scalatom", "tom", "mto", "skeen"])
def test_nobody_else_takes_part_in_a_consensus_or_sees_a_history(protocol: str) -> None:
    for seed in range(3):
        assert meddlers(random_destinations(protocol, seed, apart_ms=100)) == 0
    if protocol == "scalatom":
        assert meddlers(random_destinations(protocol, 0, GossipsToOldAcquaintances, apart_ms=100)) > 100


def test_a_multicast_by_broadcast_involves_even_those_that_are_not_concerned() -> None:
    outcome = random_destinations("nonminimal", 0)
    assert outcome.violations == []  # it does not promise genuineness
    assert strangers(outcome) > 1000
    facts = msgspec.structs.replace(outcome.facts, promises=["genuineness"])
    assert {violation.property for violation in check_run(facts, outcome.rows)} == {"genuineness"}


# Table 2, rows 4 to 6 (R1) -----------------------------------------------------------------------------------------

# Chandra-Toueg's consensus as R1 counts it: no estimates in round 1, nobody tells who decided first of the decision.
R1 = {"consensus": "ct", "estimates": "false", "flood_origin": "false", "reliable": "eager"}


def one_group(protocol: str, sender: str, size: int, **options: str) -> tuple[int, int | None]:
    plans = (Plan(sender, 0, ("g",)),)
    scenario = Scenario(protocol=protocol, options={**R1, **options}, groups={"g": size}, plans=plans, steps=True)
    outcome = simulate(scenario)
    assert outcome.deliveries == size
    return outcome.messages_sent, outcome.steps_max


@pytest.mark.parametrize("n", range(2, 10))
def test_table_2_chandra_toueg_broadcast(n: int) -> None:
    """A member sends: 2(n-1)² + 2(n-1) messages. g.1 is the coordinator of round 1."""
    messages = 2 * (n - 1) ** 2 + 2 * (n - 1)
    assert one_group("ctbroadcast", "g.2", n) == (messages, 4)
    assert one_group("ctbroadcast", "g.1", n) == (messages, 3)


@pytest.mark.parametrize("d", range(2, 10))
def test_table_2_scalatom(d: int) -> None:
    """3(d-1)² + 4(d-1) messages and, for the histories within the group, d(d-1): the table's (d-1)² is one per process
    too few (R1). Six steps; where histories travel with the timestamps, five, and no message of their own.

    With two or three processes, two timestamps are a majority: when the coordinator is not the sender, it has them a
    step earlier, its own and that of the sender.
    """
    messages = 3 * (d - 1) ** 2 + 4 * (d - 1)
    for sender in ("g.1", "g.2"):
        saved = sender == "g.2" and d < 4
        assert one_group("scalatom", sender, d, echo_origin="true") == (messages + d * (d - 1), 6 - saved)
        assert one_group("scalatom", sender, d, echo_origin="true", piggyback="true") == (messages, 5 - saved)


@pytest.mark.parametrize("d", range(2, 10))
def test_table_2_mto(d: int) -> None:
    """One step and the histories less than SCALATOM, for the same reason with the same exception."""
    messages = 3 * (d - 1) ** 2 + 4 * (d - 1)
    for sender in ("g.1", "g.2"):
        assert one_group("mto", sender, d, echo_origin="true") == (messages, 5 - (sender == "g.2" and d < 4))


# What the paper leaves open (R10) ----------------------------------------------------------------------------------


class Unchecked(Logged):
    """Accepts a reliable multicast that is not uniform."""

    @classmethod
    def check(cls, options: object, model: FaultModel) -> None:
        pass


# The dying c2 reaches g.1 alone. g.1 R-delivers c2:1, and its history, with c2:1 in it, overtakes the copies that it
# forwards: it travels with its timestamp (footnote 4). Then g.1 dies, and the copies with it.
BLOCKING = Scenario(
    protocol="scalatom",
    options={"reliable": "eager", "piggyback": "true"},
    groups={"g": 3},
    plans=(Plan("c2", 1, ("g",)), Plan("c1", 2 * MILLISECOND, ("g",)), Plan("c1", 4 * MILLISECOND, ("g",))),
    faults=(Crash("c2", at=0, effects=1), Crash("g.1", at=9_679_204)),
    latency=Exponential(floor_ns=10_000, mean_ns=8 * MILLISECOND),
    fifo=False,
    seed=141,
)


def test_scalatom_over_a_merely_reliable_multicast_can_block_for_ever() -> None:
    """Its history puts into PPS a message that no correct process has (scalatom.txt, 3.4 and R10)."""
    processes: dict[str, Process] = {}

    class Kept(Unchecked):
        def initialise(self) -> None:
            super().initialise()
            processes[self.me] = self.process

    outcome = simulate(BLOCKING, Kept)
    assert {violation.property for violation in outcome.violations} == {"validity"}
    logs = {p: processes[p].protocol.log for p in ("g.1", "g.2", "g.3")}
    c1, c2 = ProcessId("c1"), ProcessId("c2")
    assert [p for p, log in logs.items() if (c2, 1) in log.r_delivered] == ["g.1"]
    for p in ("g.2", "g.3"):
        assert logs[p].decided.keys() == {(c1, 1), (c1, 2)}  # all is decided, PPS is known, and nothing is delivered
        assert logs[p].delivered == []
        assert (c2, 1) in logs[p].pps[MessageId(c1, 1)]


def test_over_a_uniform_multicast_the_same_run_goes_on() -> None:
    outcome = simulate(msgspec.structs.replace(BLOCKING, options={"reliable": "uniform"}))
    assert outcome.violations == []
    assert {row.message for row in outcome.rows if row.kind == "deliver" and row.process != "g.1"} >= {"c1:1", "c1:2"}


# An increment of g1.2's history overtakes an earlier one; who takes it for the whole history misses a predecessor.
OVERTAKING = Scenario(
    protocol="scalatom",
    options={"reliable": "eager", "consensus": "hr", "piggyback": "true"},
    groups={"g1": 3},
    plans=tuple(
        Plan(sender, at, ("g1",))
        for sender, at in (
            ("c1", 509868),
            ("c1", 517895),
            ("c4", 670446),
            ("c3", 1083629),
            ("c4", 1246878),
            ("c4", 6046147),
            ("c2", 6393345),
            ("c1", 6576125),
            ("c2", 9103470),
        )
    ),
    latency=Exponential(floor_ns=10_000, mean_ns=8 * MILLISECOND),
    fifo=False,
    sent_survives=True,
    seed=0,
)


def test_without_fifo_channels_increments_of_a_history_need_contiguous_indices() -> None:
    assert simulate(OVERTAKING).violations == []
    broken = {violation.property for violation in simulate(OVERTAKING, TakesHistoriesAsTheyCome).violations}
    assert broken == {"total_order", "acyclic_order", "floor"}


def test_histories_are_trimmed() -> None:
    """After a thousand messages a process holds no more than after ten: nothing, when nothing is under way."""
    sizes = {}
    for messages in (10, 1000):
        processes: list[Process] = []

        class Kept(Scalatom):
            def initialise(self) -> None:
                super().initialise()
                processes.append(self.process)  # noqa: B023 - used within this turn of the loop

        plans = tuple(Plan("c1", i * 2 * MILLISECOND, ("a", "b") if i % 2 else ("a",)) for i in range(messages))
        scenario = Scenario(protocol="scalatom", groups={"a": 3, "b": 1}, plans=plans, fifo=False)
        simulate(msgspec.structs.replace(scenario, latency=Exponential(MILLISECOND // 10, MILLISECOND)), Kept)
        for process in processes:
            protocol = process.protocol
            for left in ("entries", "rec_ts", "proposed", "predecessors", "sn", "computing", "queue"):
                assert not getattr(protocol, left)
            assert not any(view.early for view in protocol.views.values())
            assert len(protocol.history) <= 2  # R-deliveries since the last increment
        sizes[messages] = max(sum(len(part.snapshot()) for part in process.parts) for process in processes)
    assert sizes[1000] < sizes[10] + 100


def test_mto_keeps_nothing_when_nothing_is_under_way() -> None:
    for reliable in ("eager", "lazy", "uniform"):
        processes: list[Process] = []

        class Kept(Mto):
            def initialise(self) -> None:
                super().initialise()
                processes.append(self.process)  # noqa: B023 - used within this turn of the loop

        scenario = Scenario(
            protocol="mto",
            options={"reliable": reliable},
            groups={"a": 3, "b": 2},
            plans=tuple(Plan("c1", i * MILLISECOND, ("a", "b") if i % 2 else ("a",)) for i in range(100)),
            latency=Exponential(MILLISECOND // 10, MILLISECOND),
            fifo=False,
            sent_survives=True,
        )
        assert simulate(scenario, Kept).violations == []
        for process in processes:
            protocol = process.protocol
            for left in ("heard_of", "entries", "rec_ts", "proposed", "decided", "queue"):
                assert not getattr(protocol, left), (reliable, left)
            assert not protocol.causal.waiting


# MTO, as far as our page goes beyond the text -----------------------------------------------------------------------

# g2's clock is ahead. c2:1 goes to both groups, and nothing that g1.1 or g2 sends reaches g1.2 and g1.3 for a while:
# they give c3:1 a low number without having heard of the number that the others give c2:1.
ONE_VOTE_IN_THE_GROUP = Scenario(
    protocol="mto",
    options={"consensus": "hr"},
    groups={"g1": 3, "g2": 5},
    plans=(
        *(Plan("c1", at * MILLISECOND, ("g2",)) for at in (0, 10, 20)),
        Plan("c2", 60 * MILLISECOND, ("g1", "g2")),
        Plan("c3", 63_500_000, ("g1",)),
    ),
    faults=(
        Partition(("g1.1", *(f"g2.{i}" for i in range(1, 6))), 60 * MILLISECOND, 100 * MILLISECOND, one_way=True),
        Crash("g1.1", at=64_250_000),
    ),
    sent_survives=True,
)


def test_mto_needs_a_majority_of_every_group_in_its_consensus() -> None:
    assert simulate(ONE_VOTE_IN_THE_GROUP).violations == []
    (violation,) = simulate(ONE_VOTE_IN_THE_GROUP, SimpleForQualifiedQuorums).violations
    assert violation.detail == "Delivery 1 in group g1 is c2:1 at g1.1, but c3:1 at g1.2."


def test_mto_raises_its_clock_on_every_message() -> None:
    """The same run, but the others fall silent only when g1.2 and g1.3 have voted: only the votes bear the clock."""
    cut, crash = ONE_VOTE_IN_THE_GROUP.faults
    scenario = msgspec.structs.replace(
        ONE_VOTE_IN_THE_GROUP, faults=(msgspec.structs.replace(cut, at=63_200_000), crash)
    )
    assert simulate(scenario).violations == []
    (violation,) = simulate(scenario, DoesNotRaiseTheClockOnMessages).violations
    assert violation.detail == "Delivery 1 in group g1 is c2:1 at g1.1, but c3:1 at g1.2."


@pytest.mark.parametrize("order", [AnyOrder, FifoOrder, CausalKnowsItsOwnPastOnly])
def test_mto_depends_on_causal_order_delivery_of_messages(order: type[MatrixOrder]) -> None:
    """g2.1 tells g1.3 that m is decided, while its own group cannot tell g1.3 of an earlier message."""
    scenario = Scenario(
        protocol="mto",
        groups={"g1": 3, "g2": 1},
        plans=(Plan("c1", 0, ("g1",)), Plan("c2", 2 * MILLISECOND, ("g1", "g2"))),
        faults=(Partition(("g1.3",), at=0, for_ns=20 * MILLISECOND, bridge="g2.1"),),
        sent_survives=True,
    )
    assert simulate(scenario).violations == []
    broken = {violation.property for violation in simulate(scenario, over_causal(order)).violations}
    assert broken == {"total_order", "acyclic_order", "floor"}


@pytest.mark.parametrize(("kind", "mean_ns", "seed"), [("uniform", 3_000_000, 1216), ("lazy", 3_000_000, 2)])
def test_mto_counts_as_pending_what_was_r_delivered_elsewhere(kind: str, mean_ns: int, seed: int) -> None:
    """Without any fault: a decision comes before a message that others had R-delivered before they voted.

    The eager multicast alone sends a message on before it R-delivers it, and so hides the difference.
    """
    uniform = (Plan("c1", 7223734, ("g1",)), Plan("c1", 9812041, ("g1", "g2")))
    lazy = tuple(Plan("c4", at, ("g1",)) for at in (7107012, 7734500, 8423291))
    scenario = Scenario(
        protocol="mto",
        options={"reliable": kind, "consensus": "hr" if kind == "uniform" else "ct"},
        groups={"g1": 3, "g2": 2} if kind == "uniform" else {"g1": 3},
        plans=uniform if kind == "uniform" else lazy,
        latency=Exponential(floor_ns=10_000 if kind == "uniform" else 100_000, mean_ns=mean_ns),
        fifo=False,
        sent_survives=True,
        seed=seed,
    )
    broken = {violation.property for violation in simulate(scenario, CountsOnlyWhatItRDelivered).violations}
    assert broken == {"total_order", "acyclic_order", "floor"}
    assert simulate(scenario).violations == []
    eager = msgspec.structs.replace(scenario, options={**scenario.options, "reliable": "eager"})
    assert simulate(eager, CountsOnlyWhatItRDelivered).violations == []


def test_mto_waits_for_a_lower_number_whose_message_is_not_here() -> None:
    scenario = Scenario(
        protocol="mto",
        options={"reliable": "lazy", "consensus": "hr"},
        groups={"g1": 3},
        plans=(Plan("c2", 2963975, ("g1",)), Plan("c1", 7123987, ("g1",)), Plan("c1", 7540825, ("g1",))),
        latency=Exponential(floor_ns=10_000, mean_ns=3 * MILLISECOND),
        fifo=False,
        sent_survives=True,
        seed=2803,
    )
    assert simulate(scenario).violations == []
    broken = {violation.property for violation in simulate(scenario, DoesNotWaitForWhatIsNotHere).violations}
    assert broken == {"total_order", "acyclic_order", "floor"}


def test_mto_lets_the_id_decide_between_equal_numbers_also_of_a_message_that_is_not_here() -> None:
    sent = (("c3", 232_082), ("c1", 887_679), ("c2", 3_953_738), ("c2", 5_492_813))
    scenario = Scenario(
        protocol="mto",
        options={"reliable": "lazy", "consensus": "hr"},
        groups={"g1": 3},
        plans=tuple(Plan(sender, at, ("g1",)) for sender, at in sent),
        latency=Exponential(floor_ns=10_000, mean_ns=3 * MILLISECOND),
        fifo=False,
        sent_survives=True,
        seed=381,
    )
    assert simulate(scenario).violations == []
    broken = {violation.property for violation in simulate(scenario, LetsAnEqualNumberPass).violations}
    assert broken == {"total_order", "acyclic_order", "floor"}
