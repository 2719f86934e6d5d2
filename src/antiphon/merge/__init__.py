"""The groups' delivered logs become one table in the order of all of them, on Spark: docs/merge.md."""
