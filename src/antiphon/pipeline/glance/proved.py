"""What follows for a run from the merged histories of its processes, as `conclude` argues for keys."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.glance.conclude import CAUSAL_ONES, UNCLEAR
from antiphon.pipeline.messages import judged


def unproven_by_merging() -> Column:
    """The orders that are judged and not proved, by what `merge` tells and what is marked of the run."""
    members = F.flatten(F.map_values("groups"))
    disjoint = F.size(members) == F.size(F.array_distinct(members))
    increasing = ~F.col("stuck")
    no_holes = increasing & ~F.col("holes") & ~F.array_contains("marks", UNCLEAR)
    known = ~F.array_contains("marks", CAUSAL_ONES)
    proved = {
        Promise.ACYCLIC_ORDER: increasing,
        Promise.TOTAL_ORDER: no_holes & disjoint,
        Promise.FIFO: no_holes & F.col("fifo") & known,
        Promise.CAUSAL: no_holes & F.col("causal") & known,
        Promise.CAUSAL_EXTENSION: increasing & F.col("causal") & known,
        Promise.VIEW_ORDER: increasing,
    }
    return F.array_compact(F.array(*(F.when(judged(str(name)) & ~p, F.lit(str(name))) for name, p in proved.items())))
