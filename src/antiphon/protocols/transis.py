"""Causal multicast of Transis (toto.txt, section 2.1): delivered as soon as it is in the causal graph.

L1-L2 are the lines of docs/protocols/transis.md; the graph is in services/causal_graph.py.
"""

from __future__ import annotations

from antiphon.core import Assumptions, Declaration, Failures
from antiphon.services.causal_graph import GraphOptions
from antiphon.services.configuration import CAUSAL_PROMISES, GraphProtocol
from antiphon.services.dag import Node


class Transis(GraphProtocol):
    declaration = Declaration(
        name="transis",
        title="Causal multicast on the graph of Transis",
        source="Dolev, Kramer, Malki: Early Delivery Totally Ordered Multicast, section 2",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=CAUSAL_PROMISES,
    )
    Options = GraphOptions
    options: GraphOptions
    SERVICE = "causal"

    def when_entered(self, m: Node) -> None:  # L1
        if m.message is not None:
            self.deliver_unordered(m)  # L2
