"""Multicast by broadcast (scalatom.txt 1.2, tom.txt 3.2): everybody orders, the addressees deliver.

L1-L4 are the lines of docs/protocols/nonminimal.md.
"""

from __future__ import annotations

import msgspec

from antiphon.core import Assumptions, Declaration, Detector, Failures, Message
from antiphon.protocols.ctbroadcast import CtBroadcast


class NonMinimal(CtBroadcast):
    declaration = Declaration(
        name="nonminimal",
        title="Multicast by atomic broadcast",
        source="scalatom.txt, section 1.2; tom.txt, section 3.2",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=CtBroadcast.declaration.promises,
    )

    def multicast(self, m: Message) -> None:  # L1
        envelope = msgspec.structs.replace(m, destinations=self.everyone, payload=_encoder.encode(m))
        self.reliable.multicast(envelope)  # L2

    def order(self, m: Message) -> None:  # L3
        inner = _decoder.decode(m.payload)
        if self.topology.group_of[self.me] in inner.destinations:
            super().order(inner)  # L4


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
