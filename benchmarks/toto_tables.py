"""R6 and R7: toto.txt's Tables 2 to 5 and Figures 5 and 6, simulated, and measured by Spark from the trace.

    python benchmarks/toto_tables.py [--seeds 10] [--messages 4000] [--loads 50 100] [--trace FOLDER] [--plot FILE.svg]

8 machines send 4,000 agreed messages over links of 2 ms; Φ = 4. The latency is that at the sender. With all seeds it
takes a quarter of an hour; `--seeds 2` is a look at it. Runs that the folder has already are not simulated again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from antiphon.reproduce import toto
from antiphon.reproduce.toto import Case, Measured, Source

NAMES = {"toto": "ToTo", "allack": "all-ack"}
HEADS = ("source", "msg/s", "protocol", "τ", "paper", "ω", "paper", "ms", "paper", "model ms", "ρ")
SPEEDUP_HEADS = ("speedup", "paper", "its model")


def line(case: Case, found: Measured) -> list[str]:
    at = toto.LOADS.index(case.load)
    is_toto = case.protocol == "toto"
    index = toto.PAPER_INDEX[case.source][at] if is_toto else case.n
    width = toto.PAPER_WIDTH[case.source, case.protocol][at]
    observed = toto.PAPER_MS[case.source, case.protocol][at]
    return [
        *(case.source, str(case.load), NAMES[case.protocol], f"{found.tau:.2f}", f"{index:.2f}"),
        *(f"{found.omega:.2f}", f"{width:.2f}", f"{found.latency_ms:.2f}", f"{observed:.2f}"),
        *(f"{found.model_ms:.2f}", f"{found.rho:.3f}"),
    ]


def missed(source: Source, load: int, found: dict[str, Measured]) -> list[str]:
    """What is not within the bounds of R6 and R7."""
    at, words = toto.LOADS.index(load), []
    for protocol, paper in (("toto", toto.PAPER_INDEX[source][at]), ("allack", toto.MACHINES)):
        measured = found[protocol]
        if abs(measured.tau - paper) > toto.INDEX_WITHIN:
            words.append(f"{source} {load} {protocol}: τ {measured.tau:.2f}, paper {paper}")
        if measured.rho > toto.MODEL_WITHIN:
            words.append(f"{source} {load} {protocol}: ρ {measured.rho:.3f}")
    speedup, aim = found["allack"].latency_ms / found["toto"].latency_ms, toto.MODEL_SPEEDUP[source][at]
    if abs(speedup / aim - 1) > toto.SPEEDUP_WITHIN:
        words.append(f"{source} {load}: speedup {speedup:.2f}, the paper's model {aim}")
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--messages", type=int, default=toto.MESSAGES)
    parser.add_argument("--loads", type=int, nargs="*", default=toto.LOADS)
    parser.add_argument("--trace", type=Path, help="where the runs are kept")
    parser.add_argument("--plot", type=Path, help="Figures 5 and 6")
    arguments = parser.parse_args()
    cases = [
        Case(protocol, source, load, messages=arguments.messages)
        for source in toto.SOURCES
        for load in arguments.loads
        for protocol in toto.PROTOCOLS
    ]
    with tempfile.TemporaryDirectory(prefix="antiphon-toto-") as temporary:
        found = toto.measure(arguments.trace or Path(temporary), cases, lambda case: range(arguments.seeds))
    by_load: dict[tuple[Source, int], dict[str, Measured]] = {}
    for case, measured in found.items():
        by_load.setdefault((case.source, case.load), {})[case.protocol] = measured
    print("| " + " | ".join((*HEADS, *SPEEDUP_HEADS)) + " |")
    print("| --- " * (len(HEADS) + len(SPEEDUP_HEADS)) + "|")
    words = []
    for case, measured in found.items():
        pair, cells = by_load[case.source, case.load], ["", "", ""]
        if case.protocol == "toto":
            at = toto.LOADS.index(case.load)
            speedup = pair["allack"].latency_ms / pair["toto"].latency_ms
            papers = (toto.PAPER_SPEEDUP[case.source][at], toto.MODEL_SPEEDUP[case.source][at])
            cells = [f"{speedup:.2f}", *(f"{value:.2f}" for value in papers)]
            words += missed(case.source, case.load, pair)
        print("| " + " | ".join([*line(case, measured), *cells]) + " |")
    print("\nWithin the bounds of R6 and R7." if not words else "\nNot within the bounds:\n" + "\n".join(words))
    if arguments.plot is not None:
        from antiphon.reproduce.toto_figures import draw_indices

        indices = {(case.source, case.load): measured for case, measured in found.items() if case.protocol == "toto"}
        draw_indices(arguments.plot, indices)
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
