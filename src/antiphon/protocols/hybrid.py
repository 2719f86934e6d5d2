"""Hybrid multicast (swap.txt, section 6.1): a combining tree of which each node is a cluster with arrows.

The swap is in services/hybrid.py, the hold-back queue in services/reduction.py.
"""

from __future__ import annotations

from typing import Any, Literal

from antiphon.core import Assumptions, Declaration, Failures, FaultModel, ProcessId, Promise
from antiphon.core.errors import UsageError
from antiphon.services.combining import WindowMs
from antiphon.services.hybrid import Hybrid, HybridOptions
from antiphon.services.reduction import PROMISES, OrderedBySwap, SwapOptions
from antiphon.services.swap import DistributedSwap
from antiphon.services.tree import ClusterPlace, clusters, weighted_clusters


class HybridMulticastOptions(SwapOptions, frozen=True):
    root: Literal[2, 1, 4, 16] = 2  # how many processes form the root of the combining tree
    inner: Literal[1, 2, 4] = 1  # and each other node of it
    window: WindowMs = 0  # for how many milliseconds a node waits for others to meet; 0: until its turn is over


class HybridMulticast(OrderedBySwap):
    declaration = Declaration(
        name="hybrid",
        title="Hybrid multicast (a combining tree of clusters with arrows)",
        source="Herlihy, Tirthapura, Wattenhofer, section 6.1",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=tuple(promise for promise in PROMISES if promise is not Promise.FIFO),
    )
    Options = HybridMulticastOptions
    options: HybridMulticastOptions

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        super().check(options, model)
        if options.weights and options.inner > 1:
            raise UsageError(
                "hybrid with weights takes its edges from a tree, in which one process of a cluster below the root "
                f"would have an edge up, and not each of inner={options.inner}: use it with inner=1."
            )

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        """Two chains of one cluster go up from two processes, and the later one may be quicker."""
        return PROMISES if options.inner == 1 and not options.gaps else super().own_promises(options)

    def cluster_place(self) -> ClusterPlace:
        nodes, options = self.nodes(), self.options
        if not nodes:
            return ClusterPlace()
        if options.weights:
            return weighted_clusters(self.members, options.weights, self.dead(self.group), options.root)[self.me]
        return clusters(nodes, options.tree, options.seed, options.root, options.inner)[self.me]

    def neighbours(self) -> tuple[ProcessId, ...]:
        return self.cluster_place().neighbours

    def make_swap_object(self) -> DistributedSwap:
        return self.swap_part(Hybrid, HybridOptions(self.options.window), place=self.cluster_place)
