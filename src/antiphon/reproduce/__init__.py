"""The papers' tables and figures, made again and set beside theirs: one file for each of R1 to R9 (docs/papers.md)."""

from antiphon.reproduce.lab import Lab
from antiphon.reproduce.results import NAMES, need_spark, prepare, reproduce, wanted
from antiphon.reproduce.table import PaperResult
from antiphon.reproduce.write import verdict

__all__ = ["NAMES", "Lab", "PaperResult", "need_spark", "prepare", "reproduce", "verdict", "wanted"]
