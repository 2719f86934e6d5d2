"""The checks find every planted lie, name exactly what it breaks, and say nothing about honest runs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from antiphon.checks import CHECKS, VIOLATIONS_MAX, RunHistory, Status, Violation, check_run, verdicts
from antiphon.checks.clocks import Clocks
from antiphon.trace import EventKind, RequestCell, Row, RunFacts, read_facts
from antiphon.trace.parquet import read_rows, write_run
from forgeries import FORGERIES, HARMLESS, PROPERTIES, Forgery, Harmless, Tape, honest_run
from forging.mutations import MUTATIONS, begin_in_a_view, count_turns
from forging.oracle import Oracle

SEEDS = range(5)
Run = tuple[RunFacts, list[Row]]


def broken(run: Run) -> set[str]:
    return {violation.property for violation in check_run(*run)}


def forged(name: str, seed: int = 1) -> list[Violation]:
    forgery = next(f for f in FORGERIES if f.name == name)
    return [v for v in check_run(*forgery.forge(*honest_run(seed))) if v.property == forgery.property]


def test_every_property_has_its_check_and_its_forgeries() -> None:
    assert tuple(CHECKS) == PROPERTIES
    count = Counter(forgery.property for forgery in FORGERIES)
    assert all(count[name] >= 3 for name in PROPERTIES), count


@pytest.mark.parametrize("seed", range(60))
def test_honest_runs_break_nothing(seed: int) -> None:
    shape = random.Random(seed)
    run = honest_run(
        seed,
        groups=shape.randint(1, 5),
        members=shape.randint(1, 4),
        senders=shape.randint(0, 4),
        messages=shape.randint(0, 60),
    )
    assert check_run(*run) == []
    assert Oracle(*honest_run(seed, messages=8)).broken() == set()


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_breaks_exactly_what_it_says(forgery: Forgery) -> None:
    for seed in SEEDS:
        run = forgery.forge(*honest_run(seed))
        assert broken(run) == {forgery.property, *forgery.also}
    small = forgery.forge(*honest_run(1, messages=10))
    assert Oracle(*small).broken() == broken(small) == {forgery.property, *forgery.also}


@pytest.mark.parametrize("odd", HARMLESS, ids=lambda odd: odd.name)
def test_odd_but_harmless_runs(odd: Harmless) -> None:
    for seed in SEEDS:
        assert check_run(*odd.forge(*honest_run(seed))) == []
    assert Oracle(*odd.forge(*honest_run(1, messages=10))).broken() == set()


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_rows_may_come_in_any_order(forgery: Forgery) -> None:
    facts, rows = forgery.forge(*honest_run(3))
    found = check_run(facts, rows)
    random.Random(7).shuffle(rows)
    assert {v.property for v in check_run(facts, rows)} == {v.property for v in found}
    assert check_run(facts, sorted(rows)) == check_run(facts, sorted(rows)), "the same rows, the same report"


@pytest.mark.parametrize("batch", range(6))
def test_the_fast_checks_agree_with_the_oracle(batch: int) -> None:
    count: Counter[str] = Counter()
    for seed in range(batch * 100, batch * 100 + 100):
        chance = random.Random(seed)
        shape = {"groups": chance.randint(1, 3), "members": chance.randint(1, 3), "senders": chance.randint(0, 2)}
        tape = Tape(*honest_run(seed, messages=chance.randint(1, 12), **shape))
        done = [chance.choice(MUTATIONS) for _ in range(chance.randint(1, 5))]
        done[:0] = [begin_in_a_view] if seed % 4 else []
        done += [] if seed % 3 else [count_turns]
        for mutation in done:
            mutation(tape, chance)
        run = tape.result()
        found = broken(run)
        assert found == Oracle(*run).broken(), (seed, [mutation.__name__ for mutation in done])
        count.update(found)
    # The comparison is worth something only if each property is often broken and often not.
    assert all(3 <= count[name] <= 90 for name in PROPERTIES), count


def test_one_member_speaks_for_those_with_the_same_log_and_all_are_named_when_it_is_wrong() -> None:
    facts, rows = honest_run(1, groups=2, members=3)
    history = RunHistory(facts, rows)
    homes = {process: group for group, members in facts.groups.items() for process in members}
    assert len(history.voices) < len(history.deliveries)
    assert all(homes[p] == homes[speaker] for p, speaker in history.speakers.items() if p in homes)
    group, members = next(iter(facts.groups.items()))
    for process in members:
        position = sum(row.kind == "deliver" and row.process == process for row in rows)
        last = max(row.seq for row in rows if row.process == process)
        rows.append(Row(process, last + 1, 1, "deliver", "nobody:1", (group,), (), position=position))
    found = [v for v in check_run(facts, rows) if v.property == "integrity" and v.messages == ("nobody:1",)]
    assert {v.processes for v in found} == {(process,) for process in members}


def test_only_what_is_promised_is_checked() -> None:
    facts, rows = next(f for f in FORGERIES if f.name == "fifo_inverted_everywhere").forge(*honest_run(1))
    facts.promises = ["causal", "real_time_order", "linearizability"]
    assert broken((facts, rows)) == {"causal"}
    facts.promises = ["linearizability"]
    assert check_run(facts, rows) == []


# ---- verdicts


def verdict(name: str, promise: str) -> Status:
    odd = next(f for f in (*FORGERIES, *HARMLESS) if f.name == name)
    facts, rows = odd.forge(*honest_run(1))
    return verdicts(facts, check_run(facts, rows))[promise]


def test_what_nothing_was_checked_of_does_not_hold() -> None:
    assert verdict("unknown_promise", "linearizability") is Status.UNCHECKED
    assert verdict("unknown_promise", "causal") is Status.HOLDS
    assert verdict("undrained_with_missing_deliveries", "agreement") is Status.UNCHECKED
    assert verdict("undrained_with_missing_deliveries", "total_order") is Status.HOLDS
    assert verdict("by_clocks_of_which_nobody_knows_anything", "real_time_order") is Status.UNCHECKED
    assert verdict("within_the_error_of_the_clocks", "real_time_order") is Status.HOLDS
    # Who goes on from the last view is not known.
    assert verdict("undrained_with_missing_deliveries", "view_order") is Status.UNCHECKED
    assert verdict("undrained_with_missing_deliveries", "virtual_synchrony") is Status.UNCHECKED
    facts, rows = honest_run(1)
    facts.promises = []
    assert set(verdicts(facts, check_run(facts, rows)).values()) == {Status.NOT_PROMISED}


def test_where_rows_are_missing_nothing_holds_but_what_is_broken_is_broken() -> None:
    facts, rows = honest_run(1)
    facts.incomplete = ["g2.1"]
    assert set(verdicts(facts, check_run(facts, rows)).values()) == {Status.INCOMPLETE}
    assert verdict("lost_at_one_in_an_incomplete_run", "agreement") is Status.BROKEN
    assert verdict("lost_at_one_in_an_incomplete_run", "fifo") is Status.INCOMPLETE


@pytest.mark.parametrize("seed", range(100))
def test_no_missing_row_of_a_process_that_says_so_makes_a_violation(seed: int) -> None:
    chance = random.Random(seed)
    facts, rows = honest_run(seed, messages=chance.randint(2, 30))
    facts.incomplete = chance.sample(sorted({row.process for row in rows}), chance.randint(1, 3))
    share = chance.choice([0.0, 0.2, 0.8, 1.0])
    kept = [row for row in rows if row.process not in facts.incomplete or chance.random() < share]
    assert check_run(facts, kept) == []


# ---- proofs are small, and say what happened


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("cycle_of_two", 2),
        ("cycle_of_two_far_apart", 2),
        ("cycle_of_two_under_lying_keys", 2),
        ("group_wide_swap_in_the_middle", 2),
        ("neighbours_swapped_at_one_member", None),
        ("cycle_of_three", 3),
        ("cycle_of_three_without_keys", 3),
    ],
)
def test_a_cycle_is_the_shortest_and_can_be_followed(name: str, length: int | None) -> None:
    forgery = next(f for f in FORGERIES if f.name == name)
    run = forgery.forge(*honest_run(2))
    cycle = next(v for v in check_run(*run) if v.property == "acyclic_order")
    if length is not None:
        assert len(cycle.messages) == len(cycle.processes) == length
    history = RunHistory(*run)
    for i, process in enumerate(cycle.processes):
        order = history.sequences[process]
        following = cycle.messages[(i + 1) % len(cycle.messages)]
        assert order.index(cycle.messages[i]) < order.index(following)


def test_a_long_cycle_is_found_without_recursion() -> None:
    """Each of 1100 groups delivers two messages; the last group closes the ring. No shorter proof exists."""
    count = 1100
    groups = {f"g{i}": [f"g{i}.1"] for i in range(count)}
    facts = RunFacts(
        run="ring", driver="simulation", protocol="-", groups=groups, promises=["acyclic_order"], drained=True
    )
    tape = Tape(facts)
    for i in range(count):
        tape.multicast("c1", f"c1:{i}", f"g{i}", f"g{(i + 1) % count}")
    for i in range(count):
        tape.deliver(f"c1:{(i - 1) % count}", f"g{i}.1")
        tape.deliver(f"c1:{i}", f"g{i}.1")
    (violation,) = check_run(*tape.result())
    assert len(violation.messages) == count


def test_requests_are_named_by_client_and_numbers() -> None:
    (violation,) = forged("half_a_request")
    assert violation.processes == ("g2.2",)
    assert "request 0 of dora to g1 and g2 with g1.1:901, which was multicast with other payloads" in violation.detail
    assert "request 3 to 6 of dora" in forged("hole_in_the_numbers")[0].detail
    assert "where number 2 should come" in forged("hole_in_the_numbers")[0].detail
    assert forged("receipt_of_what_one_never_delivers")[0].processes == ("g1.1", "g2.2")


def test_total_order_names_the_fork() -> None:
    (violation,) = forged("members_go_different_ways")
    assert set(violation.processes) == {"g2.1", "g2.2"}
    assert set(violation.messages) == {"f1:1", "f2:1"}


def test_causal_names_the_ends_of_the_chain_and_where_they_met() -> None:
    found = forged("chain_that_leaves_the_group")
    assert {v.messages for v in found} == {("f1:1", "g3.1:901")}
    assert {v.processes for v in found} <= {("g2.1",), ("g2.2",), ("g2.3",)}


def test_fifo_names_the_sender_and_the_two() -> None:
    assert forged("fifo_inverted_around_another")[0].messages == ("f1:1", "f1:3")
    assert forged("fifo_inverted_around_another")[0].processes[0] == "f1"


def test_uniform_agreement_names_the_one_that_crashed() -> None:
    (violation,) = forged("delivered_only_by_one_that_crashed")
    assert violation.processes == ("g2.3", "g2.1")


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_violation_reads_as_one_sentence(forgery: Forgery) -> None:
    for violation in check_run(*forgery.forge(*honest_run(4))):
        assert violation.detail.endswith(".")
        assert violation.detail.count("\n") == 0
        assert violation.processes
        assert all(message in violation.detail for message in violation.messages)


def test_at_most_ten_violations_of_each_property() -> None:
    tape = Tape(*honest_run(1, messages=200))
    for process in ("g2.1", "g3.1"):
        tape.rows[process].reverse()
    for process in ("g1.1", "g2.2"):
        tape.rows[process] = [row for row in tape.rows[process] if row.kind != "deliver"]
    for number in range(50):
        tape.frame("idle.1", "idle.2", f"ghost:{number}")
        tape.send(f"f{number}", ["g1.1"], layer="forge/consensus")
        tape.multicast("f1", f"f1:{number}", "g1")
        tape.receipt("g1.1", RequestCell("dora", number, 1, 0), "g1")
        turned = RequestCell("emil", number, 1, 0)
        tape.receipt("g1.1", turned, "g1", turn=50 - number)
        tape.deliver(tape.multicast("g1.1", f"g1.1:{900 + number}", "g1", requests=[turned]), "g1.3")
    for message in tape.delivered("g3.1"):
        tape.deliver(message, "g1.2")
        tape.event("g2.2", EventKind.ENTER, message=message)
    for process in ("g3.1", "g3.2"):
        tape.rows[process].insert(0, Row(process, 0, 0, "view", "1@g3.1", peers=("g3.1", "g3.2")))
    count = Counter(v.property for v in check_run(*tape.result()))
    assert max(count.values()) == VIOLATIONS_MAX
    assert set(count) == set(PROPERTIES)


# ---- traces that could not have happened


def test_a_past_that_is_its_own_future_ends() -> None:
    """Two processes each deliver the other's message before they multicast their own."""
    facts, _ = honest_run(1)
    tape = Tape(facts)
    tape.destinations = {"g1.1:1": ("g1", "g2"), "g2.1:1": ("g1", "g2")}
    tape.deliver("g2.1:1", "g1.1")
    tape.deliver("g1.1:1", "g2.1")
    tape.multicast("g1.1", "g1.1:1", "g1", "g2")
    tape.multicast("g2.1", "g2.1:1", "g1", "g2")
    run = tape.result()
    assert broken(run) == Oracle(*run).broken()
    assert "causal" in broken(run)


