"""The virtual world: the same every time, and every fault bites."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    Message,
    OrderingProtocol,
    ProcessId,
    Promise,
    Topology,
    Transport,
    Wire,
)
from antiphon.core.options import parse_options
from antiphon.protocols import protocols
from antiphon.protocols.skeen import Skeen
from antiphon.simulation import (
    LIVELOCK,
    MILLISECOND,
    Constant,
    Crash,
    Distrust,
    Exponential,
    Fault,
    Partition,
    Pause,
    Plan,
    Scenario,
    Slow,
    Uniform,
    Workload,
    WrongSuspicion,
    as_code,
    parse_faults,
    random_scenario,
    run,
    shrink,
    simulate,
    workload_scenario,
)
from antiphon.simulation.campaign import run_campaign, scenarios
from antiphon.simulation.detector import DETECTION_NS, LATE_DETECTION_NS
from antiphon.trace import Row
from mutants.skeen import DoesNotRaiseTheClock

GROUPS = {"a": 2, "b": 2}
PLANS = tuple(Plan("c1", i * MILLISECOND, ("a", "b")) for i in range(20))


def small(**changes: object) -> Scenario:
    defaults: dict[str, object] = {"protocol": "skeen", "groups": GROUPS, "plans": PLANS, "journal": True, "seed": 3}
    return Scenario(**(defaults | changes))


def test_the_same_seed_gives_the_same_digest_under_every_hash_seed() -> None:
    program = (
        "from antiphon.protocols import protocols\n"
        "from antiphon.simulation import *\n"
        "for p in protocols().values():\n"
        "    print(*[simulate(random_scenario(p, seed)).digest for seed in range(4)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "4242")
    }
    assert len(outputs) == 1
    assert len(set(outputs.pop().split())) == 4 * len(protocols()), "another seed is another run"


FAULTS = (
    Crash("a.1", at=5 * MILLISECOND, down_ns=10 * MILLISECOND),
    Crash("c1", at=5 * MILLISECOND, down_ns=10 * MILLISECOND, effects=1),
    Crash("a.1", at=5 * MILLISECOND, down_ns=10 * MILLISECOND, effects="delivery"),
    Crash("c1", at=5 * MILLISECOND, down_ns=10 * MILLISECOND),
    Pause("b.1", at=5 * MILLISECOND, for_ns=20 * MILLISECOND),
    Slow("b.2", at=5 * MILLISECOND, for_ns=9 * MILLISECOND, delay_ns=7 * MILLISECOND),
    Partition(("a.1", "b.1"), at=5 * MILLISECOND, for_ns=9 * MILLISECOND),
    Partition(("c1",), at=5 * MILLISECOND, for_ns=9 * MILLISECOND, one_way=True),
    Partition(("a.1", "a.2", "c1"), at=5 * MILLISECOND, for_ns=9 * MILLISECOND, bridge="b.2"),
)
CASES = [(fault, journal) for fault in FAULTS for journal in (True, False) if journal or not isinstance(fault, Crash)]


@pytest.mark.parametrize(("fault", "journal"), CASES, ids=str)
def test_every_fault_takes_effect_and_everything_is_delivered_after_it(fault, journal: bool) -> None:
    calm = simulate(small(journal=journal))
    outcome = simulate(small(journal=journal, faults=(fault,)))
    assert outcome.faults_effective == [fault]
    assert outcome.violations == []
    assert outcome.deliveries == calm.deliveries == 20 * 4
    assert outcome.digest != calm.digest
    assert delivery_times(outcome) > delivery_times(calm)


def delivery_times(outcome: run.Outcome) -> int:
    return sum(row.time_ns for row in outcome.rows if row.kind == "deliver")


def test_a_bridge_stays_in_contact_with_both_sides() -> None:
    cut = Partition(("a.1", "a.2"), at=0, for_ns=50 * MILLISECOND, bridge="b.1")
    rows = simulate(small(faults=(cut,), plans=(Plan("b.1", 0, ("a",)), Plan("b.2", 0, ("a",))))).rows
    delivered = {row.message: row.time_ns for row in rows if row.kind == "deliver"}
    assert delivered["b.1:1"] < 50 * MILLISECOND < delivered["b.2:1"]


def test_a_fault_that_hits_nothing_did_not_take_effect() -> None:
    late = Crash("a.1", at=3_000 * MILLISECOND, down_ns=1, effects=0)
    assert simulate(small(faults=(late,))).faults_effective == []


def test_a_crash_in_the_middle_of_an_input_releases_some_of_its_effects() -> None:
    """Of the four copies of the first message two leave; the rest leave after the restart, or never."""
    back = 12 * MILLISECOND
    for down_ns, receivers in ((10 * MILLISECOND, ("a.1", "a.2", "b.1", "b.2")), (None, ("a.1", "a.2"))):
        crash = Crash("c1", at=MILLISECOND, down_ns=down_ns, effects=2)
        outcome = simulate(small(faults=(crash,), plans=PLANS[2:3], sent_survives=True))
        first, *_ = [row.peers for row in outcome.rows if row.kind == "send" and row.process == "c1"]
        assert first == receivers
        came = [row for row in outcome.rows if row.kind == "receive" and row.peers == ("c1",)]
        assert [row.process for row in came if row.time_ns < back] == ["a.1", "a.2"]
        assert tuple(row.process for row in came[: len(receivers)]) == receivers
        sent = sum(len(row.peers or ()) for row in outcome.rows if row.kind == "send")
        assert outcome.messages_sent == sent == (12 if down_ns else 4)


def test_a_crash_amid_a_release_waits_for_one_that_it_can_cut() -> None:
    """The first message has one receiver, the second one four."""
    crash = Crash("c1", at=0, effects=1)
    plans = (Plan("c1", MILLISECOND, ("one",)), Plan("c1", 2 * MILLISECOND, ("a", "b")))
    groups = {"one": 1, "a": 2, "b": 2}
    outcome = simulate(small(protocol="reliable", groups=groups, faults=(crash,), plans=plans, sent_survives=True))
    assert [row.peers for row in outcome.rows if row.kind == "send" and row.process == "c1"] == [("one.1",), ("a.1",)]


def test_a_crash_after_a_delivery_lets_nothing_else_out() -> None:
    crash = Crash("a.1", at=5 * MILLISECOND, effects="delivery")
    rows = [row for row in simulate(small(protocol="reliable", faults=(crash,))).rows if row.process == "a.1"]
    assert rows[-1].kind == "crash"
    assert rows[-2].kind == "deliver"
    assert rows[-1].time_ns == rows[-2].time_ns > 5 * MILLISECOND


@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_comes_after_so_many_words_about_a_message(times: int) -> None:
    """Who delivers a message of skeen's proposes a time for it, and nothing else: the second word never comes."""
    crash = Crash("a.1", at=0, down_ns=MILLISECOND, effects=times, about="c1:3")
    outcome = simulate(small(faults=(crash,)))
    own = [row for row in outcome.rows if row.process == "a.1"]
    words = [row.time_ns for row in own if row.kind == "send" and "c1:3" in (row.about or ())]
    assert len(words) == 1
    assert [row.time_ns for row in own if row.kind == "crash"] == (words if times == 1 else [])
    assert outcome.faults_effective == ([crash] if times == 1 else [])
    assert outcome.deliveries == 20 * 4


