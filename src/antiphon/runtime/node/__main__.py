"""``python -m antiphon.runtime.node --dir CLUSTER --process orders.1``."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from antiphon.runtime.node import salvage_trace, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="antiphon.runtime.node", description="Run one process of a cluster.")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--process", required=True)
    parser.add_argument("--salvage-trace", action="store_true", help="only complete the trace of a killed process")
    arguments = parser.parse_args()
    run = salvage_trace if arguments.salvage_trace else serve
    return run(arguments.dir, arguments.process)


if __name__ == "__main__":
    exit_code = main()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(exit_code)  # threads that a disk holds up must not hold up the end