def test_rows_without_a_name_are_no_message() -> None:
    facts, rows = honest_run(1)
    nameless = [Row("g1.1", 10**6, 0, "deliver"), Row("g1.1", 10**6 + 1, 0, "multicast")]
    assert broken((facts, rows + nameless)) == {"integrity"}


def test_packed_clocks_are_clocks() -> None:
    chance = random.Random(1)
    clocks = Clocks(f"p{i}" for i in range(7))
    for _ in range(500):
        a, b = ([chance.choice((0, 1, 5, Clocks.FIELD_MAX)) for _ in range(7)] for _ in "ab")
        packed = [sum(v << s for v, s in zip(x, clocks.shift.values(), strict=True)) for x in (a, b)]
        largest = [max(v, w) for v, w in zip(a, b, strict=True)]
        merged = clocks.merge(*packed)
        assert [merged >> s & Clocks.FIELD_MAX for s in clocks.shift.values()] == largest
        above = clocks.above(packed[0], packed[1] | clocks.guards)
        assert (above is None) == all(v <= w for v, w in zip(a, b, strict=True))
        assert above is None or a[int(above[1:])] > b[int(above[1:])]


def test_what_is_found_in_memory_is_found_on_disk(tmp_path: Path) -> None:
    for forgery in FORGERIES[::6]:
        facts, rows = forgery.forge(*honest_run(1))
        write_run(tmp_path / forgery.name, facts, rows + rows[::3])
        (read,) = read_facts(tmp_path / forgery.name)
        assert broken((read, read_rows(tmp_path / forgery.name, facts.run))) == {forgery.property, *forgery.also}
