"""A result as files: Markdown, CSV and JSON in a folder of its own, and one page about all of them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from pathlib import Path

import msgspec

from antiphon.reproduce.table import PaperResult, ResultRow, ResultTable, shown

VERDICTS = {True: "yes", False: "**no**", None: ""}
COLUMNS = ("measure", "paper", "ours", "deviation", "bound", "holds")


def write_result(folder: Path, result: PaperResult) -> None:
    """The pictures are there already."""
    (folder / "table.md").write_text(markdown(result))
    (folder / "table.csv").write_text(as_csv(result))
    (folder / "result.json").write_bytes(as_json(result))


def as_json(result: PaperResult) -> bytes:
    found = {**msgspec.to_builtins(result), "holds": not result.missed, "missed": result.missed}
    return msgspec.json.format(msgspec.json.encode(found), indent=1)


def read_result(folder: Path) -> PaperResult:
    return msgspec.json.decode((folder / "result.json").read_bytes(), type=PaperResult)


def as_csv(result: PaperResult) -> str:
    """One row for each of all tables; the case is one cell."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "case", *COLUMNS))
    for table in result.tables:
        for row in table.rows:
            deviation = "" if row.deviation is None else f"{row.deviation:.4f}"
            holds = "" if row.holds is None else str(row.holds).lower()
            paper = "" if row.paper is None else row.paper
            case = ", ".join(part for part in row.case if part)
            writer.writerow((table.title, case, row.measure, paper, row.ours, deviation, row.bound, holds))
    return text.getvalue()


# Markdown -----------------------------------------------------------------------------------------------------------


def markdown(result: PaperResult, pictures_in: str = "", level: int = 1) -> str:
    """``pictures_in``: the folder of the pictures, as the page names it."""
    lines = [f"{'#' * level} {result.name.upper()}: {result.title}", "", f"{result.source}. {result.setting}", ""]
    lines += [f"**{verdict(result)}**", ""]
    for table in result.tables:
        lines += [f"{'#' * (level + 1)} {table.title}", "", *_markdown_table(table), ""]
    for picture in result.pictures:
        lines += [f"![{picture.caption}]({pictures_in}{picture.file})", ""]
    if result.notes:
        lines += [f"{'#' * (level + 1)} Notes", "", *(f"- {note}" for note in result.notes), ""]
    return "\n".join(lines)


def _markdown_table(table: ResultTable) -> list[str]:
    heads, rows = _columns(table)
    lines = [_line(heads), _line(["---"] * len(heads))]
    return lines + [_line([cell.replace("|", "\\|") for cell in row]) for row in rows]


def _line(cells: Iterable[str]) -> str:
    return ("| " + " | ".join(cells) + " |").replace("|  |", "| |").replace("|  |", "| |")


def _columns(table: ResultTable) -> tuple[list[str], list[list[str]]]:
    """The heads and cells, without the columns that say nothing in any row."""
    heads = [*table.labels, *COLUMNS]
    rows = [_cells(row) for row in table.rows]
    kept = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _cells(row: ResultRow) -> list[str]:
    deviation = "" if row.deviation is None else f"{100 * row.deviation:+.1f} %"
    paper = "" if row.paper is None else shown(row.paper)
    return [*row.case, row.measure, paper, shown(row.ours), deviation, row.bound, VERDICTS[row.holds]]


def verdict(result: PaperResult) -> str:
    bounds, missed = len(result.bounded), len(result.missed)
    if missed:
        return f"{missed} of {bounds} bounds missed"
    return f"All {bounds} bounds are kept" if bounds > 1 else "The bound is kept"


# The page about all -------------------------------------------------------------------------------------------------


def write_index(folder: Path, names: Sequence[str]) -> None:
    """index.html and index.md, about all results that the folder has."""
    results = [read_result(folder / name) for name in names if (folder / name / "result.json").exists()]
    (folder / "index.html").write_text(_page(results))
    (folder / "index.md").write_text(_markdown_page(results))


def _markdown_page(results: Sequence[PaperResult]) -> str:
    lines = ["# The papers' tables and figures, made again", "", *_overview(results), ""]
    return "\n".join(lines) + "\n" + "\n".join(markdown(each, f"{each.name}/", level=2) for each in results)


def _overview(results: Sequence[PaperResult]) -> list[str]:
    lines = ["| | what | source | result |", "| --- | --- | --- | --- |"]
    return lines + [
        f"| [{each.name.upper()}](#{_anchor(each)}) | {each.title} | {each.source} | {verdict(each)} |"
        for each in results
    ]


def _anchor(result: PaperResult) -> str:
    """As GitHub makes it of a heading."""
    kept = [c for c in f"{result.name}: {result.title}".lower() if c.isalnum() or c in " -"]
    return "".join(kept).replace(" ", "-")


STYLE = """
:root { color-scheme: light; --ink: #1f2933; --faint: #6b7785; --rule: #dde3e9; --good: #2a7a4b; --bad: #c8553d; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
td, th { padding: .15rem .8rem .15rem 0; text-align: left; border-bottom: 1px solid var(--rule); }
th { color: var(--faint); font-weight: 600; } img { max-width: 100%; margin: 1rem 0; }
.yes { color: var(--good); } .no { color: var(--bad); font-weight: 700; } .faint { color: var(--faint); }
""".strip()


def _page(results: Sequence[PaperResult]) -> str:
    form = "The quick form. " if any(each.quick for each in results) else ""
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>The papers' tables, made again</title><style>{STYLE}</style></head><body>",
        "<h1>The papers' tables and figures, made again</h1>",
        f"<p>{form}A row has the paper's value, ours, the deviation and, where there is one, the bound.</p>",
        '<div class="scroll"><table><tr><th></th><th>what</th><th>source</th><th>result</th></tr>',
    ]
    for each in results:
        name, word = each.name, "no" if each.missed else "yes"
        cells = (f'<a href="#{name}">{name.upper()}</a>', escape(each.title), escape(each.source))
        lines.append(f'<tr><td>{"</td><td>".join(cells)}</td><td class="{word}">{verdict(each)}</td></tr>')
    lines.append("</table></div>")
    for each in results:
        lines += _section(each)
    return "\n".join([*lines, "</body></html>", ""])


def _section(result: PaperResult) -> list[str]:
    name = result.name
    files = ", ".join(f'<a href="{name}/{file}">{file}</a>' for file in ("table.md", "table.csv", "result.json"))
    lines = [
        f'<h2 id="{name}">{name.upper()}: {escape(result.title)}</h2>',
        f"<p>{escape(result.source)}. {escape(result.setting)} "
        f'<span class="faint">{result.seconds:.0f} s; {files}</span></p>',
        *(f'<p class="no">{escape(sentence)}</p>' for sentence in result.missed),
    ]
    for picture in result.pictures:
        caption = escape(picture.caption)
        lines.append(f'<img src="{name}/{escape(picture.file)}" alt="{caption}" title="{caption}">')
    for table in result.tables:
        lines += [f"<h3>{escape(table.title)}</h3>", *_html_table(table)]
    if result.notes:
        lines += ["<h3>Notes</h3><ul>", *(f"<li>{escape(note)}</li>" for note in result.notes), "</ul>"]
    return lines


def _html_table(table: ResultTable) -> list[str]:
    heads, rows = _columns(table)
    marks = {"yes": '<td class="yes">yes</td>', VERDICTS[False]: '<td class="no">no</td>'}
    lines = ['<div class="scroll"><table>', "<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    lines += ["<tr>" + "".join(marks.get(c, f"<td>{escape(c)}</td>") for c in row) + "</tr>" for row in rows]
    return [*lines, "</table></div>"]
