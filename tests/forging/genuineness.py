"""Lies about who took part."""

from __future__ import annotations

from antiphon.trace import Kind
from forging.honest import Tape
from forging.kit import breaks


@breaks("genuineness")
def bystander_receives(t: Tape) -> None:
    t.event("idle.1", Kind.RECEIVE, message="c1:1", peer="c1", layer="forge", bytes=64)


@breaks("genuineness")
def bystander_is_sent_to(t: Tape) -> None:
    """It was down, so that only the sender's row tells."""
    t.event("c1", Kind.SEND, message="c1:1", peer="idle.1", layer="forge", bytes=64)


@breaks("genuineness")
def bystander_sends_an_untagged_frame(t: Tape) -> None:
    t.event("idle.2", Kind.SEND, peer="g2.1", layer="forge", bytes=64)


@breaks("genuineness")
def bystander_receives_an_untagged_frame(t: Tape) -> None:
    t.event("idle.1", Kind.RECEIVE, peer="g2.1", layer="forge", bytes=64)


@breaks("genuineness")
def another_group_is_asked(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.frame("g1.1", "g2.1", "f1:1")


@breaks("genuineness")
def another_group_talks_to_itself(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.frame("g3.1", "g3.2", "f1:1")


@breaks("genuineness")
def frame_about_an_invented_message(t: Tape) -> None:
    t.frame("g2.1", "g2.2", "ghost:1")


@breaks("genuineness")
def two_senders_of_different_messages_chat(t: Tape) -> None:
    """Each is concerned by a message, but no message concerns both."""
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver_all(t.multicast("f2", "f2:1", "g2"))
    t.frame("f1", "f2", None)
