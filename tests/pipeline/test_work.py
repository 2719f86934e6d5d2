"""The tables of who did how much and when, against plain Python over the same rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from antiphon.pipeline.read import read_events
from antiphon.pipeline.work import COLUMNS, SLICES, work
from antiphon.protocols import protocol_named
from antiphon.simulation import simulate
from antiphon.simulation.generate import random_scenario
from antiphon.trace import Row
from antiphon.trace.parquet import write_run
from forgeries import honest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", params=["tom", "toto"])
def rows(request: pytest.FixtureRequest) -> list[Row]:
    """A run with crashes and restarts, or with loss and views."""
    protocol = protocol_named(request.param)
    for seed in range(100):
        outcome = simulate(random_scenario(protocol, seed, {}))
        kinds = Counter(row.kind for row in outcome.rows)
        if kinds["deliver"] > 60 and (kinds["crash"] or kinds["enter"]):
            return outcome.rows
    raise AssertionError("no seed has such a run")


@pytest.fixture(scope="module")
def measured(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("trace")
    facts, _ = honest_run(1, messages=0)
    facts.run = "r"
    write_run(folder, facts, rows)
    tables = work(read_events(spark, folder))
    assert {name: table.schema.names for name, table in tables.items()} == {
        name: columns.names for name, columns in COLUMNS.items()
    }
    return {name: [row.asDict() for row in table.collect()] for name, table in tables.items()}


def payloads(row: Row) -> int:
    return sum(cell.payloads for cell in row.requests or ())


def test_loads(rows: list[Row], measured: dict[str, list[dict[str, Any]]]) -> None:
    wanted: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        found = wanted[row.process]
        if row.kind == "multicast":
            found["multicasts"] += 1
        elif row.kind == "deliver":
            found.update(deliveries=1, payloads=payloads(row))
        elif row.kind == "send":
            found.update(sent=len(row.peers or ()), sent_bytes=len(row.peers or ()) * (row.bytes or 0))
        elif row.kind == "receive":
            found.update(received=1, received_bytes=row.bytes or 0)
    got = {row["process"]: row for row in measured["loads"]}
    assert set(got) == {process for process, counts in wanted.items() if counts}
    for process, row in got.items():
        assert {name: value for name, value in row.items() if name not in ("run", "process")} == {
            name: wanted[process][name] for name in COLUMNS["loads"].names[2:]
        }


def slices(rows: list[Row]) -> tuple[int, int]:
    start, end = min(row.time_ns for row in rows), max(row.time_ns for row in rows)
    return start, max(1, -(-(end - start + 1) // SLICES))


def test_rates(rows: list[Row], measured: dict[str, list[dict[str, Any]]]) -> None:
    start, width = slices(rows)
    wanted: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        found = wanted[(row.time_ns - start) // width]
        if row.kind == "multicast":
            found["multicasts"] += 1
        elif row.kind == "deliver":
            found.update(deliveries=1, payloads=payloads(row))
        elif row.kind == "send":
            found.update(frames=len(row.peers or ()), bytes=len(row.peers or ()) * (row.bytes or 0))
    names = ("multicasts", "deliveries", "payloads", "frames", "bytes")
    got = {row["slice"]: tuple(row[name] for name in names) for row in measured["rates"]}
    assert got == {at: tuple(counts[name] for name in names) for at, counts in wanted.items() if counts}
    for row in measured["rates"]:
        assert row["start_s"] == pytest.approx(row["slice"] * width / 1e9)
        assert row["payloads_per_second"] == pytest.approx(row["payloads"] / (width / 1e9))


def waits(rows: list[Row]) -> dict[tuple[str, str], tuple[int, int]]:
    """By process and message: when it was known there, and when it was delivered."""
    known: dict[tuple[str, str], list[int]] = defaultdict(list)
    out: dict[tuple[str, str], int] = {}
    with_graph = any(row.kind == "enter" for row in rows)
    on_the_way: dict[tuple[Any, ...], list[tuple[str, ...]]] = defaultdict(list)
    in_order = sorted(rows, key=lambda row: (row.process, row.seq))
    for row in in_order:
        if row.kind == "send":
            for peer in row.peers or ():
                on_the_way[row.process, peer, row.layer].append(row.about or ())
    for row in in_order:
        if row.kind == "receive" and not with_graph:
            for message in on_the_way[(row.peers or ("",))[0], row.process, row.layer].pop(0):
                known[row.process, message].append(row.time_ns)
        elif row.kind in ("multicast", "deliver", "enter") and row.message is not None:
            known[row.process, row.message].append(row.time_ns)
            if row.kind == "deliver":
                out[row.process, row.message] = row.time_ns
    return {at: (min(known[at]), time_ns) for at, time_ns in out.items()}


def test_held_back(rows: list[Row], measured: dict[str, list[dict[str, Any]]]) -> None:
    found, (start, width) = waits(rows), slices(rows)
    assert any(known < out for known, out in found.values())
    length = max(row.time_ns for row in rows) - start
    per_process: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (process, _), wait in found.items():
        per_process[process].append(wait)
    over_time = {(row["process"], row["slice"]): row["held"] for row in measured["held_over_time"]}
    for (process, at), held in over_time.items():
        end = start + (at + 1) * width
        assert held == sum(known < end <= out for known, out in per_process[process])
    got = {row["process"]: row for row in measured["held"]}
    assert set(got) == set(per_process)
    for process, spans in per_process.items():
        took = [out - known for known, out in spans]
        assert got[process]["messages"] == len(spans)
        assert got[process]["held_mean"] == pytest.approx(sum(took) / length)
        assert got[process]["wait_ms_mean"] == pytest.approx(sum(took) / len(took) / 1e6)
        assert got[process]["wait_ms_max"] == pytest.approx(max(took) / 1e6)
        ends = [start + (at + 1) * width for at in range(SLICES)]
        largest = max(sum(known < end <= out for known, out in spans) for end in ends)
        assert (got[process]["held_max"] or 0) == largest


def test_participants(rows: list[Row], measured: dict[str, list[dict[str, Any]]]) -> None:
    took_part: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, int] = {}
    for row in rows:
        if row.kind in ("multicast", "deliver"):
            took_part[row.message or ""].add(row.process)
            groups[row.message or ""] = len(row.destinations or ())
        elif row.kind == "send":
            for message in row.about or ():
                took_part[message].update((row.process, *(row.peers or ())))
    wanted = Counter((count, len(took_part[message])) for message, count in groups.items())
    assert {(row["groups"], row["participants"]): row["messages"] for row in measured["participants"]} == wanted


def test_sizes(rows: list[Row], measured: dict[str, list[dict[str, Any]]]) -> None:
    batches = Counter((payloads(row), len(row.requests or ())) for row in rows if row.kind == "multicast")
    assert {(row["payloads"], row["requests"]): row["messages"] for row in measured["batches"]} == batches
    frames: Counter[tuple[str, int]] = Counter()
    sets: dict[tuple[str, int], set[tuple[str, ...]]] = defaultdict(set)
    for row in rows:
        if row.kind == "send":
            about = tuple(sorted(row.about or ()))
            frames[row.layer or "", len(about)] += len(row.peers or ())
            sets[row.layer or "", len(about)].add(about)
    got = {(row["layer"], row["messages"]): (row["sets"], row["frames"]) for row in measured["together"]}
    assert got == {key: (len(sets[key]), count) for key, count in frames.items()}
