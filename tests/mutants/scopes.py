"""Where a search through a small world looks for the mutants of a protocol."""

from __future__ import annotations

import msgspec

from antiphon.core import OrderingProtocol
from antiphon.protocols.tom import Tom
from antiphon.simulation.explore import explore
from antiphon.simulation.explore_values import Exploration, Scope
from mutants import mto, scalatom, skeen, tom
from mutants.parts import HrDoesNotJoinNext, over_consensus

A, AB = ("a",), ("a", "b")
ONES, UNEQUAL, TWOS, THREE = {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 3}
OUTSIDE = (("c", AB), ("d", AB))
INSIDE = (("a.1", A), ("a.2", A))
MEMBERS = ("a.1", "a.2", "a.3")
replaced = msgspec.structs.replace

SEARCHED: list[tuple[str, type[OrderingProtocol]]] = [
    *(("tom", mutant) for mutant in tom.MUTANTS),
    *(("scalatom", mutant) for mutant in scalatom.MUTANTS),
    ("scalatom", scalatom.TakesHistoriesAsTheyCome),  # it takes too rare an overtaking for random seeds
    ("tom", over_consensus(Tom, HrDoesNotJoinNext)),  # nor does this one show in random seeds
    ("mto", mto.CountsOnlyWhatItRDelivered),
    ("mto", mto.DoesNotWaitForWhatIsNotHere),
    *(("skeen", mutant) for mutant in skeen.MUTANTS),
]

# What cannot show in so small a world. The campaigns of seeds find these (tests/simulation/test_seeds.py).
CANNOT_SHOW = {
    skeen.TellsNotEveryAddressee: "it errs where a final time is a multiple of 7: that takes seven messages",
    skeen.DeliversTwice: "it errs where the clock is a multiple of 9: that takes nine messages",
}


def mutant_scopes(protocol: str) -> dict[str, Scope]:
    """From the cheapest to the dearest; a mutant is found in the first in which it shows."""
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
    found["round"] = replaced(found["steps"], plans=(("a.1", A),), wrong_suspicions=1)
    if protocol == "mto":
        return {"lazy": replaced(three, plans=(("c", A), ("d", A)), options={"reliable": "lazy"})}
    if protocol == "scalatom":
        found["overtaking"] = replaced(three, options={"reliable": "eager", "piggyback": "true"}, states_max=40_000)
    return found


# Where a mutant shows soonest, if that is not one of the first scopes: it saves looking through the others.
SOONEST = {
    "AppliesDecisionsAsTheyCome": "steps",
    "BreaksTiesByArrival": "twos",
    "DoesNotWaitForItsMessages": "steps",
    "DeliversOnTheProposal": "crash",
    "ForgetsTheHistoriesOnRestart": "more",
    "GossipsBeforeItRaisesTheClock": "more",
    "HrVotesWithItsOwnEstimate": "crash",
    "PpsFromOneProcess": "crash",
    "HrDoesNotJoinNext": "round",
    "CountsOnlyWhatItRDelivered": "lazy",
    "DoesNotWaitForWhatIsNotHere": "lazy",
    "TakesHistoriesAsTheyCome": "overtaking",
    "CtDecidesItsOwnValueOnSuspicionAndHrDecidesItsOwnValueOnSuspicion": "suspicion",
    "CtDecidesOnOneAcknowledgementAndHrDecidesWithoutAMajority": "steps",
}


def search(protocol: str, mutant: type[OrderingProtocol]) -> tuple[str, Exploration] | None:
    """The scope in which a mutant shows, and how; None where it shows in none."""
    scopes = mutant_scopes(protocol)
    first = SOONEST.get(mutant.__name__, "ones")
    for name in dict.fromkeys((first if first in scopes else next(iter(scopes)), *scopes)):
        found = explore(scopes[name], mutant)
        if found.violations:
            return name, found
    return None
