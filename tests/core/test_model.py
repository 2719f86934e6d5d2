"""The vocabulary, and the sentences that bad words get."""

from __future__ import annotations

import pytest

from antiphon.core import ProcessId, Timestamp, Topology, parse_groups, user_name
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


def test_order_keys_sort_as_timestamps_do() -> None:
    stamps = [Timestamp(time, ProcessId(p)) for time in (1, 9, 10, 123456789) for p in ("a.1", "a.2", "b.1")]
    assert sorted(stamps) == sorted(stamps, key=Timestamp.order_key)


def test_the_copy_for_a_client_has_the_name_of_the_request() -> None:
    assert user_name("c:1@orders.2") == "c:1"
    assert user_name("orders.1:7") == "orders.1:7"


def test_unknown_names_get_a_sentence_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no protocol 'paxos'; the protocols are .*skeen"):
        protocol_named("paxos")
    with pytest.raises(UsageError, match="crash, pause"):
        parse_faults("crash,earthquake")
