"""Protocols with one mistake each: what the suite must catch."""
