"""A receipt that rests on the word of others waits for no sync of its own; one that needs the own word does."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.core.buffers import Buffers
from antiphon.core.effects import Assured, Send
from antiphon.core.host import Host
from antiphon.core.inputs import Begin, Receive, Submit
from antiphon.core.model import GroupId, ProcessId, Topology
from antiphon.core.process import Process
from antiphon.core.requests import encode_request
from antiphon.protocols.primcast import Primcast
from antiphon.simulation.disk import Disk

GROUPS = Topology.sized({"g": 3})


class AssuresBeforeItsOwnVoteIsDurable(Primcast):
    """Also where it acknowledges in the same input."""

    def settle(self, *, early: bool = False) -> None:
        super().settle(early=True)


class Seen:
    """What left a host."""

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.assured: list[Assured] = []
        self.turns = 0

    def on_send(self, send: Send, note: Any) -> None:
        self.sends.append(send)

    def on_assured(self, assured: Assured) -> None:
        self.assured.append(assured)

    def on_turns(self, turns: Any, *, replayed: bool) -> None:
        self.turns += len(turns)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Member:
    def __init__(self, name: str, protocol: type[Primcast]) -> None:
        self.me = ProcessId(name)
        self.disk, self.seen = Disk(0), Seen()
        self.host = Host(Process(self.me, GROUPS, protocol), self.disk, self.seen)
        self.host.take(Begin(0))
        self.sync()

    def sync(self) -> None:
        self.host.end_turn(1)
        self.disk.begin_sync()
        self.host.durable(self.disk.sync_done())

    def submit(self) -> None:
        request = encode_request("client", 0, 0, (b"x",))
        self.host.take(Submit(1, (GroupId("g"),), Buffers(request)))
        self.sync()

    def get(self, source: Member) -> None:
        """All that the other has sent to this one, without a sync."""
        for send in source.seen.sends:
            for to, number in zip(send.to, send.numbers, strict=True):
                if to == self.me:
                    self.host.take(Receive(1, source.me, send.transport, number, Buffers(bytes(send.frame))))
        source.seen.sends.clear()
        self.host.end_turn(1)
        self.host.release_early()


def primary_hears_a_vote() -> Member:
    primary, follower = Member("g.1", Primcast), Member("g.2", Primcast)
    primary.submit()
    follower.get(primary)
    follower.sync()
    primary.get(follower)
    return primary


def test_an_acknowledgement_of_another_needs_no_sync() -> None:
    primary = primary_hears_a_vote()
    assert len(primary.seen.assured) == 1
    assert primary.host.held  # the rest of what came of it waits, and so does its row in the trace
    turns = primary.seen.turns
    primary.sync()
    assert len(primary.seen.assured) == 1
    assert primary.seen.turns > turns
    assert not primary.host.held


def test_if_the_acknowledgement_is_forgotten_the_receipt_comes_again_with_it() -> None:
    primary = primary_hears_a_vote()
    del primary.disk.inputs[primary.disk.durable :]  # as in a crash
    returned = Seen()
    again = Host(Process(primary.me, GROUPS, Primcast), primary.disk, returned)
    again.replay(primary.disk.replay())
    assert again.process.state.assurances.waiting
    follower = Member("g.2", Primcast)
    for send in [s for box in again.outboxes.values() for _, s in box.frames_from(1)][:1]:
        follower.host.take(Receive(1, primary.me, Primcast.transport, 1, Buffers(bytes(send))))
    follower.sync()
    primary.host, primary.seen = again, returned
    primary.get(follower)
    assert len(returned.assured) == 1


def test_it_waits_for_all_inputs_before_it() -> None:
    primary, follower = Member("g.1", Primcast), Member("g.2", Primcast)
    primary.submit()
    follower.get(primary)
    follower.sync()
    request = encode_request("other", 0, 0, (b"y",))
    primary.host.take(Submit(1, (GroupId("g"),), Buffers(request)))
    primary.get(follower)
    assert primary.seen.assured == []
    primary.sync()
    assert len(primary.seen.assured) == 1


@pytest.mark.parametrize(("protocol", "waits"), [(Primcast, True), (AssuresBeforeItsOwnVoteIsDurable, False)])
def test_a_member_whose_own_vote_is_needed_waits_for_its_disk(protocol: type[Primcast], waits: bool) -> None:
    primary, follower = Member("g.1", protocol), Member("g.2", protocol)
    follower.submit()
    primary.get(follower)
    primary.sync()
    follower.get(primary)
    assert (not follower.seen.assured) is waits
    follower.sync()
    assert len(follower.seen.assured) == 1
