"""The report: one page, its data, and how it behaves in a real browser, as wide as a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from antiphon.core.promises import REGISTRY, Promise
from antiphon.pipeline.metrics import metrics
from antiphon.pipeline.read import read_events, read_runs
from antiphon.pipeline.report import write_report
from antiphon.pipeline.scenes import OUTAGES_MAX, _down, _outages, scenes
from antiphon.pipeline.verify import verdicts, verify
from antiphon.trace import Row, RunFacts
from antiphon.trace.parquet import write_run
from forgeries import FORGERIES, HARMLESS, honest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PHONE = 390  # pixels


def fine_run() -> tuple[RunFacts, list[Row]]:
    (replaced,) = [odd for odd in HARMLESS if odd.name == "member_replaced"]
    return replaced.forge(*honest_run(2, run="fine"))


@pytest.fixture(scope="module")
def pages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report of an honest run in which a member is replaced, and that of two of which one is broken."""
    folder = tmp_path_factory.mktemp("report")
    (cycle,) = [forgery for forgery in FORGERIES if forgery.name == "cycle_of_three"]
    broken_facts, rows = cycle.forge(*honest_run(7))
    for facts, kept in (fine_run(), (msgspec.structs.replace(broken_facts, run="bad"), rows)):
        facts.promises = ["validity", "acyclic_order"]
        # Receivers do not say what a frame is about, as those of the simulator and of real processes do not.
        write_run(folder / "trace", facts, [row._replace(about=None) if row.kind == "receive" else row for row in kept])
    events, runs = read_events(spark, folder / "trace").localCheckpoint(), read_runs(spark, folder / "trace")
    found, measured = verify(events, runs), metrics(events, runs)
    texts = {}
    for shown, some in (("fine", runs.filter("run = 'fine'")), (None, runs)):
        mine = found.join(some.select("run"), on="run", how="left_semi")
        judged = [row.asDict() for row in verdicts(mine, some).collect()]
        write_report(folder / "report.html", events, some, mine, judged, measured, run=shown)
        texts[shown or "both"] = (folder / "report.html").read_text()
    return texts


