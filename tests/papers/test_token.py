"""The rotating token: row 2 of scalatom.txt's Table 2, from traces, and what Totem's token carries."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import ProcessId
from antiphon.core.errors import UsageError
from antiphon.protocols.token import RotatingToken, Token, TokenOptions
from antiphon.simulation import Exponential, Partition, Plan, Scenario, random_scenario, simulate
from antiphon.simulation.search import Scope, explore
from antiphon.simulation.values import MILLISECOND
from mutants.token import NeverPauses, NumbersWhateverIsMissing


def waiting(n: int, hops: int) -> tuple[float, int, int]:
    """g.1 multicasts and passes the token on; when it is with the third member, one that is so many hops ahead
    multicasts. Returns the steps to the last delivery, the frames about the message, and the token's."""
    at = 2 * MILLISECOND
    sender = f"g.{1 + (2 + hops) % n}"
    plans = (Plan("g.1", 0, ("g",)), Plan(sender, at, ("g",)))
    rows = simulate(Scenario(protocol="token", groups={"g": n}, plans=plans)).rows
    newest = [row.message for row in rows if row.kind == "multicast"][-1]
    last = max(row.time_ns for row in rows if row.kind == "deliver" and row.message == newest)
    sends = [row for row in rows if row.kind == "send"]
    about = sum(len(row.peers) for row in sends if newest in row.about)
    tokens = sum(len(row.peers) for row in sends if not row.about and at <= row.time_ns < last)
    return (last - at) / MILLISECOND, about, tokens


@pytest.mark.parametrize("n", range(2, 17))
def test_r1_a_message_waits_for_its_senders_turn(n: int) -> None:
    """n-1 messages. The token makes n-1 steps at most until it is the sender's turn, as the paper counts; n steps with
    the message's own. Until it is delivered the token is sent at most n times: (n-1) [+n]."""
    for hops in range(n):
        assert waiting(n, hops) == (hops + 1, n - 1, hops + 1)


@pytest.mark.parametrize("n", range(2, 17))
def test_r1_the_holder_sends_at_once(n: int) -> None:
    outcome = simulate(Scenario(protocol="token", groups={"g": n}, plans=(Plan("g.1", 0, ("g",)),), steps=True))
    assert outcome.steps_max == 1
    assert sum(len(row.peers) for row in outcome.rows if row.kind == "send" and row.about) == n - 1


@pytest.mark.parametrize("n", range(2, 17))
def test_a_token_at_rest_is_asked_for(n: int) -> None:
    """One message to the first member, as many steps as the sender is away from it, and one for the message. An outside
    sender hands its message to a member first. Then the token goes round until all know that all have it, and rests."""
    for place in range(1, n):
        plans = (Plan(f"g.{1 + place}", 0, ("g",)),)
        outcome = simulate(Scenario(protocol="token", groups={"g": n}, plans=plans))
        assert max(row.time_ns for row in outcome.rows if row.kind == "deliver") == (2 + place) * MILLISECOND
        assert outcome.messages_sent == 1 + (n - 1) + 3 * n
    assert outcome.virtual_ns == (1 + 3 * n) * MILLISECOND, "nothing is left to happen"


