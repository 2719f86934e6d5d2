"""What is read of a trace, whoever wrote it, and what is said of the rest."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon import checks
from antiphon.checks import check_run
from antiphon.core.errors import NotJudged, TraceError
from antiphon.pipeline import scan
from antiphon.pipeline.read import deduplicate, open_trace, read_events
from antiphon.pipeline.schema import EVENTS
from antiphon.pipeline.verify import verify
from antiphon.trace import Row, RunFacts, read_facts, write_facts
from antiphon.trace.facts import write_many_facts
from antiphon.trace.parquet import (
    RUN,
    check_cells,
    heard_processes,
    read_rows,
    to_table,
    write_events,
    write_run,
    write_runs,
)
from antiphon.trace.parquet import deduplicate as deduplicate_here
from antiphon.trace.survey import examine_here, examined, survey
from cli.command import Command
from forgeries import honest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = tuple[RunFacts, list[Row]]


@pytest.fixture
def antiphon(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capfd)


# ---- what other tools write


def with_large_texts(table: pa.Table) -> pa.Table:
    """As Polars writes it."""

    def large(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.large_list(large(kind.value_type))
        if pa.types.is_struct(kind):
            return pa.struct([(field.name, large(field.type)) for field in kind])
        return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)

    return table.cast(pa.schema([(field.name, large(field.type)) for field in table.schema]))


def with_dictionaries(table: pa.Table) -> pa.Table:
    for name in ("process", "kind", "message", "layer"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].dictionary_encode())
    return table.replace_schema_metadata(None)


def by_pandas(table: pa.Table) -> pa.Table:
    """Numbers with nulls are doubles now, texts may be of a category, and there is an index."""
    frame = table.to_pandas().astype({"kind": "category"})
    frame.index = pd.Index([f"row {i}" for i in range(len(frame))])
    return pa.Table.from_pandas(frame)


def without_views(table: pa.Table) -> pa.Table:
    """A part in which a column is null throughout has lost its type."""
    nothing = pa.nulls(len(table))
    return table.set_column(table.schema.get_field_index("order_key"), "order_key", nothing)


def with_one_type_of_numbers(table: pa.Table) -> pa.Table:
    return table.set_column(table.schema.get_field_index("step"), "step", table["step"].cast(pa.int64()))


REWRITTEN = [with_large_texts, with_dictionaries, by_pandas, without_views, with_one_type_of_numbers]


@pytest.mark.parametrize("rewrite", REWRITTEN)
def test_what_other_tools_write_is_read(spark: SparkSession, tmp_path: Path, rewrite: Any) -> None:
    facts, rows = honest_run(1, run="r", messages=5)
    if rewrite is without_views:
        rows = [row._replace(order_key=None) for row in rows]
    write_facts(tmp_path, facts)
    table = rewrite(to_table(rows))
    assert not table.schema.equals(to_table(rows).schema)
    folder = tmp_path / "events" / "run=r"
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "theirs.parquet", row_group_size=7)
    (folder / "README.md").write_text("These are the events of a run.\n")
    (tmp_path / "events" / "README").write_text("Events.\n")
    (tmp_path / "runs" / "README.txt").write_text("Facts.\n")
    assert read_rows(tmp_path, "r") == deduplicate_here(rows)
    read = sorted(read_events(spark, tmp_path).select(*EVENTS.names[:-1]).collect(), key=lambda row: (row[0], row[1]))
    expected = sorted(to_table(rows).to_pylist(), key=lambda row: (row["process"], row["seq"]))
    assert [row.asDict(recursive=True) for row in read] == expected


@pytest.mark.parametrize("group", [7, 1_000_000], ids=["many row groups", "one row group"])
def test_what_other_tools_write_is_judged(spark: SparkSession, tmp_path: Path, group: int) -> None:
    """A first look reads on its own, with texts as they are coded in each row group."""
    broken = {}
    for i, rewrite in enumerate((*REWRITTEN, pa.table)):
        facts, rows = honest_run(1, run=f"r{i}", messages=10)
        last = max(i for i, row in enumerate(rows) if row.kind == "deliver")
        rows[last] = rows[last]._replace(message="nobody:1")
        write_facts(tmp_path, facts)
        (tmp_path / "events" / f"run=r{i}").mkdir(parents=True)
        pq.write_table(rewrite(to_table(rows)), tmp_path / f"events/run=r{i}/theirs.parquet", row_group_size=group)
        broken[facts.run] = {violation.property for violation in check_run(facts, rows)}
    trace = open_trace(spark, tmp_path)
    found: dict[str, set[str]] = {}
    for row in verify(trace.events, trace.runs, scan=trace.scan).collect():
        found.setdefault(row.run, set()).add(row.property)
    assert found == broken


def test_a_double_that_is_no_number_of_anything_is_refused(tmp_path: Path) -> None:
    facts, rows = honest_run(1, run="r", messages=2)
    write_run(tmp_path, facts, rows)
    (file,) = tmp_path.glob("events/run=r/*.parquet")
    table = to_table(rows)
    halves = pa.array([0.5] * len(rows))
    pq.write_table(table.set_column(table.schema.get_field_index("bytes"), "bytes", halves), file)
    with pytest.raises(TraceError, match=r"has column 'bytes' as double, and in it what is not a whole number\.$"):
        survey(tmp_path)


# ---- what makes no sense


def damaged(rows: list[Row], **cells: Any) -> pa.Table:
    """The first row has other cells."""
    records = to_table(rows).to_pylist()
    records[0] |= cells
    fields = [field.with_nullable(True) for field in to_table(rows).schema]
    return pa.Table.from_pylist(records, pa.schema(fields))


@pytest.mark.parametrize("name", ["process", "seq", "time_ns", "kind"])
@pytest.mark.parametrize("statistics", [True, False], ids=["with statistics", "without"])
def test_an_event_without_what_every_event_has_is_refused(tmp_path: Path, name: str, statistics: bool) -> None:
    facts, rows = honest_run(1, run="r", messages=2)
    write_run(tmp_path, facts, rows)
    (file,) = tmp_path.glob("events/run=r/*.parquet")
    pq.write_table(damaged(rows, **{name: None}), file, write_statistics=statistics)
    with pytest.raises(TraceError, match=rf"{file.name} has rows whose {name} is null\.$"):
        survey(tmp_path)


CELL = {"client": "c", "first": 0, "payloads": 1, "digest": 7}
NULLS: dict[str, tuple[dict[str, Any], str, str]] = {
    "client": ({"requests": [CELL, {**CELL, "client": None}]}, "a null 'client'", "requests"),
    "first": ({"requests": [{**CELL, "first": None}]}, "a null 'first'", "requests"),
    "payloads": ({"requests": [{**CELL, "payloads": None}]}, "a null 'payloads'", "requests"),
    "digest": ({"requests": [{**CELL, "digest": None}]}, "a null 'digest'", "requests"),
    "request": ({"requests": [CELL, None]}, "a null", "requests"),
    "destination": ({"destinations": ["g1", None]}, "a null", "destinations"),
    "peer": ({"peers": [None]}, "a null", "peers"),
    "donor": ({"kind": "adopt", "peers": [None, "g1.1"]}, "a null", "peers"),
    "about": ({"about": ["m:1", None]}, "a null", "about"),
}
MANGLED = "mangled"
TEXTS: dict[str, dict[str, Any]] = {
    "process": {"process": MANGLED},
    "kind": {"kind": MANGLED},
    "message": {"message": MANGLED},
    "destinations": {"destinations": [MANGLED]},
    "requests": {"requests": [{**CELL, "client": MANGLED}]},
    "peers": {"peers": ["g1.1", MANGLED]},
    "about": {"about": [MANGLED]},
    "layer": {"layer": MANGLED},
}


def mangle(file: Path, table: pa.Table) -> None:
    """One of its texts is no text."""
    pq.write_table(table, file, compression="none")
    data = file.read_bytes()
    assert MANGLED.encode() in data
    file.write_bytes(data.replace(MANGLED.encode(), b"mangl\xffd"))


def test_a_null_in_a_list_and_text_that_is_none_are_refused_by_both_judges(
    spark: SparkSession, antiphon: Command, tmp_path: Path
) -> None:
    """Where rows are read: no footer tells of them."""
    reasons = {}
    trace = tmp_path / "trace"
    for run, (cells, what, column) in NULLS.items():
        facts, rows = honest_run(1, run=run, messages=3)
        write_run(trace, facts, rows)
        file = trace / f"events/run={run}/part-00000.parquet"
        pq.write_table(damaged(rows, **cells), file)
        reasons[run] = f"{file} has rows with {what} among what column {column!r} lists."
    for column, cells in TEXTS.items():
        facts, rows = honest_run(1, run=f"text-{column}", messages=3)
        write_run(trace, facts, rows)
        file = trace / f"events/run={facts.run}/part-00000.parquet"
        mangle(file, damaged(rows, **cells))
        reasons[facts.run] = f"{file} has text in column {column!r} that is not valid UTF-8."
    for run, reason in reasons.items():
        with pytest.raises(TraceError, match=f"^{re.escape(reason)}$"):
            read_rows(trace, run)
    with pytest.raises(TraceError, match="has text in column 'peers'"):
        heard_processes(trace, "text-peers")
    write_run(trace, *honest_run(2, run="good", messages=3))
    result = antiphon("verify", trace, "--json")
    assert result.code == 3
    assert {row["run"]: row["reason"] for row in result.json["refused"]} == reasons
    assert result.json["violations"] == []
    statuses = {(row["run"], row["status"]) for row in result.json["verdicts"]}
    assert statuses - {("good", "not promised")} == {("good", "holds")}


@pytest.mark.parametrize("promises", [["locality"], ["client_turn_order"], None], ids=str)
def test_a_null_in_a_list_of_the_only_run_is_refused_whatever_is_promised(
    spark: SparkSession, antiphon: Command, tmp_path: Path, promises: list[str] | None
) -> None:
    facts, rows = honest_run(1, run="r", messages=3)
    write_run(tmp_path, msgspec.structs.replace(facts, promises=promises or facts.promises), rows)
    (file,) = tmp_path.glob("events/run=r/*.parquet")
    cells, _, _ = NULLS["client" if promises else "donor"]
    pq.write_table(damaged(rows, **cells), file)
    result = antiphon("verify", tmp_path)
    assert (result.code, result.out) == (2, "")
    column = "requests" if promises else "peers"
    told = rf"antiphon: {re.escape(str(file))} has rows with a null.* among what column '{column}' lists\."
    assert re.fullmatch(told, result.err.splitlines()[-1])


@pytest.mark.parametrize("small_files", [0, 64], ids=["small files are kept", "files are read"])
def test_in_a_file_of_many_runs_such_cells_concern_those_beside_it(
    spark: SparkSession, antiphon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_files: int
) -> None:
    monkeypatch.setattr("antiphon.pipeline.read.SMALL_FILES", small_files)
    for name, cells in (("null", {"destinations": [None]}), ("text", {"run": MANGLED})):
        write_runs(tmp_path, name, [named(honest_run(1, messages=3), f"{name}-{i}") for i in range(2)])
        _, rows = honest_run(1, messages=3)
        table = to_table(rows).append_column(RUN, pa.array([f"{name}-{i % 2}" for i in range(len(rows))]))
        records = table.to_pylist()
        records[0] |= cells
        file = tmp_path / "events" / f"{name}.parquet"
        changed = pa.Table.from_pylist(records, table.schema)
        mangle(file, changed) if name == "text" else pq.write_table(changed, file)
    write_runs(tmp_path, "good", [honest_run(2, run="good", messages=3)])
    result = antiphon("verify", tmp_path, "--json")
    assert result.code == 3
    reasons = {row["run"]: row["reason"].partition(" has ")[2] for row in result.json["refused"]}
    assert reasons == {
        "null-0": "rows with a null among what column 'destinations' lists.",
        "null-1": "rows with a null among what column 'destinations' lists.",
        "text-0": "text in column 'run' that is not valid UTF-8.",
        "text-1": "text in column 'run' that is not valid UTF-8.",
    }
    of_address = open_trace(spark, tmp_path.as_uri(), thorough=True).survey.refused
    assert {run: reason.partition(" has ")[2] for run, reason in of_address.items()} == reasons
    assert {row["run"] for row in result.json["verdicts"]} == {"good"}


def test_what_a_null_list_had_before_does_not_count(tmp_path: Path) -> None:
    """Arrow leaves it where it was."""
    _, rows = honest_run(1, run="r", messages=1)
    table = to_table(rows[:2])
    values = pa.array(["g1", None], pa.string())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values, mask=pa.array([False, True]))
    place = table.schema.get_field_index("destinations")
    check_cells("f", table.set_column(place, "destinations", lists))
    with pytest.raises(TraceError, match="column 'destinations'"):
        check_cells("f", table.set_column(place, "destinations", pa.array([["g1"], ["g1", None]])))


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    facts, rows = honest_run(1, run="r", messages=2)
    write_run(tmp_path, facts, rows)
    (file,) = tmp_path.glob("events/run=r/*.parquet")
    pq.write_table(damaged(rows, kind="delivers"), file)
    assert examined(file, ["r"]).complaint == f"{file} has events of kind 'delivers'; version 2 knows no such kind."


def test_facts_with_half_a_character_are_refused(tmp_path: Path) -> None:
    facts, rows = honest_run(1, run="r", messages=2)
    write_run(tmp_path, facts, rows)
    path = tmp_path / "runs" / "r.json"
    whole = path.read_text()
    path.write_text(whole.replace('"idle.1"', '"idle.\\u0031"'))
    assert read_facts(tmp_path) == [facts]
    path.write_text(whole.replace('"idle.1"', '"idle.\\ud800"'))
    with pytest.raises(TraceError, match=r"r\.json is not JSON: .* surrogates not allowed\.$"):
        read_facts(tmp_path)


def test_facts_with_two_definitions_of_a_group_are_refused(tmp_path: Path) -> None:
    facts, rows = honest_run(1, run="r", messages=2)
    write_run(tmp_path, facts, rows)
    path = tmp_path / "runs" / "r.json"
    path.write_text(path.read_text().replace('"groups":{', '"groups":{"g1":["x"],'))
    with pytest.raises(TraceError, match=r"r\.json defines 'g1' twice\.$"):
        read_facts(tmp_path)


# ---- one bad run among many


def test_what_is_wrong_with_one_run_is_no_reason_to_refuse_the_others(tmp_path: Path) -> None:
    names = ["good", "torn", "lost", "odd", "twice"]
    runs = {name: honest_run(i, run=name, messages=2) for i, name in enumerate(names)}
    for run in runs.values():
        write_run(tmp_path, *run)
    next(tmp_path.glob("events/run=torn/*.parquet")).write_bytes(b"PAR1 half of it")
    (tmp_path / "runs" / "lost.json").unlink()
    (tmp_path / "runs" / "odd.json").write_text("{")
    (tmp_path / "runs" / "more.jsonl").write_bytes((tmp_path / "runs" / "twice.json").read_bytes() + b"nonsense\n")
    several = [named(run, f"of-many-{i}") for i, run in enumerate(list(runs.values())[:2])]
    write_runs(tmp_path, "many", several)
    (tmp_path / "events" / "many.parquet").write_bytes(b"")
    write_runs(tmp_path, "whole", [named(runs["good"], "whole"), named(runs["odd"], "unknown")])
    lines = (tmp_path / "runs" / "whole.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "runs" / "whole.jsonl").write_bytes(lines[0])
    found = survey(tmp_path)
    assert [facts.run for facts in found.facts] == ["good", "whole"]
    assert found.refused.keys() == {"torn", "lost", "odd", "twice", "of-many-0", "of-many-1", "unknown"}
    assert len(found.nameless) == 1
    assert all(str(tmp_path) in complaint for complaint in found.complaints)


def test_of_a_run_of_which_there_are_facts_and_no_events_nothing_is_said(tmp_path: Path) -> None:
    for i, run in enumerate(["good", "gone"]):
        write_run(tmp_path, *honest_run(i, run=run, messages=2))
    shutil.rmtree(tmp_path / "events" / "run=gone")
    file = tmp_path / "runs" / "gone.json"
    assert survey(tmp_path).refused == {"gone": f"{file} has the facts of run 'gone', but there are no events of it."}
    write_runs(tmp_path, "many", [named(honest_run(3), "third")])  # such a file might have events of any run
    assert survey(tmp_path).refused.keys() == {"gone"}
    write_runs(tmp_path, "more", [named(honest_run(1, messages=2), "gone")])
    (tmp_path / "runs" / "more.jsonl").unlink()
    assert not survey(tmp_path).complaints


def test_of_a_run_without_rows_in_a_file_of_many_nothing_is_said(
    spark: SparkSession, antiphon: Command, tmp_path: Path
) -> None:
    """It would keep every promise. Who writes a run in which nothing happened says that in its facts."""
    good, empty = honest_run(1, run="good", messages=5), honest_run(2, run="empty", messages=5)
    write_runs(tmp_path, "many", [good, (empty[0], [])])
    assert not survey(tmp_path).complaints
    (idle,) = (facts for facts in read_facts(tmp_path) if facts.run == "empty")
    assert set(idle.rows) == {process for members in idle.groups.values() for process in members}
    assert set(idle.rows.values()) == {0}
    for rows in ({}, {**idle.rows, "g1.1": 7}, {"g1.1": 0}):
        write_many_facts(tmp_path, "many", [good[0], msgspec.structs.replace(empty[0], rows=rows)])
        told = f"{tmp_path}/runs/many.jsonl has the facts of run 'empty', but there are no events of it."
        assert survey(tmp_path).refused == {"empty": told}
    result = antiphon("verify", tmp_path, "--json")
    assert (result.code, result.json["holds"]) == (3, False)
    assert result.json["refused"] == [{"run": "empty", "reason": told}]
    assert {row["run"] for row in result.json["verdicts"]} == {"good"}
    write_many_facts(tmp_path, "many", [msgspec.structs.replace(empty[0], run="empty")])
    (tmp_path / "events" / "many.parquet").unlink()
    write_table_of_many(tmp_path, [])
    result = antiphon("verify", tmp_path)
    assert (result.code, result.out, result.err) == (2, "", f"antiphon: {told}\n")


def write_table_of_many(folder: Path, rows: list[Row]) -> None:
    table = to_table(rows)
    pq.write_table(table.append_column(RUN, pa.repeat("empty", len(table))), folder / "events" / "many.parquet")


def test_a_run_that_no_folder_can_be_named_after_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, *honest_run(1, run="r", messages=2))
    file = tmp_path / "runs" / "r.json"
    file.write_text(file.read_text().replace('"run":"r"', '"run":"../r"'))
    with pytest.raises(TraceError, match=r"r\.json has '\.\./r' as the name of a run: use letters, digits"):
        survey(tmp_path)


def test_a_damaged_file_that_is_about_nobody_is_told_of(tmp_path: Path) -> None:
    write_run(tmp_path, *honest_run(1, run="r", messages=2))
    (tmp_path / "events" / "more.parquet").write_bytes(b"PAR1")
    found = survey(tmp_path)
    assert [facts.run for facts in found.facts] == ["r"]
    told = f"{tmp_path}/events/more.parquet is not a Parquet file, or is damaged."
    assert found.complaints == [told]


def test_hidden_files_are_not_looked_at(tmp_path: Path) -> None:
    write_run(tmp_path, *honest_run(1, run="r", messages=2))
    for place in (
        "events/.a.parquet",
        "events/_b.parquet",
        "events/run=r/._c.parquet",
        "runs/.r.json",
        "runs/_r.jsonl",
    ):
        (tmp_path / place).write_text("whatever")
    found = survey(tmp_path)
    assert not found.complaints
    assert len(found.files) == 1
    assert len(read_facts(tmp_path)) == 1


def named(run: Run, name: str) -> Run:
    return msgspec.structs.replace(run[0], run=name), run[1]


def cut_in_files(folder: Path, run: Run) -> None:
    """As a cluster writes it: files that tell which rows of which process they have, and a fact of how many."""
    facts, rows = run
    last: dict[str, int] = {}
    for process in sorted({row.process for row in rows}):
        own = [row._replace(seq=i) for i, row in enumerate((r for r in rows if r.process == process), start=1)]
        last[process] = len(own)
        for first in range(0, len(own), 20):
            part = own[first : first + 20]
            write_events(folder, facts.run, f"{process}-{part[0].seq:012d}-{part[-1].seq:012d}", to_table(part))
    write_facts(folder, msgspec.structs.replace(facts, driver="runtime", rows=last))


def test_verify_judges_what_it_can_and_says_of_what_it_cannot(
    spark: SparkSession, antiphon: Command, tmp_path: Path
) -> None:
    """A run by pandas, one that lost a file, and one that is damaged: nothing is broken, and the code is 3."""
    write_run(tmp_path, *honest_run(1, run="damaged", messages=5))
    next(tmp_path.glob("events/run=damaged/*.parquet")).write_bytes(b"PAR1")
    facts, rows = honest_run(2, run="pandas", messages=5)
    write_facts(tmp_path, facts)
    (tmp_path / "events" / "run=pandas").mkdir()
    to_table(rows).to_pandas().to_parquet(tmp_path / "events" / "run=pandas" / "theirs.parquet")
    cut_in_files(tmp_path, honest_run(3, run="gone", messages=30))
    gone = sorted((tmp_path / "events" / "run=gone").glob("g1.1-*.parquet"))
    assert len(gone) > 2
    gone[1].unlink()
    (file,) = {path.name for path in tmp_path.glob("events/run=damaged/*.parquet")}
    result = antiphon("verify", tmp_path, "--json")
    assert result.code == 3
    assert result.json["holds"] is False
    assert result.json["violations"] == []
    (refused,) = result.json["refused"]
    assert refused["run"] == "damaged"
    assert file in refused["reason"]
    statuses = {(row["run"], row["status"]) for row in result.json["verdicts"]} - {("gone", "not promised")}
    assert statuses == {("pandas", "holds"), ("gone", "incomplete")}
    (of_gone,) = (run for run in read_facts_of(tmp_path, "gone"))
    assert of_gone.incomplete == ["g1.1"]
    here = read_rows(tmp_path, "gone")
    assert set(map(str, checks.verdicts(of_gone, check_run(of_gone, here)).values())) <= {"incomplete", "not promised"}


def read_facts_of(folder: Path, run: str) -> list[RunFacts]:
    return [facts for facts in survey(folder).facts if facts.run == run]


def damage_inside(file: Path, place: int = 1) -> None:
    """Its footer stays whole: only who reads the rows can tell. Column 1 is seq, which is read at once."""
    data = bytearray(file.read_bytes())
    column = pq.ParquetFile(file).metadata.row_group(0).column(place)
    begin = column.dictionary_page_offset or column.data_page_offset
    data[begin + 30 : begin + column.total_compressed_size] = bytes(column.total_compressed_size - 30)
    file.write_bytes(data)


def test_of_a_file_that_is_damaged_inside_the_run_is_named_and_the_others_are_judged(
    spark: SparkSession, antiphon: Command, tmp_path: Path
) -> None:
    for i, run in enumerate(["one", "two", "good"]):
        write_run(tmp_path, *honest_run(i, run=run, messages=40))
    files = [next(tmp_path.glob(f"events/run={run}/*.parquet")) for run in ("one", "two")]
    for file in files:
        damage_inside(file)
    result = antiphon("verify", tmp_path, "--json")
    assert result.code == 3
    reasons = {row["run"]: row["reason"] for row in result.json["refused"]}
    told = "is not a Parquet file, or is damaged."
    assert reasons == {run: f"{file} {told}" for run, file in zip(["one", "two"], files, strict=True)}
    statuses = {(row["run"], row["status"]) for row in result.json["verdicts"]}
    assert statuses - {("good", "not promised")} == {("good", "holds")}
    shutil.rmtree(tmp_path / "events" / "run=good")
    (tmp_path / "runs" / "good.json").unlink()
    result = antiphon("verify", tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == f"antiphon: {files[0]} {told}"


def test_damage_that_shows_when_tables_are_written_leaves_no_half_of_them(
    spark: SparkSession, antiphon: Command, tmp_path: Path
) -> None:
    """What frames are about is read for the last tables only."""
    trace, out = tmp_path / "trace", tmp_path / "out"
    for i, run in enumerate(["bad", "good"]):
        write_run(trace, *honest_run(i, run=run, messages=40))
    (file,) = trace.glob("events/run=bad/*.parquet")
    names = pq.ParquetFile(file).metadata.schema
    (place,) = (i for i in range(len(names)) if names.column(i).path.startswith("about"))
    damage_inside(file, place)
    result = antiphon("metrics", trace, "--out", out, "--json")
    assert (result.code, [row["run"] for row in result.json["refused"]]) == (3, ["bad"])
    for table in ("runs", "loads", "together"):
        assert set(pq.read_table(out / table).column("run").to_pylist()) == {"good"}
    shutil.rmtree(trace / "events" / "run=good")
    (trace / "runs" / "good.json").unlink()
    for _ in range(2):
        result = antiphon("metrics", trace, "--out", tmp_path / "none")
        assert (result.code, result.out) == (2, "")
        assert result.err.splitlines()[-1] == f"antiphon: {file} is not a Parquet file, or is damaged."


def test_where_only_spark_fails_to_read_a_file_nothing_is_judged(
    spark: SparkSession, antiphon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is 3: 1 would mean a broken promise."""
    write_run(tmp_path, *honest_run(1, run="r", messages=40))
    (file,) = tmp_path.glob("events/run=r/*.parquet")
    damage_inside(file)
    monkeypatch.setattr("antiphon.pipeline.read.examine_here", lambda files, runs, **_: examine_here(files, runs))
    result = antiphon("verify", tmp_path)
    assert (result.code, result.out) == (3, "")
    assert result.err.splitlines()[-1] == f"antiphon: Spark cannot read {file}: it is damaged."


