"""What follows for a run from the merged histories of its processes, as `conclude` argues for keys."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.glance.conclude import CAUSAL_ONES, UNCLEAR, proofs
from antiphon.pipeline.messages import judged


def unproven_by_merging() -> Column:
    """The orders that are judged and not proved, by what `merge` tells and what is marked of the run."""
    members = F.flatten(F.map_values("groups"))
    disjoint = F.size(members) == F.size(F.array_distinct(members))
    clear, known = (~F.array_contains("marks", mark) for mark in (UNCLEAR, CAUSAL_ONES))
    fifo, causal = (F.col(name) & known for name in ("fifo", "causal"))
    proved = proofs(~F.col("stuck"), ~F.col("holes") & clear, disjoint, fifo, causal)
    del proved[Promise.REAL_TIME_ORDER]  # to merge tells nothing of the time
    return F.array_compact(F.array(*(F.when(judged(str(name)) & ~p, F.lit(str(name))) for name, p in proved.items())))
