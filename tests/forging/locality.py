"""Lies about where consensus ran."""

from __future__ import annotations

from forging.honest import Tape
from forging.kit import breaks, harmless


@breaks("locality")
def consensus_with_another_group(t: Tape) -> None:
    t.send("g1.1", ["g2.1"], layer="forge/consensus")
    t.receive("g2.1", "g1.1", layer="forge/consensus")


@breaks("locality")
def consensus_heard_from_another_group(t: Tape) -> None:
    """Of the sender's row nothing is left."""
    t.receive("g3.2", "g1.2", layer="forge/part/consensus")


@breaks("locality")
def consensus_as_the_whole_protocol(t: Tape) -> None:
    """The layer's path is this one name."""
    t.send("g1.1", ["g2.1"], layer="consensus")


@breaks("locality")
def one_receiver_of_many_is_of_another_group(t: Tape) -> None:
    t.send("g1.1", ["g1.2", "g3.1"], layer="forge/consensus")


@breaks("locality")
def consensus_with_an_outsider(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.send("f1", ["g1.1"], ["f1:1"], layer="forge/consensus")


@harmless
def consensus_within_a_group(t: Tape) -> None:
    t.send("g1.1", ["g1.2"], layer="forge/consensus")
    t.receive("g1.2", "g1.1", layer="forge/consensus")
    t.send("g1.1", ["g1.2"], layer="consensus")


@harmless
def consensus_within_one_of_two_groups(t: Tape) -> None:
    """Groups may overlap: g1.1 and g2.1 are both in the fourth one."""
    t.facts.promises = ["locality"]
    t.facts.groups["g4"] = ["g1.1", "g2.1"]
    t.send("g1.1", ["g1.2"], layer="forge/consensus")
    t.send("g1.1", ["g2.1"], layer="forge/consensus")


@breaks("locality")
def consensus_with_a_neighbour_of_a_neighbour(t: Tape) -> None:
    """g1.2 is together with g1.1, and that with g2.1: these are two groups."""
    t.facts.promises = ["locality"]
    t.facts.groups["g4"] = ["g1.1", "g2.1"]
    t.send("g1.2", ["g2.1"], layer="forge/consensus")


@harmless
def another_layer_with_a_similar_name(t: Tape) -> None:
    for layer in ("forge/consensus_free", "forge/consensus/reliable", "forge/reconsensus", "reconsensus"):
        t.send("g1.1", ["g2.1"], layer=layer)
