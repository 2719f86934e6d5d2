"""Each judge of the soak passes what is honest, and catches what is forged: one thing wrong at a time, on disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from antiphon.checks import Status
from antiphon.cli.soak import judge_trace, show, take_verdicts
from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.cluster.folder import ProcessFolder
from antiphon.soak import SoakReport, SoakSettings, plan
from antiphon.soak.clients import LoadClient, wait_for_receipts
from antiphon.soak.judge import Digest, judge_logs
from antiphon.soak.memory import PEAK_MIB_MAX, THIRD_SECONDS_MIN, MemorySamples, judge_memory
from antiphon.soak.network import Network
from antiphon.soak.records import RecordLine, RecordReader, RecordWriter, payload_of
from antiphon.soak.strikes import Strikes
from antiphon.soak.values import DELIVERY_SECONDS_MAX, Memory, judge_delivery
from antiphon.soak.worker import ClientTask
from soak.forged import BOTH, CLIENT, TAG, Logs, honest, written

replace = msgspec.structs.replace


def faults_of(path: Path, logs: Logs, receipts: list[RecordLine], read: Logs | None = None) -> list[str]:
    digests = {}
    for group, payloads in (read or {}).items():
        digests[group] = Digest()
        for each in payloads:
            digests[group].add(each)
    faults, _ = judge_logs(written(path / "cluster", logs), {TAG: receipts}, digests)
    return faults


def test_nothing_is_found_in_an_honest_record(tmp_path: Path) -> None:
    logs, receipts = honest()
    assert faults_of(tmp_path, logs, receipts, read=logs) == []


# Each takes something honest and forges it; and what the judge has to say.


def lose_the_last(logs: Logs, receipts: list[RecordLine]) -> None:
    for group in BOTH:
        logs[group].pop()


def lose_in_one_group(logs: Logs, receipts: list[RecordLine]) -> None:
    logs["b"].remove(next(entry for entry in reversed(logs["b"]) if entry.destinations == BOTH))


def double(logs: Logs, receipts: list[RecordLine]) -> None:
    logs["a"].append(logs["a"][2])


def leave_a_hole(logs: Logs, receipts: list[RecordLine]) -> None:
    gone = next(entry for entry in logs["a"] if entry.destinations == ("a",) and entry.number == 1)
    logs["a"].remove(gone)


def change_a_byte(logs: Logs, receipts: list[RecordLine]) -> None:
    entry = logs["a"][0]
    logs["a"][0] = replace(entry, payload=entry.payload[:-1] + bytes([entry.payload[-1] ^ 1]))


def swap_two_payloads(logs: Logs, receipts: list[RecordLine]) -> None:
    """The names are in order, and the bytes behind them are not."""
    at = [k for k, entry in enumerate(logs["a"]) if entry.destinations == ("a",)]
    one, other = logs["a"][at[0]], logs["a"][at[1]]
    logs["a"][at[0]], logs["a"][at[1]] = replace(one, payload=other.payload), replace(other, payload=one.payload)


def mix_up_receipts(logs: Logs, receipts: list[RecordLine]) -> None:
    """The client was told the number of another payload of its own."""
    one, other = [k for k, line in enumerate(receipts) if line.destinations == BOTH][:2]
    receipts[one], receipts[other] = (
        replace(receipts[one], serial=receipts[other].serial),
        replace(receipts[other], serial=receipts[one].serial),
    )


def swap_between_groups(logs: Logs, receipts: list[RecordLine]) -> None:
    """Two clients, whose messages b delivers the other way round."""
    for group, clients in (("a", ("c2-00", "c3-00")), ("b", ("c3-00", "c2-00"))):
        for client in clients:
            for entry in [e for e in logs[group] if e.destinations == BOTH and e.client == CLIENT][:1]:
                tag = client.replace("-00", ".0")
                logs[group].append(replace(entry, client=client, payload=payload_of(tag, 0)))


def differ_within_a_group(logs: Logs, receipts: list[RecordLine]) -> None:
    logs["b.2"] = [*logs["b"][:-2], logs["b"][-1], logs["b"][-2]]


FORGERIES: dict[Callable[[Logs, list[RecordLine]], None], str] = {
    lose_the_last: "has a receipt and is lost in a",
    lose_in_one_group: "has a receipt and is lost in b",
    double: "is doubled in a",
    leave_a_hole: "stands in a where 1 is due",
    change_a_byte: "has other bytes in a than anybody sent",
    swap_two_payloads: "is not in the order of its client's calls in a",
    mix_up_receipts: "where its receipt is for",
    swap_between_groups: "a and b deliver what both get in different orders: at the",
    differ_within_a_group: "b.1 and b.2 deliver differently",
}


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forged_record_is_found(tmp_path: Path, forge: Callable[[Logs, list[RecordLine]], None]) -> None:
    logs, receipts = honest()
    forge(logs, receipts)
    faults = faults_of(tmp_path, logs, receipts)
    assert any(FORGERIES[forge] in sentence for sentence in faults), faults


def test_a_reader_that_saw_something_else_is_found(tmp_path: Path) -> None:
    logs, receipts = honest()
    read = {"a": logs["a"], "b": logs["b"][:-1]}
    assert [fault for fault in faults_of(tmp_path, logs, receipts, read) if "The reader of b saw" in fault]


@pytest.mark.parametrize("lacks", [0, 1], ids=["honest", "forged"])
def test_a_newcomer_that_lacks_what_came_behind_its_beginning_is_found(tmp_path: Path, lacks: int) -> None:
    """One that counted before it knew all that others knew would have such a log."""
    logs, receipts = honest()
    begin = 5
    folder = written(tmp_path / "cluster", {**logs, "b.2": logs["b"][begin + lacks :]}, begins={"b.2": begin})
    faults, _ = judge_logs(folder, {TAG: receipts}, {})
    assert [fault for fault in faults if "b.1 and b.2 deliver differently" in fault] == faults
    assert len(faults) == lacks


def test_a_log_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    logs, receipts = honest()
    folder = written(tmp_path / "cluster", logs)
    (segment,) = folder.process("a.2").delivered.glob("segment-*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"c1.0")] ^= 0xFF
    segment.write_bytes(data)
    faults, _ = judge_logs(folder, {TAG: receipts}, {})
    assert [fault for fault in faults if fault.startswith("A log of a cannot be read")]


# The clients ----------------------------------------------------------------------------------------------------


def test_a_route_without_receipts_is_found(tmp_path: Path) -> None:
    """A client of which one route is dead and the others are well, as its own record tells."""
    client = LoadClient(ClientTask(target="", name="c1", routes=[("a",), BOTH], pause_seconds=0.0), tmp_path)
    client.read(tmp_path / TAG, TAG)
    record = RecordWriter(tmp_path / TAG)
    record.write(RecordLine(5.0, BOTH, 0, 1, CLIENT, 0))
    record.write(RecordLine(15.0, ("a",), 1, 1, CLIENT, 0))
    record.write(RecordLine(16.0, BOTH, 2, 1))  # this one came to nothing
    assert asyncio.run(wait_for_receipts([client], since=10.0, patience=0.0, known=set())) == {("c1", BOTH)}
    record.write(RecordLine(17.0, BOTH, 3, 1, CLIENT, 1))
    since = time.monotonic()
    record.write(RecordLine(since + 1, BOTH, 4, 1, CLIENT, 2))
    record.write(RecordLine(since + 1, ("a",), 5, 1, CLIENT, 1))
    assert asyncio.run(wait_for_receipts([client], since, patience=5.0, known=set())) == set()


def test_a_client_that_cannot_send_once_more_is_found(tmp_path: Path) -> None:
    folder = cluster.create(tmp_path / "cluster", {"a": 1})  # nobody is there
    task = ClientTask(
        target=str(folder.path), name="c1", routes=[("a",)], pause_seconds=0.0, timeouts=(0.5,), last_seconds=0.5
    )
    client = LoadClient(task, tmp_path)
    client.start()
    while client.unknown == 0:
        client.look()
    client.tell_to_end()
    complaint = client.complaint(time.monotonic() + 60)
    assert complaint == "c1.0 could not send once more on each of its routes, on a cluster that is well."


def test_a_record_outlives_its_client_and_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / TAG
    RecordWriter(path).write(RecordLine(1.0, BOTH, 0, 1, CLIENT, 0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-5])
    reader = RecordReader(path)
    assert len(list(reader.news())) == 1
    path.write_bytes(whole * 2)
    assert len(list(reader.news())) == 1


# What is struck -------------------------------------------------------------------------------------------------


def struck(path: Path, fault: plan.SoakFault, *, alone: bool) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """What is found, and what came to nothing, when a cluster that never ran is struck."""
    found: list[tuple[str, str]] = []
    folder = written(path / "cluster", honest()[0])
    strikes = Strikes(folder, Network(seed=1), {}, {}, lambda kind, sentence: found.append((kind, sentence)))
    asyncio.run(strikes.strike(fault, alone=alone))
    return found, strikes.unfelt


@pytest.mark.parametrize("alone", [True, False])
def test_a_member_that_down_has_to_kill_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """Unless something else was wrong with it then: here none of them says that it ended cleanly."""
    monkeypatch.setattr(Strikes, "_is_up", lambda strikes, process: process != "b.2")
    monkeypatch.setattr(cluster, "stop", lambda folder: False)
    monkeypatch.setattr(cluster, "start", lambda folder, processes: [])
    found, unfelt = struck(tmp_path, plan.DownUp(seconds=0.0), alone=alone)
    expected = ("down", "`down` did not find that a.1, a.2, b.1 ended cleanly.")
    assert found == ([expected] if alone else [])
    assert unfelt == {}


@pytest.mark.parametrize(
    "fault",
    [
        plan.PauseMembers(processes=("a.1", "a.2"), seconds=0.0),
        plan.Kill(processes=("a.1",), seconds=0.0),
        plan.FailedDisk(process="a.1"),
        plan.DownUp(seconds=0.0),
        plan.LostDisk(process="c.1"),
    ],
    ids=plan.kind_of,
)
def test_faults_that_strike_nobody_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: plan.SoakFault
) -> None:
    monkeypatch.setattr(cluster, "start", lambda folder, processes: [])
    assert struck(tmp_path, fault, alone=True) == ([], {plan.kind_of(fault): 1})


@pytest.mark.parametrize("pids", [[7, 7], [7, None]], ids=["stays", "ends"])
def test_a_crowd_calls_and_a_member_that_ends_of_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pids: list[int | None]
) -> None:
    told: list[bytes] = []
    found: list[tuple[str, str]] = []
    folder = written(tmp_path / "cluster", honest()[0])
    strikes = Strikes(folder, Network(seed=1), {}, {}, lambda kind, sentence: found.append((kind, sentence)))
    left = iter(pids)
    monkeypatch.setattr(ProcessFolder, "pid", lambda own: next(left))

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.read(1000))
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(hear, *folder.config.listens_on(folder.config.known("a.1"))):
            await strikes.strike(plan.Crowd(process="a.1", callers=20, seconds=0.5), alone=True)

    asyncio.run(story())
    assert len(told) == 20
    assert all(b"crowd" in hello for hello in told)
    assert found == ([] if pids[1] else [("crowd", "a.1 ended while 20 callers were there.")])
    assert strikes.unfelt == {}


# Time and memory ------------------------------------------------------------------------------------------------


def test_late_deliveries_are_found() -> None:
    assert judge_delivery(DELIVERY_SECONDS_MAX, 60.0) is None
    assert judge_delivery(DELIVERY_SECONDS_MAX + 0.1, 60.0) == (
        "late",
        "Deliveries were on only 10.1 s after the last fault.",
    )
    assert judge_delivery(None, 60.0) == ("stuck", "Nothing was delivered for 60 s after the last fault.")


def memory_faults(sizes: list[float], seconds: float = THIRD_SECONDS_MIN / 20) -> list[str]:
    """What is said of a process that has these sizes, one in so many seconds."""
    now = 0.0
    samples = MemorySamples(lambda: now)
    for size in sizes:
        samples.add("a.1", size)
        now += seconds
    return judge_memory(samples.summary())


def test_growing_memory_is_found() -> None:
    assert memory_faults([100.0] * 90) == []
    grown = memory_faults([100.0 + k for k in range(90)])
    assert grown == [
        "a.1 grew by more than 48 MiB: to 123.8 MiB in the first third of the time, and to 183.8 MiB in the last."
    ]


def test_growth_that_shows_only_from_life_to_life_is_found() -> None:
    """Each life begins small again, and ends larger than the one before."""
    lives = [50.0 + k * (1 + 2 * life) for life in range(9) for k in range(10)]
    assert memory_faults(lives)


def test_growth_after_each_start_is_none() -> None:
    assert memory_faults([50.0 + 10 * k for _ in range(9) for k in range(10)]) == []
    assert memory_faults([100.0 + k for k in range(90)], seconds=0.5) == [], "too short a time to tell"


def test_a_high_peak_is_found_however_short_it_is() -> None:
    assert memory_faults([150.0, PEAK_MIB_MAX + 1, 150.0], seconds=1.0) == ["a.1 took 301.0 MiB, more than 300."]


# The trace ------------------------------------------------------------------------------------------------------


def a_report() -> SoakReport:
    return SoakReport(settings=SoakSettings(protocol="tom", groups={"a": 1}, seed=7))


@pytest.mark.parametrize("status", list(Status))
def test_a_promise_that_does_not_hold_is_found(status: Status) -> None:
    report = a_report()
    broken = [{"property": "integrity", "detail": "a.1 delivers a.1:1 twice"}] if status is Status.BROKEN else []
    take_verdicts(report, [{"property": "integrity", "status": status.value}], broken)
    assert report.verdicts == {"integrity": status.value}
    assert report.holds == (status in (Status.HOLDS, Status.NOT_PROMISED))


def test_a_finding_names_the_seed_and_the_episode(capsys: pytest.CaptureFixture[str]) -> None:
    report = a_report()
    report.add("late", "Deliveries were on only 12.0 s after the last fault.", 3)
    show(Console(width=120), report)
    out = capsys.readouterr().out
    assert "FOUND late (seed 7, episode 3): Deliveries were on only 12.0 s after the last fault." in out
    assert "Nothing lost" not in out


def test_memory_that_was_not_compared_is_not_called_flat(capsys: pytest.CaptureFixture[str]) -> None:
    report = a_report()
    report.memory["a.1"] = Memory(None, None, 120.0)
    show(Console(width=120), report)
    short = capsys.readouterr().out
    assert "120 MiB at most; the time was too short to see it grow" in short
    assert "flat" not in short
    report.memory["a.1"] = Memory(100.0, 103.0, 120.0)
    show(Console(width=120), report)
    long = capsys.readouterr().out
    assert "120 MiB at most; grew by 3 MiB at most" in long
    assert "memory flat" in long


def test_what_is_no_trace_is_not_passed_over(tmp_path: Path) -> None:
    report = a_report()
    with pytest.raises(AntiphonError, match="is not a trace"):
        judge_trace(tmp_path, report)