def test_a_crash_without_return_is_waited_for_by_nobody() -> None:
    crash = Crash("a.1", at=5 * MILLISECOND)
    outcome = simulate(small(protocol="reliable", journal=False, faults=(crash,)))
    assert outcome.facts.faulty == ["a.1"]
    assert [row.process for row in outcome.rows if row.kind == "crash"] == ["a.1"]
    assert outcome.violations == []


def test_a_protocol_that_cannot_bear_a_crash_waits_and_is_reported() -> None:
    """Skeen without journals: the sender dies between the two rounds, and its addressees wait for ever (R10)."""
    crash = Crash("c1", at=1_500_000)
    outcome = simulate(small(journal=False, faults=(crash,), plans=(*PLANS[:1], Plan("a.1", MILLISECOND, ("a",)))))
    assert {violation.property for violation in outcome.violations} == {"validity"}
    assert outcome.deliveries == 0, "the message of the dead sender blocks the one behind it"


class Shout(Wire, frozen=True, tag=1):
    message: Message


class Shouting(OrderingProtocol):
    """Sends once and hopes: for lossy channels and for suspicions."""

    declaration = Declaration(
        name="shouting",
        title="",
        source="",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=(Promise.AGREEMENT, Promise.INTEGRITY),
    )
    transport = Transport.DATAGRAM

    def begin(self) -> None:
        self.monitor(self.topology.processes)

    def multicast(self, m: Message) -> None:
        self.send(self.topology.addressees(m.destinations), Shout(m))

    def on_shout(self, sender: ProcessId, shout: Shout) -> None:
        self.deliver(shout.message)

    def pending(self) -> int:
        return 0


