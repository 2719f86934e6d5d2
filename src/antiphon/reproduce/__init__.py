"""The papers' tables and figures, made again and set beside theirs: one file for each of R1 to R9 (docs/papers.md)."""
