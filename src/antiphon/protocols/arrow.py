"""Arrow multicast (swap.txt, section 4): a message follows the arrows of a tree to its predecessor, and flips them.

The arrows are in services/arrow.py, the hold-back queue in services/reduction.py.
"""

from __future__ import annotations

from antiphon.core import Assumptions, Declaration, Failures
from antiphon.services.arrow import Arrow
from antiphon.services.entering import MovableOptions, OrderedByMovableSwap
from antiphon.services.reduction import PROMISES
from antiphon.services.swap import LinkedSwap


class ArrowMulticast(OrderedByMovableSwap):
    declaration = Declaration(
        name="arrow",
        title="Arrow multicast (distributed swap by path reversal)",
        source="Herlihy, Tirthapura, Wattenhofer, section 4",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=PROMISES,
    )
    Options = MovableOptions
    options: MovableOptions

    def make_swap_object(self) -> LinkedSwap:
        return self.swap_part(Arrow, place=self.place)
