"""Search the small scopes of docs/exploration.md: all states where they are within reach, a million otherwise.

    python benchmarks/search.py [--states 1000000] [--only tom]

Prints one row for each scope, in the form of the table in docs/exploration.md. Exits with 1 where a promise is broken,
after the moves that lead there.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
from pathlib import Path

import msgspec

from antiphon.core import OrderingProtocol
from antiphon.protocols import protocol_named
from antiphon.simulation.search import Scope, explore

TESTS = Path(__file__).parent.parent / "tests"
GRAPHS = ("transis", "allack", "toto")
A, AB = ("a",), ("a", "b")
ONES, UNEQUAL, TWOS, THREE = {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 3}
THREE_ONES = {"a": 1, "b": 1, "e": 1}
OUTSIDE = (("c", AB), ("d", AB))
RING = (("c", AB), ("d", ("b", "e")), ("f", ("a", "e")))  # a cycle that no two groups can show alone
MEMBERS = ("a.1", "a.2", "a.3")


def shapes(protocol: str, options: dict[str, str]) -> list[tuple[str, Scope]]:
    """The scopes of one protocol that tolerates crashes."""
    ones = Scope(protocol=protocol, options=options, groups=ONES, plans=OUTSIDE, may_crash=("c", "d"), crashes=2)
    twos = msgspec.structs.replace(ones, groups=TWOS, crashes=1, breadth="deviations")
    three = Scope(protocol=protocol, options=options, groups=THREE, plans=(), may_crash=MEMBERS, crashes=1)
    inside = (("a.1", AB), ("b.1", AB), ("c", A))
    replace = msgspec.structs.replace
    return [
        ("2 groups of 1, 2 messages, senders may crash", ones),
        ("2 groups of 1, 2 messages, all may restart", replace(ones, may_crash=(), crashes=0, restarts=True)),
        ("2 groups of 1, 3 messages, senders may crash", replace(ones, plans=(*OUTSIDE, ("c", A)))),
        ("2 groups of 1, 3 messages, two senders inside", replace(ones, plans=inside, may_crash=("c",))),
        ("2 groups of 1, 3 messages to both", replace(ones, plans=(*OUTSIDE, ("e", AB)), may_crash=(), crashes=0)),
        ("2 groups of 2, 2 messages, a sender may crash", twos),
        ("2 groups of 2, 2 messages, counted by steps", replace(twos, breadth="steps")),
        ("2 groups of 2, 3 messages, a sender may crash", replace(twos, plans=(*OUTSIDE, ("c", A)))),
        (
            "2 groups of 2, 3 messages, two senders inside, one may crash",
            replace(twos, plans=inside, may_crash=("a.1", "b.1", "c")),
        ),
        (
            "1 group of 3, 1 message, 1 crash, 1 wrong suspicion",
            replace(three, plans=(("a.1", A),), wrong_suspicions=1),
        ),
        ("1 group of 3, 2 messages, 1 crash", replace(three, plans=(("a.1", A), ("a.2", A)), breadth="deviations")),
        (
            "1 group of 3, 2 messages, 1 crash, 1 wrong suspicion",
            replace(three, plans=(("a.1", A), ("a.2", A)), wrong_suspicions=1, breadth="deviations"),
        ),
        ("2 groups of 2, 1 message, its sender may crash", replace(twos, plans=OUTSIDE[:1], breadth="steps")),
        ("groups of 1 and 2, 2 messages", replace(ones, groups=UNEQUAL, may_crash=(), crashes=0)),
        ("3 groups of 1, 3 messages in a ring", replace(ones, groups=THREE_ONES, plans=RING, crashes=0)),
    ]


def graph_shapes(protocol: str) -> list[tuple[str, Scope]]:
    """The scopes of a protocol on the causal graph; a machine can be lost only where there are views."""
    replace = msgspec.structs.replace
    two = Scope(protocol=protocol, groups=THREE, plans=(("a.1", A), ("a.2", A)))
    views = replace(two, options={"membership": "true"}, plans=(("a.1", A),), reduce=False)
    apart = replace(views, groups={"a": 2}, plans=two.plans, wrong_suspicions=1)
    found = [
        ("1 group of 3, 2 messages", two),
        ("1 group of 3, 1 message, 1 crash", replace(views, may_crash=MEMBERS, crashes=1)),
        ("1 group of 2, 2 messages, 1 wrong suspicion", apart),
    ]
    if protocol != "transis":
        found.append(("1 group of 3, 2 messages, one of them causal", replace(two, causal=(1,))))
    if protocol == "toto":
        lost = replace(views, plans=two.plans, may_crash=MEMBERS, crashes=1, breadth="deviations")
        found.append(("1 group of 3, 2 messages, 1 crash", lost))
        found.append(("1 group of 3, 2 messages, one of them causal, 1 crash", replace(lost, causal=(1,))))
        wrong = replace(views, wrong_suspicions=1, breadth="deviations")
        found.append(("1 group of 3, 1 message, 1 wrong suspicion", wrong))
    return found


def primcast_shapes() -> list[tuple[str, Scope]]:
    """Timers ring when nothing else is left to happen: what it tries again, it tries for ever."""
    replace = msgspec.structs.replace
    ones = Scope(protocol="primcast", options={"hybrid": "false"}, groups=ONES, plans=OUTSIDE, late_timers=True)
    three = replace(ones, groups=THREE, plans=(("a.2", A),), breadth="deviations")
    lost = replace(three, may_crash=MEMBERS, crashes=1)
    # d:1 puts the clock of a ahead; e:1 is multicast when anybody has delivered c:1.
    timed = replace(ones, options={"hybrid": "false", "order": "realtime"})
    return [
        (
            "2 groups of 1, 3 messages, the last to b after a delivery",
            replace(timed, plans=(("d", A), ("c", AB), ("e", ("b",))), after=((2, 1),)),
        ),
        (
            "3 groups of 1, 4 messages, the last to k after a delivery in a or b",
            replace(
                timed,
                groups={"a": 1, "b": 1, "k": 1},
                plans=(("d", A), ("f", ("b", "k")), ("c", AB), ("e", ("k",))),
                after=((3, 2),),
            ),
        ),
        (
            "groups of 1 and 3, 1 message, the primary of the second may crash",  # who is asked may know it later
            replace(
                timed,
                groups={"a": 1, "b": 3},
                plans=(("a.1", AB),),
                may_crash=("b.1",),
                crashes=1,
                breadth="deviations",
                reduce=False,
            ),
        ),
        ("2 groups of 1, 2 messages, all may restart", replace(ones, restarts=True)),
        ("2 groups of 1, 3 messages, two senders inside", replace(ones, plans=(("a.1", AB), ("b.1", AB), ("c", A)))),
        ("groups of 1 and 2, 2 messages", replace(ones, groups=UNEQUAL, breadth="deviations")),
        (
            "groups of 1 and 3, 1 message, the primary of the second may crash",
            replace(three, groups={"a": 1, "b": 3}, plans=(("a.1", AB),), may_crash=("b.1",), crashes=1),
        ),
        ("1 group of 3, 2 messages", replace(three, plans=(("a.2", A), ("c", A)))),
        ("1 group of 3, 1 message, 1 crash", lost),
        ("1 group of 3, 1 message, 1 wrong suspicion", replace(three, wrong_suspicions=1)),
        # What somebody is asked for that it has not is inert, and later it has it: not reduced.
        ("1 group of 3, 1 message, 1 crash, 1 wrong suspicion", replace(lost, wrong_suspicions=1, reduce=False)),
        (
            "1 group of 3, 2 messages, 1 crash, 1 wrong suspicion",
            replace(lost, plans=(("a.2", A), ("c", A)), wrong_suspicions=1, reduce=False),
        ),
    ]


def all_scopes(states: int) -> list[tuple[str, Scope]]:
    replace = msgspec.structs.replace
    skeen = Scope(protocol="skeen", groups=ONES, plans=(*OUTSIDE, ("c", A)))
    found = [
        ("2 groups of 1, 3 messages", skeen),
        ("2 groups of 2, 2 messages", replace(skeen, groups=TWOS, plans=OUTSIDE)),
        ("1 group of 3, 2 messages", replace(skeen, groups=THREE, plans=(("a.1", A), ("a.2", A)))),
        ("3 groups of 1, 3 messages in a ring", replace(skeen, groups=THREE_ONES, plans=RING)),
    ]
    for protocol in ("tom", "scalatom"):
        found.extend(shapes(protocol, {}))
    variants: list[tuple[str, dict[str, str]]] = [
        ("tom", {"sets": "false"}),
        ("tom", {"consensus": "ct"}),
        ("scalatom", {"piggyback": "true"}),
        ("scalatom", {"consensus": "ct"}),
    ]
    for protocol, options in variants:
        found.extend(shapes(protocol, options)[i] for i in (2, 5, 10))
    for protocol in ("tom", "scalatom"):  # the eager multicast, where a crash can come amid a send but loses nothing
        for title, scope in (shapes(protocol, {"reliable": "eager"})[i] for i in (2, 10)):
            found.append((f"{title}; what was sent survives", replace(scope, sent_survives=True)))
    for protocol in GRAPHS:
        found.extend(graph_shapes(protocol))
    found.extend(primcast_shapes())
    return [(title, replace(scope, states_max=states)) for title, scope in found]


def searched(protocol: str) -> type[OrderingProtocol]:
    """The protocol; one on the causal graph over channels that lose nothing, so that there is an end."""
    if protocol not in GRAPHS:
        return protocol_named(protocol)
    sys.path.insert(0, str(TESTS))
    found: type[OrderingProtocol] = importlib.import_module("lossless").lossless(protocol)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="stop a search at so many distinct states")
    parser.add_argument("--only", help="the name of one protocol")
    arguments = parser.parse_args()
    print("| protocol | scope | states | transitions | depth | deviations | complete | seconds | violations |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |")
    broken = False
    for title, scope in all_scopes(arguments.states):
        if arguments.only not in (None, scope.protocol):
            continue
        found = explore(scope, searched(scope.protocol))
        options = "".join(f" {name}={value}" for name, value in scope.options.items())
        counted = "all" if found.complete else found.deviations if scope.breadth == "deviations" else ""
        cells = (
            f"{scope.protocol}{options}",
            title,
            f"{found.states:,}",
            f"{found.transitions:,}",
            found.depth,
            counted,
            "yes" if found.complete else "no",
            f"{found.seconds:.0f}",
            len(found.violations),
        )
        print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)
        for violation in found.violations:
            broken = True
            print(f"\n{violation.detail}\n{scope!r}", *found.story, sep="\n    ", flush=True)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"\nMost memory: {peak_mb:,} MB.")
    sys.exit(broken)


if __name__ == "__main__":
    main()