def data_of(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    data: dict[str, Any] = msgspec.json.decode(found)
    return data


def test_the_verdict_is_in_the_page_and_nothing_is_fetched(pages: dict[str, str]) -> None:
    assert "Every promise holds in the run." in pages["fine"]
    assert "A promise is broken: acyclic_order." in pages["both"]
    assert "f1:1 before f2:1" in pages["both"]
    proof = pages["both"][pages["both"].index("<svg") : pages["both"].index("</svg>")]
    assert "deliver f1:1" in proof, "the first proof is open to be seen"
    assert pages["both"].count("<details open>") == 1
    for page in pages.values():
        assert not re.search(
            r"(src|href)=|url\((?!#)|@import|fetch\(|XMLHttpRequest|https?://(?!www\.w3\.org/2000/svg)", page
        )
        assert REGISTRY[Promise.ACYCLIC_ORDER].meaning.replace("'", "&#x27;") in page


def test_the_pictures_show_the_run(pages: dict[str, str]) -> None:
    facts, rows = fine_run()
    data = data_of(pages["fine"])
    delivered = [row for row in rows if row.kind == "deliver"]
    assert sum(count for counts in data["deliveries"].values() for _, count in counts) == len(delivered)
    assert sum(cell[-1] for cell in data["latency"]["cells"]) + data["latency"]["backwards"] == len(delivered)
    sent = {row.message: row.time_ns for row in rows if row.kind == "multicast"}
    slowest = max(row.time_ns - sent[row.message] for row in delivered)
    assert max(cell[2] for cell in data["latency"]["cells"]) == slowest / 1e6, "percentiles are latencies that occurred"
    assert [group for group, _ in data["lanes"]] == sorted(facts.groups)
    assert [mark[:2] for mark in data["marks"] if mark[0] == "g1.4"] == [["g1.4", "adopt"]]
    frames = data["space_time"]["frames"]
    assert frames
    assert all(sent <= received for *_, sent, received in frames)


def test_who_was_down_and_when() -> None:
    marks = [(5, "a", "crash"), (6, "a", "recover"), (7, "b", "crash"), (9, "c", "recover")]
    assert _down(marks, 20) == [("a", 5, 6), ("b", 7, 20)]
    assert _down([*marks, (8, "b", "adopt")], 20) == _down(marks, 20), "who takes another's place was not down"
    assert _outages([(7, 20), (1, 3), (2, 5)]) == [(1, 5), (7, 20)]
    many = _outages([(10 * i, 10 * i + 5) for i in range(OUTAGES_MAX + 50)])
    assert len(many) == OUTAGES_MAX
    assert (many[0][0], many[-1][1]) == (0, 10 * (OUTAGES_MAX + 49) + 5)


def made(process: str, seq: int, time_ms: int, kind: str, **columns: Any) -> Row:
    return Row(process=process, seq=seq, time_ns=time_ms * 1_000_000, kind=kind, **columns)


def test_what_was_under_way_in_an_outage_is_told_from_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    """m1 is delivered before a2 goes down; m2 is multicast before that and delivered by a2 when it is back; m3 is
    multicast after it. And a receiver on a real machine does not say what its frames are about."""
    rows = [
        made("a1", 1, 0, "multicast", message="a1:1", destinations=["a"]),
        made("a1", 2, 1, "send", peers=["a2"], about=["a1:1"], layer="x"),
        made("a1", 3, 2, "deliver", message="a1:1", destinations=["a"], position=0),
        made("a2", 1, 3, "receive", peers=["a1"], about=[], layer="x"),
        made("a2", 2, 4, "deliver", message="a1:1", destinations=["a"], position=0),
        made("a1", 4, 5, "multicast", message="a1:2", destinations=["a"]),
        made("a2", 3, 6, "crash"),
        made("a2", 4, 90, "recover"),
        made("a2", 5, 95, "deliver", message="a1:2", destinations=["a"], position=1),
        made("a1", 5, 100, "multicast", message="a1:3", destinations=["a"]),
        made("a2", 6, 99, "deliver", message="a1:3", destinations=["a"], position=2),
    ]
    facts = RunFacts(
        run="r", driver="runtime", protocol="x", groups={"a": ["a1", "a2"]}, promises=[], drained=True, faulty=[]
    )
    write_run(tmp_path, facts, rows)
    found = scenes(facts.groups, read_events(spark, tmp_path))
    cells = found["latency"]["cells"]
    assert sorted((outage, count) for *_, outage, count in cells) == [(0, 1), (0, 1), (1, 1)]
    assert found["latency"]["backwards"] == 1, "a clock was ahead"
    assert found["down"] == [("a2", 0.006, 0.09)]
    assert found["space_time"]["frames"] == [("a1", "a2", "a1:1", 1.0, 3.0)]


# What a reader does, by hand, in a frame as wide as a phone.
READER = """
<body><iframe src="report.html" style="width:PHONEpx;height:800px;border:0"></iframe><pre id="seen"></pre>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, inside = frame.contentWindow;
  const svg = (id) => page.querySelector(`#${id} svg`);
  const span = () => page.getElementById("span").textContent;
  const drag = (id, from, to) => {
    const box = svg(id).getBoundingClientRect();
    const at = (kind, share) => new inside.PointerEvent(kind, {bubbles: true, clientX: box.left + share * box.width});
    svg(id).dispatchEvent(at("pointerdown", from));
    inside.dispatchEvent(at("pointermove", to));
    inside.dispatchEvent(at("pointerup", to));
  };
  const seen = {spans: [span()], lanes: page.querySelectorAll("#timeline path").length};
  const texts = [...page.querySelectorAll("svg text:not([data-tip])")]
    .map((text) => [text.textContent, text.getBoundingClientRect()]);
  const apart = (one, other) => one.right <= other.left || other.right <= one.left
    || one.bottom <= other.top + 2 || other.bottom <= one.top + 2;
  seen.covered = texts.flatMap(([one, box], place) => texts.slice(place + 1)
    .filter(([, other]) => !apart(box, other)).map(([other]) => `${one} / ${other}`));
  const edge = svg("space-time").getBoundingClientRect().right;
  const dots = [...page.querySelectorAll("#space-time circle")];
  seen.cut = dots.filter((dot) => dot.getBoundingClientRect().right > edge).length;
  seen.keys = [...page.querySelectorAll(".legend > span")].map((key) => key.textContent);
  drag("timeline", 0.5, 0.7);
  seen.spans.push(span());
  page.querySelector('[data-zoom="out"]').click();
  seen.spans.push(span());
  svg("latency") && svg("latency").dispatchEvent(new inside.MouseEvent("dblclick", {bubbles: true}));
  page.querySelector('[data-zoom="all"]').click();
  seen.spans.push(span());
  seen.pictures = ["timeline", "latency", "shares", "space-time"].filter((id) => svg(id));
  seen.arrows = page.querySelectorAll("#space-time path").length;
  const before = svg("space-time").outerHTML;
  drag("space-time", 0.5, 0.9);
  seen.zoomed = svg("space-time").outerHTML !== before;
  page.querySelector("td [data-tip]").dispatchEvent(new inside.PointerEvent("pointerover", {bubbles: true}));
  seen.tip = page.getElementById("tip").hidden ? "" : page.getElementById("tip").textContent;
  seen.width = page.documentElement.scrollWidth;
  seen.errors = inside.errors;
  document.getElementById("seen").textContent = JSON.stringify(seen);
};
</script></body>
""".replace("PHONE", str(PHONE))


def seen_in_a_browser(page: str, reader: str, tmp_path: Path, *flags: str) -> dict[str, Any]:
    """What a script tells of the page, which it has in a frame."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no browser: apt-get install chromium")
    watching = "<script>window.errors = []; onerror = (words) => void errors.push(words);</script><style>"
    (tmp_path / "report.html").write_text(page.replace("<style>", watching, 1))
    (tmp_path / "reader.html").write_text(reader)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    shown = subprocess.run(
        [*command, *flags, profile, "--virtual-time-budget=5000", (tmp_path / "reader.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    (told,) = re.findall(r'<pre id="seen">(.*?)</pre>', shown.stdout, flags=re.DOTALL)
    seen: dict[str, Any] = msgspec.json.decode(unescape(told))
    return seen


def test_a_reader_explores_it_in_a_browser(pages: dict[str, str], tmp_path: Path) -> None:
    seen = seen_in_a_browser(pages["fine"], READER, tmp_path)
    assert seen["errors"] == []
    assert seen["pictures"] == ["timeline", "latency", "shares", "space-time"]
    assert seen["lanes"] == sum(len(members) for _, members in data_of(pages["fine"])["lanes"])
    whole, part, wider, again = seen["spans"]
    assert part != whole
    assert wider not in (whole, part)
    assert again == whole
    assert seen["arrows"]
    assert seen["zoomed"]
    assert seen["tip"] == REGISTRY[Promise.VALIDITY].meaning
    assert seen["width"] <= PHONE, "nothing sticks out on a phone"
    assert seen["covered"] == [], "no words stand over others"
    assert seen["cut"] == 0, "deliveries that stand beside one another are all in the picture"
    assert seen["keys"][:2] == ["normal operation", "while a process was down"]
    assert len(seen["keys"]) == 2 + len(data_of(pages["fine"])["space_time"]["messages"])


IN_THE_DARK = """
<body><iframe src="report.html" style="width:PHONEpx;height:800px;border:0"></iframe><pre id="seen"></pre>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, colour = (of) => frame.contentWindow.getComputedStyle(of);
  const words = [...page.querySelectorAll(".proof text:not(.small)")].map((text) => colour(text).fill);
  const told = {words: [...new Set(words)], ink: colour(page.body).color, page: colour(page.body).backgroundColor};
  document.getElementById("seen").textContent = JSON.stringify(told);
};
</script></body>
""".replace("PHONE", str(PHONE))


def test_what_proves_a_violation_is_legible_on_a_dark_page(pages: dict[str, str], tmp_path: Path) -> None:
    seen = seen_in_a_browser(pages["both"], IN_THE_DARK, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert seen["page"] == "rgb(13, 17, 23)"
    assert seen["words"] == [seen["ink"]]