class Telling(Shouting):
    transport = Transport.RELIABLE


class Dictating(Shouting):
    transport = Transport.FIFO


@pytest.mark.parametrize("latency", [Constant(500), Uniform(10, 2_000), Exponential(10, 900)])
@pytest.mark.parametrize(
    ("kind", "fifo", "ordered"), [(Telling, True, True), (Telling, False, False), (Dictating, False, True)]
)
def test_links_keep_their_latency_and_their_order(latency, kind, fifo: bool, ordered: bool) -> None:
    plans = tuple(Plan("c1", i * 100, ("a",)) for i in range(50))
    rows = simulate(small(protocol="shouting", latency=latency, fifo=fifo, journal=False, plans=plans), kind).rows
    left = {row.message: row.time_ns for row in rows if row.kind == "multicast"}
    came = {row.message: row.time_ns for row in rows if row.kind == "deliver" and row.process == "a.1"}
    assert len(left) == len(came) == 50
    floor = {Constant: 500, Uniform: 10, Exponential: 10}[type(latency)]
    assert all(came[id] - left[id] >= floor for id in left)
    assert (list(came) == list(left)) == (ordered or isinstance(latency, Constant))


def shouting(**changes: object) -> run.Outcome:
    plans = tuple(Plan("c1", i * MILLISECOND, ("a", "b")) for i in range(100))
    return simulate(small(protocol="shouting", journal=False, plans=plans, **changes), Shouting)


def test_a_lossy_channel_loses_and_doubles() -> None:
    assert shouting().violations == []
    assert {v.property for v in shouting(loss=0.2).violations} == {"agreement"}
    assert {v.property for v in shouting(duplication=0.2).violations} == {"integrity"}
    assert 280 < shouting(loss=0.2).deliveries < 360
    assert 440 < shouting(duplication=0.2).deliveries < 520


def test_a_wrong_suspicion_ends() -> None:
    fault = WrongSuspicion("a.1", "b.2", at=MILLISECOND, for_ns=5 * MILLISECOND)
    outcome = shouting(faults=(fault,))
    kinds = [(row.kind, row.time_ns) for row in outcome.rows if row.peers == ("b.2",) and row.process == "a.1"]
    assert kinds == [("suspect", MILLISECOND), ("trust", 6 * MILLISECOND)]
    assert outcome.faults_effective == [fault]
    assert simulate(small(faults=(fault,))).faults_effective == [], "Skeen asks no failure detector"


def test_a_crash_is_noticed_by_those_who_asked_and_only_by_them() -> None:
    crash = Crash("b.2", at=MILLISECOND)
    rows = shouting(faults=(crash,)).rows
    suspicions = {row.process: row.time_ns for row in rows if row.kind == "suspect" and row.peers == ("b.2",)}
    assert suspicions.keys() == {"a.1", "a.2", "b.1", "c1"}
    assert all(MILLISECOND + DETECTION_NS[0] <= time < LATE_DETECTION_NS[1] for time in suspicions.values())
    assert len(set(suspicions.values())) == 4, "each at a time of its own"
    assert not any(row.kind == "suspect" for row in simulate(small(protocol="reliable", faults=(crash,))).rows)


