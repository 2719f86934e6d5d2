"""primcast: what its page counts, and schedules that seeds do not find, each with the mutant that it is there for."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from antiphon.core.buffers import Buffers
from antiphon.core.contract import Timer
from antiphon.core.inputs import Fire
from antiphon.core.model import GroupId, Message, MessageId, ProcessId
from antiphon.core.requests import NUMBER_MAX, encode_request
from antiphon.protocols.primcast import Primcast, Retry
from antiphon.runtime.net.frames import PEER_BYTES_MAX
from antiphon.services.epochs import Entry, Patience, StartEpoch
from antiphon.services.retention import KEPT_MAX, SayDelivered, weight
from antiphon.simulation import (
    MILLISECOND,
    Constant,
    Crash,
    Distance,
    Distrust,
    Outcome,
    Plan,
    Scenario,
    Slow,
    Uniform,
    clients,
    random_scenario,
    simulate,
)
from mutants import foretold, hearsay, replaced, shown
from mutants import primcast as mutants
from mutants.primcast import (
    BeginsWithItsOwnClock,
    DeliversAfterAPromise,
    DeliversBeforeWhatWasCut,
    DoesNotForward,
    DoesNotHandIn,
    DoesNotLookAgain,
    DropsVotesOfEpochsToCome,
    IgnoresTheQuorumsClock,
    IsImpatient,
    LooksOnlyWhenItSuspects,
    NeverAsksItsMates,
    StaysWithADeadCandidate,
    TakesTheLongestLog,
)
from papers.wires import Wires

LOGICAL = {"hybrid": "false"}
WEIGHT = weight(  # of what the schedules multicast to a group
    Message(MessageId(ProcessId("c"), 1), (GroupId("a"),), 1, Buffers(encode_request("c", 0, 0, (b"x",))))
)


# Counts ------------------------------------------------------------------------------------------------------------


class Unmarked(Primcast):
    """Without the marks of what was delivered."""

    TELL_NS = 1 << 60


def run(d: int, n: int, *plans: Plan) -> Outcome:
    groups = {f"g{i}": n for i in range(1, d + 2)}  # one of them is never addressed
    scenario = Scenario(
        protocol="primcast", options=LOGICAL, groups=groups, plans=plans, steps=True, limit_ns=1000 * MILLISECOND
    )
    outcome = simulate(scenario, Unmarked)
    assert outcome.violations == []
    return outcome


def one(d: int, sender: str) -> Plan:
    return Plan(sender, 100 * MILLISECOND, tuple(f"g{i}" for i in range(1, d + 1)))


def messages(d: int, n: int) -> int:
    """From a member that is no primary."""
    return d + d * (n - 1) + d * (d - 1) * n + d * (n - 1) * (d * n - 1)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", range(1, 6))
def test_the_messages_of_one_multicast_are_those_that_the_page_counts(d: int, n: int) -> None:
    assert [messages(d, 3) for d in (1, 2, 3)] == [7, 32, 75]
    assert run(d, n, one(d, "c1")).messages_sent == messages(d, n) - d + d * n
    if n > 1:
        assert run(d, n, one(d, "g1.2")).messages_sent == messages(d, n)
        assert run(d, n, one(d, "g1.1")).messages_sent == messages(d, n) - 1, "its own START does not travel"


@pytest.mark.parametrize(("ahead", "more"), [("first", "primaries"), ("last", "all")])
@pytest.mark.parametrize("d", [2, 3])
def test_with_uneven_clocks_those_acknowledge_again_who_hear_too_late_of_the_higher_timestamp(
    d: int, ahead: str, more: str
) -> None:
    """All frames take as long, and those of the first group come first: its announcements before others' entries."""
    group = "g1" if ahead == "first" else f"g{d}"
    before = [Plan(f"{group}.2", k * MILLISECOND, (group,)) for k in range(5)]
    counted = run(d, 3, *before, one(d, "g1.2")).messages_sent - run(d, 3, *before).messages_sent
    again = d - 1 if more == "primaries" else 3 * (d - 1)
    if more == "all" and d == 3:
        again = 6  # the second group hears of the third's after its own entries, too
    assert counted == messages(d, 3) + 2 * again


