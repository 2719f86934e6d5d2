"""The commands as a user meets them: what they print, what they answer to bad input, and their exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import typer

from antiphon import __version__
from antiphon.cli.app import PLACES
from antiphon.cli.clients import Sending
from antiphon.client import Receipt
from antiphon.core.errors import UsageError
from antiphon.core.requests import PAYLOAD_BYTES_MAX
from antiphon.pipeline import session as spark_session
from antiphon.protocols import DEFAULT_PROTOCOL, protocols
from antiphon.runtime import cluster
from antiphon.trace.parquet import EVENTS
from cli.command import Command, Result

ROOT = Path(__file__).parents[2]
QUANTILES = ("_p50", "_p90", "_p99", "_max")

FIELDS = {"digest", "events", "multicasts", "deliveries", "messages_sent", "bytes_sent", "steps_max", "violations"}
COMMANDS = [
    "replace",
    "simulate",
    "protocols",
    "verify",
    "metrics",
    "report",
    "demo",
    "up",
    "node",
    "send",
    "tail",
    "status",
    "tell",
    "down",
    "soak",
]


def simulate(antiphon: Command, *more: object) -> Result:
    chosen = ("--protocol", "skeen", "--groups", "2x2", "--messages", 20, "--seed", 7)
    return antiphon("simulate", *chosen, "--json", *more)


@pytest.fixture
def trace(antiphon: Command, tmp_path: Path) -> Path:
    folder = tmp_path / "trace"
    assert simulate(antiphon, "--trace", folder).code == 0
    return folder


# What works ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["bench"], *([command] for command in COMMANDS)], ids=str)
def test_h_is_help(antiphon: Command, arguments: list[str]) -> None:
    assert antiphon(*arguments, "-h") == antiphon(*arguments, "--help")


@pytest.mark.parametrize(("arguments", "commands"), [([], COMMANDS), (["bench"], ["cluster", "peers"])], ids=str)
def test_no_summary_is_cut(
    antiphon: Command, arguments: list[str], commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = antiphon(*arguments, "--help").out.partition("Commands:")[2].strip().splitlines()
    assert {*commands} <= {line.split()[0] for line in listed}
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_the_version_is_told_and_in_the_help(antiphon: Command) -> None:
    assert antiphon("--version").out == f"antiphon {__version__}\n"
    assert "--version" in antiphon("--help").out


def test_bench_alone_shows_its_help(antiphon: Command) -> None:
    result = antiphon("bench")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: antiphon bench")
    assert "\nCommands:\n" in result.err


def test_a_shell_completes_commands(antiphon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ANTIPHON_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "antiphon ver")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert antiphon().out.split() == ["verify"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(antiphon: Command, command: str) -> None:
    result = antiphon(command, "--help")
    assert result.code == 0
    assert f"antiphon {command}" in result.out.partition("Example")[2]


def test_alone_it_shows_what_there_is(antiphon: Command) -> None:
    result = antiphon()
    assert result.code == 0
    assert all(command in result.out for command in COMMANDS)


def test_simulate_prints_one_json_object(antiphon: Command) -> None:
    result = simulate(antiphon)
    assert result.code == 0
    assert result.json.keys() >= FIELDS
    assert result.json["multicasts"] == 20
    assert result.json["violations"] == []
    assert result.err == ""


def test_the_same_seed_gives_the_same_digest(antiphon: Command) -> None:
    digests = [simulate(antiphon, "--faults", "all").json["digest"] for _ in range(2)]
    assert digests[0] == digests[1]
    other = simulate(antiphon, "--faults", "all", "--seed", 8)
    assert other.json["digest"] != digests[0]


def test_the_digest_does_not_depend_on_the_hash_seed() -> None:
    digests = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "antiphon", "simulate", "--messages", "20", "--faults", "all", "--json"]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        digests.add(json.loads(done.stdout)["digest"])
    assert len(digests) == 1


def test_skeen_takes_18_messages_and_3_steps_to_two_groups_of_three(antiphon: Command) -> None:
    chosen = ("--protocol", "skeen", "--groups", "3x3", "--fanout", 2, "--clients", 1, "--messages", 1)
    result = antiphon("simulate", *chosen, "--json")
    assert (result.json["messages_sent"], result.json["steps_max"], result.json["deliveries"]) == (18, 3, 6)


def test_without_clients_the_members_send(antiphon: Command) -> None:
    result = antiphon("simulate", "--groups", "a=2,b=1", "--clients", 0, "--messages", 6, "--json")
    assert result.json["multicasts"] == 6


def test_a_campaign_counts_its_runs(antiphon: Command) -> None:
    result = antiphon("simulate", "--runs", 10, "--seed", 1, "--json")
    assert result.code == 0
    assert result.json["runs"] >= 10
    assert result.json["failures"] == []
    assert result.err == ""


def test_protocols_lists_every_declaration(antiphon: Command) -> None:
    listed = antiphon("protocols", "--json").json
    assert {row["name"] for row in listed} == set(protocols())
    assert all({"source", "assumes", "promises", "options"} <= row.keys() for row in listed)


def test_protocols_tell_every_option_and_its_default(antiphon: Command) -> None:
    lines = [line.strip() for line in antiphon("protocols", "hybrid").out.splitlines()]
    assert lines[0].startswith("hybrid: ")
    shown = ("root=1|2|4|16, by default 2", "gaps=false|true, by default false", "seed=N, by default 0", "weights=...")
    assert set(shown) <= set(lines)
    (listed,) = antiphon("protocols", "token", "--json").json
    assert listed["defaults"]["window"] == 16
    assert "There is no protocol 'nothing'" in antiphon("protocols", "nothing").err


def test_refusals_of_numbers_say_what_they_must_be(antiphon: Command) -> None:
    assert antiphon("simulate", "--loss", 2).err == "antiphon: --loss must be from 0 to 0.9.\n"
    assert antiphon("simulate", "--size", -1).err == "antiphon: --size must be at least 0.\n"
    assert antiphon("simulate", "--size", "x").err == "antiphon: --size must be a whole number.\n"
    assert antiphon("simulate", "--loss", "x").err == "antiphon: --loss must be a number.\n"
    words = "--workload must be closed, periodic, poisson or burst."
    assert antiphon("simulate", "--workload", "x").err == f"antiphon: {words}\n"
    sentence = "The hybrid protocol's option root must be 1, 2, 4 or 16, not '3'."
    assert antiphon("simulate", "--protocol", "hybrid", "-o", "root=3").err == f"antiphon: {sentence}\n"


def test_what_is_too_much_is_named(antiphon: Command) -> None:
    result = antiphon("send", "--dir", "shop", "--to", "orders", "one", "espresso", "please")
    assert result.code == 2
    assert result.err == "antiphon: Too many arguments: espresso please. A text of several words needs quotes.\n"
    assert antiphon("simulate", "--sides", 3).err.startswith("antiphon: No such option: --sides")


@pytest.mark.parametrize(
    "arguments",
    [["protocols"], ["protocols", "tom", "--json"], ["--version"], ["--help"], ["verify", "--help"]],
    ids=str,
)
def test_a_reader_that_has_enough_is_no_failure_of_the_command(arguments: list[str]) -> None:
    """1 would say that a promise is broken."""
    command = [sys.executable, "-c", "from antiphon.cli import main; main()", *arguments]
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}  # so that it fails where it is written
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=unbuffered)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


def test_protocols_are_readable_in_80_columns(antiphon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = antiphon("protocols").out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "\N{HORIZONTAL ELLIPSIS}" not in out, "nothing is cut"
    assert ".txt" not in out, "the texts are named as a library would, not as our copies are"
    words = " ".join(out.split())
    for name, kind in protocols().items():
        assert f"{name}: {kind.declaration.title} source {kind.declaration.source} assumes" in words


def test_simulate_and_up_have_the_same_default(antiphon: Command) -> None:
    assert antiphon("simulate", "--messages", 1, "--json").json["protocol"] == DEFAULT_PROTOCOL
    assert f"default: {DEFAULT_PROTOCOL}" in " ".join(antiphon("up", "--help").out.split())


def test_multicasts_that_were_not_made_are_told(antiphon: Command) -> None:
    """With this seed a client crashes for good, and the rest of what it was to send is never sent."""
    chosen = ("simulate", "--protocol", "tom", "--messages", 100, "--faults", "crash")
    seed = next(
        seed for seed in range(50) if (made := antiphon(*chosen, "--seed", seed, "--json").json)["multicasts"] < 100
    )
    assert made["multicasts_planned"] == 100
    shown = antiphon(*chosen, "--seed", seed).out
    assert re.search(rf"multicasts +{made['multicasts']} of 100\b", shown)
    assert re.search(rf"{made['multicasts']} of 100 planned multicasts were made: c\d.* crashed for good", shown)


def test_verify_and_metrics_agree_with_the_simulator(antiphon: Command, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    simulated = simulate(antiphon, "--trace", runs, "--faults", "crash").json
    verified = antiphon("verify", runs, "--json")
    assert verified.code == 0
    assert verified.json["holds"] is True
    statuses = {row["property"]: row["status"] for row in verified.json["verdicts"]}
    assert statuses["total_order"] == "holds"
    assert statuses["fifo"] == "not promised"
    figures = tmp_path / "figures"
    measured = antiphon("metrics", runs, "--json", "--out", figures).json
    assert measured["clocks_set_back"] == []
    page = (ROOT / "docs" / "metrics.md").read_text()
    written = {folder.name: ds.dataset(folder).to_table() for folder in figures.iterdir()}
    rows_of_page = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    assert set(written) == set(rows_of_page)
    for name, table in written.items():
        told = {column for column in table.column_names if column != "run" and not column.endswith(QUANTILES)}
        missing = {column for column in told if f"`{column}`" not in rows_of_page[name]}
        assert missing <= {"process", "layer"}, f"{name}: the page does not name {missing}"
    assert written["runs"].column("deliveries").to_pylist() == [simulated["deliveries"]]
    again = antiphon("metrics", runs, "--out", figures)
    assert again.code == 2
    assert f"{figures} is there already" in again.err
    (row,) = measured["runs"]
    assert (row["multicasts"], row["deliveries"]) == (20, simulated["deliveries"])
    assert (row["sends"], row["bytes"]) == (simulated["messages_sent"], simulated["bytes_sent"])
    assert {row["groups"] for row in measured["by_groups"]} == {1, 2}


def test_verify_shows_what_breaks_a_promise(antiphon: Command, trace: Path) -> None:
    """Two deliveries of one process change places: order is broken there, and nowhere else."""
    (file,) = trace.glob("events/run=*/*.parquet")
    rows = pq.read_table(file, partitioning=None).to_pylist()
    mine = [row for row in rows if row["kind"] == "deliver" and row["process"] == "g1.2"]
    first, second = mine[0], mine[1]
    for column in ("message", "destinations", "order_key"):
        first[column], second[column] = second[column], first[column]
    pq.write_table(pa.Table.from_pylist(rows, schema=EVENTS), file)
    result = antiphon("verify", trace, "--draw", trace / "drawn")
    assert result.code == 1
    assert "total_order is broken in skeen-7" in result.out
    assert re.search(rf"g1\.2 deliver {first['message']}: seq \d+, position \d+, \+\d+\.\d+ ms", result.out)
    drawn = {file.name.split("-", 1)[1]: file.read_text() for file in (trace / "drawn").glob("*.svg")}
    assert first["message"] in drawn["skeen-7-total_order.svg"]
    assert first["message"] in result.out
    assert "g1.2" in result.out
    assert "acyclic_order is broken in skeen-7" in result.out


# What bad input gets ---------------------------------------------------------------------------------------------


def refused(result: Result, *words: str) -> None:
    """One sentence on standard error, nothing on standard output, exit code 2."""
    assert result.code == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("antiphon: ")
    assert "Traceback" not in line
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["simulate", "--protocol", "paxos"], "paxos"),
        (["simulate", "-o", "speed=9"], "speed"),
        (["simulate", "-o", "speed"], "name=value"),
        (["simulate", "--protocol", "tom", "-o", "sets=maybe"], "sets must be false or true"),
        (["simulate", "--runs", "3", "--groups", "2x2", "--trace", "t"], "cannot be combined with --groups or --trace"),
        (["simulate", "--groups", "three"], "three"),
        (["simulate", "--groups", "orders=0"], "orders"),
        (["simulate", "--groups", "a=1,a=2"], "a=1,a=2"),
        (["simulate", "--groups", "3x3", "--fanout", "4"], "4"),
        (["simulate", "--size", str(PAYLOAD_BYTES_MAX + 1)], str(PAYLOAD_BYTES_MAX)),
        (["simulate", "--faults", "meteor"], "meteor"),
        (["simulate", "--latency", "fast"], "fast"),
        (["simulate", "--messages", "-1"], "--messages"),
        (["simulate", "--protocol", "sequencer", "--fanout", "2"], "one group"),
        (["simulate", "--protocol", "sequencer", "--fanout", "2"], "primcast and skeen can"),
        (
            ["simulate", "--protocol", "ctbroadcast", "--fanout", "2"],
            "primcast and skeen send to those that are named only",
        ),
        (["simulate", "--protocol", "arrow", "-o", "tree=ring"], "tree must be balanced, line, star or random"),
        (["simulate", "--protocol", "skeen", "-o", "tree=line"], "arrow, combining, counting and hybrid have it"),
        (["simulate", "--protocol", "skeen", "-o", "transport=datagram"], "causal, fifo, sequencer and token have it"),
        (["simulate", "--protocol", "skeen", "--loss", "0.1"], "causal, fifo, sequencer and token can, with -o"),
        (["simulate", "--protocol", "token", "--loss", "0.1"], "it can, with -o transport=datagram"),
        (["simulate", "--loss", "1"], "--loss"),
        (["simulate", "--nonsense"], "nonsense"),
        (["simulate", "--seed", "x"], "--seed"),
        (["frobnicate"], "frobnicate"),
        (["verify"], "dir"),
        (["status", "--dir", "nowhere"], "nowhere"),
        (["down", "--dir", "nowhere"], "nowhere"),
        (["send", "--dir", "nowhere", "--to", "orders", "text"], "nowhere"),
        (["up", "--dir", "nowhere"], "--groups"),
    ],
    ids=str,
)
def test_bad_input_gets_one_sentence(antiphon: Command, arguments: list[str], word: str) -> None:
    refused(antiphon(*arguments), word)


def test_a_cluster_on_datagrams_of_a_protocol_that_needs_reliable_channels(antiphon: Command, tmp_path: Path) -> None:
    asked = antiphon(
        "up", "--dir", tmp_path / "new", "--groups", "2x2", "--protocol", "tom", "-o", "transport=datagram"
    )
    refused(asked, "causal, fifo, sequencer and token have it")


@pytest.mark.parametrize("command", ["verify", "metrics", "report"])
def test_a_folder_that_is_no_trace(antiphon: Command, command: str, tmp_path: Path) -> None:
    refused(antiphon(command, tmp_path), "not a trace")
    refused(antiphon(command, tmp_path / "missing"), f"There is no folder {tmp_path / 'missing'}.")


@pytest.mark.parametrize("command", ["verify", "metrics", "report"])
def test_a_cluster_that_records_no_trace(antiphon: Command, command: str, tmp_path: Path) -> None:
    cluster.create(tmp_path / "shop", {"a": 1}, trace=False)
    refused(antiphon(command, tmp_path / "shop"), "records no trace", "--no-trace")


def test_a_report_needs_a_place(antiphon: Command, trace: Path, tmp_path: Path) -> None:
    refused(antiphon("report", trace, "--out", tmp_path / "missing" / "r.html"), "no folder")


def test_what_to_install_for_spark(antiphon: Command, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone installs itself, an installation the packages that are missing: its own name may be nowhere."""
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None)
    refused(antiphon("verify", trace), f"pip install -e '{Path(__file__).parents[2]}[spark]'")
    monkeypatch.setattr(spark_session, "__file__", str(trace / "a/b/c/session.py"))
    refused(antiphon("verify", trace), "pip install", "pyspark[sql]==4.3.0", "matplotlib")


