"""What section 4 of toto.txt defines, each by its name, on a plain causal graph. Nothing here is fast.

protocols/toto.py keeps the same values as messages come (Figures 3 and 4). These are what they must be equal to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Literal, NamedTuple

from antiphon.core import ProcessId
from antiphon.services.dag import Name, NodeService


class Graph(NamedTuple):
    """DAG_p: what entered it, in that order, with the messages that each directly follows."""

    machines: tuple[ProcessId, ...]  # the current configuration; their order breaks ties
    arcs: dict[Name, tuple[Name, ...]]
    services: dict[Name, NodeService]


INFINITY = inf
StampEntry = (
    float | None
)  # of a vector timestamp: a number, INFINITY, or None for the paper's *, which compares with nothing
VectorTimestamp = dict[ProcessId, StampEntry]
CHI: Literal["χ"] = "χ"
Comparison = Literal[0, 1, "χ"]


def past(graph: Graph, m: Name) -> set[Name]:
    """All that m follows, m included."""
    found, open_ = {m}, [m]
    while open_:
        for earlier in graph.arcs[open_.pop()]:
            if earlier not in found and earlier in graph.arcs:
                found.add(earlier)
                open_.append(earlier)
    return found


def follows(graph: Graph, later: Name, earlier: Name) -> bool:
    """A message follows itself."""
    return earlier in past(graph, later)


def place(graph: Graph, m: Name) -> tuple[int, int]:
    """The lexicographical order."""
    return graph.machines.index(m.sender), m.number


def pending(graph: Graph, delivered: Collection[Name]) -> list[Name]:
    """The agreed messages that are not delivered yet."""
    return [m for m in graph.arcs if graph.services[m] == "agreed" and m not in delivered]


def candidates(graph: Graph, delivered: Collection[Name]) -> list[Name]:
    """M_p: the pending messages that follow only delivered ones."""
    waiting = pending(graph, delivered)
    return sorted([m for m in waiting if not past(graph, m).intersection(waiting) - {m}], key=lambda m: place(graph, m))


def tail(graph: Graph, m: Name) -> set[ProcessId]:
    """Tail_p(m): the machines that sent a message which follows m."""
    return {later.sender for later in graph.arcs if follows(graph, later, m)}


def whole_tail(graph: Graph, m_p: Sequence[Name], defunc: Collection[ProcessId] = ()) -> set[ProcessId]:
    """Tail_p: those that sent a message which follows some candidate, and Defunc_p, from whom no more will come."""
    return {*defunc}.union(*[tail(graph, m) for m in m_p])


def first_following(graph: Graph, m_p: Sequence[Name], q: ProcessId) -> Name | None:
    """The first message of q that follows any candidate."""
    own = sorted(m for m in graph.arcs if m.sender == q)
    return next((m for m in own if past(graph, m).intersection(m_p)), None)


def vt(graph: Graph, m_p: Sequence[Name], m: Name, defunc: Collection[ProcessId] = ()) -> VectorTimestamp:
    """VT_p(m), the extended vector timestamp."""
    stamps: VectorTimestamp = dict.fromkeys(graph.machines)
    known = whole_tail(graph, m_p, defunc)
    for q in graph.machines:
        if q in known:
            first = first_following(graph, m_p, q)
            stamps[q] = first.number if first is not None and follows(graph, first, m) else INFINITY
    return stamps


def nvt(stamps: VectorTimestamp) -> int:
    """NVT_p: of how many machines the first message that follows any candidate follows this one."""
    return sum(entry is not None and entry != INFINITY for entry in stamps.values())


def is_less(one: StampEntry, other: StampEntry) -> bool:
    return one is not None and other is not None and one < other


def is_at_most(one: StampEntry, other: StampEntry) -> bool:
    return one is not None and other is not None and one <= other


def win(one: VectorTimestamp, other: VectorTimestamp, phi: int) -> Comparison:
    """Win_p: 1 if the first beats the second for good, 0 if it is the other way round."""
    if sum(is_less(one[j], other[j]) for j in one) > phi:
        return 1
    return 0 if sum(is_less(other[j], one[j]) for j in one) > phi else CHI


def future(one: VectorTimestamp, other: VectorTimestamp, phi: int) -> set[Comparison]:
    """Future_p: what Win_p can be in the end."""
    found: set[Comparison] = set()
    if can_win(one, other, phi):
        found.add(1)
    if win(one, other, phi) == CHI:
        found.add(CHI)
    if can_win(other, one, phi):
        found.add(0)
    return found


def can_win(one: VectorTimestamp, other: VectorTimestamp, phi: int) -> bool:
    return sum(is_at_most(other[j], one[j]) for j in one) < len(one) - phi


def sources(stamps: Mapping[Name, VectorTimestamp], phi: int) -> list[Name]:
    """S_p: the candidates that no other candidate can beat any more."""
    return [m for m in stamps if not any(1 in future(stamps[o], stamps[m], phi) for o in stamps if o != m)]


def is_internally_stable(stamps: Mapping[Name, VectorTimestamp], phi: int) -> bool:
    """(DEL) 1: every candidate that is not a source is beaten for good by some candidate."""
    s_p = sources(stamps, phi)
    beaten = (any(future(stamps[o], stamps[m], phi) == {1} for o in stamps) for m in stamps if m not in s_p)
    return all(beaten)


def is_externally_stable(
    graph: Graph, stamps: Mapping[Name, VectorTimestamp], phi: int, defunc: Collection[ProcessId] = ()
) -> bool:
    """(DEL) 2: enough was heard that no candidate which is still to come could be a source."""
    n, s_p = len(graph.machines), sources(stamps, phi)
    few = any(nvt(stamps[s]) > phi for s in s_p) and all(len(tail(graph, s)) >= n - phi for s in s_p)
    return few or len(whole_tail(graph, [*stamps], defunc)) == n


def deliverable(graph: Graph, delivered: Collection[Name], phi: int, defunc: Collection[ProcessId] = ()) -> list[Name]:
    """(DEL): the messages to be delivered now, in lexicographical order; none if there is more to wait for."""
    m_p = candidates(graph, delivered)
    stamps = {m: vt(graph, m_p, m, defunc) for m in m_p}
    if not m_p or not is_internally_stable(stamps, phi) or not is_externally_stable(graph, stamps, phi, defunc):
        return []
    return sorted(sources(stamps, phi), key=lambda m: place(graph, m))


def threshold(given: int | None, n: int) -> int:
    """Φ, n/2 ≤ Φ < n: half of the configuration, rounded up, unless another is given. Alone, 0: deliver at once."""
    return min(max(given or 0, (n + 1) // 2), n - 1)


# What is measured of a run -------------------------------------------------------------------------------------------


def index_of_latency(graph: Graph, m: Name) -> int:
    """τ, in DAG_p when p delivers m: the machines, the sender included, with a message concurrent to m or after it."""
    before = past(graph, m)
    return len({other.sender for other in graph.arcs if other == m or other not in before})


def width(graph: Graph, m: Name) -> int:
    """ω, in DAG_p when m enters it: the sender, and the machines that have a message concurrent to m."""
    before = past(graph, m)
    return len({m.sender} | {o.sender for o in graph.arcs if o not in before and not follows(graph, o, m)})
