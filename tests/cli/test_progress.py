"""Bars on a terminal: they move while Spark starts, and show nothing of what Java says meanwhile."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

START = """
import os, time
from antiphon.cli import session
from antiphon.cli.progress import StepsBar, on_stderr
from antiphon.cli.sweep import _bar
from antiphon.pipeline import session as pipeline

def slow(**_):
    os.write(2, b"what Java says")
    time.sleep(1.5)

pipeline.spark_session = slow
"""
STEPS = """
with StepsBar(2) as steps:
    steps.next("starting Spark")
    session.quiet_session(1)
"""
SWEEP = """
with on_stderr() as console, _bar(10, console) as update:
    update(4, "starting Spark")
    session.quiet_session(1)
    update(7, "simulating")
    time.sleep(0.5)
"""


def frames(script: str) -> list[str]:
    """What a terminal was made to show, one after the other."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    started = subprocess.Popen([sys.executable, "-c", START + script], stderr=theirs, env=environment)
    os.close(theirs)
    told = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # nobody has the terminal any more
            break
        told += part
    os.close(ours)
    assert started.wait() == 0
    return re.split(r"\r", told.decode())


def test_a_bar_goes_on_while_spark_starts() -> None:
    shown = frames(STEPS)
    assert sum("starting Spark" in frame for frame in shown) > 5
    assert not any("what Java says" in frame for frame in shown)


def test_the_bar_of_a_sweep_moves_before_the_first_run_is_done() -> None:
    """Also where a sweep goes on: what was done before is said beside it."""
    shown = frames(SWEEP)
    starting = [frame for frame in shown if "starting Spark" in frame and "4/10" in frame]
    assert len(set(starting)) > 5, "it runs to and fro"
    done = [frame for frame in shown if "simulating" in frame and "7/10" in frame]
    assert done
    assert len({frame.split("7/10")[0] for frame in done}) == 1, "now it stands for what is done"
