"""Combining multicast (swap.txt, section 5): on the way to the root, messages that meet find their predecessors.

The combining tree is in services/combining.py, the hold-back queue in services/reduction.py.
"""

from __future__ import annotations

from antiphon.core import Assumptions, Declaration, Failures
from antiphon.services.combining import Combining, CombiningOptions, WindowMs
from antiphon.services.entering import MovableOptions, OrderedByMovableSwap
from antiphon.services.reduction import PROMISES
from antiphon.services.swap import LinkedSwap


class CombiningMulticastOptions(MovableOptions, frozen=True):
    window: WindowMs = 0  # for how many milliseconds a node waits for others to meet; 0: until its turn is over


class CombiningMulticast(OrderedByMovableSwap):
    declaration = Declaration(
        name="combining",
        title="Combining multicast (distributed swap by a combining tree)",
        source="Herlihy, Tirthapura, Wattenhofer, section 5",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=PROMISES,
    )
    Options = CombiningMulticastOptions
    options: CombiningMulticastOptions

    def make_swap_object(self) -> LinkedSwap:
        return self.swap_part(Combining, CombiningOptions(self.options.window), place=self.place)
