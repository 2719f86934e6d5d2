"""What has the right types, but no honest peer sends: refused before it is journaled, so that no replay meets it."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.core import Buffers, Message, MessageId, Process, ProcessId, Topology, Wire
from antiphon.core.component import Component
from antiphon.core.errors import BadFrame
from antiphon.core.requests import encode_request
from antiphon.protocols import protocol_named
from antiphon.protocols.mto import RecTs as MtoRecTs
from antiphon.protocols.scalatom import History, RecTs
from antiphon.protocols.sequencer import Number, Numbered
from antiphon.protocols.token import Hand as HandToToken
from antiphon.protocols.token import Ordered as OrderedByToken
from antiphon.protocols.token import Taken as TakenByMember
from antiphon.protocols.token import Token
from antiphon.protocols.tom import GroupTimestamp, GroupTimestamps, Stamp
from antiphon.services.dag import Cast, Name
from antiphon.services.gaps import InEra
from antiphon.services.hurfin_raynal import Current
from antiphon.services.label import Label
from antiphon.services.matrix import Carried
from antiphon.services.membership import Word
from antiphon.services.reduction import Hand
from antiphon.services.reliable import Copy, Echo, Echoes, Fetch
from antiphon.services.stability import Fetch as StabilityFetch
from antiphon.services.stability import Have, Ordered, Stable, Taken
from antiphon.services.takeover import Collect, Report

TOPOLOGY = Topology.sized({"a": 2, "b": 2})
A, B = TOPOLOGY.destinations({"a"})[0], TOPOLOGY.destinations({"b"})[0]
NAME = MessageId(ProcessId("c"), 1)
BODY = Buffers(encode_request("c", 1, 0, (b"x", b"y")))
GOOD = Label("c", (A,), (1,))
BAD_LABELS = [
    Label("c", (B,), (1,)),
    Label("c", (), ()),
    Label("c", (A, "x"), (1, 1)),  # type: ignore[arg-type]
    Label("c", (A, A), (1, 1)),
    Label("c", (B, A), (1, 1)),
    Label("c", (A,), ()),
    Label("c", (A,), (0,)),
    Label("c", (A,), (1 << 62,)),
]


def process(name: str, **options: str) -> Process:
    return Process(ProcessId("a.1"), TOPOLOGY, protocol_named(name), options)


def part_of(process: Process, message: Wire) -> Component:
    return next(part for part in process.parts if type(message) in part.handlers)


def check(name: str, message: Wire, **options: str) -> None:
    at = process(name, **options)
    at.checks.frame(at.encode(part_of(at, message), message))


def value_of(name: str) -> bytes:
    values = {"tom": ([NAME], []), "scalatom": (NAME, 1), "mto": (NAME, 1), "ctbroadcast": [NAME]}
    return msgspec.msgpack.encode(values[name])


def labelled(name: str, label: Label) -> list[Wire]:
    """One of each message of a protocol that has a label."""
    found: list[Wire] = [Copy(Message(NAME, label.groups, 2, BODY), label), Current(label, 1, value_of(name))]
    if name != "mto":  # which stands on the eager multicast
        found += [Echo(NAME, label), Echoes([Echo(NAME, GOOD), Echo(NAME, label)]), Fetch(NAME, label)]
    if name == "tom":
        timestamp = GroupTimestamp(NAME, label, Stamp(1, B))
        found += [timestamp, GroupTimestamps([timestamp])]
    elif name == "scalatom":
        history = History(1, [(NAME, label, 0)], 1, NAME)
        found += [history, RecTs(NAME, label, 0), RecTs(NAME, GOOD, 0, history)]
    elif name == "mto":
        found += [MtoRecTs(NAME, label, 0)]
    return found


@pytest.mark.parametrize("name", ["tom", "scalatom", "mto", "ctbroadcast"])
def test_a_label_that_is_none(name: str) -> None:
    for message in labelled(name, GOOD):
        check(name, message)
    for label in BAD_LABELS:
        for message in labelled(name, label):
            with pytest.raises(BadFrame):
                check(name, message)


def test_a_copy_that_is_labelled_for_other_groups_than_its_message() -> None:
    for destinations, label in (((A, B), GOOD), ((A,), Label("c", (A, B), (1, 1)))):
        for name in ("tom", "ctbroadcast"):
            with pytest.raises(BadFrame):
                check(name, Copy(Message(NAME, destinations, 2, BODY), label))


def test_a_copy_that_is_not_labelled_for_everybody() -> None:
    check("nonminimal", Copy(Message(NAME, (B,), 2, BODY), Label("c", (A, B), (1, 1))))
    with pytest.raises(BadFrame):
        check("nonminimal", Copy(Message(NAME, (A,), 2, BODY), GOOD))


@pytest.mark.parametrize("name", ["tom", "mto"])
def test_a_body_that_is_not_what_its_message_says(name: str) -> None:
    for count, body in ((1, BODY), (3, BODY), (2, Buffers(bytes(BODY)[:-1])), (1, Buffers(b"x"))):
        copy = Copy(Message(NAME, (A,), count, body), GOOD)
        with pytest.raises(BadFrame):
            check(name, copy)
        if name == "mto":
            at = process(name)
            with pytest.raises(BadFrame):
                check(name, Carried((NAME,), 1, [0] * 16, at.encode(part_of(at, copy), copy)))


@pytest.mark.parametrize("name", ["tom", "scalatom", "mto", "ctbroadcast"])
def test_a_value_that_the_protocol_cannot_decide_on(name: str) -> None:
    no_text = value_of(name).replace(b"c", b"\x80")
    for value in (b"", b"\xc1", msgspec.msgpack.encode("x"), value_of(name) + b"x", no_text):
        with pytest.raises(BadFrame):
            check(name, Current(GOOD, 1, value))


@pytest.mark.parametrize("number", [-1, 1 << 62, (1 << 64) - 1])
def test_numbers_that_nobody_counts_to(number: int) -> None:
    """One more than what can be encoded would end the process, and each of its replays."""
    history = History(1, [(NAME, GOOD, number)], 1, NAME)
    cast = Cast(Name(ProcessId("a.2"), number), "agreed", (), Message(NAME, (A,), 2, BODY))
    at = process("mto")
    inside = at.encode(part_of(at, MtoRecTs(NAME, GOOD, 0)), MtoRecTs(NAME, GOOD, 0))
    forged: dict[str, list[Wire]] = {
        "mto": [MtoRecTs(NAME, GOOD, number), Carried((NAME,), number, [0] * 16, inside)],
        "scalatom": [RecTs(NAME, GOOD, number), RecTs(NAME, GOOD, 0, history), history, History(number, [], 1, NAME)],
        "tom": [GroupTimestamp(NAME, GOOD, Stamp(number, B)), Current(GOOD, number, value_of("tom"))],
        "toto": [cast, Word((), ProcessId("a.2"), number)],
    }
    forged["mto"] += [Carried((NAME,), 1, [0] * 15 + [number], inside)]
    for name in ("mto", "scalatom"):
        forged[name].append(Current(GOOD, 1, msgspec.msgpack.encode((NAME, number))))
    forged["tom"].append(Current(GOOD, 1, msgspec.msgpack.encode(([], [(NAME, (number, "b"))]))))
    for name, messages in forged.items():
        for message in messages:
            with pytest.raises(BadFrame):
                check(name, message, **({"membership": "true"} if isinstance(message, Word) else {}))


def test_an_instance_of_several_groups_where_a_group_decides_alone() -> None:
    label = Label("", (A, B), (1, 1))
    check("scalatom", Current(label, 1, value_of("scalatom")))
    with pytest.raises(BadFrame):
        check("tom", Current(label, 1, value_of("tom")))


@pytest.mark.parametrize(
    "id", [MessageId(ProcessId("c"), -1), MessageId(ProcessId("c\0"), 1), MessageId(ProcessId(""), 1)]
)
@pytest.mark.parametrize("name", ["tom", "reliable"])
def test_a_message_whose_name_nobody_gives(name: str, id: MessageId) -> None:
    with pytest.raises(BadFrame):
        check(name, Copy(Message(id, (A,), 2, BODY), GOOD))


def test_a_history_for_a_process_that_has_no_group() -> None:
    at = Process(ProcessId("c"), TOPOLOGY, protocol_named("scalatom"))
    message = History(1, [], 1, NAME)
    with pytest.raises(BadFrame):
        at.checks.frame(at.encode(at.protocol, message))


def test_what_a_causal_channel_carries() -> None:
    at = process("mto")
    causal = next(part for part in at.parts if Carried in part.handlers)
    inner = at.encode(part_of(at, MtoRecTs(NAME, GOOD, 1)), MtoRecTs(NAME, GOOD, 1))
    matrix = [0] * 16
    check("mto", Carried((NAME,), 1, matrix, inner))
    forged = at.encode(part_of(at, MtoRecTs(NAME, BAD_LABELS[0], 1)), MtoRecTs(NAME, BAD_LABELS[0], 1))
    nested = at.encode(causal, Carried((NAME,), 1, matrix, inner))
    for carried in (
        Carried((NAME,), 1, matrix[1:], inner),
        Carried((NAME,), 1, matrix, Buffers()),
        Carried((NAME,), 1, matrix, Buffers(b"\xff\x00")),
        Carried((NAME,), 1, matrix, forged),
        Carried((NAME,), 1, matrix, nested),
    ):
        with pytest.raises(BadFrame):
            check("mto", carried)


@pytest.mark.parametrize("name", ["arrow", "combining", "hybrid"])
def test_what_no_member_sends_in_an_era(name: str) -> None:
    members = [ProcessId(f"a.{i}") for i in range(1, 5)]
    topology = Topology.sized({"a": 4, "b": 2})
    at = Process(members[0], topology, protocol_named(name), {"gaps": "true"})
    outside = Process(ProcessId("c"), topology, protocol_named(name), {"gaps": "true"})
    eras = next(part for part in at.parts if InEra in part.handlers)
    hand = Hand(Message(NAME, (A,), 2, BODY))
    inner, other = at.encode(part_of(at, hand), hand), members[1]
    elsewhere, wrong = Hand(Message(NAME, (B,), 2, BODY)), Hand(Message(NAME, (A,), 3, BODY))

    def check_in_era(at: Process, dead: tuple[ProcessId, ...], frame: Buffers) -> None:
        at.checks.frame(at.encode(part_of(at, InEra((), (), inner)), InEra((NAME,), dead, frame)))

    for dead in ((), (other,), tuple(members[1:])):
        check_in_era(at, dead, inner)
        with pytest.raises(BadFrame):
            check_in_era(outside, dead, inner)
    for dead in ((at.me,), (ProcessId("b.1"),), (ProcessId("c"),), (other, other), (members[2], other)):
        with pytest.raises(BadFrame):
            check_in_era(at, dead, inner)
    for frame in (
        Buffers(),
        Buffers(b"\xff\x00"),
        Buffers(bytes(inner)[:-1]),
        at.encode(eras, InEra((NAME,), (), inner)),
        at.encode(part_of(at, elsewhere), elsewhere),
        at.encode(part_of(at, wrong), wrong),
    ):
        with pytest.raises(BadFrame):
            check_in_era(at, (), frame)


def test_what_no_sequencer_sends() -> None:
    m, elsewhere = Message(NAME, (A,), 2, BODY), Message(NAME, (B,), 2, BODY)
    wrong = Message(NAME, (A,), 3, BODY)
    for good in (Number(1, m), Ordered(1, 1, 1, m), Report(1, 1, [Ordered(0, 1, 1, m)]), Stable(0, 0, 0), Taken(1)):
        check("sequencer", good, takeover="true")
    for bad in (
        Number(0, m),
        Number(1, elsewhere),
        Number(1, wrong),
        Ordered(2, 1, 1, m),
        Ordered(-1, 1, 1, m),
        Ordered(0, 0, 1, m),
        Ordered(0, 1, 1, elsewhere),
        Numbered(0, 1, 0, NAME),
        Have(0, -1),
        Stable(0, -1, 0),
        Stable(0, 0, -1),
        Taken(0),
        Collect(2, 0),
        Report(0, 1, [Ordered(0, 1, 1, elsewhere)]),
        Report(0, 1, [Ordered(0, 1, 1, wrong)]),
        Number(1 << 62, m),
        Ordered(0, 1 << 62, 1, m),
        Have(0, 1 << 62),
        Stable(0, 0, 1 << 62),
    ):
        with pytest.raises(BadFrame):
            check("sequencer", bad, takeover="true")


def test_what_a_sequencer_does_not_do_with_other_options() -> None:
    """Obeyed, a COLLECT would end the leadership of a sequencer that nobody follows; STABLE names what is not held."""
    m = Message(NAME, (A,), 2, BODY)
    for message in (Collect(1, 0), Report(0, 1, [Ordered(0, 1, 1, m)])):
        for options in ({}, {"numbering": "uniform"}, {"transport": "datagram"}):
            with pytest.raises(BadFrame, match="takes over"):
                check("sequencer", message, **options)
    for message in (Have(0, 1), Stable(0, 1, 1), StabilityFetch(0, 1)):
        check("sequencer", message, numbering="uniform")
        for options in ({}, {"variant": "broadcast"}, {"causal": "true"}):
            with pytest.raises(BadFrame, match="who has what"):
                check("sequencer", message, **options)


def test_what_no_holder_of_a_token_sends() -> None:
    m, elsewhere = Message(NAME, (A,), 2, BODY), Message(NAME, (B,), 2, BODY)
    here, there = ProcessId("a.2"), ProcessId("b.1")
    for good in (HandToToken(1, m), OrderedByToken(1, m), Token(1, 2, 1, 1, [(here, 2)]), TakenByMember(1)):
        check("token", good)
    for bad in (
        HandToToken(0, m),
        HandToToken(1, elsewhere),
        OrderedByToken(0, m),
        OrderedByToken(1, elsewhere),
        Token(0, 0, 0, 0, []),
        Token(1, 1, 2, 0, []),
        Token(1, 1, 0, 2, []),
        Token(1, 1, -1, 0, []),
        Token(1, 1, 0, -1, []),
        Token(1, 1, 0, 0, [(there, 1)]),
        Token(1, 1, 0, 0, [(here, 2)]),
        Token(1, 1, 0, 0, [(here, 1)] * 1000),
        TakenByMember(0),
        Token(1 << 62, 0, 0, 0, []),
        Token(1, 1 << 62, 0, 0, []),
        OrderedByToken(1 << 62, m),
    ):
        with pytest.raises(BadFrame):
            check("token", bad)
