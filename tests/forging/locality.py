"""Lies about where consensus ran."""

from __future__ import annotations

from antiphon.trace import Kind
from forging.honest import Tape
from forging.kit import breaks, harmless


@breaks("locality")
def consensus_with_another_group(t: Tape) -> None:
    t.event("g1.1", Kind.SEND, peer="g2.1", layer="forge/consensus", bytes=64)
    t.event("g2.1", Kind.RECEIVE, peer="g1.1", layer="forge/consensus", bytes=64)


@breaks("locality")
def consensus_heard_from_another_group(t: Tape) -> None:
    """Of the sender's row nothing is left."""
    t.event("g3.2", Kind.RECEIVE, peer="g1.2", layer="forge/part/consensus", bytes=64)


@breaks("locality")
def consensus_with_a_client(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.event("f1", Kind.SEND, message="f1:1", peer="g1.1", layer="forge/consensus", bytes=64)


@harmless
def consensus_within_a_group(t: Tape) -> None:
    t.event("g1.1", Kind.SEND, peer="g1.2", layer="forge/consensus", bytes=64)
    t.event("g1.2", Kind.RECEIVE, peer="g1.1", layer="forge/consensus", bytes=64)


@harmless
def another_layer_with_a_similar_name(t: Tape) -> None:
    t.event("g1.1", Kind.SEND, peer="g2.1", layer="forge/consensus_free", bytes=64)
    t.event("g1.1", Kind.SEND, peer="g2.1", layer="forge/consensus/reliable", bytes=64)
