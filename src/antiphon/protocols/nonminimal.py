"""Multicast by broadcast (scalatom.txt 1.2, tom.txt 3.2): everybody orders, the addressees deliver.

L1-L3 are the lines of docs/protocols/nonminimal.md.
"""

from __future__ import annotations

from antiphon.core import Assumptions, Declaration, Detector, Failures, Message
from antiphon.protocols.ctbroadcast import CtBroadcast


class NonMinimal(CtBroadcast):
    declaration = Declaration(
        name="nonminimal",
        title="Multicast by atomic broadcast",
        source="Rodrigues, Guerraoui, Schiper, section 1.2; Fritzke, section 3.2",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=CtBroadcast.declaration.promises,
    )
    to_everybody = True  # L1

    def order(self, m: Message) -> None:  # L2
        if self.group in m.destinations:
            super().order(m)  # L3
