"""Lies about who took part."""

from __future__ import annotations

from forging.honest import Tape
from forging.kit import breaks, harmless


@breaks("genuineness")
def bystander_receives(t: Tape) -> None:
    t.receive("idle.1", "c1", ["c1:1"])


@breaks("genuineness")
def bystander_is_sent_to(t: Tape) -> None:
    """It was down, so that only the sender's row tells."""
    t.send("c1", ["idle.1"], ["c1:1"])


@breaks("genuineness")
def bystander_is_one_of_many_receivers(t: Tape) -> None:
    t.send("c1", ["g1.1", "g2.1", "idle.1", "g3.1"], ["c1:1"])


@breaks("genuineness")
def bystander_sends_an_untagged_frame(t: Tape) -> None:
    t.send("idle.2", ["g2.1"])


@breaks("genuineness")
def bystander_is_one_of_many_receivers_of_an_untagged_frame(t: Tape) -> None:
    t.send("g2.1", ["g2.2", "idle.1"])


@breaks("genuineness")
def bystander_sends_to_nobody(t: Tape) -> None:
    t.send("idle.1", [])


@breaks("genuineness")
def another_group_is_asked(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.frame("g1.1", "g2.1", "f1:1")


@breaks("genuineness")
def another_group_talks_to_itself(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.frame("g3.1", "g3.2", "f1:1")


@breaks("genuineness")
def one_of_several_subjects_is_none_of_its_business(t: Tape) -> None:
    """g2.1 and g2.2 are addressed by the first message and by the last, and not by the one between."""
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"), t.multicast("f2", "f2:1", "g1"))
    t.frame("g2.1", "g2.2", "c1:1", "f2:1", "f1:1")


@breaks("genuineness")
def frame_about_an_invented_message(t: Tape) -> None:
    t.frame("g2.1", "g2.2", "ghost:1")


@breaks("genuineness")
def two_senders_of_different_messages_chat(t: Tape) -> None:
    """Each is concerned by a message, but no message concerns both."""
    t.deliver_all(t.multicast("f1", "f1:1", "g1"))
    t.deliver_all(t.multicast("f2", "f2:1", "g2"))
    t.frame("f1", "f2")


@harmless
def untagged_frame_received_by_a_bystander(t: Tape) -> None:
    """A receiver cannot always tell what a frame is about; the sender's row is the one that is judged."""
    t.receive("idle.1", "g2.1")


@harmless
def frame_about_several_messages(t: Tape) -> None:
    t.deliver_all(t.multicast("f1", "f1:1", "g1", "g2"), t.multicast("f2", "f2:1", "g2", "g3"))
    t.frame("g2.1", "g2.2", "f1:1", "f2:1", "c1:1")


@harmless
def frames_that_name_nobody(t: Tape) -> None:
    t.send("g2.1", [], ["c1:1"])
    t.send("g2.1", [])
