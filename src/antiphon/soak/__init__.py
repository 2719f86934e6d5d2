"""A real cluster under load and under faults of all kinds, for minutes or hours, and what it makes of its promises."""

from antiphon.soak.campaign import Soak
from antiphon.soak.stage import create
from antiphon.soak.values import Finding, SoakReport, SoakSettings

__all__ = ["Finding", "Soak", "SoakReport", "SoakSettings", "create"]
