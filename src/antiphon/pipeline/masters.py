"""Where Spark runs: on this machine, on a master's executors, or behind a Spark Connect server (`sc://...`)."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from antiphon.core.errors import NotJudged

HERE = "local[*]"
CONNECT = "sc://"
# Where they listen unless they say otherwise; of other masters, as YARN, Spark's own settings know the address.
PORTS = {"sc": 15002, "spark": 7077}
ANSWERS_WITHIN_SECONDS = 10.0


def is_connect(master: str) -> bool:
    return master.startswith(CONNECT)


def is_remote(master: str) -> bool:
    """Whether tasks run elsewhere than in this machine's own Java."""
    return not re.fullmatch(r"local(\[[\d*, ]+\])?", master)


def chosen_master() -> str | None:
    """Where the environment or spark-submit already says to run."""
    if remote := os.environ.get("SPARK_REMOTE"):
        return remote
    said = re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    if said:
        return said[1].strip("'\"")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # spark-submit's own Java knows it; a conf made before would be empty
    return str(SparkConf().get("spark.master") or "") or None


def check_answer(master: str) -> None:
    """Refuse a server that is not there: Spark itself would go on asking for one minute, or for ten."""
    scheme, _, rest = master.partition("://")
    if scheme not in PORTS:
        return
    for place in rest.split(","):  # a standalone master may have others that stand by
        parts = urlsplit(f"//{place}")
        with suppress(OSError, ValueError):
            address = (parts.hostname or "", parts.port or PORTS[scheme])
            socket.create_connection(address, timeout=ANSWERS_WITHIN_SECONDS).close()
            return
    raise NotJudged(f"Spark did not start: nobody answers at {master}.")
