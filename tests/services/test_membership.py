"""The membership service of Transis: crashes, partitions, merges, one on top of the other; and what all deliver."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.checks import RunHistory, check_run
from antiphon.core import GroupId, OrderingProtocol, Process, ProcessId, Topology, Wire
from antiphon.core.effects import Send
from antiphon.core.errors import BadFrame
from antiphon.core.inputs import Begin, Multicast, Suspect, Trust
from antiphon.core.sessions import Mark, Session, SessionId
from antiphon.protocols import protocol_named, protocols
from antiphon.protocols.toto import ToTo
from antiphon.services import causal_graph
from antiphon.services.dag import Ack, Name, Note
from antiphon.services.membership import Goal, Install, Invite, MachineView, Membership, Ready, Settle, State, Word
from antiphon.simulation import (
    MILLISECOND,
    Crash,
    Distance,
    Outcome,
    Partition,
    Plan,
    Scenario,
    Uniform,
    WrongSuspicion,
    random_scenario,
    simulate,
)
from antiphon.simulation.graph import graph_of
from antiphon.simulation.liveness import late_deliveries
from antiphon.trace import Row
from mutants import marks
from mutants.membership import MUTANTS, DoesNotAskWhatOthersInstalled, GoesOnThoughInvited
from mutants.parts import with_parts
from view_scenes import FOR_GOOD, OPTIONS, PROTOCOLS, SECOND, installed, named, scene, segments, trouble, views

# Runs by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_where_nothing_fails_there_is_one_view_and_no_message_more(protocol: str) -> None:
    calm = scene(protocol, 4, loss=0.0, duplication=0.0)
    outcome = simulate(calm)
    assert trouble(outcome) == []
    assert views(outcome, "a.1") == [named(1, 2, 3, 4)]
    static = Scenario(protocol=protocol, groups={"a": 4}, plans=calm.plans)
    assert outcome.messages_sent == simulate(static).messages_sent


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_crash_costs_one_view(protocol: str, victim: int) -> None:
    outcome = simulate(scene(protocol, 3, Crash(f"a.{victim}", 20 * MILLISECOND)))
    assert trouble(outcome) == []
    left = named(*(i for i in (1, 2, 3) if i != victim))
    assert views(outcome, left[0]) == views(outcome, left[1]) == [named(1, 2, 3), left]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_partitions_go_on_and_merge(protocol: str) -> None:
    outcome = simulate(scene(protocol, 5, Partition(named(4, 5), 20 * MILLISECOND, SECOND), messages=120))
    assert trouble(outcome) == []
    everybody = named(1, 2, 3, 4, 5)
    for here, side in (("a.1", named(1, 2, 3)), ("a.5", named(4, 5))):
        assert views(outcome, here)[0] == views(outcome, here)[-1] == everybody
        (of_side,) = [delivered for _, members, delivered in segments(outcome)[here] if members == side]
        assert {message.split(":")[0] for message in of_side} == set(side)  # each side delivers what it sends


def test_another_crash_while_they_agree() -> None:
    """a.4 crashes 2 ms before the view without a.5 would begin: nobody ever installs that one."""
    first = Crash("a.5", 20 * MILLISECOND)
    at = installed(simulate(scene("toto", 5, first)), "a.1", 1)
    outcome = simulate(scene("toto", 5, first, Crash("a.4", at - 2 * MILLISECOND - MILLISECOND // 2)))
    assert trouble(outcome) == []
    assert views(outcome, "a.1") == [named(1, 2, 3, 4, 5), named(1, 2, 3)]


def test_the_leader_crashes_while_they_agree() -> None:
    first = Crash("a.5", 20 * MILLISECOND)
    at = installed(simulate(scene("toto", 5, first)), "a.1", 1)
    for before in range(6):  # at any stage
        outcome = simulate(scene("toto", 5, first, Crash("a.1", at - before * MILLISECOND + MILLISECOND // 2)))
        assert trouble(outcome) == []
        assert views(outcome, "a.2")[-1] == named(2, 3, 4)


def test_merges_on_top_of_one_another() -> None:
    cuts = [Partition((f"a.{i}",), 10 * MILLISECOND, (100 + 3 * i) * MILLISECOND) for i in (2, 3, 4, 5)]
    outcome = simulate(scene("toto", 5, *cuts, messages=80))
    assert trouble(outcome) == []
    assert ("a.5",) in views(outcome, "a.5")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_alone_delivers_at_once(protocol: str) -> None:
    outcome = simulate(scene(protocol, 2, Crash("a.1", 0), messages=100))
    assert trouble(outcome) == []
    alone = installed(outcome, "a.2", 1)
    times = {(row.kind, row.message): row.time_ns for row in outcome.rows if row.process == "a.2"}
    later = [m for (kind, m), at in times.items() if kind == "multicast" and at > alone]
    assert len(later) > 10
    assert all(times["multicast", m] == times["deliver", m] for m in later)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_returns_comes_from_the_view_that_it_left(protocol: str) -> None:
    crash = Crash("a.2", 20 * MILLISECOND, down_ns=SECOND)
    outcome = simulate(scene(protocol, 3, crash, journal=True, snapshot_every=5))
    assert trouble(outcome) == []
    assert views(outcome, "a.1") == [named(1, 2, 3), named(1, 3), named(1, 2, 3)]
    assert views(outcome, "a.2") == [named(1, 2, 3), named(2), named(1, 2, 3)]  # it hears that it is suspected


def test_a_wrong_suspicion_costs_a_view_and_no_message() -> None:
    wrong = WrongSuspicion("a.1", "a.3", 20 * MILLISECOND, 300 * MILLISECOND)
    outcome = simulate(scene("toto", 3, wrong))
    assert trouble(outcome) == []
    assert views(outcome, "a.3") == [named(1, 2, 3), named(3), named(1, 2, 3)]


def test_a_bridge_is_on_one_side() -> None:
    """a.2 hears both, a.1 and a.3 do not hear each other: a.2 follows a.1, and a.3 gives it up."""
    outcome = simulate(scene("toto", 3, Partition(("a.3",), 20 * MILLISECOND, SECOND, bridge="a.2")))
    assert trouble(outcome) == []
    assert views(outcome, "a.2") == [named(1, 2, 3), named(1, 2), named(1, 2, 3)]
    assert views(outcome, "a.3") == [named(1, 2, 3), named(3), named(1, 2, 3)]


def test_who_went_astray_while_it_was_invited_is_invited_again() -> None:
    """a.1 and a.2 do not hear each other. a.3 suspects a.1 and follows a.2, which invites it; but when the invitation
    comes a.3 follows a.1 again, for a moment."""
    at = 200 * MILLISECOND
    faults = (
        Partition(named(1), 20 * MILLISECOND, FOR_GOOD, bridge="a.3"),
        WrongSuspicion("a.3", "a.1", at, 3 * MILLISECOND // 2),
        WrongSuspicion("a.3", "a.1", at + 3 * MILLISECOND, FOR_GOOD),
    )
    outcome = simulate(scene("toto", 3, *faults, messages=120, loss=0.0))
    assert trouble(outcome) == []
    assert views(outcome, "a.3")[2] == named(2, 3)
    assert installed(outcome, "a.3", 2) < at + 20 * MILLISECOND  # and not only when the network has healed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_machine_that_is_far_behind_when_the_view_ends_gets_all(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causal_graph, "HELD_MAX", 2)
    monkeypatch.setattr(causal_graph, "MISSING_MAX", 3)
    faults = (Partition(named(4), 20 * MILLISECOND, 50 * MILLISECOND, one_way=True), Crash("a.1", 60 * MILLISECOND))
    assert trouble(simulate(scene(protocol, 4, *faults, messages=80, loss=0.3))) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_goes_on_after_a_merge(protocol: str) -> None:
    """What its requests brought to one side is a hole at the other, and nobody waits for it."""
    plans = tuple(Plan("c1", i * 10 * MILLISECOND, ("a",)) for i in range(100))
    cut = Partition(named(3), 100 * MILLISECOND, 400 * MILLISECOND)
    outcome = simulate(
        Scenario(protocol=protocol, options=OPTIONS, groups={"a": 3}, plans=plans, faults=(cut,), through_members=True)
    )
    assert trouble(outcome) == []
    merged = max(installed(outcome, p, -1) for p in named(1, 2, 3))
    late = [row for row in outcome.rows if row.kind == "deliver" and row.time_ns > merged]
    numbers = {p: [cell.first for row in late if row.process == p for cell in row.requests or ()] for p in named(1, 3)}
    assert len(numbers["a.1"]) > 20
    assert numbers["a.3"] == numbers["a.1"]
    for stronger in ("client_order", "agreement", "total_order", "fifo", "causal"):  # of what is not promised
        facts = msgspec.structs.replace(outcome.facts, promises=[stronger])
        assert check_run(facts, outcome.rows) != [], stronger


def missed(mutant: type[OrderingProtocol] | None = None) -> Outcome:
    """a.1 leads the view without a.4. When that is installed a.1 is cut off from a.3, and then it crashes for good."""
    first = Crash("a.4", 20 * MILLISECOND)
    at = installed(simulate(scene("toto", 4, first)), "a.1", 1)
    faults = (first, Partition(("a.3",), at - 1, FOR_GOOD, bridge="a.2"), Crash("a.1", at + 1))
    return simulate(scene("toto", 4, *faults), mutant) if mutant else simulate(scene("toto", 4, *faults))


def test_who_missed_a_view_that_others_installed_goes_the_same_way() -> None:
    outcome = missed()
    assert trouble(outcome) == []
    assert views(outcome, "a.2") == views(outcome, "a.3") == [named(1, 2, 3, 4), named(1, 2, 3), named(2, 3)]
    parted = missed(with_parts(ToTo, DoesNotAskWhatOthersInstalled))
    assert views(parted, "a.3") == [named(1, 2, 3, 4), named(2, 3)]


def test_who_goes_the_way_of_a_view_that_it_missed_sends_nothing_in_it() -> None:
    """It is invited to the next one by then: what it sent would hold that one up."""

    def own_in_the_missed_view(outcome: Outcome) -> list[str]:
        assert trouble(outcome) == []
        (delivered,) = [found for _, members, found in segments(outcome)["a.3"] if members == named(1, 2, 3)]
        return [message for message in delivered if message.startswith("a.3:")]

    assert own_in_the_missed_view(missed()) == []
    assert own_in_the_missed_view(missed(GoesOnThoughInvited)) != []


# Runs by chance -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_partitions_and_crashes_all_who_are_up_are_together(protocol: str) -> None:
    for seed in range(3):
        assert trouble(simulate(random_scenario(protocol_named(protocol), seed, OPTIONS))) == [], seed


# a.1 is far away. While its invitation to a view without a.4 is under way, the others suspect it, and make their own.
OVERTAKEN = (
    Crash("a.4", 20 * MILLISECOND),
    *(WrongSuspicion(f"a.{i}", "a.4", 25 * MILLISECOND, FOR_GOOD) for i in (1, 2, 3)),
    *(WrongSuspicion(f"a.{i}", "a.1", 30 * MILLISECOND, 15 * MILLISECOND) for i in (2, 3)),
    Crash("a.1", 65 * MILLISECOND),
)
FAR = tuple(Distance("a.1", f"a.{i}", 30 * MILLISECOND) for i in (2, 3))
SCENES = (
    scene(
        "toto",
        5,
        Partition(named(4, 5), 20 * MILLISECOND, 150 * MILLISECOND),
        Crash("a.1", 60 * MILLISECOND),
        messages=80,
    ),
    scene(
        "toto",
        4,
        Crash("a.4", 10 * MILLISECOND),
        Crash("a.2", 300 * MILLISECOND, down_ns=100 * MILLISECOND),
        Partition(named(1), 310 * MILLISECOND, 200 * MILLISECOND),
        messages=200,
        journal=True,
        snapshot_every=3,
    ),
    scene(
        "toto",
        4,
        *[Partition((f"a.{i}",), 10 * MILLISECOND, (99 + 3 * i) * MILLISECOND) for i in (1, 2, 3)],
        messages=80,
        loss=0.3,
    ),
    scene("toto", 4, *OVERTAKEN, messages=120, loss=0.0, distances=FAR),
    scene("toto", 3, Partition(named(3), 20 * MILLISECOND, FOR_GOOD, bridge="a.2"), loss=0.0),
)
# Only in one of many random runs:
SHOWS = {
    "RaisesCrashTooEarly": 17,
    "TakesMessagesOfOtherViews": 15,
    "ForgetsItsPromiseOnRestart": 30,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_mutant_is_caught(mutant: type[OrderingProtocol]) -> None:
    seed = SHOWS.get(mutant.__name__)
    scenes = SCENES if seed is None else [random_scenario(protocols()["toto"], seed, OPTIONS)]
    assert any(trouble(simulate(each, mutant)) for each in scenes)


def test_no_scene_is_trouble_without_a_mistake() -> None:
    assert [trouble(simulate(each)) for each in SCENES] == [[]] * len(SCENES)


# Clients that move ----------------------------------------------------------------------------------------------------


CUTS = ((named(1), 20, 60), (named(1, 2), 120, 160), (named(3), 200, 240), (named(2, 4), 290, 330))
FROM_THE_BEGINNING = ((named(1), 0, 60), *CUTS[1:3])


def moving(seed: int, protocol: str = "transis", cuts: tuple[tuple[tuple[str, ...], int, int], ...] = CUTS) -> Scenario:
    """Two clients, whose answers get lost, go from member to member while these part and meet again."""
    plans = tuple(Plan(f"c{i % 2 + 1}", i * 3 * MILLISECOND, ("a",)) for i in range(120))
    return Scenario(
        protocol=protocol,
        options=OPTIONS,
        groups={"a": 4},
        plans=plans,
        faults=tuple(Partition(side, at * MILLISECOND, (end - at) * MILLISECOND) for side, at, end in cuts),
        latency=Uniform(MILLISECOND // 2, 12 * MILLISECOND),
        loss=0.1,
        through_members=True,
        seed=seed,
        limit_ns=20 * SECOND,
    )


MOVES = {
    "LeavesOutWithoutAWord": moving(0),
    "DoesNotWaitUntilAllHaveHeard": moving(0),
    "SaysNothingWhereSidesMeet": moving(3),
    "DoesNotWaitForWhereTheOthersAre": moving(3),
    "KeepsWhatWasCommon": moving(2),
    "DoesNotHeedMarks": moving(5),
    "ForgetsThatAMeetingWasInterrupted": moving(5),
    "WaitsForOneToHear": moving(13),
    "TakesSilenceForConsent": moving(33, cuts=FROM_THE_BEGINNING),
}


@pytest.mark.parametrize("mutant", marks.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_mistake_about_where_clients_are_is_caught(mutant: type[OrderingProtocol]) -> None:
    found = simulate(MOVES[mutant.__name__], mutant).violations
    assert {violation.property for violation in found} == {"view_client_order"}


@pytest.mark.parametrize(("protocol", "seed"), [("transis", 2), ("transis", 50), ("toto", 1)])
def test_clients_move_while_members_part_and_meet(protocol: str, seed: int) -> None:
    """Seed 50: what was held had a hole in it, and all of it was handed on when all had heard of the first number."""
    outcome = simulate(moving(seed, protocol))
    assert outcome.violations == []
    assert len(views(outcome, "a.2")) > 2


def test_a_process_tells_all_its_clients_in_notes_of_a_bounded_size() -> None:
    process = Process(ProcessId("a.1"), Topology.sized({"a": 2}), protocol_named("transis"), OPTIONS)
    process.step(Begin(0))
    for client in range(600):
        session = SessionId(f"c{client}", (GroupId("a"),))
        process.state.sessions.known[session] = Session(next=1)
    protocol: Any = process.protocol
    process.step(Multicast(1, (GroupId("a"),), (b"",)))  # whatever it does, effects are gathered from here on
    protocol.marks.begin_view(MachineView(5, process.topology.processes, meets=True))
    notes = [node.note for node in protocol.graph.dag.rows["a.1"].values() if node.note is not None]
    assert [(len(note.marks), note.more) for note in notes] == [(256, True), (256, True), (88, False)]
    assert list(protocol.marks.unheard) == ["a.2"]
    assert protocol.must_wait(("a",))


# In bounded time ------------------------------------------------------------------------------------------------------


def test_a_message_that_stays_in_the_graph_for_too_long_is_found() -> None:
    """In an honest run one delivery is forged: it comes late, never, or in a later view."""
    cuts = (Partition(named(3), 40 * MILLISECOND, 200 * MILLISECOND), Crash("a.2", 60 * MILLISECOND))
    outcome = simulate(scene("toto", 3, *cuts, messages=60))
    assert trouble(outcome) == []
    assert len(views(outcome, "a.1")) >= 3
    rows, end = [*outcome.rows], 10 * SECOND
    place = next(i for i, row in enumerate(rows) if row.kind == "deliver" and row.process == "a.1")
    one = rows[place]

    def found(*forged: Row) -> list[str]:
        history = RunHistory(outcome.facts, [*rows[:place], *forged, *rows[place + 1 :]])
        return [violation.detail for violation in late_deliveries(history, outcome.scenario, end)]

    assert found(one) == []
    stays = f"{one.message} is in the graph of a.1 for"
    assert found(one._replace(time_ns=3 * SECOND)) == [f"{stays} 3000 ms, undelivered."]
    assert found() == [f"{stays} the rest of the run, undelivered."]
    after = next(row.seq for row in rows if row.process == "a.1" and row.kind == "view" and row.seq > one.seq)
    later = [row._replace(seq=row.seq + (row.seq > after)) if row.process == "a.1" else row for row in rows]
    rows[:] = later
    assert found(one._replace(seq=after + 1)) == [f"a.1 delivers {one.message} in a later view than it entered."]


def test_two_orders_before_two_machines_part_are_found() -> None:
    """In an honest run one of them delivers two messages the other way round, before its view begins to end or then."""
    outcome = simulate(scene("toto", 3, Partition(named(3), 40 * MILLISECOND, 200 * MILLISECOND), messages=60))
    rows = [*outcome.rows]
    delivered = [i for i, row in enumerate(rows) if row.kind == "deliver" and row.process == "a.3"]
    end = next(row for row in rows if row.kind == "view" and row.process == "a.3" and row.seq > rows[delivered[0]].seq)

    def found(one: int, other: int) -> list[str]:
        swapped = [*rows]
        swapped[one] = rows[one]._replace(message=rows[other].message)
        swapped[other] = rows[other]._replace(message=rows[one].message)
        history = RunHistory(outcome.facts, swapped)
        return [v.property for v in late_deliveries(history, outcome.scenario, outcome.virtual_ns)]

    early = [i for i in delivered if rows[i].seq < end.seq and rows[i].time_ns < end.time_ns]
    flushed = [i for i in delivered if rows[i].seq < end.seq and rows[i].time_ns == end.time_ns]
    assert found(early[0], early[0]) == []
    assert found(early[0], early[1]) == ["view_order", "view_order"], "with each of the others"
    assert found(flushed[-2], flushed[-1]) == []


def test_a_partition_that_does_not_heal_makes_nothing_late() -> None:
    """Without a membership service, it does."""
    long = Partition(named(3), 20 * MILLISECOND, 8 * SECOND)
    parted = simulate(scene("toto", 3, long, messages=40))
    assert trouble(parted) == []
    static = simulate(msgspec.structs.replace(parted.scenario, options={}))
    facts = msgspec.structs.replace(static.facts, promises=["graph_delivery"])
    assert late_deliveries(RunHistory(facts, static.rows), static.scenario, static.virtual_ns) != []


# What comes from the network ------------------------------------------------------------------------------------------

STRANGER, FIRST = ProcessId("x"), ProcessId("a.1")
FORGED: tuple[Wire, ...] = (
    Word((STRANGER,), FIRST, 0),
    Word((), STRANGER, 0),
    Word((), FIRST, -1),
    Invite(-1),
    State(1, 1, [0, 0, 0, 0], 0, (), ()),
    State(1, 1, [0, -1, 0], 0, (), ()),
    State(1, 1, [0, 0, 0], -1, (), ()),
    State(1, 1, [0, 0, 0], 0, (), tuple(range(65))),
    State(1, 1, [0, 0, 0], 0, tuple(range(65)), ()),
    Settle(2, (FIRST,), [0, 0], []),
    Settle(2, (ProcessId("a.2"),), [0], []),
    Settle(2, (FIRST, STRANGER), [0, 0], []),
    Settle(2, (FIRST,), [-1], []),
    Settle(2, (FIRST,), [0], [Goal(1, (STRANGER,), [0, 0, 0])]),
    Settle(2, (FIRST,), [0], [Goal(1, (FIRST,), [0, 0, -1])]),
    Settle(2, (FIRST, FIRST), [0, 0], []),
    Settle(2, (ProcessId("a.2"), FIRST), [0, 0], []),
    Settle(2, (FIRST,), [0], [Goal(1, (FIRST, FIRST), [0, 0, 0])]),
    Ready(-1),
    Install(-1),
)


def member(name: str = "a.1") -> tuple[Process, Membership]:
    process = Process(ProcessId(name), Topology.sized({"a": 3}), ToTo, OPTIONS)
    return process, next(part for part in process.parts if isinstance(part, Membership))


@pytest.mark.parametrize("message", FORGED, ids=repr)
def test_what_no_machine_sends_is_refused(message: Wire) -> None:
    process, membership = member()
    with pytest.raises(BadFrame):
        process.checks.frame(process.encode(membership, message))


@pytest.mark.parametrize(
    "wrong",
    [
        (Mark("c", (GroupId("a"),), -1),),
        (Mark("c", (GroupId("a"),), 1 << 63),),
        (Mark("c", (GroupId("b"),), 1),),
        (Mark("no name", (GroupId("a"),), 1),),
        (Mark("c", (GroupId("a"),), 1),) * 257,
    ],
    ids=str,
)
def test_a_mark_is_of_a_client_and_of_groups_that_there_are(wrong: tuple[Mark, ...]) -> None:
    process, _ = member()
    graph: Any = process.parts[1]
    process.checks.frame(process.encode(graph, Note(Name(FIRST, 1), (), 1, wrong[:0], more=True)))
    with pytest.raises(BadFrame):
        process.checks.frame(process.encode(graph, Note(Name(FIRST, 1), (), 1, wrong)))


@given(st.permutations([(sender, number) for sender in ("a.2", "a.3") for number in range(1, 6)]))
def test_what_is_within_reach_is_known_after_each_message(order: list[tuple[str, int]]) -> None:
    """Of what two machines sent in turns, as it comes, the longest beginning that is here."""
    process, _ = member()
    graph: Any = process.parts[1]
    sent = [(sender, number) for number in range(1, 6) for sender in ("a.2", "a.3")]
    process.step(Begin(0))
    graph.stand_still()
    for count, (sender, number) in enumerate(order, 1):
        place = sent.index((sender, number))
        follows = (Name(*sent[place - 1]),) if place else ()  # type: ignore[arg-type]
        graph.receive(Ack(Name(ProcessId(sender), number), follows))
        here = {*order[:count]}
        reach = next((i for i, each in enumerate(sent) if each not in here), len(sent))
        assert graph.reach == [0, (reach + 1) // 2, reach // 2]


def test_what_comes_late_or_from_the_wrong_machine_changes_nothing() -> None:
    process, membership = member("a.2")
    before = membership.snapshot()
    for sender in ("a.1", "a.3"):
        for message in (Ready(4), Install(4), State(4, 1, [0, 0, 0], 0, (), ())):
            process.checks.frame(process.encode(membership, message))
            membership.handlers[type(message)](ProcessId(sender), message)
    membership.on_invite(ProcessId("a.3"), Invite(1))
    assert membership.snapshot() == before
    outside, its_membership = member("c")
    with pytest.raises(BadFrame):
        outside.checks.frame(outside.encode(its_membership, Ready(1)))


ALL = tuple(ProcessId(f"a.{i}") for i in (1, 2, 3))


@pytest.mark.parametrize(
    ("goal", "is_so"),
    [
        (Goal(3, ALL[:2], [1, 1]), True),
        (Goal(3, ALL[:2], [0, 0]), False),  # less than has entered
        (Goal(3, ALL[:2], [1, 2]), True),
        (Goal(3, ALL[:2], [2, 2]), True),
        (Goal(3, ALL[:2], [2, 1]), False),  # a.1's second message follows a.2's
        (Goal(3, ALL, [1, 1]), False),  # a.3 was not in that view
    ],
)
def test_a_view_does_not_end_as_it_cannot(goal: Goal, is_so: bool) -> None:
    """A leader that lies must not end those who follow it: what it says is journaled before they look at it."""
    process, membership = member("a.2")
    graph: Any = process.parts[1]
    leader, me, third = ALL

    def hear(part: Any, *messages: Wire) -> None:
        for message in messages:
            process.checks.frame(process.encode(part, message))
            part.handlers[type(message)](leader, message)

    process.step(Begin(0))
    hear(membership, Invite(3), Settle(3, ALL[:2], [0, 0], [Goal(1, ALL[:2], [0, 0, 0])]), Install(3))
    assert membership.view.machines == (leader, me)
    hear(graph, Ack(Name(leader, 1), (), 3))
    graph.emit(Ack(Name(me, 1), (Name(leader, 1),), 3))
    hear(membership, Invite(6))
    second = Ack(Name(me, 2), (Name(me, 1),), 3)  # as it would come back to who has lost its journal
    hear(graph, second, Ack(Name(leader, 2), (Name(leader, 1), second.name), 3))
    hear(membership, Settle(6, ALL, [2, 2, 0], [goal, Goal(1, (third,), [0, 0, 0])]), Install(6))
    assert (membership.view.number == 6) == is_so


def test_what_is_settled_for_a_view_that_has_begun_changes_nothing() -> None:
    """Nobody was invited: the graph goes on, and would be elsewhere when the view is installed once more."""
    process, membership = member()
    process.step(Begin(0))
    before = membership.snapshot()
    for message in (Settle(1, ALL, [0, 0, 0], [Goal(1, ALL, [0, 0, 0])]), Install(1)):
        process.checks.frame(process.encode(membership, message))
        membership.handlers[type(message)](membership.leader_of(1), message)
    assert membership.snapshot() == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_counters_go_on_over_a_merge(protocol: str) -> None:
    """On both sides: a name is given once, whatever the view."""
    parted = scene(protocol, 4, Partition(named(3, 4), 20 * MILLISECOND, 500 * MILLISECOND), messages=600)
    found = graph_of(simulate(parted))["events"]
    for machine, seen in found.items():
        own = [id for kind, id in seen if kind == "arrive" and id.startswith(f"{machine}:")]
        assert sum(kind == "view" for kind, _ in seen) >= 3
        assert own == [f"{machine}:{number}" for number in range(1, len(own) + 1)]


def test_who_is_invited_again_says_what_came_meanwhile_and_where_it_was() -> None:
    """What it got while it stood still may be nowhere else by now; and somebody may have missed a view of long ago."""
    process, membership = member("a.2")
    graph: Any = process.parts[1]
    leader = ALL[0]
    process.step(Begin(0))
    membership.on_invite(leader, Invite(3))
    membership.on_settle(leader, Settle(3, ALL, [0, 0, 0], [Goal(1, ALL, [0, 0, 0])]))
    membership.on_install(leader, Install(3))
    membership.on_invite(leader, Invite(6))
    graph.receive(Ack(Name(leader, 1), (), 3))
    effects = process.step(Multicast(0, (GroupId("a"),), (b"x",)))
    membership.on_invite(leader, Invite(9))
    said = [process.decode_frame(effect.frame)[1] for effect in effects if isinstance(effect, Send)]
    assert said == [State(9, 3, [1, 0, 0], 0, (), (1, 3))]


def test_who_was_given_up_and_comes_back_is_in_reach() -> None:
    process, membership = member()
    process.step(Begin(0))
    membership.given_up[ALL[2]] = None
    assert membership.reach == ALL[:2]
    process.step(Suspect(0, ALL[2]))
    process.step(Trust(0, ALL[2]))
    assert membership.reach == ALL