def test_the_size_of_the_token_does_not_depend_on_the_group() -> None:
    sizes = set()
    for n in (3, 16):
        plans = tuple(Plan("g.1", i * MILLISECOND, ("g",)) for i in range(5))
        rows = simulate(Scenario(protocol="token", groups={"g": n}, plans=plans)).rows
        sizes.add(min(row.bytes for row in rows if row.kind == "send" and not row.about))
    assert len(sizes) == 1


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_window_bounds_what_a_member_sends_on_one_visit(window: int) -> None:
    plans = tuple(Plan(f"g.{1 + i % 2}", 0, ("g",)) for i in range(20))
    scenario = Scenario(protocol="token", options={"window": str(window)}, groups={"g": 2}, plans=plans)
    rows = simulate(scenario).rows
    origins = [str(row.message).split(":")[0] for row in rows if row.kind == "deliver" and row.process == "g.2"]
    rounds = [origins[i : i + window] for i in range(1, len(origins), window)]  # the first one went out alone
    assert len(origins) == 20
    assert all(len(set(each)) == 1 for each in rounds[: 2 * (9 // window)])
    with pytest.raises(UsageError, match="window"):
        simulate(msgspec.structs.replace(scenario, options={"window": "0"}))


def test_several_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="token protocol sends a message to one group, not to several: a, b; primcast"):
        simulate(Scenario(protocol="token", groups={"a": 2, "b": 2}, plans=(Plan("c1", 0, ("a", "b")),)))


@pytest.mark.parametrize("transport", ["reliable", "datagram"])
def test_what_everybody_has_is_forgotten_and_the_token_rests(transport: str) -> None:
    seen: dict[str, RotatingToken] = {}
    most = 0

    class Spied(RotatingToken):
        def on_token(self, sender: ProcessId, token: Token) -> None:
            nonlocal most
            super().on_token(sender, token)
            seen[self.me] = self
            most = max(most, len(self.held), len(token.missing))

    plans = tuple(Plan(("c1", "g.2", "g.1")[i % 3], i * MILLISECOND, ("g",)) for i in range(400))
    scenario = Scenario(
        protocol="token",
        options={"transport": transport},
        groups={"g": 4},
        plans=plans,
        faults=(Partition(("g.3",), at=50 * MILLISECOND, for_ns=20 * MILLISECOND),),
        loss=0.1,
        duplication=0.1,
        latency=Exponential(100_000, MILLISECOND),
    )
    outcome = simulate(scenario, Spied)
    assert outcome.violations == []
    assert outcome.deliveries == 1600
    assert [len(at.held) + len(at.queue) + len(at.early) for at in seen.values()] == [0] * 4
    assert [at.me for at in seen.values() if at.token is not None] == ["g.1"], "there is one token"
    assert not any(at.again_ns for at in seen.values())
    assert most < 150


def down(milliseconds: int) -> Partition:
    """g.1 reaches nobody but g.2, and is reached by all: the ring is whole."""
    return Partition(("g.1",), at=0, for_ns=milliseconds * MILLISECOND, bridge="g.2", one_way=True)


@pytest.mark.parametrize(("kind", "runs_round"), [(RotatingToken, False), (NeverPauses, True)])
def test_a_link_that_is_down_for_long_does_not_make_the_token_run_round(
    kind: type[RotatingToken], runs_round: bool
) -> None:
    """g.3 gets the token, but not the message: the first member keeps it longer and longer."""
    plans = (Plan("g.1", MILLISECOND, ("g",)),)
    outcome = simulate(Scenario(protocol="token", groups={"g": 4}, plans=plans, faults=(down(1_000),)), kind)
    assert outcome.violations == []
    assert outcome.messages_sent > 1_000 if runs_round else outcome.messages_sent < 150


@pytest.mark.parametrize("transport", ["reliable", "datagram"])
@pytest.mark.parametrize("kind", [RotatingToken, NumbersWhateverIsMissing])
def test_who_numbers_waits_for_those_who_are_behind(kind: type[RotatingToken], transport: str) -> None:
    """What the token calls newest is never far from what it calls stable, and so nobody holds more."""
    behind, held = 0, 0

    class Spied(kind):  # type: ignore[misc,valid-type]
        def on_token(self, sender: ProcessId, token: Token) -> None:
            nonlocal behind, held
            super().on_token(sender, token)
            behind, held = max(behind, token.newest - token.stable), max(held, len(self.held))

    options = {"transport": transport, "window": "1"}
    plans = tuple(Plan(f"g.{1 + i % 2}", (1 + i) * MILLISECOND, ("g",)) for i in range(150))
    outcome = simulate(
        Scenario(protocol="token", options=options, groups={"g": 3}, plans=plans, faults=(down(150),)), Spied
    )
    assert outcome.violations == []
    assert outcome.deliveries == 450
    most = 3 * TokenOptions().ahead
    assert max(behind, held) <= most if kind is RotatingToken else min(behind, held) > 3 * most


def test_each_member_has_a_share_of_its_own_in_what_may_be_missing() -> None:
    """g.1 and g.2 have far more to say than there is room for; what g.3 says is numbered all the same."""
    many = tuple(Plan(f"g.{1 + i % 2}", 0, ("g",)) for i in range(60))
    plans = (*many, Plan("g.3", 100 * MILLISECOND, ("g",)))
    scenario = Scenario(protocol="token", options={"window": "1"}, groups={"g": 3}, plans=plans, faults=(down(500),))
    outcome = simulate(scenario)
    assert outcome.violations == []
    delivered = {row.message: row.time_ns for row in outcome.rows if row.kind == "deliver" and row.process == "g.2"}
    assert delivered["g.3:1"] < 200 * MILLISECOND
    assert sum(at < 500 * MILLISECOND for at in delivered.values()) < 20, "most of the others wait"


def test_a_small_world_is_searched_to_its_end() -> None:
    plans = (("g.1", ("g",)), ("g.2", ("g",)), ("c", ("g",)))
    found = explore(Scope(protocol="token", groups={"g": 2}, plans=plans, restarts=True, shuffle=True))
    assert found.complete
    assert found.violations == []


def test_the_token_is_not_causal_across_groups() -> None:
    """Each group has its own token: a run that keeps the promise of causal order away."""
    outcome = simulate(random_scenario(RotatingToken, 292))
    assert outcome.violations == []
    assert check_run(msgspec.structs.replace(outcome.facts, promises=["causal"]), outcome.rows)
