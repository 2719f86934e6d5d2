"""The papers' tables and figures, made again: one module for each that needs more than a test."""
