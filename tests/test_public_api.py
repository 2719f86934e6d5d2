"""The public API is small, and the pages for newcomers use nothing that does not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import antiphon
from antiphon.cli.app import app
from antiphon.core.errors import AntiphonError

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
EXPORTS = {
    "AntiphonError",
    "Batch",
    "Client",
    "Delivery",
    "Gap",
    "OutcomeUnknown",
    "PositionGone",
    "Receipt",
    "Subscription",
    "Unavailable",
    "UsageError",
    "View",
    "__version__",
    "connect",
}


def test_what_antiphon_exports() -> None:
    assert set(antiphon.__all__) == set(dir(antiphon)) == EXPORTS
    for name in EXPORTS:
        assert getattr(antiphon, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = antiphon.nothing


def test_errors_are_one_tree() -> None:
    for error in (antiphon.UsageError, antiphon.Unavailable, antiphon.OutcomeUnknown):
        assert issubclass(error, AntiphonError)


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{antiphon.__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_flag_in_a_page_exists(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    code = re.findall(r"^```\w*\n(.*?)^```|`([^`\n]+)`", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for block, inline in code for line in (block or inline).splitlines()]
    for line in lines:
        for used in re.findall(r"(?:^|\| |&& |\$ )antiphon ([a-z]+)([^|&]*)", line):
            name, rest = used
            assert name in commands, f"{page.name} uses `antiphon {name}`"
            command = commands[name]
            within = getattr(command, "commands", {})  # `antiphon bench cluster` is a command of a command
            if within:
                command = within[rest.split()[0]]
            known = {flag for parameter in command.params for flag in [*parameter.opts, *parameter.secondary_opts]}
            for flag in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest):
                assert flag in known | {"--help"}, f"{page.name}: `antiphon {name}` has no {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_program_and_flag_in_a_page_exists(page: Path) -> None:
    for file, rest in re.findall(r"python ((?:benchmarks|examples|tests)/\S+?\.py)([^`\n]*)", page.read_text()):
        source = (ROOT / file).read_text()
        for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest):
            assert f'"{flag}"' in source, f"{page.name}: {file} has no {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_target_of_make_in_a_page_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for target in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), flags=re.MULTILINE):
        assert target in targets, f"{page.name} uses `make {target}`"
