"""What members delivered, beside what clients were told: lost, doubled, changed, out of order?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from typing import NamedTuple

import msgspec

from antiphon.core.errors import AntiphonError
from antiphon.core.events import Adopted, Delivered, Event
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.disk import JournalIdentity, events_of
from antiphon.soak.records import RecordLine, name_of, payload_of

SHOWN = 5  # sentences of one kind


class LoggedPayload(msgspec.Struct, frozen=True, gc=False):
    """A payload in a group's log."""

    client: str
    destinations: tuple[str, ...]
    number: int
    payload: bytes

    @property
    def name(self) -> tuple[str, tuple[str, ...], int]:
        return self.client, self.destinations, self.number


class Digest:
    """A log's payloads in their order, as one value; two that read the same have the same one."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, each: LoggedPayload) -> None:
        self.count += 1
        self._hash.update(f"{each.name} {len(each.payload)} ".encode())
        self._hash.update(each.payload)

    @property
    def value(self) -> str:
        return f"{self.count} payloads, {self._hash.hexdigest()}"


class StoppedLog(NamedTuple):
    """What a stopped process delivered, and from which position on: one that took another's place begins late."""

    begin: int
    payloads: Iterator[LoggedPayload]


def read_log(folder: ClusterFolder, process: str) -> StoppedLog:
    events = _events(folder, process)
    first = next(events, None)
    if isinstance(first, Adopted):
        return StoppedLog(first.position, _entries(events))
    return StoppedLog(0, _entries(events if first is None else chain((first,), events)))


def _entries(events: Iterable[Event]) -> Iterator[LoggedPayload]:
    for event in events:
        assert isinstance(event, Delivered), "no protocol with gaps or views is soaked"
        for request in event.requests:
            for k, payload in enumerate(request.payloads()):
                yield LoggedPayload(request.client, event.destinations, request.first + k, bytes(payload))


def _events(folder: ClusterFolder, process: str) -> Iterator[Event]:
    own = folder.process(process)
    return events_of(own.delivered, own.journal, JournalIdentity(folder.config.cluster, process, ""))


class GroupJudge:
    """Reads one log of a group, and keeps of it what the receipts and the other groups are compared with."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.digest = Digest()
        self.faults: list[str] = []
        self.places: dict[tuple[str, tuple[str, ...]], list[int]] = {}  # by session: serials by number
        self.order: list[tuple[str, tuple[str, ...], int]] = []  # what other groups deliver, too

    def read(self, log: Iterator[LoggedPayload]) -> None:
        for each in log:
            self.digest.add(each)
            self._judge(each)

    def _judge(self, each: LoggedPayload) -> None:
        session = self.places.setdefault((each.client, each.destinations), [])
        named = name_of(each.payload)
        if named is None or payload_of(*named) != each.payload:
            self.faults.append(f"{each.client}:{each.number} has other bytes in {self.group} than anybody sent.")
        serial = named[1] if named is not None else -1
        if each.number < len(session):
            self.faults.append(f"{each.client}:{each.number} is doubled in {self.group}.")
            return
        if each.number > len(session):
            self.faults.append(f"{each.client}:{each.number} stands in {self.group} where {len(session)} is due.")
            session.extend([-1] * (each.number - len(session)))
        elif session and serial <= session[-1]:
            self.faults.append(
                f"{each.client}:{each.number} is not in the order of its client's calls in {self.group}."
            )
        session.append(serial)
        if len(each.destinations) > 1:
            self.order.append(each.name)

    def judge_receipts(self, receipts: Mapping[str, Sequence[RecordLine]]) -> None:
        """Each payload that a client was promised is here, and it is the one that it sent."""
        for tag, lines in receipts.items():
            for each in lines:
                if self.group in each.destinations:
                    self._judge_receipt(tag, each)

    def _judge_receipt(self, tag: str, line: RecordLine) -> None:
        session = self.places.get((line.client, line.destinations), [])
        for k in range(line.count):
            number = line.number + k
            if number >= len(session) or session[number] == -1:
                self.faults.append(f"{line.client}:{number} of {tag} has a receipt and is lost in {self.group}.")
            elif session[number] != line.serial + k:
                self.faults.append(
                    f"{line.client}:{number} of {tag} is payload {session[number]} in {self.group}, "
                    f"where its receipt is for {line.serial + k}."
                )


def judge_order(groups: Sequence[GroupJudge]) -> list[str]:
    """Two groups deliver what both get in the same order."""
    faults = []
    for one, other in combinations(groups, 2):
        both = {one.group, other.group}
        mine = [name for name in one.order if both <= set(name[1])]
        theirs = [name for name in other.order if both <= set(name[1])]
        if mine != theirs:
            at = next((k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
            where = f"at the {at}th of them" if at is not None else f"{len(mine)} and {len(theirs)} of them"
            faults.append(f"{one.group} and {other.group} deliver what both get in different orders: {where}.")
    return faults


def judge_logs(
    folder: ClusterFolder, receipts: Mapping[str, Sequence[RecordLine]], read: Mapping[str, Digest]
) -> tuple[list[str], dict[str, int]]:
    """All faults of a cluster that is down, and how many payloads each group delivered."""
    faults: list[str] = []
    judges = []
    for group, members in folder.config.groups.items():
        judge = GroupJudge(group)
        first, *others = members
        try:
            judge.read(read_log(folder, first).payloads)
            judge.judge_receipts(receipts)
            for member in others:
                log = read_log(folder, member)
                mine = digest_of(read_log(folder, first), log.begin) if log.begin else judge.digest
                its = digest_of(log)
                if mine.value != its.value:
                    judge.faults.append(f"{first} and {member} deliver differently: {mine.value} and {its.value}.")
        except AntiphonError as error:
            judge.faults.append(f"A log of {group} cannot be read: {error}")
        if group in read and read[group].value != judge.digest.value:
            judge.faults.append(f"The reader of {group} saw {read[group].value}, its members {judge.digest.value}.")
        faults += few(judge.faults)
        judges.append(judge)
    faults += judge_order(judges)
    return faults, {judge.group: judge.digest.count for judge in judges}


def digest_of(log: StoppedLog, begin: int = 0) -> Digest:
    """Of what is in a log from a position on."""
    digest = Digest()
    for each in islice(log.payloads, max(0, begin - log.begin), None):
        digest.add(each)
    return digest


def few(sentences: Sequence[str]) -> list[str]:
    left = len(sentences) - SHOWN
    return [*sentences[:SHOWN], *([f"And {left} more like these."] if left > 0 else [])]
