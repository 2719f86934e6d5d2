"""A host, a driver or a session that breaks its contract is caught, by the property that it breaks."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from antiphon.core import Buffers, Host, Message, Process
from antiphon.core.effects import Reply
from antiphon.core.host import Turn
from antiphon.core.inputs import AnyInput
from antiphon.core.keys import Key
from antiphon.core.requests import Request, encode_request, parse_request, requests_in
from antiphon.core.sessions import Session, SessionId, Sessions
from antiphon.protocols.skeen import Skeen
from antiphon.simulation import INVARIANT, Scenario, run, simulate, site, world
from antiphon.simulation.campaign import scenarios
from antiphon.simulation.clients import ClientStream, MemberClient
from antiphon.simulation.links import Link
from antiphon.simulation.site import Site
from antiphon.simulation.world import World

SEEDS = 300
RETURNING = {"takeover": "false"}  # everybody who crashes comes back: what a member took is never gone with it


def through_members() -> list[Scenario]:
    return [scenario for scenario in islice(scenarios(Skeen, 0, RETURNING), SEEDS) if scenario.through_members]


def broken_by(properties: set[str], drawn: list[Scenario] | None = None) -> bool:
    """Whether some run breaks one of these; a run may break others too, as a consequence."""
    for scenario in drawn if drawn is not None else islice(scenarios(Skeen, 0, RETURNING), SEEDS):
        if properties & {violation.property for violation in simulate(scenario).violations}:
            return True
    return False


# The host -------------------------------------------------------------------------------------------------------------


class ReleasesTooEarly(Host):
    """Does not wait for the disk."""

    def take(self, happened: AnyInput, note: Any = None) -> None:
        super().take(happened, note)
        self.durable(self.next_index)


class AcknowledgesTooEarly(Host):
    """Says that it holds what is not durable yet."""

    def take(self, happened: AnyInput, note: Any = None) -> None:
        super().take(happened, note)
        turn = self._held[-1]
        if turn.channel is not None:
            self.received[turn.channel] = turn.held
            self.fresh[turn.channel] = None


class ForgetsItsOutboxes(Host):
    """A restart begins with the frames of what it replays, and without those of its snapshot."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        for box in self.outboxes.values():
            box.acknowledge(box.sent)


@pytest.mark.parametrize("kind", [ReleasesTooEarly, AcknowledgesTooEarly, ForgetsItsOutboxes])
def test_a_host_that_breaks_its_contract_is_caught(kind: type[Host], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "Host", kind)
    assert broken_by({INVARIANT, "validity", "uniform_agreement", "total_order", "acyclic_order", "integrity"})


class RepliesTooEarly(Host):
    """Gives a client its receipt before the request is durable."""

    def take(self, happened: AnyInput, note: Any = None) -> None:
        super().take(happened, note)
        turn = self._held[-1]
        replies = [effect for effect in turn.effects if isinstance(effect, Reply)]
        turn.effects = [effect for effect in turn.effects if not isinstance(effect, Reply)]
        for reply in replies:
            self.outside.on_reply(reply)
            self.outside.on_turns([Turn(turn.index, happened, reply.seq, 0, [reply])], replayed=False)


class MortalClient(MemberClient):
    """Dies with the first member that crashes under it, so that nobody sends again what was lost."""

    dead = False

    def _on_crash(self, crashed: Site) -> None:
        self.dead = self.dead or any(stream.member is crashed for stream in self.streams.values())

    def _hand_over(self, stream: ClientStream, *requests: bytes) -> None:
        if not self.dead:
            super()._hand_over(stream, *requests)

    def _look(self, stream: ClientStream) -> None:
        if not self.dead:
            super()._look(stream)