@pytest.mark.parametrize("name", ["skeen", "reliable", "tom"])
@pytest.mark.parametrize("workload", [Workload.CLOSED, Workload.PERIODIC])
def test_faults_of_a_chosen_workload_are_aimed(name: str, workload: Workload) -> None:
    """Nobody is suspected where nobody asks, and where they ask about senders, senders are."""
    protocol = protocols()[name]
    parsed = parse_options(protocol, {})
    kinds = parse_faults("all", protocol.watched(parsed), protocol.assumes(parsed).detector)
    lonely: list[Fault] = []
    for seed in range(10):
        scenario = workload_scenario(
            protocol,
            {},
            {"a": 3, "b": 3},
            clients=2,
            messages=200,
            seed=seed,
            fanout=None,
            faults=kinds,
            sent_survives=False,
            workload=workload,
            interval_ns=MILLISECOND,
            latency=Constant(),
            size=16,
        )
        suspected = {fault.suspect for fault in scenario.faults if isinstance(fault, WrongSuspicion)}
        if name != "tom":
            assert suspected <= (set() if name == "skeen" else {"c1", "c2"})
        assert name != "skeen" or not any(isinstance(fault, Distrust) for fault in scenario.faults)
        lonely += [f for f in scenario.faults if f in (Crash("c1", f.at, None, 1), Crash("c2", f.at, None, 1))]
    assert bool(lonely) == (name != "skeen"), "a message of which few hear; under skeen everybody returns"


class Certain(Shouting):
    """The same with a failure detector that is never wrong."""

    @classmethod
    def assumes(cls, options: object) -> Assumptions:
        return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.PERFECT)


def test_a_perfect_detector_suspects_those_who_never_return_and_nobody_else() -> None:
    crashes = (Crash("b.2", at=MILLISECOND), Crash("b.1", at=MILLISECOND, down_ns=1_000 * MILLISECOND))
    outcome = simulate(small(protocol="shouting", faults=crashes), Certain)
    assert {(row.process, row.peers) for row in outcome.rows if row.kind == "suspect"} == {
        (process, ("b.2",)) for process in ("a.1", "a.2", "b.1", "c1")
    }
    assert not any(row.kind == "trust" for row in outcome.rows)


def test_in_a_random_run_with_a_perfect_detector_all_but_one_may_go_and_nobody_is_suspected_wrongly() -> None:
    scenarios = [random_scenario(Certain, seed) for seed in range(60)]
    faults = [fault for scenario in scenarios for fault in scenario.faults]
    assert not any(isinstance(fault, WrongSuspicion | Distrust) for fault in faults)
    gone = [
        sum(fault.process in members and fault.down_ns is None for fault in scenario.faults if isinstance(fault, Crash))
        - len(members)
        for scenario in scenarios
        for members in Topology.sized(scenario.groups).groups.values()
        if len(members) > 2
    ]
    assert max(gone) == -1, "all but one, somewhere, and never all"


