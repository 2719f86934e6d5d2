"""Which faults strike a run, and where they hurt: among those who take part, at moments when they do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Literal

from antiphon.core.declaration import Watched
from antiphon.core.model import GroupId, ProcessId, Topology
from antiphon.simulation.values import (
    MILLISECOND,
    Crash,
    Depose,
    Distrust,
    Fault,
    Partition,
    Pause,
    Plan,
    Replace,
    Slow,
    WrongSuspicion,
)

CrashMoment = int | Literal["delivery", "receipt"] | None  # see Crash.effects


SENT_NS = 2 * MILLISECOND  # what a process sent so long ago is still under way, or some of it
FETCHED_NS = 25 * MILLISECOND  # and so long after a message reached one process alone it still is nowhere else


class FaultKind(StrEnum):
    CRASH = "crash"
    PAUSE = "pause"
    SLOW = "slow"
    PARTITION = "partition"
    SUSPICION = "suspicion"


def place_faults(
    rng: random.Random,
    processes: Sequence[str],
    kinds: Sequence[FaultKind],
    count: int,
    span_ns: int,
    topology: Topology,
    *,
    returning: bool,
    permanent: bool,
    effects_max: int = 4,
    plans: Sequence[Plan] = (),
    watched: Watched = Watched.MEMBERS,
    all_but_one: bool = False,
    sends_max: int | None = None,
    timeout: bool = False,
    last_words: random.Random | None = None,
    broadcast: bool = False,
    leaders: random.Random | None = None,
    receipts: random.Random | None = None,
    replaced: random.Random | None = None,
    forgetting: random.Random | None = None,
) -> tuple[Fault, ...]:
    """About ``count`` faults in the course of a workload. All end but crashes for good and some distrust.

    ``returning``: a crashed process may restart from its journal. ``permanent``: a minority of each group, and any
    sender outside, may crash for good; ``all_but_one``: even all members of a group but one. ``plans``: the workload,
    where faults may be aimed at its multicasts. ``sends_max``: no process sends more than so much at once, as a rule.
    ``timeout``: suspicions come of partitions, so there are more of these, and no suspicion lasts for ever.
    ``last_words``: decides whether somebody lets others count on a message that nobody else will ever have; a stream of
    its own, so that all else which comes of a seed is what it was before. ``broadcast``: there all agree on everything.
    ``leaders``: decides what befalls those who lead groups, a stream of its own as well; None where nobody does.
    ``receipts``: decides who crashes when it has just assured a client; None where nobody does that.
    ``replaced``: decides who is replaced by somebody new; None where nobody can be.
    ``forgetting``: decides who crashes when it has said what is not durable; None where nobody says such things.
    """
    placing = Placing(rng, processes, span_ns, topology, plans, effects_max, watched)
    placing.returning, placing.permanent = returning, permanent
    placing.sends_max, placing.timeout, placing.broadcast = sends_max, timeout, broadcast
    if all_but_one:
        placing.mortal = {group: len(members) - 1 for group, members in topology.groups.items()}
    if FaultKind.CRASH in kinds and permanent and rng.random() < 0.5:
        placing.silence(rng.randrange(max(span_ns, 1)), MILLISECOND)
    while kinds and len(placing.faults) < count and placing.tries < 4 * count:
        placing.place(FaultKind.PARTITION if timeout and rng.random() < 0.4 else rng.choice(kinds))
    if leaders is not None and kinds:
        placing.depose(leaders)
    if receipts is not None and FaultKind.CRASH in kinds:
        placing.end_with_a_receipt(receipts)
    if last_words is not None and FaultKind.CRASH in kinds:
        placing.last_words(last_words)
    if replaced is not None and permanent and FaultKind.CRASH in kinds:
        placing.replace(replaced)
    if forgetting is not None and FaultKind.CRASH in kinds:
        placing.forget(forgetting)
    return tuple(sorted(placing.faults, key=lambda fault: fault.at))


class Placing:
    """The faults of one run, as they are chosen one after the other."""

    def __init__(
        self,
        rng: random.Random,
        processes: Sequence[str],
        span_ns: int,
        topology: Topology,
        plans: Sequence[Plan],
        effects_max: int,
        watched: Watched,
    ) -> None:
        self.rng = rng
        self.processes = list(processes)
        self.span_ns = max(span_ns, 1)
        self.topology = topology
        self.plans = [plan for plan in plans if plan.sender in self.processes]
        self.effects_max = effects_max
        self.watched = watched
        self.returning = self.permanent = False
        self.sends_max: int | None = None
        self.timeout = self.broadcast = False
        self.faults: list[Fault] = []
        self.tries = 0
        # Who stays, and is trusted by all in the end: one member of each group, for what a failure detector promises.
        # Seldom the first one, who coordinates the first round of a consensus.
        self.steady = {rng.choice((*members, *members[1:], *members[1:])) for members in topology.groups.values()}
        # How many of a group may still crash for good.
        self.mortal = {group: (len(members) - 1) // 2 for group, members in topology.groups.items()}
        self.gone: set[str] = set()
        self.lost_twice: set[str] = set()  # groups that lose somebody more after a replacement

    @property
    def hands_over(self) -> bool:
        """Whether who is outside hands a message to a single member, as a rule: with one group, or with views."""
        return self.sends_max is not None or self.timeout

    def place(self, kind: FaultKind) -> None:
        self.tries += 1
        rng = self.rng
        at = rng.randrange(self.span_ns)
        lasts = rng.randrange(MILLISECOND, max(self.span_ns // 3, 4 * MILLISECOND))
        process = rng.choice([p for p in self.processes if p not in self.gone] or self.processes)
        if kind is FaultKind.CRASH:
            rng.choice((self._crash, self._crash_amid, self._crash_after_delivery, self.silence))(at, lasts)
        elif kind is FaultKind.PAUSE:
            self.faults.append(Pause(process, at, lasts))
        elif kind is FaultKind.SLOW:
            self.faults.append(Slow(process, at, lasts, rng.randrange(100_000, 5 * MILLISECOND)))
        elif kind is FaultKind.PARTITION:
            self.faults.append(self._partition(at, lasts + rng.randrange(self.span_ns) if self.timeout else lasts))
        else:
            mistakes = (self._suspicion, self._storm, self._distrust)
            rng.choice(mistakes[:2] if self.timeout else mistakes)(at, lasts)

    # Crashes --------------------------------------------------------------------------------------------------------

    def _crash(self, at: int, lasts: int) -> None:
        self._add_crash(self._victim(self.processes), at, lasts, None)

    def _crash_amid(self, at: int, lasts: int) -> None:
        """Of those who send to many at once: senders, and the first of each group, who coordinates it."""
        first = [str(members[0]) for members in self.topology.groups.values() if len(members) > 1]
        senders = [plan.sender for plan in self.plans if plan.at >= at] or self.processes
        chosen = self._victim(self.rng.choice((first or senders, senders)))
        effects = self.rng.randint(1, self.rng.randint(1, self.effects_max))
        if self.sends_max is not None:  # one group
            effects = min(effects, self.sends_max)
        if self.hands_over and chosen is not None and self._group_of(chosen) is None:
            chosen = next((p for p in first if p not in self.gone and (self.returning or self._may_go(p))), None)
        self._add_crash(chosen, at, lasts, effects)

    def _crash_after_delivery(self, at: int, lasts: int) -> None:
        self._add_crash(self._victim(self._members()), at, lasts, "delivery")

    def silence(self, at: int, lasts: int) -> None:
        """A message of which few hear, and they are gone before they tell: its sender crashes while it sends it, when
        it has just sent it, or when it has delivered it itself; and so do those whom it reached."""
        aims = [plan for plan in self.plans if self._may_go(plan.sender) and self._may_go(self._first_reader(plan))]
        if not aims:
            self._crash_after_delivery(at, lasts)
            return
        plan = self.rng.choice(aims)
        destinations = self.topology.destinations(plan.destinations)
        if self._group_of(plan.sender) in destinations:
            self._end_soon(plan.sender, plan.at, SENT_NS)
            return
        reader = self._first_reader(plan)
        if self.timeout:  # the sender has one frame to send, the reader one for each machine
            self._add_crash(plan.sender, plan.at + 1, None, None)
            self._add_crash(reader, plan.at, None, "delivery" if self.rng.random() < 0.4 else 1)
            return
        self._add_crash(plan.sender, max(plan.at - 1, 0), None, 1)
        self._end_soon(reader, plan.at, FETCHED_NS)

    def last_words(self, rng: random.Random) -> None:
        """One member alone gets a message: the sender is cut off from all others, and crashes before it can reach them.
        That member tells the others about the message, and is gone too, as a rule before they have asked for it.

        Where anybody counts on a message that too few hold, either that member has delivered it, or the others wait for
        it for ever, also with what those send who stay."""
        aims = list(self._lonely())
        if not aims or rng.random() < 0.2:
            return
        plan, number, reader = rng.choice(aims[: len(aims) // 2 + 1])  # early: later on much else comes before it
        lasts = rng.randrange(5 * MILLISECOND, 25 * MILLISECOND)
        self._bury(plan.sender)
        self._bury(reader)
        self.faults = [f for f in self.faults if not (isinstance(f, Crash) and f.process in (plan.sender, reader))]
        self.faults += [
            Partition((plan.sender,), plan.at, lasts + 1, bridge=reader),
            Crash(plan.sender, plan.at + lasts),
            Crash(reader, plan.at, None, rng.choice((2, 3, 3, 4)), f"{plan.sender}:{number}"),
        ]

    def _lonely(self) -> Iterator[tuple[Plan, int, str]]:
        """Plans of senders that may go, which of its sender's plans each is, and a member that may be the only one to
        get it: one who coordinates an agreement on it. Somebody stays who sends to the same members later."""
        numbers: dict[str, int] = {}
        made: set[tuple[str, int]] = set()
        for index, plan in enumerate(self.plans):
            numbers[plan.sender] = numbers.get(plan.sender, 0) + 1
            is_first = (plan.sender, plan.at) not in made  # of those that its sender is to make at that time
            made.add((plan.sender, plan.at))
            if not is_first or not self._goes(plan.sender):
                continue
            staying = [p for p in self.plans[index:] if p.sender not in self.gone and p.sender != plan.sender]
            for group in list(self.topology.groups)[:1] if self.broadcast else plan.destinations:
                first = str(self.topology.groups[GroupId(group)][0])
                stay = any(self.broadcast or group in p.destinations for p in staying if p.sender != first)
                if stay and group != self._group_of(plan.sender) and self._goes(first):
                    yield plan, numbers[plan.sender], first

    def _goes(self, process: str) -> bool:
        return process in self.gone or self._may_go(process)

    def _first_reader(self, plan: Plan) -> str:
        """Who gets a message first, and may be the only one: its sender, where that is an addressee."""
        addressees = self.topology.addressees(self.topology.destinations(plan.destinations))
        return plan.sender if plan.sender in addressees else str(addressees[0])

    def _end_soon(self, process: str, at: int, within_ns: int) -> None:
        after_delivery = self.rng.random() < 0.4
        moment: CrashMoment = "delivery" if after_delivery else None
        self._add_crash(process, at if after_delivery else at + self.rng.randrange(within_ns), None, moment)

    def _victim(self, candidates: Sequence[str]) -> str | None:
        able = [p for p in candidates if p not in self.gone and (self.returning or self._may_go(p))]
        return self.rng.choice(able) if able else None

    def _may_go(self, process: str) -> bool:
        """Whether the process may crash for good."""
        group = self._group_of(process)
        if not self.permanent or process not in self.processes or process in self.steady or process in self.gone:
            return False
        return group is None or self.mortal[group] > 0

    def _add_crash(self, process: str | None, at: int, lasts: int | None, effects: CrashMoment) -> None:
        if process is None:
            return
        for_good = lasts is None or (self._may_go(process) and (not self.returning or self.rng.random() < 0.5))
        if for_good:
            self.gone.add(process)
            group = self._group_of(process)
            if group is not None:
                self.mortal[group] -= 1
        self.faults.append(Crash(process, at, None if for_good else lasts, effects))

    def depose(self, rng: random.Random) -> None:
        """Those who lead, one after the other: for a while whoever does then, for good whoever will, as things are."""
        ways = ("pause", "cut", "mute", "suspicion", *(("crash", "crash") if self.returning else ()))
        for _ in range(rng.randint(1, 4)):
            group = rng.choice([group for group, members in self.topology.groups.items() if len(members) > 1] or [None])
            if group is None:
                return
            at, lasts = rng.randrange(self.span_ns), rng.randrange(MILLISECOND, max(self.span_ns // 3, 4 * MILLISECOND))
            heir = next((p for p in self.topology.members(group) if p not in self.gone), None)
            if heir is not None and rng.random() < 0.5 and self._may_go(heir):
                moment: CrashMoment = rng.choice((None, "delivery", rng.randint(1, self.effects_max)))
                self._add_crash(heir, at, None, moment)
            else:
                self.faults.append(Depose(group, at, lasts, rng.choice(ways)))

    def end_with_a_receipt(self, rng: random.Random) -> None:
        """For good, if that may be: what it said must be true without it."""
        members = self._members()
        for process in rng.sample(members, min(3, len(members))):
            if self._may_go(process):
                self._add_crash(process, rng.randrange(self.span_ns // 2 + 1), None, "receipt")
            elif self.returning and process not in self.gone:
                at, lasts = rng.randrange(self.span_ns), rng.randrange(MILLISECOND, 20 * MILLISECOND)
                self.faults.append(Crash(process, at, lasts, "receipt"))

    def forget(self, rng: random.Random) -> None:
        """Those who lead at first, soon after something was sent; and once in a while all at the same time."""
        first = [str(members[0]) for members in self.topology.groups.values()]
        for _ in range(rng.randint(0, 2)):
            at = rng.choice(self.plans).at if self.plans else rng.randrange(self.span_ns)
            self._returning(rng, rng.choice(first), at + rng.randrange(3 * MILLISECOND))
        if rng.random() < 0.3:
            at = rng.randrange(self.span_ns)
            for process in self._members():
                self._returning(rng, process, at)

    def _returning(self, rng: random.Random, process: str, at: int) -> None:
        if process not in self.gone:
            moment: CrashMoment = rng.choice((None, None, rng.randint(1, self.effects_max)))
            self.faults.append(Crash(process, at, rng.randrange(MILLISECOND, 20 * MILLISECOND), moment))

    # Replacements ---------------------------------------------------------------------------------------------------

    def replace(self, rng: random.Random) -> None:
        """In half of the runs somebody who is gone, or may go, is replaced, and sometimes one more, perhaps of the same
        group. As soon as a newcomer counts, another one may go for good. What befalls others befalls newcomers, too."""
        if rng.random() < 0.5:
            return
        topology, late = self.topology, self.span_ns + 20 * MILLISECOND
        fates: list[tuple[int, str]] = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            chosen = {process for _, process in fates}
            able = [p for p in self._members() if p not in chosen and (p in self.gone or self._may_go(p))]
            able = [p for p in able if len(self._mates(p)) > 2]
            if able:
                fates.append((rng.randrange(late), rng.choice(able)))
                self._bury(fates[-1][1])
        for at, process in sorted(fates):
            topology, newcomer = topology.replacing(ProcessId(process))
            spread = rng.choice((MILLISECOND, 20 * MILLISECOND, self.span_ns))
            then, after, lingers = self._second_loss(rng, process), rng.choice((0, 60, 200)), rng.random() < 0.3
            self.faults.append(Replace(process, at, spread, then, after * MILLISECOND, lingers))
            self._befall(rng, newcomer, at, spread)

    def _bury(self, process: str) -> None:
        if process not in self.gone:
            self.gone.add(process)
            if (group := self._group_of(process)) is not None:
                self.mortal[group] -= 1

    def _second_loss(self, rng: random.Random, process: str) -> str | None:
        """Once somebody has taken the place of one who is gone, the group bears the loss of one more."""
        group = self.topology.group_of[ProcessId(process)]
        able = [
            p for p in self._members() if self._group_of(p) == group and p not in self.steady and p not in self.gone
        ]
        if group in self.lost_twice or not able or rng.random() < 0.4:
            return None
        self.lost_twice.add(group)
        self.gone.add(chosen := rng.choice(able))
        return chosen

    def _befall(self, rng: random.Random, newcomer: ProcessId, at: int, spread: int) -> None:
        for _ in range(rng.randint(0, 3)):
            begin, lasts = at + rng.randrange(spread + 20 * MILLISECOND), rng.randrange(MILLISECOND, 30 * MILLISECOND)
            other = rng.choice(self._mates(newcomer))
            ways: list[Fault] = [
                Pause(newcomer, begin, lasts),
                Slow(newcomer, begin, lasts, rng.randrange(100_000, 5 * MILLISECOND)),
                Partition((rng.choice((newcomer, other)),), begin, lasts * rng.choice((1, 5)), rng.random() < 0.5),
                Partition((other,), begin, lasts * rng.choice((1, 5)), bridge=rng.choice(self._mates(newcomer))),
                WrongSuspicion(other, newcomer, begin, lasts),
                WrongSuspicion(newcomer, other, begin, lasts),
            ]
            if self.returning:
                moment: CrashMoment = rng.choice((None, None, "delivery", rng.randint(1, self.effects_max)))
                ways += [Crash(newcomer, begin, lasts, moment)] * 3
            self.faults.append(rng.choice(ways))

    def _mates(self, process: str) -> list[str]:
        """All who are in its group in the beginning."""
        return [str(p) for p in self.topology.members(GroupId(process.rpartition(".")[0]))]

    # Links ----------------------------------------------------------------------------------------------------------

    def _partition(self, at: int, lasts: int) -> Partition:
        rng, processes = self.rng, self.processes
        side = rng.sample(processes, rng.randint(1, max(1, len(processes) - 1)))
        shape = rng.choice(("symmetric", "one-way", "bridge"))
        bridge = rng.choice(processes) if shape == "bridge" else None
        return Partition(tuple(sorted(side)), at, lasts, shape == "one-way", bridge)

    # Wrong suspicions -----------------------------------------------------------------------------------------------

    def _suspicion(self, at: int, lasts: int) -> None:
        """One process suspects another one about whom it asks."""
        group = self._group()
        process = self.rng.choice(group)
        senders = list(dict.fromkeys(plan.sender for plan in self.plans))
        others = [p for p in (senders if self.watched is Watched.SENDERS else group) if p != process]
        if others:
            self.faults.append(WrongSuspicion(process, self.rng.choice(others), at, lasts))

    def _storm(self, at: int, lasts: int) -> None:
        """All members of a group suspect everybody else for a while, so that rounds follow one another fast."""
        self.faults.append(Distrust(tuple(self._group()), (), at, lasts))

    def _distrust(self, at: int, lasts: int) -> None:
        """Some suspect for ever all whom ◇S does not save from it: all but one of those who agree on something."""
        members, trusted = self._members(), sorted(self.steady)
        by = members if self.rng.random() < 0.5 else self.rng.sample(members, self.rng.randint(1, len(members)))
        self.faults.append(Distrust(tuple(sorted(by)), tuple(trusted[-1:] if self.broadcast else trusted), at))

    # Who ------------------------------------------------------------------------------------------------------------

    def _members(self) -> list[str]:
        return [p for p in self.processes if self._group_of(p) is not None]

    def _group(self) -> list[str]:
        """The members of a group, which has more than one of them if any has."""
        groups = [[str(p) for p in members] for members in self.topology.groups.values()]
        return self.rng.choice([group for group in groups if len(group) > 1] or groups)

    def _group_of(self, process: str) -> GroupId | None:
        return self.topology.group_of.get(ProcessId(process))
