"""Checks, measures and draws traces of any size on Spark: what one machine's memory need not hold.

Its modules import pyspark, which is optional: call `session.spark_session` first, it says what is missing.
"""