def test_receipts_before_the_sync_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lives would send again, and hide it."""
    monkeypatch.setattr(run, "MemberClient", MortalClient)
    drawn = through_members()
    assert not any(simulate(scenario).violations for scenario in drawn)
    monkeypatch.setattr(site, "Host", RepliesTooEarly)
    assert broken_by({"receipts"}, drawn)


class ForgetsToResend(World):
    def reconnect(self, link: Link) -> None:
        pass


def test_a_driver_that_does_not_resend_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "World", ForgetsToResend)
    assert broken_by({"validity", "uniform_agreement"})


# What is delivered ----------------------------------------------------------------------------------------------------


class Corrupts(Process):
    """One member flips a bit of a payload on the way to its application."""

    def deliver(self, m: Message, key: Key | None, *, early: bool = False) -> None:
        if self.me == "g1.1":
            body = bytes(m.body)
            m = Message(m.id, m.destinations, m.count, Buffers(body[:-1] + bytes([body[-1] ^ 1])))
        super().deliver(m, key, early=early)


class Swaps(Process):
    """One member swaps the first two payloads of every request, which are of the same size."""

    def deliver(self, m: Message, key: Key | None, *, early: bool = False) -> None:
        if self.me == "g1.1":
            bodies = [
                encode_request(r.client, r.first, r.settled, _swapped(list(r.payloads()))) for r in requests_in(m.body)
            ]
            m = Message(m.id, m.destinations, m.count, Buffers(*bodies))
        super().deliver(m, key, early=early)


def _swapped(payloads: list[bytes]) -> list[bytes]:
    return [*payloads[1:2], payloads[0], *payloads[2:]]


@pytest.mark.parametrize("kind", [Corrupts, Swaps])
def test_payloads_that_change_on_the_way_are_caught(kind: type[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "Process", kind)
    assert broken_by({"integrity"})


# Sessions -------------------------------------------------------------------------------------------------------------


def test_clients_through_members_are_served_exactly_once_and_in_order() -> None:
    retried = 0
    for scenario in through_members():
        outcome = simulate(scenario)
        assert outcome.violations == []
        sent: dict[tuple[str, ...], int] = {}
        for plan in scenario.plans:
            session = (plan.sender, *sorted(plan.destinations))
            sent[session] = sent.get(session, 0) + plan.payloads
        faulty = outcome.facts.faulty
        for group, members in outcome.facts.groups.items():
            for member in members:
                rows = [row for row in outcome.rows if row.kind == "deliver" and row.process == member]
                got: dict[tuple[str, ...], int] = {}
                for row in rows:
                    for cell in row.requests or ():
                        session = (cell.client, *sorted(row.destinations or ()))
                        got[session] = got.get(session, 0) + cell.payloads
                wanted = {session: count for session, count in sent.items() if group in session[1:]}
                assert member in faulty or got == wanted
        made = [
            (cell.client, row.destinations, cell.first)
            for row in outcome.rows
            if row.kind == "multicast"
            for cell in row.requests or ()
        ]
        retried += len(made) > len(set(made))
    assert retried > 20, "retries through other members happened"


def admits_everything(table: Sessions, session: SessionId, request: Request, **how: bool) -> list[Request]:
    """Retries are delivered again."""
    return [request]


def admits_out_of_order(table: Sessions, session: SessionId, request: Request, **how: bool) -> list[Request]:
    """A request does not wait for its predecessor; repeats are still dropped."""
    known = table.known.setdefault(session, Session())
    if request.first in known.waiting:
        return []
    known.waiting[request.first] = Buffers(request.data)
    return [request]


_admit = Sessions.admit


def admits_one_half(table: Sessions, session: SessionId, request: Request, **how: bool) -> list[Request]:
    """Only the first payloads of a request are delivered."""
    admitted = _admit(table, session, request, **how)
    return [
        parse_request(encode_request(r.client, r.first, r.settled, list(r.payloads())[: (r.count + 1) // 2]))
        for r in admitted
    ]


@pytest.mark.parametrize(
    ("mutant", "broken"),
    [
        (admits_everything, "integrity"),
        (admits_out_of_order, "client_order"),
        (admits_one_half, "integrity"),
        (admits_one_half, "client_order"),
    ],
)
def test_sessions_that_admit_wrongly_are_caught(mutant: Any, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "admit", mutant)
    assert broken_by({broken}, through_members())
