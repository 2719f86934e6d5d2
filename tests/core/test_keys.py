"""Order keys: bytes that sort as the tuples do, so that anybody can compare them without knowing the protocol."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import Message
from antiphon.core.keys import Key, encode_key
from antiphon.protocols.tom import Tom
from antiphon.simulation import MILLISECOND, Plan, Scenario, simulate

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**248 - 1))
TEXTS = st.one_of(
    st.sampled_from(["", "orders", "orders-eu", "orders.1", "orders.10", "orders.2"]),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])),
)
KEYS = st.recursive(
    st.lists(NUMBERS | TEXTS, max_size=4).map(tuple),
    lambda keys: st.lists(NUMBERS | TEXTS | keys, max_size=4).map(tuple),
    max_leaves=8,
)


def ranked(key: Key) -> tuple[tuple[int, object], ...]:
    """Python's own order, with numbers before texts and texts before tuples."""
    return tuple(
        (2, ranked(part)) if isinstance(part, tuple) else (1, part) if isinstance(part, str) else (0, part)
        for part in key
    )


@given(KEYS, KEYS)
def test_encoded_keys_sort_as_their_tuples(one: Key, other: Key) -> None:
    assert (encode_key(one) < encode_key(other)) == (ranked(one) < ranked(other))
    assert (encode_key(one) == encode_key(other)) == (one == other)


@given(st.lists(st.tuples(st.integers(0, 2**70), TEXTS, TEXTS, st.integers(0, 2**70))))
def test_keys_of_one_shape_sort_as_python_sorts_them(keys: list[Key]) -> None:
    assert sorted(keys) == sorted(keys, key=encode_key)


def test_a_longer_name_comes_behind_its_beginning() -> None:
    """`orders-eu` against `orders`: as texts with a dot behind the name, they came out wrong."""
    assert f"{6:016}.orders-eu.c1:1" < f"{6:016}.orders.c1:1"
    assert encode_key((6, "orders", "c1", 1)) < encode_key((6, "orders-eu", "c1", 1))


@pytest.mark.parametrize("key", [(-1,), (2**248,), ("a\0b",), (1, ("\0",))])
def test_what_cannot_be_sorted_is_refused(key: Key) -> None:
    with pytest.raises(AssertionError):
        encode_key(key)


def test_honest_runs_of_groups_with_such_names_are_in_the_order_of_their_keys() -> None:
    """With tom, whose timestamps name a group, the texts of 0.1 would be out of order in the same run."""
    given_keys: dict[str, list[Key]] = {}

    class Spied(Tom):
        def deliver(self, m: Message, key: Key | None = None) -> None:
            assert key is not None
            given_keys.setdefault(self.me, []).append(key)
            super().deliver(m, key)

    plans = [
        Plan(f"c{1 + i % 3}", i * MILLISECOND // 3, (("orders", "orders-eu"), ("orders",), ("orders-eu",))[i % 3])
        for i in range(60)
    ]
    groups = {"orders": 2, "orders-eu": 2}
    outcome = simulate(Scenario(protocol="tom", groups=groups, plans=tuple(plans)), Spied)
    assert outcome.violations == []
    for process in ("orders.1", "orders-eu.1"):
        encoded = [row.order_key for row in outcome.rows if row.kind == "deliver" and row.process == process]
        assert encoded == [encode_key(key) for key in given_keys[process]]
        assert all(earlier < later for earlier, later in pairwise(encoded))
    texts = [f"{clock:016}.{group}.{origin}:{number}" for clock, group, origin, number in given_keys["orders.1"]]
    assert texts != sorted(texts), "the run has what the old keys put wrongly"
