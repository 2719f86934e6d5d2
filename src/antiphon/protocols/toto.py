"""ToTo (toto.txt, sections 4 and 5.2): a majority that adapts orders messages early.

L1-L24 are the lines of docs/protocols/toto.md. The definitions, each by its name, are in services/toto.py, the causal
graph in services/causal_graph.py. What is kept here is equal to the definitions after every message
(tests/papers/test_toto.py).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from antiphon.core import Assumptions, Declaration, Failures, ProcessId
from antiphon.services.causal_graph import GraphOptions
from antiphon.services.configuration import AGREED_PROMISES, GraphProtocol
from antiphon.services.dag import Dag, Name, Node
from antiphon.services.toto import INFINITY, VectorTimestamp, threshold

GONE = -1  # heard of a machine from which no more will come, and nothing that follows a candidate: infinite for all


class Candidate(msgspec.Struct, array_like=True):
    """A message of M_p, with its functions. Lists have an entry for each machine."""

    node: Node
    tail: list[bool]  # Tail_p(m): whether a message of the machine follows it
    ntail: int
    first: list[bool]  # whether the machine's first message that follows any candidate follows this one
    nvt: int
    wins: dict[Name, int]  # for each other candidate: in how many entries its VT_p is less than the other's


class Activation(msgspec.Struct, array_like=True):
    """The agreement on the next set of messages.

    VT_p(m)[q] is * if ``heard[q]`` is 0; else ``heard[q]`` if ``first[q]`` of m, else infinite. So for a machine in
    Tail_p any two entries compare, and |{j | VT_2[j] <= VT_1[j]}| = NTail_p - |{j | VT_1[j] < VT_2[j]}|.
    """

    heard: list[int]  # for each machine: the number of its first message that follows any candidate; 0: none yet
    ntail: int  # NTail_p: of how many machines that is known
    m_p: dict[Name, Candidate]
    waiting: dict[ProcessId, list[Node]]  # by machine: pending messages that follow a candidate
    defunc: list[bool]  # Defunc_p: from whom no more will come

    @classmethod
    def among(cls, n: int) -> Activation:
        return cls([0] * n, 0, {}, {}, [False] * n)

    # Figure 3, "when receiving a regular message" ---------------------------------------------------------------------

    def receive(self, dag: Dag, m: Node) -> None:  # L1
        followed = [c for c in self.m_p.values() if dag.is_followed(c.node.name, m)]
        if m.service == "agreed" and followed:
            self.waiting.setdefault(m.name.sender, []).append(m)  # L2
        elif m.service == "agreed":
            followed = [self.add_candidate(m)]  # L3
        place = dag.places[m.name.sender]
        for c in followed:
            c.ntail += not c.tail[place]  # L4
            c.tail[place] = True
        if followed and not self.heard[place]:
            self.hear(place, m.name.number, followed)  # L5

    def add_candidate(self, m: Node) -> Candidate:
        n = len(self.heard)
        new = Candidate(m, [False] * n, 0, [False] * n, 0, dict.fromkeys(self.m_p, 0))
        for c in self.m_p.values():
            c.wins[m.name] = c.nvt  # L6
        self.m_p[m.name] = new
        return new

    def hear(self, place: int, number: int, followed: list[Candidate]) -> None:
        """The machine comes into Tail_p, with its first message that follows any candidate: these."""
        self.heard[place] = number
        self.ntail += 1
        for c in followed:
            c.first[place] = True  # L7
            c.nvt += 1
        others = [c.node.name for c in self.m_p.values() if not c.first[place]]
        for c in followed:
            for other in others:
                c.wins[other] += 1  # L8

    # Figure 4 ---------------------------------------------------------------------------------------------------------

    def crash(self, place: int) -> None:  # L9
        self.defunc[place] = True
        if not self.heard[place]:
            self.heard[place] = GONE  # L10
            self.ntail += 1

    # The delivery criterion -------------------------------------------------------------------------------------------

    def sources(self, phi: int) -> list[Candidate]:  # L11
        m_p = self.m_p.values()
        return [m for m in m_p if not any(self.can_win(other, m, phi) for other in m_p if other is not m)]

    def can_win(self, one: Candidate, other: Candidate, phi: int) -> bool:
        """1 ∈ Future_p(VT_p(one), VT_p(other))."""
        return self.ntail - one.wins[other.node.name] < len(self.heard) - phi  # L12

    def is_beaten(self, m: Candidate, phi: int) -> bool:
        """Some candidate has Future_p = {1} against it. As Φ ≥ n/2, that is so when Win_p = 1."""
        return any(o.wins[m.node.name] > phi for o in self.m_p.values() if o is not m)  # L13

    def deliverable(self, phi: int) -> list[Node]:
        """(DEL): what is to be delivered now."""
        s_p = self.sources(phi)
        if not s_p or not self.is_internally_stable(s_p, phi) or not self.is_externally_stable(s_p, phi):
            return []
        return [s.node for s in s_p]

    def is_internally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        names = {s.node.name for s in s_p}
        return all(self.is_beaten(m, phi) for name, m in self.m_p.items() if name not in names)  # L14

    def is_externally_stable(self, s_p: list[Candidate], phi: int) -> bool:
        n = len(self.heard)
        few = any(s.nvt > phi for s in s_p) and all(s.ntail >= n - phi for s in s_p)  # L15
        return few or self.ntail == n  # L16

    # Figure 3, "when criterion (DEL) holds" ---------------------------------------------------------------------------

    def remove(self, dag: Dag, s_p: list[Node]) -> None:
        """Update M_p and calculate its functions anew. Only the oldest of a machine can be a new candidate."""
        gone = {m.name for m in s_p}
        kept = [c.node for name, c in self.m_p.items() if name not in gone]
        for m in sorted([queue[0] for queue in self.waiting.values()], key=lambda m: m.entered):
            if not any(dag.is_followed(c.name, m) for c in kept):  # L20
                kept.append(m)
                self.waiting[m.name.sender].pop(0)
                if not self.waiting[m.name.sender]:
                    del self.waiting[m.name.sender]
        heard, self.heard, self.ntail, self.m_p = self.heard, [0] * len(self.heard), 0, {}
        for m in kept:
            self.add_candidate(m)
        for place, machine in enumerate(dag.machines):
            self.hear_again(dag, machine, place, heard[place])

    def hear_again(self, dag: Dag, machine: ProcessId, place: int, before: int) -> None:
        """What follows a candidate now has followed one before, so no message before that one need be looked at."""
        places, newest = dag.places, dag.newest[place]
        tail_of = [c for c in self.m_p.values() if newest[places[c.node.name.sender]] >= c.node.name.number]
        for c in tail_of:
            c.tail[place] = True  # L21
            c.ntail += 1
        if before > 0 and tail_of:  # where the newest follows none, none does
            number = min(dag.first_following(machine, c.node.name, before) for c in tail_of)
            first = dag.rows[machine][number]
            self.hear(place, number, [c for c in tail_of if dag.is_followed(c.node.name, first)])  # L22
        elif self.defunc[place]:
            self.crash(place)


def vector_timestamp(activation: Activation, m: Candidate, machines: tuple[ProcessId, ...]) -> VectorTimestamp:
    """VT_p(m), to look at."""
    return {
        q: None if not heard else heard if first else INFINITY
        for q, heard, first in zip(machines, activation.heard, m.first, strict=True)
    }


PHI = "Φ goes from half of the machines, rounded up, to all but one, and another number counts as the nearest of these"


class TotoOptions(GraphOptions, frozen=True):
    phi: Annotated[int, msgspec.Meta(ge=1, description=PHI)] | None = None  # None: half of them, rounded up


class ToTo(GraphProtocol):
    declaration = Declaration(
        name="toto",
        title="ToTo: early delivery by an adaptive majority",
        source="Dolev, Kramer, Malki: Early Delivery Totally Ordered Multicast",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=AGREED_PROMISES,
    )
    Options = TotoOptions
    options: TotoOptions
    services = ("agreed", "causal")
    advances = True

    activation: Activation

    def initialise(self) -> None:
        super().initialise()
        self.activation = Activation.among(len(self.graph.machines))

    def begin_view(self, machines: tuple[ProcessId, ...]) -> None:
        self.activation = Activation.among(len(machines))

    @property
    def phi(self) -> int:
        return threshold(self.options.phi, len(self.graph.machines))

    def when_entered(self, m: Node) -> None:
        self.activation.receive(self.graph.dag, m)
        if m.service == "causal":
            self.deliver_causal(m)  # L23
        self.deliver_what_can()

    def crash(self, machine: ProcessId) -> None:
        self.activation.crash(self.graph.dag.places[machine])
        self.deliver_what_can()

    def deliver_what_can(self) -> None:
        dag = self.graph.dag
        while s_p := self.activation.deliverable(self.phi):  # L17
            for m in sorted(s_p, key=lambda m: (dag.places[m.name.sender], m.name.number)):  # L18
                self.deliver_next(m)  # L19
            self.activation.remove(dag, s_p)
            self.deliver_held_back(s_p)  # L24

    def undelivered_before(self, m: Node) -> Name | None:
        """It follows a candidate, if any: whatever else is not delivered follows one."""
        for name, c in self.activation.m_p.items():
            if self.graph.dag.is_followed(name, m):
                return self.newest_agreed([c.node, *self.activation.waiting.get(name.sender, ())], m)
        return None

    def undelivered(self) -> int:
        return len(self.activation.m_p) + sum(len(queue) for queue in self.activation.waiting.values())

    def waits_for(self) -> tuple[ProcessId, ...]:
        unheard = [not heard for heard in self.activation.heard]
        machines = zip(self.graph.machines, unheard, strict=True)
        return tuple(p for p, is_so in machines if is_so and self.activation.m_p) or self.missed_groups()
