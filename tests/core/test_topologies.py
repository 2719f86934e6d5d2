"""Topologies that follow one another: who is in them, and what a process makes of the next."""

from __future__ import annotations

from antiphon.core import GroupId, Process, ProcessId, Topology
from antiphon.core.effects import Forget, Monitor, Send
from antiphon.core.inputs import Begin, Multicast, NewRoster, decode_input, encode_input
from antiphon.protocols.primcast import Primcast

FIRST = Topology.sized({"a": 3, "b": 3})


def test_a_name_is_never_used_again() -> None:
    names, topology = set(FIRST.processes), FIRST
    for _ in range(20):
        lost = topology.members(GroupId("a"))[1]
        topology, newcomer = topology.replacing(lost)
        assert newcomer not in names
        names.add(newcomer)
    assert topology.epoch == 20
    assert topology.members(GroupId("b")) == FIRST.members(GroupId("b"))


def test_the_newcomer_has_the_place_of_the_one_that_is_gone() -> None:
    topology, newcomer = FIRST.replacing(ProcessId("a.2"))
    assert topology.members(GroupId("a")) == ("a.1", "a.4", "a.3")
    assert (topology.since(GroupId("a")), topology.joined) == (1, {"a.4": 1})
    assert topology.since(GroupId("b")) == 0
    assert topology.gone_since(FIRST) == ("a.2",)
    after, another = topology.replacing(newcomer)
    assert (another, after.joined, after.gone_since(FIRST)) == ("a.5", {"a.5": 2}, ("a.2",))


def test_whoever_is_called_like_a_member_and_is_none_is_a_stranger() -> None:
    topology, newcomer = FIRST.replacing(ProcessId("a.2"))
    assert FIRST.is_stranger(newcomer)
    assert topology.is_stranger(ProcessId("a.2"))
    assert not any(topology.is_stranger(ProcessId(name)) for name in ("a.1", "a.4", "c1", "c.1", "client-1"))


def test_a_topology_goes_through_a_journal_and_a_snapshot() -> None:
    topology, _ = FIRST.replacing(ProcessId("a.2"))
    new = NewRoster(5, topology.roster)
    assert decode_input(encode_input(new).joined()) == new
    process = Process(ProcessId("a.1"), FIRST, Primcast)
    process.step(Begin(0, FIRST.roster))
    process.step(new)
    assert process.topology.groups == topology.groups
    again = Process(ProcessId("a.1"), FIRST, Primcast)
    again.restore(process.snapshot())
    assert (again.topology.groups, again.topology.epoch) == (topology.groups, 1)


def test_a_process_begins_in_the_topology_of_its_journal() -> None:
    """It is made anew with the newest one, and replays what it did in an earlier one."""
    newest, _ = FIRST.replacing(ProcessId("a.2"))
    process = Process(ProcessId("a.1"), newest, Primcast)
    process.step(Begin(0, FIRST.roster))
    assert process.topology.epoch == 0
    sends = [e for e in process.step(Multicast(0, (GroupId("a"), GroupId("b")), (b"x",))) if isinstance(e, Send)]
    process.step(NewRoster(1, newest.roster))
    assert ProcessId("b.1") in {p for send in sends for p in send.to}
    assert process.topology.epoch == 1


def test_who_was_replaced_is_forgotten() -> None:
    process = Process(ProcessId("a.1"), FIRST, Primcast)
    effects = process.step(Begin(0, FIRST.roster))
    assert [e.processes for e in effects if isinstance(e, Monitor)] == [("a.2", "a.3")]
    process.step(Multicast(0, (GroupId("a"),), (b"x",)))
    effects = process.step(NewRoster(1, FIRST.replacing(ProcessId("a.2"))[0].roster))
    assert [e.processes for e in effects if isinstance(e, Forget)] == [("a.2",)]
    assert [e.processes for e in effects if isinstance(e, Monitor)] == [("a.3", "a.4")]
    assert not any(channel.peer == "a.2" for channel in (*process.state.sent, *process.state.inboxes))


def test_an_older_topology_and_the_same_one_change_nothing() -> None:
    first, newcomer = FIRST.replacing(ProcessId("a.2"))
    second, _ = first.replacing(newcomer)
    process = Process(ProcessId("a.1"), FIRST, Primcast)
    process.step(Begin(0, FIRST.roster))
    process.step(NewRoster(1, second.roster))
    assert process.step(NewRoster(2, first.roster)) == process.step(NewRoster(2, second.roster)) == []
    assert process.topology.groups == second.groups
