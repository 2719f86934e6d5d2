"""Every schedule of primcast on disks that forget: rows of docs/exploration.md.

python benchmarks/forgetting.py [--configurations 100000]
"""

from __future__ import annotations

import argparse
import time

from antiphon.protocols.primcast import Primcast
from antiphon.simulation.forgetting import ForgettingScope, search_forgetting

ONE, TWO_GROUPS, PAIR = {"a": 3}, {"a": 3, "b": 1}, {"a": 1, "b": 1}
OWN, OTHER, BOTH = ("a.1", ("a",)), ("a.2", ("a",)), ("a.2", ("a", "b"))


def scope(
    groups: dict[str, int],
    *requests: tuple[str, tuple[str, ...]],
    crashing: tuple[str, ...],
    early: bool = True,
    suspicions: bool = False,
    together: bool = False,
) -> ForgettingScope:
    options = {"hybrid": "false", "early": str(early).lower()}
    return ForgettingScope(Primcast, groups, options, requests, len(crashing), crashing, suspicions, together)


SCOPES = {
    "a request at the primary, which may crash": scope(ONE, OWN, crashing=("a.1",)),
    "... and be suspected": scope(ONE, OWN, crashing=("a.1",), suspicions=True),
    "a request at the primary; it and a follower may crash": scope(ONE, OWN, crashing=("a.1", "a.2")),
    "... with `early=false`": scope(ONE, OWN, crashing=("a.1", "a.2"), early=False),
    "a request at a follower; the primary may crash": scope(ONE, OTHER, crashing=("a.1",)),
    "... the follower and the primary": scope(ONE, OTHER, crashing=("a.1", "a.2")),
    "two requests at the primary, which may crash": scope(ONE, OWN, OWN, crashing=("a.1",)),
    "a request at a follower, to a group of one, too; the primary may crash": scope(
        TWO_GROUPS, BOTH, crashing=("a.1",)
    ),
    "a request at the primary; it and a follower may crash, and two frames come in one turn": scope(
        ONE, OWN, crashing=("a.1", "a.2"), together=True
    ),
    "two groups of one, a request to both and one to the first, both may crash, and two frames come in one turn": scope(
        PAIR, ("b.1", ("a", "b")), OWN, crashing=("a.1", "b.1"), together=True
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=100_000, help="of each scope, at most")
    arguments = parser.parse_args()
    print("| three members | configurations | steps | states of members | all of them | violation | seconds |")
    print("|" + " --- |" * 7)
    for name, each in SCOPES.items():
        begun = time.monotonic()
        found = search_forgetting(each, arguments.configurations)
        verdict = found.violation or "none"
        print(
            f"| {name} | {found.configurations:,} | {found.steps:,} | {found.states:,} | "
            f"{'yes' if found.is_complete else 'no'} | {verdict} | {time.monotonic() - begun:.0f} |",
            flush=True,
        )
        if found.violation is not None:
            print("\n".join(f"    {step}" for step in found.path), flush=True)


if __name__ == "__main__":
    main()
