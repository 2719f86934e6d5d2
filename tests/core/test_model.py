"""The vocabulary, and the sentences that bad words get."""

from __future__ import annotations

import pytest

from antiphon.core import MessageId, ProcessId, Topology, parse_groups
from antiphon.core.declaration import Detector, Watched
from antiphon.core.errors import UsageError
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
