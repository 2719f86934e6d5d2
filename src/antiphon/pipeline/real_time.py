"""One order, in which what is multicast after a delivery, anywhere, comes after what was delivered.

Runs whose keys show it are not looked at again (`moments`); of the others the kernel follows all chains.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.order import disorder


def real_time_order(evidence: Evidence) -> DataFrame | None:
    return disorder(evidence, Promise.REAL_TIME_ORDER)