@pytest.mark.parametrize("fifo", [True, False])
def test_a_crash_loses_some_of_the_frames_under_way_and_of_ordered_channels_only_the_last(fifo: bool) -> None:
    """Twenty multicasts to two members leave within a millisecond, and their sender is gone before any arrives."""
    plans = tuple(Plan("c1", i * MILLISECOND // 20, ("a",)) for i in range(20))
    crash = Crash("c1", at=MILLISECOND)
    apart = ends = 0
    for seed in range(40):
        latency = Uniform(2 * MILLISECOND, 9 * MILLISECOND)
        run = small(
            protocol="telling", journal=False, plans=plans, faults=(crash,), latency=latency, seed=seed, fifo=fifo
        )
        came: dict[str, set[str]] = {"a.1": set(), "a.2": set()}
        for row in simulate(run, Telling).rows:
            if row.kind == "deliver":
                came[row.process].add(row.message or "")
        apart += came["a.1"] != came["a.2"]
        beginnings = [{f"c1:{i + 1}" for i in range(len(ids))} for ids in came.values()]
        ends += beginnings == list(came.values())
    assert apart > 10, "some of a send's receivers get it, and some do not"
    assert (ends == 40) == fifo


def test_distrust_is_of_all_but_the_trusted_and_may_never_end() -> None:
    for for_ns, ended in ((10 * MILLISECOND, True), (None, False)):
        fault = Distrust(("a.1", "b.1"), ("a.2",), at=5 * MILLISECOND, for_ns=for_ns)
        outcome = shouting(faults=(fault,))
        assert outcome.faults_effective == [fault]
        told = {(row.kind, row.process, *row.peers) for row in outcome.rows if row.kind in ("suspect", "trust")}
        suspected = {("a.1", "b.1"), ("a.1", "b.2"), ("b.1", "a.1"), ("b.1", "b.2")}  # nobody asks about c1
        assert told == {(kind, *pair) for kind in ("suspect", "trust")[: 1 + ended] for pair in suspected}


class Restless(Telling):
    """Whoever hears of a message tells the others of it, again and again."""

    def on_shout(self, sender: ProcessId, shout: Shout) -> None:
        self.send([p for p in self.topology.addressees(shout.message.destinations) if p != self.me], shout)
        if sender == shout.message.id.origin:
            self.deliver(shout.message)


def test_a_run_that_does_not_come_to_rest_is_a_finding_that_shrinks() -> None:
    scenario = small(protocol="restless", journal=False, faults=(Pause("b.1", MILLISECOND, 1),), events_max=2_000)
    outcome = simulate(scenario, Restless)
    assert [violation.property for violation in outcome.violations] == [LIVELOCK]
    assert outcome.violations[0].detail == "The run is not at rest after 2000 events and 6 ms."
    smallest = shrink(outcome, Restless)
    assert [violation.property for violation in smallest.violations] == [LIVELOCK]
    assert (len(smallest.scenario.plans), smallest.scenario.faults) == (1, ())


@pytest.mark.parametrize(("through_members", "plans_max"), [(False, 6), (True, 8)])
def test_a_failing_run_shrinks_to_a_few_lines_of_code_that_fail_again(through_members: bool, plans_max: int) -> None:
    """A client that changes member sends again what it had sent before, and so needs a few more plans to fail."""
    drawn = (scenario for scenario in scenarios(Skeen, 0) if scenario.through_members == through_members)
    failing = next(outcome for scenario in drawn if (outcome := simulate(scenario, DoesNotRaiseTheClock)).violations)
    smallest = shrink(failing, DoesNotRaiseTheClock)
    assert len(smallest.scenario.plans) <= plans_max < len(failing.scenario.plans)
    assert len(smallest.scenario.faults) <= 1
    names: dict[str, object] = {}
    exec(as_code(smallest.scenario).split("outcome = ")[0], names)
    again = eval(as_code(smallest.scenario).split("simulate(\n", 1)[1].split("\n)\n")[0], names)
    assert again == smallest.scenario
    assert simulate(again, DoesNotRaiseTheClock).digest == smallest.digest


def test_a_campaign_gives_the_same_result_whatever_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    two = run_campaign("sequencer", 5, 90, {})
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert run_campaign("sequencer", 5, 90, {}) == two
    assert two.runs >= 90
    assert two.failures == []


def test_steps_are_the_time_in_latencies_when_latency_is_constant() -> None:
    """With waiting included: two messages that cross wait for one another."""
    plans = (Plan("c1", 0, ("a", "b")), Plan("c2", 0, ("b", "a")), Plan("a.1", MILLISECOND, ("a", "b")))
    rows = simulate(small(plans=plans, journal=False, steps=True)).rows
    start = {row.message: row.time_ns for row in rows if row.kind == "multicast"}
    deliveries: list[Row] = [row for row in rows if row.kind == "deliver"]
    assert deliveries
    for row in deliveries:
        assert row.step == (row.time_ns - start[row.message]) // MILLISECOND


def test_every_random_scenario_prints_as_code_that_makes_it_again() -> None:
    for name, protocol in protocols().items():
        scenario = random_scenario(protocol, 11)
        names: dict[str, object] = {}
        exec("from antiphon.simulation import *", names)
        assert eval(repr(scenario), names) == scenario, name
        assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario
