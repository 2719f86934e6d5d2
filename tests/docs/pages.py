"""What the pages claim, as examples to run: a small reader of Markdown's fenced blocks.

- ``sh``: commands, one to a line. ``console``: commands after ``$``, each with its output below it.
- ``python``: a program, which may await outside of functions. All those of a page are one program.
- ``output``: what the ``sh`` or ``python`` block before it prints. A line ``...`` stands for any number of lines.
- ``text``: a picture, a folder, a sentence; it has no commands.

What a reader does not see stands in comments before a block:

- ``<!-- not run: reason -->``: it takes half an hour, or needs what a test does not have.
- ``<!-- before: command -->``: done first, without a word.
- ``<!-- instead: command -->``: this is run in its place, and all numbers of its output may differ.
- ``<!-- exits with 1: command -->``: of the commands of the block, this one does; all others exit with 0.
- ``<!-- file: path -->``: the block is not a program but the content of this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LANGUAGES = {"sh", "console", "python", "output", "text"}

LOOKS = ("antiphon status ", "antiphon tail ")  # commands that only show what has come so far

_COMMAND = re.compile(r"\s*(\$ |antiphon [a-z]|python |make )")
_INDENTED = re.compile(rf"(?:    |\t){_COMMAND.pattern}")
_MARKER = re.compile(r"<!-- (not run|before|instead|exits with|file):? (.+) -->")


@dataclass
class Example:
    """Commands or a program, and what they print: the lines of the page from ``begin`` to ``end``, if it says so."""

    page: Path
    line: int
    kind: str  # sh or python
    source: list[str]
    expected: list[str] | None = None
    begin: int = 0
    end: int = 0
    markers: dict[str, list[str]] = field(default_factory=dict)

    @property
    def why_not_run(self) -> str | None:
        return self.markers.get("not run", [None])[0]

    def exit_code(self, command: str) -> int:
        told = (marker.partition(": ") for marker in self.markers.get("exits with", []))
        return next((int(code) for code, _, of in told if of == command), 0)

    @property
    def looks(self) -> bool:
        return any(line.startswith(LOOKS) for line in self.source)

    @property
    def file(self) -> str | None:
        return self.markers.get("file", [None])[0]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True)
class Block:
    language: str
    line: int  # of its first line inside the fence, counted from 0
    lines: list[str]
    markers: dict[str, list[str]]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, each with the markers on the lines right before it."""
    markers: dict[str, list[str]] = {}
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            end = lines.index("```", at + 1)
            yield Block(line[3:], at + 1, lines[at + 1 : end], markers)
            markers, at = {}, end
        elif found := _MARKER.fullmatch(line):
            markers.setdefault(found[1], []).append(found[2])
        elif line.strip():
            assert not markers, f"{page.name}: a comment before line {at + 1} belongs to no block"
            where = f"{page.name}:{at + 1}"
            assert not _INDENTED.match(line), f"{where}: commands stand in a fenced block, not in an indented one"
        at += 1


def examples(page: Path) -> list[Example]:
    found: list[Example] = []
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: say what this block is: {', '.join(sorted(LANGUAGES))}"
        if block.language == "console":
            found += _console(page, block)
        elif block.language == "output":
            if not found or found[-1].expected is not None:
                raise AssertionError(f"{where}: no command prints this")
            found[-1].expected = block.lines
            found[-1].begin, found[-1].end = block.line, block.line + len(block.lines)
        elif block.language in ("sh", "python") or block.markers:
            kind = "sh" if block.language == "sh" else "python"
            alone = len(block.lines) == 1 or not any(line.startswith(LOOKS) for line in block.lines)
            assert alone, f"{where}: what a look shows stands right below it, in a console: it may have to be repeated"
            found.append(Example(page, block.line, kind, block.lines, markers=block.markers))
        else:
            commands = [line for line in block.lines if _COMMAND.match(line)]
            assert not commands, f"{where}: commands stand in a block called sh or console"
    return found


def _console(page: Path, block: Block) -> Iterator[Example]:
    starts = [index for index, line in enumerate(block.lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"{page.name}:{block.line}: a console begins with a command"
    for start, stop in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        output = block.lines[start + 1 : stop]
        while output and not output[-1].strip():
            output.pop()
        begin = block.line + start + 1
        command = [block.lines[start].removeprefix("$ ")]
        every = {name: values for name, values in block.markers.items() if name == "exits with"}
        markers = block.markers if start == 0 else every
        yield Example(page, begin, "sh", command, output, begin, begin + len(output), markers)
