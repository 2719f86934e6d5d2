"""What the sequencer keeps and does not keep, each shown by a run: contamination, two sequencers, lost frames."""

from __future__ import annotations

from itertools import islice, product

import msgspec
import pytest

from antiphon.checks import Violation, check_run
from antiphon.core import FaultModel, Process, ProcessId, Promise, Topology, Transport, Wire
from antiphon.core.effects import AnyEffect, Log, Send, SetTimer
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Fire, Multicast, Receive
from antiphon.protocols.sequencer import Sequencer
from antiphon.services.stability import Stable
from antiphon.simulation import (
    Crash,
    Exponential,
    Outcome,
    Partition,
    Pause,
    Plan,
    Scenario,
    WrongSuspicion,
    random_scenario,
    simulate,
)
from antiphon.simulation.campaign import scenarios
from antiphon.simulation.search import Scope, explore
from antiphon.simulation.values import MILLISECOND
from mutants.sequencer import ACROSS_GROUPS, HeedsTheDead

TAKEOVER = {"takeover": "true"}
UNIFORM = {"takeover": "true", "numbering": "uniform"}
PLAIN = {"takeover": "true", "numbering": "plain", "causal": "false"}
SEED = 1  # decides which frames are lost with their sender
TURNS = tuple(Plan(f"g.{1 + i % 3}", i * MILLISECOND // 2, ("g",)) for i in range(15))


OPTIONS = [
    {"variant": variant, "numbering": numbering, "takeover": takeover, "transport": transport}
    for variant, numbering, takeover, transport in product(
        ("relay", "broadcast"), ("plain", "uniform"), ("false", "true"), ("reliable", "datagram")
    )
]


def broken(outcome: Outcome, promise: str) -> list[Violation]:
    return check_run(msgspec.structs.replace(outcome.facts, promises=[promise]), outcome.rows)


def delivered(outcome: Outcome) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in outcome.rows:
        if row.kind == "deliver":
            found.setdefault(row.process, []).append(str(row.message))
    return found


# Contamination ------------------------------------------------------------------------------------------------------


def contaminated(options: dict[str, str]) -> Outcome:
    """The sequencer delivers its own message and is gone, with the frames that would have told the others."""
    plans = (Plan("g.1", MILLISECOND, ("g",)), Plan("g.2", 2 * MILLISECOND, ("g",)))
    crash = Crash("g.1", at=3 * MILLISECOND // 2)
    scenario = Scenario(protocol="sequencer", options=options, groups={"g": 3}, plans=plans, faults=(crash,), seed=SEED)
    return simulate(scenario)


def test_plain_numbering_contaminates() -> None:
    outcome = contaminated(TAKEOVER)
    assert delivered(outcome) == {"g.1": ["g.1:1"], "g.2": ["g.2:1"], "g.3": ["g.2:1"]}
    assert outcome.violations == []
    assert broken(outcome, "uniform_agreement")
    assert broken(outcome, "total_order")


def test_uniform_numbering_does_not() -> None:
    outcome = contaminated(UNIFORM)
    assert delivered(outcome) == {"g.2": ["g.2:1"], "g.3": ["g.2:1"]}
    assert outcome.violations == []


@pytest.mark.parametrize(
    ("promise", "options", "seed"),
    [
        ("uniform_agreement", PLAIN | {"transport": "reliable", "variant": "relay"}, 16),
        ("total_order", PLAIN | {"transport": "reliable", "variant": "relay"}, 1),
        ("acyclic_order", PLAIN, 11),
        ("genuineness", UNIFORM | {"causal": "false"}, 279),
        ("causal", {"takeover": "false", "causal": "false"}, 26),
        ("causal", TAKEOVER | {"causal": "false"}, 11),
    ],
)
def test_what_is_not_promised_is_broken_by_some_seed(promise: str, options: dict[str, str], seed: int) -> None:
    outcome = simulate(random_scenario(Sequencer, seed, options))
    assert promise not in outcome.facts.promises
    assert outcome.violations == []
    assert broken(outcome, promise)


def test_whoever_is_left_is_in_one_order_with_plain_numbering_too() -> None:
    """Total order speaks of the dead as well; without them it holds."""
    for scenario in islice(scenarios(Sequencer, 0, PLAIN), 150):
        outcome = simulate(scenario)
        rows = [row for row in outcome.rows if row.process not in outcome.facts.faulty or row.kind == "multicast"]
        facts = msgspec.structs.replace(outcome.facts, promises=["total_order", "acyclic_order"])
        assert check_run(facts, rows) == []


# Causal order across groups -----------------------------------------------------------------------------------------


def across_groups(seed: int, **options: str) -> Scenario:
    """A client sends to two groups in turn, and somebody who delivers this in one group sends to the other."""
    turns = [Plan("c1", 12 * i * MILLISECOND, (group,)) for i in range(12) for group in "aabab"]
    answers = [Plan("b.1", i * MILLISECOND, ("a",)) for i in range(150)]
    return Scenario(
        protocol="sequencer",
        options={"causal": "true", **options},
        groups={"a": 2, "b": 1},
        plans=tuple(sorted(turns + answers, key=lambda plan: plan.at)),
        latency=Exponential(100_000, 5 * MILLISECOND),
        loss=0.1,
        duplication=0.1,
        seed=seed,
    )


@pytest.mark.parametrize("mutant", ACROSS_GROUPS, ids=lambda mutant: mutant.__name__)
def test_a_message_to_another_group_waits_until_the_earlier_ones_are_taken(mutant: type[Sequencer]) -> None:
    assert simulate(across_groups(3)).violations == []
    assert {violation.property for violation in simulate(across_groups(3), mutant).violations} == {"causal"}


def test_the_runs_that_broke_causal_order_keep_it_with_the_option() -> None:
    for seed, takeover in ((26, "false"), (11, "true")):
        options = {"takeover": takeover, "numbering": "uniform", "causal": "true"}
        outcome = simulate(random_scenario(Sequencer, seed, options))
        assert "causal" in outcome.facts.promises
        assert outcome.violations == []


@pytest.mark.parametrize("n", range(2, 17))
def test_causal_order_costs_one_message_to_the_sender_and_no_step(n: int) -> None:
    for variant, sender, messages, steps in (
        ("relay", "c1", n + 1, 2),
        ("relay", "g.2", n + 1, 2),
        ("broadcast", "g.2", 2 * (n - 1) + 1, 2),
        ("relay", "g.1", n - 1, 1),
    ):
        options = {"causal": "true", "variant": variant}
        plans = (Plan(sender, 0, ("g",)),)
        outcome = simulate(Scenario(protocol="sequencer", options=options, groups={"g": n}, plans=plans, steps=True))
        assert (outcome.messages_sent, outcome.steps_max) == (messages, steps)


class Unchecked(Sequencer):
    @classmethod
    def check(cls, options: object, model: FaultModel) -> None:
        """Run with any options."""


def contaminated_across_groups(numbering: str) -> Scenario:
    """a.1 delivers c1's message, sends to b, and is gone; who delivers that in b sends to a. c1 hears of it late."""
    return Scenario(
        protocol="sequencer",
        options={"causal": "true", "takeover": "true", "numbering": numbering},
        groups={"a": 2, "b": 1},
        plans=(
            Plan("c1", MILLISECOND, ("a",)),
            Plan("a.1", 3 * MILLISECOND, ("b",)),
            *(Plan("b.1", i * MILLISECOND, ("a",)) for i in range(4, 9)),
        ),
        faults=(
            Crash("a.1", at=5 * MILLISECOND),
            Pause("c1", at=2 * MILLISECOND, for_ns=40 * MILLISECOND),
        ),
        latency=Exponential(100_000, 2 * MILLISECOND),
        seed=3,
    )


def test_plain_numbering_cannot_keep_causal_order_where_a_sequencer_is_gone() -> None:
    """So it is refused there, with the numbering that can."""
    scenario = contaminated_across_groups("plain")
    with pytest.raises(UsageError, match="with numbering=uniform only"):
        simulate(scenario)
    assert {violation.property for violation in simulate(scenario, Unchecked).violations} == {"causal"}
    assert simulate(contaminated_across_groups("uniform")).violations == []


# A failure detector that is wrong -----------------------------------------------------------------------------------


def test_two_sequencers_number_differently_where_a_suspicion_is_wrong() -> None:
    """g.2 takes over from a sequencer that lives: g.1 goes on numbering, and nobody listens to it."""
    fault = WrongSuspicion("g.2", "g.1", at=MILLISECOND, for_ns=10_000 * MILLISECOND)
    plans = (Plan("g.1", 10 * MILLISECOND, ("g",)), Plan("g.2", 11 * MILLISECOND, ("g",)))
    for options in (TAKEOVER, UNIFORM):
        scenario = Scenario(protocol="sequencer", options=options, groups={"g": 3}, plans=plans, faults=(fault,))
        outcome = simulate(scenario)
        assert outcome.violations
        own = {"g.1": ["g.1:1"]} if options is TAKEOVER else {}
        assert delivered(outcome) == {**own, "g.2": ["g.2:1"], "g.3": ["g.2:1"]}
        assert bool(broken(outcome, "total_order")) == (options is TAKEOVER)


def test_a_suspicion_that_is_wrong_and_ends_breaks_promises_and_nothing_else() -> None:
    plans = tuple(Plan(f"g.{1 + i % 3}", i * MILLISECOND, ("g",)) for i in range(30))
    for suspect, options in product(("g.1", "g.3"), OPTIONS):
        if options["takeover"] == "true":
            fault = WrongSuspicion("g.2", suspect, at=5 * MILLISECOND, for_ns=10 * MILLISECOND)
            scenario = Scenario(
                protocol="sequencer", options=options, groups={"g": 3}, plans=plans, faults=(fault,), loss=0.1
            )
            found = {violation.property for violation in simulate(scenario).violations}
            assert not found & {"invariant", "error", "livelock"}, options


def test_small_worlds_are_searched_to_their_end() -> None:
    for size, options, crashes in ((3, UNIFORM, 1), (2, TAKEOVER, 1), (2, {"variant": "broadcast"}, 0)):
        scope = Scope(
            protocol="sequencer",
            options=options,
            groups={"g": size},
            plans=(("g.1", ("g",)), ("g.2", ("g",))),
            may_crash=("g.1",) if crashes else (),
            crashes=crashes,
            shuffle=True,
        )
        found = explore(scope)
        assert found.complete
        assert found.violations == []


# Runs that were found -----------------------------------------------------------------------------------------------


class KeepsToItselfWhatItsPredecessorSaid(Sequencer):
    def send(self, to, message: Wire) -> None:
        if self.lossy or not isinstance(message, Stable) or message.stable > self.stable:
            super().send(to, message)


def test_the_next_sequencer_repeats_what_its_predecessor_said_to_be_stable() -> None:
    """Seed 626: only g2.2 had heard it, and g2.3 waited for ever."""
    scenario = Scenario(
        protocol="sequencer",
        options={"variant": "broadcast", "numbering": "uniform", "takeover": "true", "transport": "reliable"},
        groups={"g1": 1, "g2": 3},
        plans=(Plan("g2.1", 0, ("g2",), payloads=2), Plan("g1.1", 0, ("g2",)), Plan("g2.1", 0, ("g2",))),
        faults=(Crash("g2.1", at=16416553, effects="delivery"),),
        latency=Exponential(200_000, 2_000_000),
        closed_loop=True,
        seed=626,
        limit_ns=30_190_000_000,
    )
    assert simulate(scenario).violations == []
    assert {v.property for v in simulate(scenario, KeepsToItselfWhatItsPredecessorSaid).violations} == {
        "uniform_agreement"
    }


def test_late_frames_of_the_dead_are_not_heeded() -> None:
    """A number of g.1's arrives at g.3 after g.3 has told g.2 what it holds."""
    scenario = Scenario(
        protocol="sequencer",
        options=TAKEOVER,
        groups={"g": 3},
        plans=TURNS,
        faults=(Crash("g.1", at=4 * MILLISECOND),),
        latency=Exponential(100_000, 10 * MILLISECOND),
        seed=74,
    )
    assert simulate(scenario).violations == []
    assert {v.property for v in simulate(scenario, HeedsTheDead).violations} == {"agreement", "fifo"}


# Memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
def test_what_everybody_has_is_forgotten(options: dict[str, str]) -> None:
    seen: dict[str, Sequencer] = {}
    most = {"held": 0, "outbox": 0}

    class Spied(Sequencer):
        def deliver_all(self) -> None:
            super().deliver_all()
            seen[self.me] = self
            most["held"] = max(most["held"], len(self.held))

        def multicast(self, m) -> None:
            super().multicast(m)
            seen[self.me] = self
            most["outbox"] = max(most["outbox"], *map(len, self.outbox.values()), 0)

    plans = tuple(Plan(("c1", "g.2", "g.1")[i % 3], i * MILLISECOND, ("g",)) for i in range(400))
    cut = Partition(("g.3",), at=50 * MILLISECOND, for_ns=20 * MILLISECOND)
    gone = (Crash("g.1", at=200 * MILLISECOND),) if options["takeover"] == "true" else ()
    scenario = Scenario(
        protocol="sequencer",
        options=options,
        groups={"g": 4},
        plans=plans,
        faults=(cut, *gone),
        loss=0.1,
        duplication=0.1,
        latency=Exponential(100_000, MILLISECOND),
    )
    outcome = simulate(scenario, Spied)
    assert outcome.violations == []
    assert outcome.multicasts > 300
    for name, at in seen.items():
        if name not in outcome.facts.faulty:
            kept = [*at.held, *at.announced, *at.requests, *(index for each in at.outbox.values() for index in each)]
            assert kept == [], name
            assert at.again_ns == 0, "nothing is left to happen"
    assert most["held"] < 150
    assert most["outbox"] < 100


# Frames that get lost -----------------------------------------------------------------------------------------------


def test_a_lost_message_is_detected_by_the_numbers_and_obtained_from_the_sequencer() -> None:
    """Slides: "Lost messages are easily detected and can be obtained from sequencer"."""
    topology = Topology.sized({"g": 2})
    options = {"transport": "datagram"}
    one, two = (Process(ProcessId(p), topology, Sequencer, options) for p in ("g.1", "g.2"))

    def sends(effects: list[AnyEffect]) -> list[Send]:
        return [effect for effect in effects if isinstance(effect, Send)]

    def logged(effects: list[AnyEffect]) -> list[str]:
        return [str(effect.event.id) for effect in effects if isinstance(effect, Log)]

    def arrive(at: Process, sender: Process, send: Send) -> list[AnyEffect]:
        return at.step(Receive(0, sender.me, Transport.DATAGRAM, 0, send.frame))

    one.step(Multicast(0, topology.destinations({"g"}), (b"1",)))  # what it sends is lost
    (second,) = sends(one.step(Multicast(0, topology.destinations({"g"}), (b"2",))))
    came = arrive(two, one, second)
    assert logged(came) == []
    (timer,) = [effect for effect in came if isinstance(effect, SetTimer)]
    (fetch,) = sends(two.step(Fire(timer.due, timer.part, timer.timer, timer.due)))
    again = sends(arrive(one, two, fetch))
    assert [id for send in again for id in logged(arrive(two, one, send))] == ["g.1:1", "g.1:2"]


def test_the_promises_follow_the_options() -> None:
    promised = {
        tuple(options.values()): Sequencer.promises(Sequencer.Options(**_typed(options))) for options in OPTIONS
    }
    for (_, numbering, takeover, _), promises in promised.items():
        assert (Promise.UNIFORM_AGREEMENT in promises) == (numbering == "uniform" or takeover == "false")
        assert (Promise.AGREEMENT in promises) == (numbering == "plain" and takeover == "true")


def _typed(options: dict[str, str]) -> dict[str, object]:
    return {**options, "takeover": options["takeover"] == "true"}
