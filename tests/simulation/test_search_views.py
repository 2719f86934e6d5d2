"""Small worlds of transis, allack and toto, searched to their end: both services, and a machine that crashes.

Frames come in any order, and timers fire at any moment: so an idle machine acknowledges, and a patient one gives up,
whenever it may. What is lost and fetched again is left out (tests/lossless.py), for that has no end.
"""

from __future__ import annotations

import pytest

from antiphon.core import OrderingProtocol
from antiphon.core.errors import UsageError
from antiphon.protocols.toto import ToTo
from antiphon.protocols.transis import Transis
from antiphon.services.dag import Ack, Cast
from antiphon.simulation.search import Scope, explore
from lossless import WithoutLoss, lossless
from mutants import membership
from mutants.chosen import chosen_wrongly
from mutants.parts import with_parts
from mutants.scopes import assert_replays, replaced

G = ("g",)
ONE, TWO, BOTH = (("g.1", G),), (("g.1", G), ("g.2", G)), (("g.1", G), ("g.1", G))
MACHINES = ("g.1", "g.2", "g.3")


def three(protocol: str, **others: object) -> Scope:
    return replaced(Scope(protocol=protocol, groups={"g": 3}, plans=ONE), **others)


def with_views(protocol: str, **others: object) -> Scope:
    """Not reduced: what is of a view to come does nothing yet, but later on it does."""
    return three(protocol, options={"membership": "true"}, reduce=False, **others)


ONE_LOST = with_views("toto", may_crash=MACHINES, crashes=1)
TWO_APART = with_views("toto", groups={"g": 2}, plans=TWO, wrong_suspicions=1)


@pytest.mark.parametrize(
    ("scope", "states"),
    [
        (three("transis"), 50),
        (three("allack"), 50),
        (three("toto", plans=TWO), 20_000),
        (three("toto", plans=TWO, causal=(1,)), 20_000),
        (three("allack", plans=BOTH, causal=(1,), restarts=True), 8_000),
        (three("toto", plans=BOTH, causal=(0,), restarts=True), 8_000),
        (ONE_LOST, 15_000),
        (with_views("allack", may_crash=("g.1",), crashes=1), 4_000),
        (with_views("transis", may_crash=("g.1",), crashes=1), 2_000),
        (TWO_APART, 5_000),
        (replaced(TWO_APART, plans=BOTH, causal=(1,)), 1_000),
    ],
    ids=lambda value: f"{value.protocol}" if isinstance(value, Scope) else value,
)
def test_a_small_world_is_searched_to_its_end(scope: Scope, states: int) -> None:
    found = explore(scope, lossless(scope.protocol))
    assert found.violations == []
    assert found.complete
    assert found.states > states


CHOSEN = {mutant.__name__: mutant for mutant in chosen_wrongly(ToTo)}
OF_VIEWS = {mutant.__name__: mutant for mutant in membership.MUTANTS}


@pytest.mark.parametrize(
    ("scope", "mutant", "broken"),
    [
        (three("toto", plans=BOTH, causal=(1,)), CHOSEN["DeliversCausalOnesBeforeWhatTheyFollow"], "fifo"),
        (three("toto", plans=BOTH, causal=(1,)), CHOSEN["HoldsBackForEver"], "validity"),
        (three("toto", plans=TWO), CHOSEN["DeliversItsOwnAsCausalOnes"], "total_order"),
        (ONE_LOST, OF_VIEWS["SkipsTheFlush"], "graph_delivery"),
        (ONE_LOST, OF_VIEWS["DropsWhatWaitsForTheNextView"], "graph_delivery"),
        (ONE_LOST, OF_VIEWS["HasEnoughWithItsOwn"], "virtual_synchrony"),
        (ONE_LOST, OF_VIEWS["IsReadyTooEarly"], "virtual_synchrony"),
        (ONE_LOST, OF_VIEWS["DoesNotWaitForTheOthers"], "virtual_synchrony"),
        (TWO_APART, OF_VIEWS["NeverMerges"], "virtual_synchrony"),
        (TWO_APART, OF_VIEWS["KeepsItsCandidates"], "view_order"),
    ],
    ids=lambda value: getattr(value, "__name__", "") or getattr(value, "protocol", value),
)
def test_a_mistake_shows(scope: Scope, mutant: type[OrderingProtocol], broken: str) -> None:
    kind = with_parts(mutant, WithoutLoss)
    found = explore(scope, kind)
    assert [violation.property for violation in found.violations] == [broken]
    assert_replays(found, kind)


class EntersAtOnce(WithoutLoss):
    """Whatever it follows."""

    def is_ready(self, cast: Cast | Ack) -> bool:
        return True


def test_an_answer_before_its_question_shows() -> None:
    kind = with_parts(Transis, EntersAtOnce)
    found = explore(three("transis", plans=TWO), kind)
    assert [violation.property for violation in found.violations] == ["causal"]
    assert_replays(found, kind)


def test_a_service_that_is_not_offered_is_refused() -> None:
    with pytest.raises(UsageError, match="allack and toto leave the choice"):
        explore(Scope(protocol="skeen", groups={"g": 1}, plans=ONE, causal=(0,)))