@pytest.mark.parametrize("d", [2, 3])
def test_with_hybrid_clocks_nobody_acknowledges_again_however_long_starts_take(d: int) -> None:
    """As long as none takes 10 ms, and no announcement comes before it: all groups take the time when it was sent."""
    counted: dict[type[Primcast], set[int]] = {}
    for kind in (Primcast, hearsay.TakesItsOwnTimeOnly):
        for seed in range(8):
            scenario = Scenario(
                protocol="primcast",
                groups={f"g{i}": 3 for i in range(1, d + 1)},
                plans=(one(d, "g1.2"),),
                latency=Uniform(MILLISECOND, 2 * MILLISECOND),
                limit_ns=1000 * MILLISECOND,
                seed=seed,
            )
            marks = (3 * d - 1) * 3 * d
            counted.setdefault(kind, set()).add(simulate(scenario, kind).messages_sent - marks)
    assert counted[Primcast] == {messages(d, 3)}
    assert min(counted[hearsay.TakesItsOwnTimeOnly]) > messages(d, 3)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_all_destinations_deliver_after_three_steps(d: int, uneven: bool) -> None:
    before = [Plan("g1.2", k * MILLISECOND, ("g1",)) for k in range(5)] if uneven else []
    outcome = run(d, 3, *before, one(d, "g1.2"))
    name = f"g1.2:{len(before) + 1}"
    steps = {row.process: row.step for row in outcome.rows if row.kind == "deliver" and row.message == name}
    assert len(steps) == 3 * d
    if d == 1:
        assert steps == {"g1.1": 3, "g1.2": 2, "g1.3": 2}, "a follower and its primary are a majority of three"
    else:
        assert set(steps.values()) == {3}


@pytest.mark.parametrize("protocol", [Primcast, mutants.NeverAssuresBeforeDelivery])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_receipt_takes_two_steps_with_one_group_and_three_with_several(d: int, protocol: type[Primcast]) -> None:
    """Of what a majority holds; also while its delivery waits for another message, on which a slow group decides."""
    plan = Plan("c1", 100 * MILLISECOND, tuple(f"g{i}" for i in range(1, d + 1)))
    before = Plan("c2", 90 * MILLISECOND, ("g1", "g4"))
    faults = tuple(Slow(f"g4.{i}", 0, 1000 * MILLISECOND, 50 * MILLISECOND) for i in (1, 2, 3))
    waits = []
    for seed in range(8):
        scenario = Scenario(
            protocol="primcast",
            options=LOGICAL,
            groups={f"g{i}": 3 for i in range(1, 5)},
            plans=(before, plan),
            faults=faults,
            latency=Constant(MILLISECOND),
            through_members=True,
            seed=seed,
        )
        outcome = simulate(scenario, protocol)
        assert outcome.violations == []
        rows = [row for row in outcome.rows if row.kind == "receipt" and row.requests[0].client == "c1"]  # type: ignore[index]
        taken, assured = (next(row for row in rows if row.layer == kind) for kind in (None, "majority"))
        waits.append((assured.time_ns - taken.time_ns) / MILLISECOND)
    if protocol is Primcast:
        assert set(waits) == {2 if d == 1 else 3}
    else:
        assert max(waits) > 20, "whoever waits for the delivery waits for the slow group"


