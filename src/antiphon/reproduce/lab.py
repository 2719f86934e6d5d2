"""What a reproduction works with: its folder, a sweep on Spark when it needs one, and the figures of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.core.errors import AntiphonError
from antiphon.reproduce.draw import Bars, Panel, draw
from antiphon.reproduce.table import Picture
from antiphon.sweep import Sweep
from antiphon.sweep.folder import SweepFolder
from antiphon.sweep.spec import Point, run_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[str], None]


class Swept:
    """The runs of a sweep that is done."""

    def __init__(self, spark: SparkSession, folder: SweepFolder, points: Sequence[Point], seeds: Sequence[int]) -> None:
        self.spark, self.folder, self.points, self.seeds = spark, folder, points, seeds

    def figures(self, *columns: str) -> list[list[dict[str, Any]]]:
        """By point, and then by seed: what the pipeline computed of each run."""
        found: list[list[dict[str, Any]]] = [[] for _ in self.points]
        for row in self.folder.figures(["point", "seed", *columns]).to_pylist():
            found[row["point"]].append(row)
        return found

    def names(self, point: int) -> list[str]:
        return [run_name(point, seed) for seed in self.seeds]

    @cached_property
    def events(self) -> DataFrame:
        from antiphon.pipeline.read import read_events

        return read_events(self.spark, self.folder.trace)

    @cached_property
    def runs(self) -> DataFrame:
        from antiphon.pipeline.read import read_runs

        return read_runs(self.spark, self.folder.trace)


class Lab:
    """``spark``: gives the session, which starts when it is first asked for. ``say``: what happens now, in words."""

    def __init__(self, folder: Path, spark: Callable[[], SparkSession], *, quick: bool, say: Say = print) -> None:
        self.folder, self.quick, self.say = folder, quick, say
        self._spark = spark
        self._kept: dict[str, Any] = {}

    def place(self, name: str) -> Path:
        """The folder of a result."""
        found = self.folder / name
        found.mkdir(parents=True, exist_ok=True)
        return found

    def draw(self, name: str, file: str, caption: str, panels: Sequence[Panel | Bars], columns: int = 2) -> Picture:
        draw(self.place(name) / file, panels, columns)
        return Picture(file, caption)

    def keep(self, name: str, text: str, file: str, caption: str) -> Picture:
        """A picture that is a text already."""
        (self.place(name) / file).write_text(text)
        return Picture(file, caption)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What two results need is made once."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def sweep(self, name: str, points: Sequence[Point], seeds: Sequence[int] = (0,)) -> Swept:
        """Run each point with each seed; what an interrupted command has run already is not run again."""
        from antiphon.pipeline.session import settings_by_size
        from antiphon.sweep.rounds import run_sweep

        asked = Sweep(tuple(points), seeds, receives=False)
        spark = self._spark()
        for key, value in settings_by_size(_rows_expected(asked)).items():
            spark.conf.set(key, value)
        folder = SweepFolder.prepare(self.folder / "sweeps" / name, asked)
        with folder.locked():
            run_sweep(spark, asked, folder, lambda done: self.say(f"{name}: {done} of {asked.runs} runs"))
        failed = [row for row in folder.figures(["run", "error"]).to_pylist() if row["error"] is not None]
        if failed:
            raise AntiphonError(f"{len(failed)} runs of {folder.path} failed; {failed[0]['run']}: {failed[0]['error']}")
        return Swept(spark, folder, points, seeds)


def _rows_expected(sweep: Sweep) -> int:
    """About how many rows a trace will have: Spark does well to know whether there are few."""
    scenarios = [point.scenario(0) for point in sweep.points]
    return len(sweep.seeds) * sum(4 * len(each.plans) * sum(each.groups.values()) for each in scenarios)