def test_a_mistake_of_ours_is_not_a_broken_promise(
    antiphon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    write_run(tmp_path, *honest_run(1, run="r", messages=2))
    monkeypatch.setattr("antiphon.cli.session.quiet_session", fail)
    result = antiphon("verify", tmp_path)
    told = "antiphon: Nothing can be said of the trace: ZeroDivisionError: by zero"
    assert (result.code, result.err.splitlines()[-1]) == (3, told)
    assert "Traceback" in result.err


def test_a_folder_for_pictures_that_cannot_be_made_is_refused_before_anything_is_judged(
    antiphon: Command, tmp_path: Path
) -> None:
    write_run(tmp_path / "trace", *honest_run(1, run="r", messages=2))
    (tmp_path / "file").write_text("")
    result = antiphon("verify", tmp_path / "trace", "--draw", tmp_path / "file")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"antiphon: --draw cannot make the folder {tmp_path / 'file'}: File exists.\n"


def test_spark_failing_is_not_a_broken_promise(
    antiphon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NotJudged("Spark failed: no space left.")

    write_run(tmp_path, *honest_run(1, run="r", messages=2))
    monkeypatch.setattr("antiphon.cli.session.quiet_session", fail)
    result = antiphon("verify", tmp_path)
    assert (result.code, result.err.splitlines()[-1]) == (3, "antiphon: Spark failed: no space left.")


# ---- rows that are there twice


def test_of_two_rows_at_one_time_the_one_that_sorts_first_counts(spark: SparkSession) -> None:
    one = Row("p", 1, 10, "deliver", "m1", ("g",), position=0)
    other = Row("p", 1, 10, "deliver", None, ("g",), position=0)
    later = Row("p", 1, 11, "crash")
    for rows in ([one, other, later], [later, other, one], [one, later, other]):
        assert deduplicate_here(rows) == [other]
        table = to_table(rows).append_column("run", pa.repeat("r", len(rows)))
        (kept,) = deduplicate(spark.createDataFrame(table, EVENTS)).collect()
        assert (kept.kind, kept.message) == ("deliver", None)


@pytest.mark.parametrize("wrong", ["no facts", "facts twice"])
def test_what_is_there_twice_of_a_run_that_is_refused_does_not_come_back(
    spark: SparkSession, tmp_path: Path, wrong: str
) -> None:
    runs = [honest_run(i, run=name, messages=3) for i, name in enumerate(["good", "refused"])]
    write_runs(tmp_path, "both", [(facts, [*rows, *rows[::3]]) for facts, rows in runs])
    good, refused = (tmp_path / "runs" / "both.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "runs" / "both.jsonl").write_bytes(good if wrong == "no facts" else good + 2 * refused)
    trace = open_trace(spark, tmp_path)
    assert trace.survey.refused.keys() == {"refused"}
    assert [(row.run, row["count"]) for row in trace.events.groupBy("run").count().collect()] == [
        ("good", len(runs[0][1]))
    ]
    assert trace.scan.rows is not None
    assert {row.run for row in trace.scan.rows.select("run").collect()} == {"good"}


# ---- how much of it at once


def test_tables_are_put_together_up_to_a_size_and_none_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "TASK_ROWS", 10)
    parts = [pa.table({"seq": pa.array(range(n), pa.int64())}) for n in (0, 12, 0, 4, 6, 1, 0)]
    assert [len(table) for table in scan._tables(parts)] == [12, 10, 1]
    assert list(scan._tables(parts[:1])) == []


def test_a_file_of_other_types_is_not_looked_at_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "TASK_ROWS", 10)
    _, rows = honest_run(1, run="r", messages=5)
    path = str(tmp_path / "theirs.parquet")
    table = by_pandas(to_table(rows)).append_column("run", pa.repeat("r", len(rows)))
    pq.write_table(table, path)
    wanted = scan._Wanted(["run", *EVENTS.names[:-1]], frozenset([path]), scan.NONE)
    seen: list[pa.Table] = []

    def look(tables: Any) -> Any:
        seen.extend(tables)
        return iter(())

    scan._in_files(look, wanted, iter([pa.RecordBatch.from_pydict({"path": [path], "part": [0], "parts": [1]})]))
    assert len(rows) > 20
    assert {len(one) for one in seen[:-1]} == {10}
    assert [row for one in seen for row in one.drop_columns("run").to_pylist()] == to_table(rows).to_pylist()


def test_the_command_tells_of_a_promise_that_nobody_checks(antiphon: Command) -> None:
    from antiphon.cli.spark import exit_code

    assert exit_code([{"status": "holds"}], {"linearizability"}) == 3
    assert exit_code([{"status": "broken"}], {"linearizability"}) == 1