@pytest.mark.parametrize(("hybrid", "most"), [("false", 5), ("true", 3)])
def test_what_collides_waits_for_less_than_two_steps_more(hybrid: str, most: int) -> None:
    """Three senders to two groups each, whose messages meet at all distances; in units of the latency."""
    pairs = [("g1", "g2"), ("g2", "g3"), ("g1", "g3")]
    plans = [
        Plan(f"{groups[0]}.2", (10 + 37 * k) * MILLISECOND // 10 + offset, groups)
        for k in range(40)
        for offset, groups in zip((0, 310_000, 770_000), pairs, strict=True)
    ]
    scenario = Scenario(
        protocol="primcast",
        options={"hybrid": hybrid},
        groups=dict.fromkeys(("g1", "g2", "g3"), 3),
        plans=tuple(plans),
        latency=Constant(MILLISECOND),
    )
    outcome = simulate(scenario)
    assert outcome.violations == []
    begun = {row.message: row.time_ns for row in outcome.rows if row.kind == "multicast"}
    waits = [row.time_ns - begun[row.message] for row in outcome.rows if row.kind == "deliver"]
    assert len(waits) == 120 * 6
    assert max(waits) <= most * MILLISECOND


# A client's order across sets of groups -------------------------------------------------------------------------------


def sets_in_turn(seed: int) -> Scenario:
    """One client sends to both groups, and then to the second alone, whose primary hears late of the first's clock."""
    far = [Distance(f"a.{i}", "b.1", 80 * MILLISECOND) for i in (1, 2, 3)]
    others = [Plan("c2", k * MILLISECOND, ("a",)) for k in range(10)]  # so that the first group's clock is ahead
    own = [Plan("c1", (60 + k) * MILLISECOND, (("a", "b"), ("b",))[k % 2]) for k in range(6)]
    return Scenario(
        protocol="primcast",
        options=LOGICAL,
        groups={"a": 3, "b": 3},
        plans=tuple(sorted([*others, *own], key=lambda plan: plan.at)),
        latency=Constant(MILLISECOND),
        distances=tuple(far),
        through_members=True,
        seed=seed,
    )


@pytest.mark.parametrize("left_out", ["nothing", "the floor", "the wait for receipts"])
def test_a_client_that_goes_on_with_another_set_needs_both_its_receipts_and_the_floor(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = clients.encode_request
    if left_out == "the floor":
        monkeypatch.setattr(clients, "encode_request", lambda *given: encode(*given[:5], 0, given[6]))
    elif left_out == "the wait for receipts":
        monkeypatch.setattr(clients.MemberClient, "_all_assured", lambda self: True)
    outcomes = [simulate(sets_in_turn(seed)) for seed in range(12)]
    turned = sum(any(row.kind == "receipt" and row.position for row in outcome.rows) for outcome in outcomes)
    assert turned > 6, "most clients count their turns"
    broken = {violation.property for outcome in outcomes for violation in outcome.violations}
    assert broken == (set() if left_out == "nothing" else {"client_turn_order"})


# Schedules by hand ---------------------------------------------------------------------------------------------------


def delivered(wires: Wires, process: str) -> list[str]:
    return list(wires.keys[process])


def agree(wires: Wires, *processes: str) -> bool:
    """Whether what these have delivered are prefixes of one another."""
    sequences = [delivered(wires, p) for p in processes]
    return all(a[: len(b)] == b[: len(a)] for a, b in combinations(sequences, 2))


def lose(wires: Wires, *processes: str) -> None:
    """What is under way from these."""
    for source, at in list(wires.under_way):
        if source in processes:
            wires.under_way[source, at].clear()


def flow(wires: Wires, source: str, at: str) -> None:
    """Let all frames arrive that are under way from one to the other."""
    while wires.under_way.get((source, at)):
        wires.arrive(source, at)


def ring(wires: Wires, at: str, kind: type[Timer]) -> list[str]:
    """A timer of this kind comes due."""
    process = wires.processes[at]
    name = msgspec.msgpack.encode(kind())
    (due,) = [due for (_, timer), due in process.state.timers.items() if timer == name]
    return wires.step(at, Fire(0, 0, name, due))


def timestamps_apart(kind: type[Primcast], *outside: str) -> Wires:
    """c's message has the timestamp 1 at a, where all have it, and 6 at b, which nobody else has heard of."""
    wires = Wires(kind, {"a": 3, "b": 1}, "c", "d", *outside, options=LOGICAL)
    for _ in range(5):
        wires.multicast("d", "b")
    wires.drain("d", "b.1")
    wires.multicast("c", "a", "b")
    wires.drain("c", "a.1")
    for follower in ("a.2", "a.3"):
        wires.drain("a.1", follower)
    wires.drain("c", "b.1")
    assert not any(delivered(wires, p) for p in ("a.1", "a.2", "a.3"))
    return wires


@pytest.mark.parametrize(("kind", "one_order"), [(Primcast, True), (IgnoresTheQuorumsClock, False)])
def test_a_majority_has_come_as_far_as_what_is_delivered(kind: type[Primcast], one_order: bool) -> None:
    """a.1 alone hears of b's timestamp, and dies. The next primary, which has not, gives a lower one to what is new."""
    wires = timestamps_apart(kind, "e")
    assert wires.arrive("b.1", "a.1") == ([] if one_order else ["c:1"])
    lose(wires, "a.1")
    wires.suspect("a.2", "a.1")
    wires.drain("a.2", "a.3")
    wires.multicast("e", "a")
    wires.drain("e", "a.2", "a.3")
    wires.drain("a.2", "a.3", "b.1")
    assert sorted(delivered(wires, "a.2")) == ["c:1", "e:1"]
    assert agree(wires, "a.1", "a.2", "a.3") is one_order


@pytest.mark.parametrize(("kind", "one_order"), [(Primcast, True), (BeginsWithItsOwnClock, False)])
def test_an_epoch_begins_with_the_greatest_clock_that_was_promised(kind: type[Primcast], one_order: bool) -> None:
    """a.1 and a.3 hear of b's timestamp, and a.1 delivers; the candidate was cut off from it."""
    wires = timestamps_apart(kind, "e")
    wires.arrive("b.1", "a.3")
    wires.arrive("b.1", "a.1")
    assert wires.arrive("a.3", "a.1") == ["c:1"]
    lose(wires, "a.1")
    wires.under_way["a.3", "a.2"].clear()  # what a.3 said of its clock comes too late
    wires.suspect("a.2", "a.1")
    wires.drain("a.2", "a.3")
    wires.multicast("e", "a")
    wires.drain("e", "a.2", "a.3")
    wires.drain("a.2", "a.3", "b.1")
    assert sorted(delivered(wires, "a.2")) == ["c:1", "e:1"]
    assert agree(wires, "a.1", "a.2", "a.3") is one_order


def test_an_epoch_counts_more_than_a_length() -> None:
    """a.1, alone, has appended three messages to a log that nobody follows. The others deliver one without it."""
    for kind in (Primcast, TakesTheLongestLog):
        wires = Wires(kind, {"a": 3}, "c", "d", options=LOGICAL)
        for _ in range(3):
            wires.multicast("c", "a")
        wires.drain("c", "a.1")
        wires.multicast("d", "a")
        wires.drain("d", "a.2", "a.3")
        wires.suspect("a.2", "a.1")
        wires.drain("a.2", "a.3")
        assert delivered(wires, "a.2") == delivered(wires, "a.3") == ["d:1"]
        lose(wires, "a.2")
        wires.suspect("a.3", "a.2")
        if kind is Primcast:
            wires.drain("a.1", "a.3")
            assert agree(wires, "a.1", "a.2", "a.3")
            assert delivered(wires, "a.3")[0] == "d:1"
        else:
            with pytest.raises(AssertionError, match="what is decided"):
                wires.drain("a.1", "a.3")


@pytest.mark.parametrize("kind", [Primcast, DeliversAfterAPromise])
def test_who_has_promised_delivers_no_more(kind: type[Primcast]) -> None:
    """a.3 promises; then it hears of b's timestamp, and that a.1 has. Its promise says nothing of that clock."""
    wires = timestamps_apart(kind, "e")
    wires.suspect("a.2", "a.1")
    wires.arrive("a.2", "a.3")  # what it acknowledged
    wires.arrive("a.2", "a.3")  # NEW_EPOCH
    wires.arrive("b.1", "a.1")
    wires.drain("a.1", "a.3")
    assert wires.arrive("b.1", "a.3") == ([] if kind is Primcast else ["c:1"])
    lose(wires, "a.1")
    wires.drain("a.2", "a.3")
    wires.multicast("e", "a")
    if kind is Primcast:
        wires.drain("e", "a.2", "a.3")
        wires.drain("a.2", "a.3", "b.1")
        assert delivered(wires, "a.2") == delivered(wires, "a.3") == ["e:1", "c:1"]
    else:
        with pytest.raises(AssertionError, match="in the order of their final timestamps"):
            wires.drain("e", "a.2", "a.3")  # e's has the lower one


@pytest.mark.parametrize(("kind", "forwards"), [(Primcast, True), (DoesNotForward, False)])
def test_what_reaches_a_former_primary_is_forwarded(kind: type[Primcast], forwards: bool) -> None:
    """Group a has not heard that b.2 leads b. No timer rings here."""
    wires = Wires(kind, {"a": 1, "b": 3}, "c", options=LOGICAL)
    wires.multicast("c", "b")
    wires.drain("c", "b.1", "b.2", "b.3")
    wires.suspect("b.2", "b.1")
    wires.drain("b.1", "b.2", "b.3")
    wires.multicast("a.1", "a", "b")
    wires.drain("a.1", "b.1", "b.2", "b.3")
    expected = ["c:1", "a.1:1"] if forwards else ["c:1"]
    assert all(delivered(wires, p) == expected for p in ("b.1", "b.2", "b.3"))


@pytest.mark.parametrize(("kind", "hands_in"), [(Primcast, True), (DoesNotHandIn, False)])
def test_a_new_primary_gets_what_its_followers_hold(kind: type[Primcast], hands_in: bool) -> None:
    """a.3 has multicast to a primary that was dead. No timer rings here."""
    wires = Wires(kind, {"a": 3}, options=LOGICAL)
    wires.multicast("a.3", "a")
    wires.multicast("a.2", "a")
    lose(wires, "a.2", "a.3")
    wires.suspect("a.2", "a.1")
    wires.drain("a.2", "a.3")
    expected = {"a.2:1", "a.3:1"} if hands_in else {"a.2:1"}
    assert set(delivered(wires, "a.2")) == set(delivered(wires, "a.3")) == expected


@pytest.mark.parametrize(("kind", "kept"), [(Primcast, True), (DropsVotesOfEpochsToCome, False)])
def test_acknowledgements_may_come_before_their_epoch(kind: type[Primcast], kept: bool) -> None:
    """a.5 hears what the others acknowledge in an epoch that it has yet to adopt. They do not say it again."""
    wires = Wires(kind, {"a": 5}, "c", options=LOGICAL)
    others = ("a.2", "a.3", "a.4")
    wires.multicast("c", "a")
    wires.drain("c", *others)
    wires.suspect("a.2", "a.1")
    wires.drain(*others)
    assert delivered(wires, "a.3") == ["c:1"]
    for follower in ("a.3", "a.4"):
        wires.drain(follower, "a.5")
    wires.drain("a.2", "a.5")
    assert delivered(wires, "a.5") == (["c:1"] if kept else [])


def test_members_that_are_well_are_not_handed_what_they_have() -> None:
    """They say what they have delivered a little later (K2). A lot may be delivered until then."""
    size, burst = 1 << 20, 28
    plans = tuple(Plan("c1", i * MILLISECOND, ("a",), size=size) for i in range(burst))
    outcome = simulate(Scenario(protocol="primcast", groups={"a": 3}, plans=plans, through_members=True))
    assert outcome.violations == []
    bodies = sum((row.bytes or 0) * len(row.peers or ()) for row in outcome.rows if row.kind == "send") / size
    assert bodies < 3 * burst, "one to the primary, and one to each follower"


def test_what_is_kept_for_others_fits_into_one_frame() -> None:
    """When an epoch starts, all of it may have to go to one member: also if bodies are short and names are long."""
    groups = {"o" * 20: 3, "b" * 20: 3}
    process = Wires(Primcast, groups, "c" * 64).processes[f"{'o' * 20}.1"]
    destinations = tuple(sorted(GroupId(name) for name in groups))
    body = Buffers(encode_request("c", 0, 0, (b"",)))
    message = Message(MessageId(ProcessId("c" * 64), NUMBER_MAX), destinations, 1, body)
    number = KEPT_MAX // weight(message)
    sent = StartEpoch(
        1, 1, process.protocol.log.extent(1), 0, 0, [Entry(1 << 62, message, (NUMBER_MAX,) * 2)] * number, None
    )
    frame = process.encode(process.protocol, sent)
    _, read = process.decode(frame.joined())
    assert len(read.entries) == number > 100_000
    assert frame.size < PEER_BYTES_MAX


def hands_over_all(kind: type[Primcast]) -> type[Primcast]:
    """At once, and not a part at a time: of the few messages of a schedule nothing is to be left."""
    return type(kind.__name__, (kind,), {"PARTS": 1})


def begins_behind_a_cut(kind: type[Primcast]) -> Wires:
    """a.4, which has but the deliveries of it, goes on with a log that a.1 and a.2 have cut, and leads a.5, which lacks
    c:2, which was cut. All that the others have handed to a.5 is still under way."""
    wires = Wires(hands_over_all(kind), {"a": 5}, "c", options={**LOGICAL, "kept": str(3 * WEIGHT // 2)})
    wires.multicast("c", "a")
    wires.drain("c", "a.1", "a.2", "a.3", "a.4", "a.5")
    for suspected in ("a.2", "a.3", "a.1"):
        wires.suspect("a.4", suspected)  # it stands, and takes nothing more from a.1
    wires.multicast("c", "a")
    for source, at in (("c", "a.1"), ("a.1", "a.2"), ("a.1", "a.3")):
        wires.arrive(source, at)
    for member in ("a.1", "a.2", "a.3", "a.5"):
        ring(wires, member, SayDelivered)
    for source, frames in (("a.1", 2), ("a.2", 2), ("a.3", 2), ("a.5", 1)):
        for _ in range(frames):
            wires.arrive(source, "a.4")  # an entry or an acknowledgement of c:2, which it ignores, and a mark of c:1
    for source, at in (("a.2", "a.1"), ("a.3", "a.1"), ("a.3", "a.2")):
        wires.arrive(source, at)
    assert delivered(wires, "a.1") == delivered(wires, "a.2") == ["c:1", "c:2"], "and cut, and handed to the others"
    for source in ("a.1", "a.2"):
        wires.arrive("a.4", source)
        flow(wires, source, "a.4")
    for follower in ("a.3", "a.5"):
        wires.arrive("a.4", follower)
        flow(wires, follower, "a.4")
        flow(wires, "a.4", follower)
    assert (delivered(wires, "a.4"), delivered(wires, "a.5")) == (["c:1", "c:2"], ["c:1"])
    return wires


@pytest.mark.parametrize(("kind", "waits"), [(Primcast, True), (DeliversBeforeWhatWasCut, False)])
def test_what_was_cut_before_the_log_comes_first(kind: type[Primcast], waits: bool) -> None:
    wires = begins_behind_a_cut(kind)
    wires.multicast("c", "a")
    wires.drain("c", "a.4")
    wires.drain("a.4", "a.3")
    flow(wires, "a.4", "a.5")
    flow(wires, "a.3", "a.5")
    assert delivered(wires, "a.5") == (["c:1"] if waits else ["c:1", "c:3"])
    if waits:
        wires.drain("a.4", "a.5")
        assert delivered(wires, "a.5") == ["c:1", "c:2", "c:3"]


@pytest.mark.parametrize(("kind", "asks"), [(Primcast, True), (NeverAsksItsMates, False)])
def test_who_is_behind_asks_one_after_the_other(kind: type[Primcast], asks: bool) -> None:
    """What a.1 and a.2 had handed over is lost with them, and nothing more is multicast."""
    wires = begins_behind_a_cut(kind)
    lose(wires, "a.1", "a.2")
    for _ in range(3):
        ring(wires, "a.5", Retry)
        wires.drain("a.3", "a.5")
        flow(wires, "a.5", "a.4")
        flow(wires, "a.4", "a.5")
    assert delivered(wires, "a.5") == (["c:1", "c:2"] if asks else ["c:1"])


@pytest.mark.parametrize(("kind", "elects"), [(Primcast, True), (LooksOnlyWhenItSuspects, False)])
def test_a_primary_that_is_suspected_before_there_is_anything_to_lead_makes_way_then(
    kind: type[Primcast], elects: bool
) -> None:
    """Found by the search. The last word of a.1 comes to a.3, which has given it up; a.2 would never hear of it."""
    wires = Wires(kind, {"a": 3}, "c", options=LOGICAL)
    wires.multicast("c", "a")
    wires.arrive("c", "a.1")
    for member in ("a.2", "a.3"):
        wires.suspect(member, "a.1")
    assert wires.arrive("a.1", "a.3") == ["c:1"]
    lose(wires, "a.1", "c")
    wires.drain("a.2", "a.3")
    assert delivered(wires, "a.2") == (["c:1"] if elects else [])


@pytest.mark.parametrize(("kind", "looks"), [(Primcast, True), (DoesNotLookAgain, False)])
def test_who_promises_to_somebody_whom_it_suspects_already_moves_on(kind: type[Primcast], looks: bool) -> None:
    """The detector has said of a.2 what it has to say, before a.2 stood; and then a.2 dies."""
    wires = Wires(kind, {"a": 3}, "c", options=LOGICAL)
    wires.multicast("c", "a")
    wires.arrive("c", "a.2")
    wires.arrive("c", "a.3")
    wires.suspect("a.3", "a.2")
    wires.suspect("a.2", "a.1")
    flow(wires, "a.2", "a.3")
    flow(wires, "a.2", "a.1")
    lose(wires, "a.2", "c")
    if looks:
        ring(wires, "a.3", Patience)
    wires.drain("a.1", "a.3")
    assert delivered(wires, "a.3") == (["c:1"] if looks else [])


@pytest.mark.parametrize(("kind", "elects"), [(Primcast, True), (StaysWithADeadCandidate, False)])
def test_who_has_promised_to_a_candidate_that_died_moves_on_whatever_it_knows(
    kind: type[Primcast], elects: bool
) -> None:
    """Found by the search. a.3 knows of no message when it promises, and then takes none from a.1."""
    wires = Wires(kind, {"a": 3}, options=LOGICAL)
    wires.multicast("a.2", "a")
    wires.arrive("a.2", "a.1")
    wires.arrive("a.1", "a.2")
    wires.suspect("a.2", "a.1")
    assert wires.arrive("a.2", "a.1") == ["a.2:1"], "by what a.2 had acknowledged before it stood"
    flow(wires, "a.2", "a.3")
    lose(wires, "a.2")
    flow(wires, "a.1", "a.3")
    for member in ("a.1", "a.3"):
        wires.suspect(member, "a.2")
    if elects:
        ring(wires, "a.3", Patience)
    wires.drain("a.1", "a.3")
    assert delivered(wires, "a.3") == (["a.2:1"] if elects else [])


def test_epochs_follow_one_another_more_and_more_slowly() -> None:
    """While all members of a group suspect one another, for a second."""

    def storm(kind: type[Primcast]) -> Outcome:
        members = ("a.1", "a.2", "a.3")
        scenario = Scenario(
            protocol="primcast",
            groups={"a": 3},
            plans=(Plan("c", 0, ("a",)),),
            faults=(Distrust(members, (), 0, 1000 * MILLISECOND),),
            latency=Constant(MILLISECOND // 10),
        )
        return simulate(scenario, kind)

    patient, impatient = storm(Primcast), storm(IsImpatient)
    assert patient.violations == []
    assert impatient.messages_sent > 20 * patient.messages_sent


def test_every_mutant_that_seeds_do_not_find_has_a_schedule_here() -> None:
    assert {*mutants.BY_HAND} - {*foretold.BY_HAND, *shown.BY_HAND, *hearsay.BY_HAND} == {
        IgnoresTheQuorumsClock,
        BeginsWithItsOwnClock,
        TakesTheLongestLog,
        DeliversAfterAPromise,
        DoesNotForward,
        DoesNotHandIn,
        DropsVotesOfEpochsToCome,
        DeliversBeforeWhatWasCut,
        NeverAsksItsMates,
        LooksOnlyWhenItSuspects,
        DoesNotLookAgain,
        StaysWithADeadCandidate,
        IsImpatient,
        *replaced.BY_HAND,
    }


# Kept runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed",
    [
        2091,  # what was delivered and forgotten before the log had it came with a log that begins behind a cut
    ],
)
def test_runs_that_failed_once(seed: int) -> None:
    assert simulate(random_scenario(Primcast, seed)).violations == []


def test_a_message_of_a_member_that_it_does_not_address_survives_the_primary() -> None:
    """g2.1 is no addressee, and tries nothing again: so it sends to all members, not to the primary alone."""
    scenario = Scenario(
        protocol="primcast",
        groups={"g1": 3, "g2": 3, "g3": 3},
        plans=(Plan("g2.1", MILLISECOND, ("g3",)),),
        faults=(Crash("g3.1", MILLISECOND),),
    )
    outcome = simulate(scenario)
    assert (outcome.violations, outcome.deliveries) == ([], 2)
