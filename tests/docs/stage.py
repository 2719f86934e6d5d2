"""Where a page's examples are played: one folder, in the page's order, as a reader would."""

from __future__ import annotations

import ast
import asyncio
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import antiphon
from antiphon.cli.app import run as run_command
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from docs.pages import ROOT, Example

COLUMNS = "120"
SETTLE_SECONDS = 60.0  # for what is under way to come to its end, however busy the machine is
LOOK_AGAIN_SECONDS = 0.1
COMMAND_SECONDS = 120.0

# What differs from run to run, in what is printed and in what the page says.
MASKS = [
    (re.compile(r"\b(client|counter)-[0-9a-f]{12}\b"), r"\1-*"),
    (re.compile(r"\b127\.0\.0\.1:\d+\b"), "127.0.0.1:*"),
    (re.compile(r"\b(primcast|tom|skeen)-[0-9a-f]{8}\b"), r"\1-*"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "DATE TIME"),
    (re.compile(r"(took the place of \S+ after) [\d.]+ s"), r"\1 * s"),
    # A process's line of `status`: its pid, and how large its journal and how quick its disk is.
    (re.compile(r"^(\S+\.\d+) \d+ (yes|no answer)( \d+ \d+) [\d.]+ [\d.]+ ", flags=re.MULTILINE), r"\1 * \2\3 * * "),
]
NUMBER = (re.compile(r"\d[\d,.]*\d|\d"), "*")
KILL = re.compile(r"kill -9 \d+ +# (\S+)")  # the process whose number differs from run to run stands behind it


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tools = folder / ".bin"
        self._tools.mkdir()
        self._sources = Path(antiphon.__file__).parents[1]
        self._has_own_sources = False
        self._names: dict[str, object] = {"__name__": "__main__"}  # one page is one program
        (folder / "examples").symlink_to(ROOT / "examples")
        command = self._tools / "antiphon"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m antiphon "$@"\n')
        command.chmod(0o755)

    def play(self, example: Example) -> str:
        """What an example prints. AssertionError if its exit code is not what the page says."""
        if example.file is not None:
            self._write(example.file, "\n".join(example.source) + "\n")
            return ""
        for command in example.markers.get("before", []):
            self._done(example, command)
        if example.kind == "python":
            return self._run_python("\n".join(example.source))
        if example.looks:
            return self._seen(example, *example.source)
        commands = example.markers.get("instead") or example.source
        return "".join(self._done(example, command) for command in commands)

    def close(self) -> None:
        for description in self.folder.glob("*/cluster.json"):
            found = ClusterFolder.load(description.parent)
            for process in found.config.processes:
                cluster.kill(found, process)

    # ----------------------------------------------------------------------------------------------------------------

    def _done(self, example: Example, command: str) -> str:
        return _checked(example, command, *self._run(command))

    def _seen(self, example: Example, command: str) -> str:
        """What was sent is delivered, and who was started meets the others, when they come to it. A look changes
        nothing: it is repeated until it shows what the page says, or would have shown it long ago."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            code, printed = self._run(command)
            as_the_page_says = code == example.exit_code(command) and agrees(example, printed)
            if as_the_page_says or time.monotonic() > deadline:
                return _checked(example, command, code, printed)
            time.sleep(LOOK_AGAIN_SECONDS)

    def _run(self, command: str) -> tuple[int, str]:
        if found := KILL.fullmatch(command):
            self._kill(found[1])
            return 0, ""
        words = shlex.split(command, comments=True)
        if words[:2] in (["antiphon", "merge"], ["antiphon", "down"]):  # a reader is not there within the same second
            for description in self.folder.glob("*/cluster.json"):
                cluster.wait_idle(ClusterFolder.load(description.parent), SETTLE_SECONDS)
        if words[0] == "antiphon" and not self._has_own_sources and not re.search(r"[|$<>&;]", command):
            return self._run_here(words)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _run_here(self, words: list[str]) -> tuple[int, str]:
        """A command in this process: it need not load everything again, nor start another Spark."""
        with self._stage() as printed:
            sys.argv = words
            try:
                run_command()
            except SystemExit as ended:
                return int(ended.code or 0), printed.getvalue()

    def _run_python(self, source: str) -> str:
        """A program; ``await`` may stand outside of functions, as in Python's asyncio console."""
        code = compile(source, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with self._stage() as printed:
            waiting = eval(code, self._names)
            if waiting is not None:
                asyncio.run(asyncio.wait_for(waiting, COMMAND_SECONDS))
        return printed.getvalue()

    @contextmanager
    def _stage(self) -> Iterator[io.StringIO]:
        printed = io.StringIO()
        before, arguments, columns = Path.cwd(), sys.argv, os.environ.get("COLUMNS")
        os.chdir(self.folder)
        os.environ["COLUMNS"] = COLUMNS
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                yield printed
        finally:
            os.chdir(before)
            sys.argv = arguments
            if columns is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = columns

    def _environment(self) -> dict[str, str]:
        path = f"{self._tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "COLUMNS": COLUMNS, "PATH": path, "PYTHONPATH": str(self._sources)}

    def _write(self, path: str, content: str) -> None:
        """A file of a clone. Whoever adds to the sources gets a copy of them, and everything runs from there."""
        if path.startswith("src/") and not self._has_own_sources:
            shutil.copytree(self._sources, self.folder / "src")
            self._sources, self._has_own_sources = self.folder / "src", True
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def _kill(self, process: str) -> None:
        found = [ClusterFolder.load(description.parent) for description in self.folder.glob("*/cluster.json")]
        (folder,) = [folder for folder in found if process in folder.config.addresses]
        cluster.kill(folder, process)


def _checked(example: Example, command: str, code: int, printed: str) -> str:
    assert code == example.exit_code(command), f"{example}: `{command}` exits with {code}:\n{printed}"
    return printed


def masked(example: Example, text: str) -> str:
    """Without what differs from run to run: some names and numbers, and the widths of columns."""
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    text = "\n".join(lines)
    for pattern, mask in [*MASKS, NUMBER] if "instead" in example.markers else MASKS:
        text = pattern.sub(mask, text)
    return text


def agrees(example: Example, printed: str) -> bool:
    if example.expected is None:
        return True
    lines = masked(example, "\n".join(example.expected)).splitlines()
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in lines)
    return re.fullmatch(pattern, masked(example, printed) + "\n" if printed.strip() else "") is not None
