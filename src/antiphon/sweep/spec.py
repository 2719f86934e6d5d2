"""From a file to a grid: every value is checked, and every point tried in small, before anything runs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from math import prod
from types import NoneType
from typing import Any, Protocol, get_args

import msgspec

from antiphon.core.errors import UsageError
from antiphon.simulation import Scenario
from antiphon.simulation.settings import CHOSEN_FOR_RANDOM, RANDOM, Settings

KEYS = ("seeds", "trace", "grid")
POINTS_MAX, RUNS_MAX = 10_000, 10_000_000
_OPTION = "option."


class Point(Protocol):
    """A run but for its seed: the settings that a file asks for, or a value of which a program makes scenarios.

    It must be one that msgspec can encode: by this a sweep is known again.
    """

    def scenario(self, seed: int, /) -> Scenario: ...


@dataclass(frozen=True)
class Sweep:
    """Its runs are numbered: all points with the first seed, then all with the second, and so on."""

    points: tuple[Point, ...]
    seeds: Sequence[int]
    trace: bool = True  # whether the traces are kept
    receives: bool = True  # whether a trace that is kept tells what was received, too: no figure is made of that

    @property
    def runs(self) -> int:
        return len(self.points) * len(self.seeds)

    def run(self, number: int) -> tuple[int, int]:
        """The point and the seed of a run."""
        return number % len(self.points), self.seeds[number // len(self.points)]

    @property
    def digest(self) -> str:
        """Equal where all that is asked for is equal."""
        asked = (self.points, str(self.seeds), self.trace, self.receives)
        return blake2b(msgspec.json.encode(asked, order="deterministic"), digest_size=16).hexdigest()


def run_name(point: int, seed: int) -> str:
    return f"p{point}-s{seed}"


def parse_spec(text: str, source: str) -> Sweep:
    """The sweep that a text asks for; ``source`` is what a refusal calls it."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not TOML: {error}.") from None
    _refuse_others(raw, KEYS, source)
    grids = raw.get("grid")
    if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
        raise UsageError(f"{source} needs at least one table called [[grid]].")
    seeds = _seeds(raw.get("seeds"), source)
    trace = raw.get("trace", True)
    if not isinstance(trace, bool):
        raise UsageError(f"{source}: trace must be true or false, not {trace!r}.")
    points: dict[bytes, Settings] = {}  # two grids may have some in common
    for number, grid in enumerate(grids, start=1):
        for point in _points(grid, seeds[0], f"{source}, grid {number}"):
            points[msgspec.json.encode(point)] = point
    found = Sweep(tuple(points.values()), seeds, trace)
    _refuse_too_many(found.runs, source)
    return found


def _seeds(given: Any, source: str) -> Sequence[int]:
    if isinstance(given, str) and (match := re.fullmatch(r"(\d{1,18})-(\d{1,18})", given)):
        first, last = int(match[1]), int(match[2])
        if first <= last:
            _refuse_too_many(last - first + 1, source)
            return range(first, last + 1)
    if isinstance(given, list) and given and all(type(seed) is int and abs(seed) < 2**63 for seed in given):
        if len(set(given)) < len(given):
            raise UsageError(f"{source}: seeds has one of its numbers twice.")
        return tuple(given)
    raise UsageError(f'{source}: seeds must be a range such as "1-100", or a list of whole numbers.')


def _refuse_too_many(runs: int, source: str) -> None:
    if runs > RUNS_MAX:
        raise UsageError(f"{source} asks for more than {RUNS_MAX:,} runs.")


def _points(grid: dict[str, Any], seed: int, where: str) -> Iterator[Settings]:
    """All combinations of a grid's values."""
    values = dict(_values(grid, where))
    _refuse_what_is_random(values, where)
    if prod(map(len, values.values())) > POINTS_MAX:
        raise UsageError(f"{where} has more than {POINTS_MAX:,} points.")
    for chosen in product(*values.values()):
        named = dict(zip(values, chosen, strict=True))
        option = {key.removeprefix(_OPTION): named.pop(key) for key in values if key.startswith(_OPTION)}
        point = Settings(option=option, **named)
        try:
            point.check(seed)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        yield point


def _values(grid: dict[str, Any], where: str) -> Iterator[tuple[str, list[Any]]]:
    """The values of each key, and of each option as a key of its own."""
    _refuse_others(grid, [field.name for field in msgspec.structs.fields(Settings)], where)
    for key, given in grid.items():
        if key != "option":
            yield key, [_value(key, value, where) for value in _list(given, key, where)]
        elif isinstance(given, dict):
            for name, values in given.items():
                yield _OPTION + name, [_text(value) for value in _list(values, f"option.{name}", where)]
        else:
            raise UsageError(f'{where}: option must name what it sets, as in option.transport = ["fifo", "datagram"].')


def _list(given: Any, key: str, where: str) -> list[Any]:
    """One value stands for a list of one."""
    found = given if isinstance(given, list) else [given]
    if not found or any(isinstance(value, dict | list) for value in found):
        raise UsageError(f"{where}: {key} must be a value, or a list of values with at least one.")
    return found


def _value(key: str, given: Any, where: str) -> Any:
    kind = next(field.type for field in msgspec.structs.fields(Settings) if field.name == key)
    if kind is str and type(given) in (int, float):  # latency = 1
        given = str(given)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError:
        raise UsageError(f"{where}: {key} must be {_wanted(kind)}, not {_shown(given)}.") from None


def _text(given: Any) -> str:
    return str(given).lower() if isinstance(given, bool) else str(given)


def _shown(given: Any) -> str:
    return _text(given) if isinstance(given, bool) else repr(given)


def _wanted(kind: Any) -> str:
    """What a key of this type may be, in words."""
    parts = get_args(kind)
    if NoneType in parts:
        return _wanted(next(part for part in parts if part is not NoneType))
    meta = next((part for part in parts if isinstance(part, msgspec.Meta)), msgspec.Meta())
    plain = parts[0] if parts else kind
    if plain is bool:
        return "true or false"
    if plain is str:
        return "a text"
    if plain not in (int, float):  # an enumeration
        *others, last = [member.value for member in plain]
        return f"{', '.join(others)} or {last}"
    words = "a whole number" if plain is int else "a number"
    if meta.le is not None:
        return f"{words} from {meta.ge} to {meta.le}"
    return f"{words} of at least {meta.ge}" if meta.ge is not None else words


def _refuse_what_is_random(values: dict[str, list[Any]], where: str) -> None:
    if RANDOM not in values.get("faults", ()):
        return
    others = [key for key in values if key not in CHOSEN_FOR_RANDOM and not key.startswith(_OPTION)]
    if others:
        raise UsageError(
            f"{where}: faults = {RANDOM!r} makes random runs of every kind, so it cannot be combined with "
            f"{' or '.join(others)}."
        )
    if len(set(values["faults"])) > 1:
        raise UsageError(f"{where}: faults = {RANDOM!r} stands alone; put other faults into a grid of their own.")


def _refuse_others(given: Iterable[str], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise UsageError(f"{where} has no key {key!r}; there are {', '.join(known)}.")
