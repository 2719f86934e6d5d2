"""Where a search through a small world looks for the mutants of a protocol."""

from __future__ import annotations

import msgspec

from antiphon.core import OrderingProtocol
from antiphon.protocols.reliable import Reliable
from antiphon.protocols.tom import Tom
from antiphon.simulation.search import Exploration, Scope, explore, replay
from mutants import mto, scalatom, skeen, tom
from mutants.parts import (
    UNIFORM_MUTANTS,
    HrDoesNotJoinNext,
    UniformDeliversOnTheFirstEcho,
    UniformFetchesOnce,
    over_consensus,
    over_reliable,
)
from mutants.record import is_caught

A, AB = ("a",), ("a", "b")
ONES, UNEQUAL, TWOS, THREE = {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 3}
OUTSIDE = (("c", AB), ("d", AB))
INSIDE = (("a.1", A), ("a.2", A))
MEMBERS = ("a.1", "a.2", "a.3")
replaced = msgspec.structs.replace


def ones(protocol: str, **others: object) -> Scope:
    return replaced(Scope(protocol=protocol, groups=ONES, plans=OUTSIDE), **others)


SEARCHED: list[tuple[str, type[OrderingProtocol]]] = [
    *(("tom", mutant) for mutant in tom.SEARCHED),
    *(("scalatom", mutant) for mutant in scalatom.SEARCHED),
    ("scalatom", scalatom.TakesHistoriesAsTheyCome),  # it takes too rare an overtaking for random seeds
    ("tom", over_consensus(Tom, HrDoesNotJoinNext)),  # nor does this one show in random seeds
    ("mto", mto.CountsOnlyWhatItRDelivered),
    ("mto", mto.DoesNotWaitForWhatIsNotHere),
    *(("skeen", mutant) for mutant in skeen.SEARCHED),
    *(("reliable", over_reliable(Reliable, mutant)) for mutant in UNIFORM_MUTANTS),
    ("reliable", over_reliable(Reliable, UniformFetchesOnce)),  # random seeds do not show this one and the next
    ("reliable", over_reliable(Reliable, UniformDeliversOnTheFirstEcho)),
]

# What cannot show in so small a world. The campaigns of seeds find these (tests/simulation/test_mutants.py).
CANNOT_SHOW = {
    skeen.TellsNotEveryAddressee: "it errs where a final time is a multiple of 7: that takes seven messages",
    skeen.DeliversTwice: "it errs where the clock is a multiple of 9: that takes nine messages",
}


def mutant_scopes(protocol: str) -> dict[str, Scope]:
    """From the cheapest to the dearest; a mutant is found in the first in which it shows."""
    if protocol == "reliable":
        fetch = Scope(
            protocol=protocol,
            options={"reliable": "uniform"},
            groups=THREE,
            plans=(("c", A),),
            may_crash=("c", "a.1"),
            crashes=2,
            breadth="deviations",
            states_max=20_000,
        )
        return {
            "fetch": fetch,
            "five": replaced(fetch, groups={"a": 5}, plans=(("a.1", A),), may_crash=("a.1", "a.2"), breadth="steps"),
        }
    small = Scope(protocol=protocol, groups=ONES, plans=OUTSIDE, breadth="deviations", states_max=20_000)
    found = {
        "ones": replaced(small, restarts=True),
        "unequal": replaced(small, groups=UNEQUAL, plans=(*OUTSIDE, ("c", A))),
        "more": replaced(small, plans=(*OUTSIDE, ("e", AB)), restarts=True),
        "twos": replaced(small, groups=TWOS, plans=(("a.1", AB), ("b.1", AB), ("c", A))),
    }
    if protocol == "skeen":
        return found
    three = replaced(small, groups=THREE, plans=INSIDE)
    found["crash"] = replaced(three, may_crash=MEMBERS, crashes=1)
    found["steps"] = replaced(found["crash"], breadth="steps")
    found["suspicion"] = replaced(three, options={"reliable": "eager"}, wrong_suspicions=1)
    found["round"] = replaced(found["crash"], plans=(("a.1", A),), wrong_suspicions=1)
    ct = {"reliable": "eager", "consensus": "ct"}
    found["distrust"] = replaced(three, options=ct, plans=(("a.1", A),), distrusted=("a.1", "a.2"))
    shown = {"piggyback": "true"} if protocol == "scalatom" else {}
    found["silence"] = replaced(three, options=shown, may_crash=("a.1",), crashes=1)
    if protocol == "mto":
        return {"lazy": replaced(three, plans=(("c", A), ("d", A)), options={"reliable": "lazy"})}
    if protocol == "scalatom":
        found["overtaking"] = replaced(three, options={"reliable": "eager", "piggyback": "true"}, states_max=40_000)
    return found


# Where a mutant shows soonest, if that is not one of the first scopes: it saves looking through the others.
SOONEST: dict[str, str | dict[str, str]] = {
    "AppliesDecisionsAsTheyCome": "crash",
    "BreaksTiesByArrival": "twos",
    "DoesNotWaitForItsMessages": "steps",
    "DeliversOnTheProposal": "crash",
    "ForgetsTheHistoriesOnRestart": "more",
    "GossipsBeforeItRaisesTheClock": "more",
    "GossipsToOldAcquaintances": "unequal",
    "HrVotesWithItsOwnEstimate": "crash",
    "PpsFromOneProcess": "crash",
    "HrDoesNotJoinNext": "round",
    "CountsOnlyWhatItRDelivered": "lazy",
    "DoesNotWaitForWhatIsNotHere": {"mto": "lazy", "scalatom": "crash"},
    "TakesHistoriesAsTheyCome": "overtaking",
    "CtDecidesItsOwnValueOnSuspicionAndHrDecidesItsOwnValueOnSuspicion": "suspicion",
    "CtRotatesAmongAMajorityAndHrRotatesAmongAMajority": "distrust",
    "UniformDeliversTheFirstCopy": {"tom": "silence", "scalatom": "silence", "reliable": "fetch"},
    "CtDecidesOnOneAcknowledgementAndHrDecidesWithoutAMajority": "steps",
}


def search(protocol: str, mutant: type[OrderingProtocol]) -> tuple[str, Exploration] | None:
    """The scope in which a mutant shows, and how; None where it shows in none."""
    scopes = mutant_scopes(protocol)
    soonest = SOONEST.get(mutant.__name__, "ones")
    first = soonest if isinstance(soonest, str) else soonest[protocol]
    for name in dict.fromkeys((first if first in scopes else next(iter(scopes)), *scopes)):
        found = explore(scopes[name], mutant)
        if is_caught(found.violations):
            return name, found
    return None


def assert_replays(found: Exploration, protocol: type[OrderingProtocol]) -> None:
    """The path leads plain processes to the same violation, and the story tells every move of it."""
    assert found.violations[0].property in {v.property for v in replay(found.scope, found.path, protocol)}
    assert len(found.story) == len(found.path)
