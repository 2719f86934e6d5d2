"""Make the pictures of the docs that are generated.

    make pictures                       docs/protocols/skeen.svg, isis.svg, arrow.svg, combining.svg, toto_graph.svg
    make pictures REPORT=antiphon-demo/report.html      and docs/pictures/report.png, with chromium

`architecture.svg` is drawn by hand.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import drawing

from antiphon.reproduce import r9
from antiphon.reproduce.swap_figures import strip
from antiphon.reproduce.swap_stage import arrow_figures, combining_figures
from antiphon.reproduce.toto_graph import example, picture
from antiphon.simulation import MILLISECOND, Plan, Scenario, simulate

DOCS = Path(__file__).resolve().parents[1]
PAPER = "#f6f8fa"  # a page of its own: an image cannot know whether GitHub is light or dark


def skeen() -> None:
    """One multicast by Skeen's protocol from outside to two groups of two; each frame takes one millisecond."""
    plan = Plan(sender="c1", at=0, destinations=("a", "b"))
    outcome = simulate(Scenario(protocol="skeen", groups={"a": 2, "b": 2}, plans=(plan,)))
    assert not outcome.violations
    rows = {
        kind: [row for row in outcome.rows if row.kind == kind] for kind in ("multicast", "deliver", "send", "receive")
    }
    (m,) = [row.message for row in rows["multicast"]]
    figure = drawing.space_time(
        outcome.facts.groups,
        drawing.matched(
            [(r.process, peer, m, r.layer, r.time_ns) for r in rows["send"] for peer in r.peers],
            [(peer, r.process, m, r.layer, r.time_ns) for r in rows["receive"] for peer in r.peers],
        ),
        [(r.process, r.message, r.time_ns) for r in rows["multicast"]],
        [(r.process, r.message, r.time_ns) for r in rows["deliver"]],
    )
    axes = figure.axes[0]
    bottom, top = axes.get_ylim()
    for step, name in enumerate(("START(m)", "PROPOSE(m, t)", "FINAL(m, max t)")):
        middle = (step + 0.5) * MILLISECOND / 1e6
        axes.text(middle, top + 0.1, name, ha="center", va="bottom", fontsize=11, fontweight="bold")
    axes.set_ylim(bottom - 0.1, top + 0.55)
    (DOCS / "protocols" / "skeen.svg").write_text(_standalone(drawing.svg(figure)))


def isis() -> None:
    """The hold-back queues of slides 6 and 7 after each step."""
    (DOCS / "protocols" / "isis.svg").write_text(r9.picture(r9.played()))


def swap() -> None:
    """Figures 1 to 9 of swap.txt."""
    (DOCS / "protocols" / "arrow.svg").write_text(strip(arrow_figures()))
    (DOCS / "protocols" / "combining.svg").write_text(strip(combining_figures()))


def toto() -> None:
    """A small causal graph, as its first machine sees it grow."""
    (DOCS / "protocols" / "toto_graph.svg").write_text(picture(example(), "g.1"))


def _standalone(svg: str) -> str:
    """An SVG file with paper, ink and a font of its own, instead of those of the page around it."""
    svg = svg.replace("currentColor", drawing.INK).replace("inherit", "Helvetica, Arial, sans-serif")
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()  # type: ignore[union-attr]
    end = svg.index(">") + 1
    return f'{svg[:end]}\n<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>{svg[end:]}'


def report(page: Path) -> None:
    """A screenshot of a report."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("chromium is needed to photograph a report")
    target = DOCS / "pictures" / "report.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1040,1440"]
    subprocess.run(
        [browser, *flags, f"--screenshot={target}", page.resolve().as_uri()], check=True, capture_output=True
    )


if __name__ == "__main__":
    skeen()
    isis()
    swap()
    toto()
    if len(sys.argv) > 1:
        report(Path(sys.argv[1]))
