"""The vocabulary, and the sentences that bad words get."""

from __future__ import annotations

from itertools import combinations

import pytest

from antiphon.core import MessageId, ProcessId, Topology, model, parse_groups
from antiphon.core.declaration import Detector, Watched
from antiphon.core.errors import UsageError
from antiphon.core.model import GroupId
from antiphon.protocols import protocol_named
from antiphon.simulation import parse_faults


def test_groups_by_shape_and_by_name() -> None:
    assert parse_groups("2x3") == {"g1": 3, "g2": 3}
    assert parse_groups("orders=3, billing=5") == {"orders": 3, "billing": 5}


@pytest.mark.parametrize("text", ["", "3", "x", "3x", "orders", "orders=", "orders=x", "a=1,a=2", "a=1,,b=2", "3x3x3"])
def test_texts_that_name_no_groups(text: str) -> None:
    with pytest.raises(UsageError, match="does not name groups"):
        parse_groups(text)


@pytest.mark.parametrize("sizes", [{}, {"a": 0}, {"A": 1}, {"a.b": 1}, {"a": 5000}])
def test_sizes_that_make_no_system(sizes: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Topology.sized(sizes)


def test_groups_are_disjoint() -> None:
    with pytest.raises(UsageError, match="overlap"):
        Topology({"a": ["p"], "b": ["p"]})


def test_destinations_are_in_one_order_everywhere() -> None:
    topology = Topology.sized({"b": 1, "a": 2})
    assert topology.destinations(["a", "b", "a"]) == ("b", "a")
    assert topology.addressees(("b", "a")) == ("b.1", "a.1", "a.2")


def test_a_sentence_about_groups_stays_one_however_many_and_long_their_names_are() -> None:
    many = Topology.sized({f"g{i}": 1 for i in range(1000)})
    for names in ("\1" * 10**6, [f"{i}" * 10**5 for i in range(10)], map(str, range(10**5))):
        with pytest.raises(UsageError) as refused:
            many.destinations(names)
        assert len(str(refused.value)) < 400
    with pytest.raises(UsageError) as refused:
        many.destinations(["b", "x" * 40, "c", "a", "z"])
    assert str(refused.value).startswith("There are no groups 'a', 'b', 'c' and 2 more; the groups are g0, g1, ")
    assert str(refused.value).endswith(", g19 and 980 more.")


def test_callers_who_name_many_sets_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "SETS_MAX", 4)
    topology = Topology.sized(dict.fromkeys("abcde", 1))
    sets = [topology.destinations(each) for k in (1, 2, 3) for each in combinations("abcde", k)]
    for each in (*sets, *sets):
        assert topology.is_destination_set(each)
        assert topology.addressees(each) == tuple(f"{group}.1" for group in each)
        assert len(topology._destination_sets) <= 4 >= len(topology._addressees)
    assert not topology.is_destination_set((GroupId("b"), GroupId("a")))


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("", "There is no group ''; the groups are a, b."),
        ("orders", "There is no group 'orders'; the groups are a, b."),
        (["a", "x", "y"], "There are no groups 'x', 'y'; the groups are a, b."),
        ([], "A multicast needs at least one destination group."),
        (b"a", "Groups are given as a name, or as a set or list of names."),
        (["a", 97], "Groups are given as a name, or as a set or list of names."),
        (([],), "Groups are given as a name, or as a set or list of names."),
        (5, "Groups are given as a name, or as a set or list of names."),
    ],
)
def test_what_is_no_destination_gets_a_sentence(names: object, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        Topology.sized({"a": 1, "b": 1}).destinations(names)  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_a_set_of_groups_from_the_network_has_one_spelling() -> None:
    topology = Topology.sized({"b": 1, "a": 2})
    assert all(topology.is_destination_set(groups) for groups in (("b",), ("a",), ("b", "a"), ("b", "a")))
    wrong = [(), ("a", "b"), ("a", "a"), ("zebra",), ("b", "zebra")]
    assert not any(topology.is_destination_set(groups) for groups in wrong)


def test_a_message_is_named_for_its_origin_and_sorts_by_number() -> None:
    ninth, tenth = MessageId(ProcessId("orders.2"), 9), MessageId(ProcessId("orders.2"), 10)
    assert str(tenth) == "orders.2:10"
    assert ninth < tenth


def test_unknown_names_get_a_sentence_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no protocol 'paxos'; the protocols are .*skeen"):
        protocol_named("paxos")
    with pytest.raises(UsageError, match="crash, pause"):
        parse_faults("crash,earthquake", Watched.NOBODY, Detector.NONE)
