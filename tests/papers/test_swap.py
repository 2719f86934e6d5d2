"""swap.txt, sentence by sentence: Figures 1 to 9 (R8) state by state, and what is said of hops and latency."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from antiphon.core import ProcessId, Topology
from antiphon.core.errors import UsageError
from antiphon.protocols import protocols
from antiphon.reproduce.swap_figures import strip
from antiphon.reproduce.swap_stage import Stage, Travelling, arrow_figures, combining_figures
from antiphon.services.tree import clusters, places
from antiphon.simulation import MILLISECOND, Outcome, Plan, Scenario, simulate
from antiphon.simulation.campaign import scenarios

ROOT = Path(__file__).parents[2]
SIZES = range(2, 17)
KINDS = ("line", "star", "balanced", "random")
EVERY_KIND = pytest.mark.parametrize("tree", KINDS)


# The figures --------------------------------------------------------------------------------------------------------


def test_figures_1_to_5_arrow_multicast() -> None:
    stage = arrow_figures()
    one, two, three, four, five = stage.figures
    # Figure 1: the initial system state. Following the links from any node leads to the unique sink, with the value ⊥.
    assert one.links == {"v": "x", "w": "x", "x": "u", "u": "u"}
    assert one.values == {"u": "⊥"}
    # Figure 2: v sends message m1, which is on its way to x.
    assert two.links == {**one.links, "v": "v"}
    assert two.values == {"u": "⊥", "v": "m1"}
    assert two.travelling == [Travelling("m1", "v", "x")]
    # Figure 3: w sends m2, now on its way to x.
    assert three.links == {**two.links, "w": "w"}
    assert three.values == {"u": "⊥", "v": "m1", "w": "m2"}
    assert three.travelling == [Travelling("m1", "v", "x"), Travelling("m2", "w", "x")]
    # Figure 4: m1 and m2 follow the arrows, flipping them back on the way; m2 has been "deflected" towards v.
    assert four.links == {**three.links, "x": "w"}
    assert four.travelling == [Travelling("m1", "x", "u"), Travelling("m2", "x", "v")]
    assert four.multicasts == []
    # Figure 5: both find their predecessors concurrently and are multicast along with that information; value(v) and
    # value(u) are no longer valid.
    assert five.multicasts == [("⊥", "m1", "u"), ("m1", "m2", "v")]
    assert five.links == {"v": "x", "w": "w", "x": "w", "u": "x"}
    assert five.values == {"w": "m2"}
    assert five.travelling == []
    assert stage.delivered == {node: ["m1", "m2"] for node in "uxvw"}


def test_figures_6_to_9_combining_multicast() -> None:
    stage = combining_figures()
    six, seven, eight, nine = stage.figures
    assert six.links == {"1": "a", "2": "a", "a": "b", "3": "b", "b": "r", "r": "r"}
    # Figure 6: messages m1, m2 and m3 start their journey towards the root.
    assert six.travelling == [Travelling("m1", "1", "a"), Travelling("m2", "2", "a"), Travelling("m3", "3", "b")]
    assert six.values == {"r": "⊥"}
    # Figure 7: m1 and m2 combine. m2 is multicast as m1's successor.
    assert seven.multicasts == [("m1", "m2", "a")]
    assert seven.travelling == [Travelling("m3", "3", "b"), Travelling("m1m2", "a", "b")]
    # Figure 8: m1m2 and m3 combine. m1 is multicast as m3's successor. m3m1m2 continues towards the root.
    assert eight.multicasts == [("m3", "m1", "b")]
    assert eight.travelling == [Travelling("m3m1m2", "b", "r")]
    assert eight.values == {"r": "⊥"}
    # Figure 9: m3m1m2 reaches the root. m3 is multicast as the successor of ⊥. id(m2) is swapped into value(r).
    assert nine.multicasts == [("⊥", "m3", "r")]
    assert nine.values == {"r": "m2"}
    assert nine.travelling == []
    assert stage.delivered == {node: ["m3", "m1", "m2"] for node in "rba312"}


@pytest.mark.parametrize(("name", "play"), [("arrow", arrow_figures), ("combining", combining_figures)])
def test_the_pictures_are_those_of_these_runs(name: str, play: type[Stage]) -> None:
    """`make pictures` draws them again."""
    assert (ROOT / "docs" / "protocols" / f"{name}.svg").read_text() == strip(play())  # type: ignore[arg-type,call-arg]


# What is measured from traces ---------------------------------------------------------------------------------------


def run(protocol: str, n: int, plans: list[Plan], **options: str) -> Outcome:
    scenario = Scenario(protocol=protocol, options=options, groups={"g": n}, plans=tuple(plans), steps=True)
    outcome = simulate(scenario)
    assert outcome.violations == []
    assert outcome.deliveries == n * len(plans)
    return outcome


def at_once(senders: list[str], times: int = 1) -> list[Plan]:
    return [Plan(sender, 0, ("g",)) for _ in range(times) for sender in senders]


def one_by_one(senders: list[str]) -> list[Plan]:
    """Each long after the one before it has come everywhere."""
    return [Plan(sender, i * 200 * MILLISECOND, ("g",)) for i, sender in enumerate(senders)]


def members(n: int) -> list[str]:
    return [f"g.{i}" for i in range(1, n + 1)]


def hops(outcome: Outcome, layer: str = "swap") -> Counter[str]:
    """By message: over how many edges its swap went. A chain is counted for its first message."""
    sends = (row for row in outcome.rows if row.kind == "send" and row.layer and row.layer.endswith(layer))
    return Counter(row.about[0] for row in sends)


def distance(n: int, tree: str, one: str, other: str, group: str = "g") -> int:
    """Between two nodes of the tree."""
    above = [path_up(n, tree, node, group) for node in (one, other)]
    shared = len(set(above[0]) & set(above[1]))
    return len(above[0]) + len(above[1]) - 2 * shared


def path_up(n: int, tree: str, node: str, group: str = "g") -> list[str]:
    tree_places = places(Topology.sized({group: n}).processes, tree)  # type: ignore[arg-type]
    path = [node]
    while (parent := tree_places[ProcessId(path[-1])].parent) is not None:
        path.append(str(parent))
    return path


def diameter(n: int, tree: str, group: str = "g") -> int:
    nodes = Topology.sized({group: n}).processes
    return max(distance(n, tree, one, other, group) for one in nodes for other in nodes)


def multicast_after(outcome: Outcome) -> dict[str, int]:
    """By message: how long after its own multicast the unordered one begins, in steps."""
    made = {row.message: row.time_ns for row in outcome.rows if row.kind == "multicast"}
    found: dict[str, int] = {}
    for row in sorted(outcome.rows, key=lambda row: row.time_ns):
        if row.kind == "send" and row.layer and row.layer.endswith("/multicast"):
            found.setdefault(row.about[0], (row.time_ns - made[row.about[0]]) // MILLISECOND)
    assert found.keys() == made.keys()
    return found


def delivered_after(outcome: Outcome) -> dict[str, int]:
    made = {row.message: row.time_ns for row in outcome.rows if row.kind == "multicast"}
    found: dict[str, int] = {}
    for row in outcome.rows:
        if row.kind == "deliver":
            found[row.message] = max(found.get(row.message, 0), (row.time_ns - made[row.message]) // MILLISECOND)
    return found


@EVERY_KIND
@pytest.mark.parametrize("n", [2, 3, 5, 8, 16])
def test_the_links_from_source_to_sink_are_at_most_the_diameter_of_the_tree(n: int, tree: str) -> None:
    for plans in (at_once(members(n)), at_once(members(n), times=3), one_by_one(members(n)[::-1] * 2)):
        counted = hops(run("arrow", n, plans, tree=tree))
        assert max(counted.values(), default=0) <= diameter(n, tree)


def test_nor_are_there_more_in_runs_with_faults() -> None:
    reached = 0
    for scenario in islice(
        scenarios(protocols()["arrow"], 7_000, {"by": "travel", "gaps": "false", "moving": "false", "weights": ""}), 100
    ):
        outcome = simulate(scenario)
        destinations = {row.message: row.destinations for row in outcome.rows if row.kind == "multicast"}
        for message, count in hops(outcome).items():
            (group,) = destinations[message]
            most = diameter(scenario.groups[group], scenario.options["tree"], group)
            assert count <= most
            reached += count == most
    assert reached > 100


@pytest.mark.parametrize("n", [3, 8, 16])
def test_on_a_line_the_diameter_is_reached(n: int) -> None:
    assert max(hops(run("arrow", n, one_by_one([f"g.{n}", "g.1"]), tree="line")).values()) == diameter(n, "line")


@EVERY_KIND
def test_if_there_is_only_one_multicasting_node_there_is_no_swap_related_traffic(tree: str) -> None:
    """But for its first message, which makes it the sink. From outside, the contact is that node."""
    for sender, contact in (("g.6", "g.6"), ("c1", None)):
        for plans in (one_by_one([sender] * 10), at_once([sender], times=10)):
            counted = hops(run("arrow", 7, plans, tree=tree))
            assert counted.keys() <= {f"{sender}:1"}
            if contact is not None:
                (root,) = [node for node in members(7) if len(path_up(7, tree, node)) == 1]
                assert counted.total() == distance(7, tree, contact, root)


@EVERY_KIND
def test_in_the_combining_tree_all_swap_related_traffic_passes_through_the_root(tree: str) -> None:
    """Even if there is only one multicaster: every message goes up the whole way."""
    counted = hops(run("combining", 7, one_by_one(["g.6"] * 10), tree=tree))
    depth = len(path_up(7, tree, "g.6")) - 1
    assert counted == ({f"g.6:{i}": depth for i in range(1, 11)} if depth else {})
    everybody = run("combining", 7, at_once(members(7), times=3), tree=tree)
    (root,) = [node for node in members(7) if len(path_up(7, tree, node)) == 1]
    order = [row.message for row in everybody.rows if row.kind == "deliver" and row.process == root]
    chains = [row.about for row in everybody.rows if row.kind == "send" and "/swap" in row.layer and root in row.peers]
    passed = [m for chain in chains for m in order[order.index(chain[0]) : order.index(chain[-1]) + 1]]
    assert sorted(passed) == sorted(m for m in order if not m.startswith(f"{root}:")), "each in one chain"


@pytest.mark.parametrize("n", SIZES)
@EVERY_KIND
@pytest.mark.parametrize("multicast", ["direct", "tree"])
def test_what_one_multicast_costs(n: int, tree: str, multicast: str) -> None:
    """h messages to the sink or the root, and n-1 from there; h+1 steps, or h and then as far as the tree reaches."""
    (root,) = [node for node in members(n) if len(path_up(n, tree, node)) == 1]
    reach = 1 if multicast == "direct" else max(distance(n, tree, root, node) for node in members(n))
    for sender in members(n):
        h = distance(n, tree, sender, root)
        plans = [Plan(sender, 0, ("g",))]
        for protocol in ("arrow", "combining"):
            outcome = run(protocol, n, plans, tree=tree, multicast=multicast)
            assert (outcome.messages_sent, outcome.steps_max) == (h + n - 1, h + reach)
        number = int(h > 0)
        outcome = run("counting", n, plans, by="arrow", tree=tree, multicast=multicast)
        assert (outcome.messages_sent, outcome.steps_max) == (h + number + n - 1, h + reach)
        if multicast == "direct":
            outcome = run("counting", n, plans, by="combining", tree=tree)
            assert (outcome.messages_sent, outcome.steps_max) == (2 * h + n - 1, 2 * h + 1)
            outcome = run("arrow", n, plans, by="reduction", tree=tree)
            assert (outcome.messages_sent, outcome.steps_max) == (h + number + n - 1, h + number + 1)


@EVERY_KIND
@pytest.mark.parametrize("n", [2, 5, 8, 16])
def test_if_requests_occur_sequentially_arrow_counting_and_arrow_swap_are_the_same(n: int, tree: str) -> None:
    plans = one_by_one([*members(n), *members(n)[::-1]])
    swap, counting = (run(name, n, plans, tree=tree) for name in ("arrow", "counting"))
    assert multicast_after(swap) == multicast_after(counting)
    assert delivered_after(swap) == delivered_after(counting)


@EVERY_KIND
@pytest.mark.parametrize("n", [5, 8, 16])
def test_in_the_presence_of_concurrency_arrow_swap_has_lower_latency(n: int, tree: str) -> None:
    """For no message more, and for all together less: none waits to count its predecessors."""
    plans = at_once(members(n))
    swap, counting = (run(name, n, plans, tree=tree) for name in ("arrow", "counting"))
    for measured in (multicast_after, delivered_after):
        slow, quick = measured(counting), measured(swap)
        assert all(quick[message] <= slow[message] for message in slow)
        assert sum(quick.values()) < sum(slow.values())


@EVERY_KIND
@pytest.mark.parametrize("n", [5, 8, 16])
def test_combining_swap_is_spared_the_way_back_down(n: int, tree: str) -> None:
    for plans in (one_by_one(members(n)), at_once(members(n))):
        swap = multicast_after(run("combining", n, plans, tree=tree))
        counting = multicast_after(run("counting", n, plans, by="combining", tree=tree))
        assert all(swap[message] <= counting[message] for message in counting)
        assert sum(swap.values()) < sum(counting.values())


def test_what_meets_in_a_window_is_combined() -> None:
    """Two leaves under one node, half a window apart: with the window one message goes on, without it two."""
    plans = [Plan("g.4", 0, ("g",)), Plan("g.5", 2 * MILLISECOND, ("g",))]
    apart, together = (run("combining", 7, plans, window=window) for window in ("0", "4"))
    up = [
        Counter(row.process for row in o.rows if row.kind == "send" and "/swap" in row.layer) for o in (apart, together)
    ]
    assert up[0]["g.2"] == 2
    assert up[1]["g.2"] == 1


@pytest.mark.parametrize("window", ["-1", "10001", "soon"])
def test_a_window_that_is_none(window: str) -> None:
    with pytest.raises(UsageError, match="option window must be a whole number from 0 to 10000, not"):
        run("combining", 3, at_once(["g.1"]), window=window)


@pytest.mark.parametrize(("root", "inner", "same"), [("1", "1", "combining"), ("16", "1", "arrow")])
@pytest.mark.parametrize("tree", ["line", "star", "balanced"])
def test_a_hybrid_is_both(root: str, inner: str, same: str, tree: str) -> None:
    """With a root of one process it is the combining tree, with all processes in its root it is the arrow protocol."""
    for plans in (one_by_one(members(9)), at_once(members(9), times=2)):
        hybrid = run("hybrid", 9, plans, root=root, inner=inner, tree=tree)
        other = run(same, 9, plans, tree=tree)
        assert multicast_after(hybrid) == multicast_after(other)
        assert hybrid.messages_sent == other.messages_sent


def taken_in(outcome: Outcome) -> Counter[str]:
    """By process: how many swaps other processes sent to it."""
    swaps = [row for row in outcome.rows if row.kind == "send" and "/swap" in row.layer]
    return Counter(peer for row in swaps for peer in row.peers)


def test_a_virtual_root_relieves_the_root() -> None:
    """In a star where everybody multicasts all the time."""
    plans = [Plan(sender, i * MILLISECOND, ("g",)) for i in range(20) for sender in members(17)]
    busiest = {}
    for protocol, options in (("arrow", {}), ("combining", {}), ("hybrid", {"root": "4"})):
        ((_, busiest[protocol]),) = taken_in(run(protocol, 17, plans, tree="star", **options)).most_common(1)
    assert busiest == {"arrow": 107, "combining": 320, "hybrid": 87}


@pytest.mark.parametrize("n", [5, 9, 15])
def test_if_two_halves_take_turns_multicasting_all_swaps_pass_through_the_node_between_them(n: int) -> None:
    """On a line the middle one is that node. The very first message finds the sink in its own half."""
    half = n // 2
    turns = [members(n)[i // 2 % half + (half + 1) * (i % 2)] for i in range(4 * half)]
    outcome = run("arrow", n, one_by_one(turns), tree="line")
    assert taken_in(outcome)[f"g.{half + 1}"] == len(turns) - 1


def test_how_a_hybrid_relieves_the_node_between_two_halves() -> None:
    """Two halves of a star, all of each at once, in turn. Half of it is left to the busiest of a virtual root of 4."""
    halves = [members(17)[1:9], members(17)[9:]]
    plans = [Plan(sender, i * 8 * MILLISECOND, ("g",)) for i in range(40) for sender in halves[i % 2]]
    busiest = {}
    for protocol, options in (("arrow", {}), ("combining", {}), ("hybrid", {"root": "4"})):
        ((_, busiest[protocol]),) = taken_in(run(protocol, 17, plans, tree="star", **options)).most_common(1)
    assert busiest == {"arrow": 320, "combining": 320, "hybrid": 161}


def test_several_groups_are_refused() -> None:
    plans = (Plan("c1", 0, ("a", "b")),)
    for protocol in ("arrow", "combining", "hybrid", "counting"):
        with pytest.raises(UsageError, match=r"one group, not to several: a, b; primcast and skeen can\."):
            simulate(Scenario(protocol=protocol, groups={"a": 2, "b": 2}, plans=plans))


# Anonymity ----------------------------------------------------------------------------------------------------------


@EVERY_KIND
@pytest.mark.parametrize("protocol", ["arrow", "combining", "hybrid"])
def test_along_the_tree_a_node_talks_to_its_neighbours_only(protocol: str, tree: str) -> None:
    """A hybrid's processes know their cluster's tree and one process of the cluster above, besides."""
    options = {"root": "4", "inner": "2"} if protocol == "hybrid" else {}
    outcome = run(protocol, 12, at_once(members(12), times=2), tree=tree, multicast="tree", **options)
    pairs = {frozenset((row.process, peer)) for row in outcome.rows if row.kind == "send" for peer in row.peers}
    if protocol == "hybrid":
        of_clusters = clusters(Topology.sized({"g": 12}).processes, tree, 0, 4, 2)  # type: ignore[arg-type]
        known = {
            frozenset((node, peer))
            for node, place in of_clusters.items()
            for peer in (*place.within.neighbours, *place.neighbours, place.parent)
        }
        assert pairs <= known
        assert all(len(place.within.neighbours) < 4 for place in of_clusters.values())
    else:
        assert all(distance(12, tree, *sorted(pair)) == 1 for pair in pairs)
        assert len(pairs) == 11
    floods = [row for row in outcome.rows if row.kind == "send" and row.layer.endswith("/multicast")]
    assert sum(len(row.peers) for row in floods) == 24 * 11, "each message crosses each edge of a spanning tree once"
    assert len({frozenset((row.process, peer)) for row in floods for peer in row.peers}) == 11


@pytest.mark.parametrize(
    ("protocol", "by", "layer"),
    [
        ("arrow", "travel", None),
        ("combining", "travel", None),
        ("counting", "combining", None),
        ("arrow", "reduction", "swap"),
        ("combining", "reduction", "swap"),
        ("counting", "arrow", "counter"),
    ],
)
def test_what_goes_to_others_than_neighbours(protocol: str, by: str, layer: str | None) -> None:
    """The answer of a swap, to its source, and a number that travels, from sink to sink: each over one link."""
    outcome = run(protocol, 12, at_once(members(12)), by=by, multicast="tree")
    far = [
        (row.layer, row.about, peer)
        for row in outcome.rows
        if row.kind == "send"
        for peer in row.peers
        if distance(12, "balanced", row.process, peer) > 1
    ]
    assert {found for found, _, _ in far} == ({f"{protocol}/{layer}"} if layer else set())
    assert all(about[0].startswith(f"{peer}:") for _, about, peer in far), "to the source of the message"
