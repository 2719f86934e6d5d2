"""What a sweep's file may say, and what is said of one that does not fit."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import msgspec
import pytest

from antiphon.cli.simulate import simulate_command
from antiphon.core.errors import UsageError
from antiphon.simulation.settings import Settings
from antiphon.sweep.pace import Pace, chunks
from antiphon.sweep.spec import Sweep, parse_spec


def test_all_combinations_of_each_grid_once() -> None:
    sweep = parse_spec(
        """
        seeds = "5-7"
        [[grid]]
        protocol = "skeen"
        groups = ["2x2", "3x3"]
        option.causal = [false, true]
        fanout = [1, 2]
        latency = 1
        [[grid]]
        protocol = "skeen"
        fanout = 2
        option.causal = "true"
        latency = "1"
        [[grid]]
        protocol = ["tom", "arrow"]
        faults = "random"
        """,
        "grid.toml",
    )
    assert [(p.protocol, p.groups, p.option.get("causal"), p.fanout) for p in sweep.points] == [
        *(("skeen", groups, causal, n) for groups in ("2x2", "3x3") for causal in ("false", "true") for n in (1, 2)),
        ("tom", "3x3", None, None),
        ("arrow", "3x3", None, None),
    ]
    assert sweep.runs == 30
    assert [sweep.run(number) for number in (0, 9, 10, 29)] == [(0, 5), (9, 5), (0, 6), (9, 7)]
    assert sweep.trace


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("seeds = ", "g is not TOML: "),
        ("seed = 1", "g has no key 'seed'; there are seeds, trace, grid."),
        ('seeds = "1-3"', "g needs at least one table called [[grid]]."),
        ('seeds = "3-1"\n[[grid]]', 'g: seeds must be a range such as "1-100", or a list of whole numbers.'),
        ("seeds = [1, 1]\n[[grid]]", "g: seeds has one of its numbers twice."),
        ('seeds = "1-99999999"\n[[grid]]', "g asks for more than 10,000,000 runs."),
        ("seeds = [1]\ntrace = 1\n[[grid]]", "g: trace must be true or false, not 1."),
        ("seeds = [1]\n[[grid]]\nspeed = 1", "g, grid 1 has no key 'speed'; there are protocol, option, groups, "),
        (
            "seeds = [1]\n[[grid]]\nclients = [1, -1]",
            "g, grid 1: clients must be a whole number from 0 to 10000, not -1.",
        ),
        ("seeds = [1]\n[[grid]]\nfanout = [1.5]", "g, grid 1: fanout must be a whole number, not 1.5."),
        ("seeds = [1]\n[[grid]]\ninterval = 0", "g, grid 1: interval must be a number of at least 0.001, not 0."),
        ("seeds = [1]\n[[grid]]\nsent_survives = 1", "g, grid 1: sent_survives must be true or false, not 1."),
        (
            'seeds = [1]\n[[grid]]\nworkload = "lazy"',
            "g, grid 1: workload must be closed, periodic, poisson or burst, not 'lazy'.",
        ),
        ("seeds = [1]\n[[grid]]\nmessages = []", "g, grid 1: messages must be a value, or a list of values with at "),
        ('seeds = [1]\n[[grid]]\nlatency = "fast"', "g, grid 1: 'fast' is not a latency: write 1 (constant ms)"),
        ('seeds = [1]\n[[grid]]\nprotocol = "none"', "g, grid 1: There is no protocol 'none'"),
        ('seeds = [1]\n[[grid]]\noption = "a"', "g, grid 1: option must name what it sets, as in option.transport"),
        ("seeds = [1]\n[[grid]]\noption.speed = 1", "g, grid 1: The primcast protocol has no option 'speed'"),
        (
            "seeds = [1]\n[[grid]]\n[[grid]]\nfanout = 9",
            "g, grid 2: A message can address 1 to 3 of these groups, not 9.",
        ),
        (
            'seeds = [1]\n[[grid]]\nfaults = "random"\ngroups = "2x2"',
            "g, grid 1: faults = 'random' makes random runs of every kind, so it cannot be combined with groups.",
        ),
        (
            'seeds = [1]\n[[grid]]\nfaults = ["random", "none"]',
            "g, grid 1: faults = 'random' stands alone; put other faults into a grid of their own.",
        ),
        (
            f"seeds = [1]\n[[grid]]\nmessages = {list(range(101))}\nsize = {list(range(100))}",
            "g, grid 1 has more than 10,000 points.",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_spec(text, "g")
    assert str(refused.value).startswith(complaint)


def test_the_keys_are_the_flags_of_simulate() -> None:
    flags = inspect.signature(simulate_command, eval_str=True).parameters
    others = {"context", "seed", "runs", "trace", "graph", "json"}
    assert set(flags) - others == {field.name for field in msgspec.structs.fields(Settings)}
    for field in msgspec.structs.fields(Settings):
        if field.name != "option":
            assert flags[field.name].default == field.default, field.name
            assert limits(flags[field.name].annotation) == limits(field.type), field.name


def limits(kind: Any) -> tuple[Any, Any]:
    for note in get_args(kind)[1:]:
        least, most = getattr(note, "min", getattr(note, "ge", None)), getattr(note, "max", getattr(note, "le", None))
        if least is not None or most is not None:
            return least, most
    return None, None


def test_chunks_last_about_a_second() -> None:
    small, large = Settings(messages=10), Settings(messages=10_000)
    sweep = Sweep((small, large), range(100))
    pace = Pace(sweep.points)
    pace.saw(0, 0.1)
    assert pace.expected() == [0.1, pytest.approx(100)], "of one that was not run, what its size lets expect"
    pace.saw(1, 0.3)
    found = chunks(sweep, 50, pace, budget=3.0)
    assert found == [(50, 55), (56, 61), (62, 67)]
    assert chunks(sweep, 197, pace, budget=3.0) == [(197, 199)]
    assert chunks(sweep, 200, pace, budget=3.0) == []