def test_a_trace_without_a_column(antiphon: Command, trace: Path) -> None:
    (file,) = trace.glob("events/run=*/*.parquet")
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["order_key"]), file)
    refused(antiphon("verify", trace), "order_key")


def test_a_trace_of_another_version(antiphon: Command, trace: Path) -> None:
    (facts,) = trace.glob("runs/*.json")
    facts.write_text(facts.read_text().replace('"version":2', '"version":99'))
    refused(antiphon("verify", trace), "99")


def test_facts_that_are_not_json(antiphon: Command, trace: Path) -> None:
    (facts,) = trace.glob("runs/*.json")
    facts.write_text("{")
    refused(antiphon("verify", trace), "JSON")


def test_a_file_that_is_not_parquet(antiphon: Command, trace: Path) -> None:
    (file,) = trace.glob("events/run=*/*.parquet")
    file.write_bytes(b"PAR1 is not enough")
    refused(antiphon("metrics", trace), "Parquet")


def test_a_demo_does_not_replace_a_folder_that_is_not_its_own(antiphon: Command, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    refused(antiphon("demo", "--dir", tmp_path), "nor an earlier demo")
    assert (tmp_path / "precious").read_text() == "keep me"


@pytest.mark.parametrize("command", ["verify", "metrics", "demo"])
def test_without_java_one_sentence_says_how_to_get_it(trace: Path, command: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = str(tmp_path)
    arguments = ["--dir", str(tmp_path / "demo")] if command == "demo" else [str(trace)]
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", command, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    refused(Result(done.returncode, done.stdout, done.stderr), "Java 17")
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("command", ["status", "send", "simulate", "node"])
def test_a_command_does_not_load_what_only_others_need(command: str) -> None:
    """Nobody waits for Spark, or for pyarrow, to see how a cluster is doing."""
    code = f"""
import sys
from antiphon.cli.app import app, typer
group = typer.main.get_command(app)
assert group.get_command(None, {command!r}) is not None
print(sorted({{"pyspark", "pyarrow", "numpy", "pandas"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_command_is_where_it_is_looked_for() -> None:
    for file in dict.fromkeys(PLACES.values()):
        found = typer.Typer()
        import_module(f"antiphon.cli.{file}").register(found)
        assert list(typer.main.get_group(found).commands) == [name for name in PLACES if PLACES[name] == file]


def test_a_message_that_is_refused_is_not_counted(antiphon: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(sending: Sending, path: Path, name: str | None, text: str | None) -> None:
        async def refuse() -> Receipt:
            raise UsageError("The arrow protocol sends a message to one group.")

        sending.tasks.append(asyncio.create_task(refuse()))
        await sending.tasks[0]

    monkeypatch.setattr(Sending, "run", run)
    monkeypatch.setattr("antiphon.cli.clients._need_somebody", lambda *_: None)
    sent = antiphon("send", "--dir", "shop", "--to", "a,b", "hello")
    assert (sent.code, sent.err) == (2, "antiphon: The arrow protocol sends a message to one group.\n")


def test_a_path_of_this_machine_is_refused_on_others(antiphon: Command, trace: Path) -> None:
    for command in ("verify", "metrics", "report"):
        for flags in (("--master", "spark://far:7077"), ("--remote", "sc://far"), ("--master", "yarn")):
            words = f"{trace} is a path of this machine, and {flags[1]} runs tasks on others: if all of them have this"
            refused(antiphon(command, trace, *flags), f"{words} folder, say so with {trace.resolve().as_uri()}.")


def test_a_master_that_does_not_answer_is_named(trace: Path) -> None:
    """In a process of its own: in this one, Spark may have been started for another test."""
    command = [sys.executable, "-m", "antiphon", "verify", trace.as_uri(), "--master", "spark://127.0.0.1:1"]
    nobody = subprocess.run(command, capture_output=True, text=True, check=False)
    words = "antiphon: Spark did not start: nobody answers at spark://127.0.0.1:1.\n"
    assert (nobody.returncode, nobody.stderr) == (3, words)
