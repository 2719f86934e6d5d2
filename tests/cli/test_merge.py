"""`antiphon merge`: what is refused before Spark starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from antiphon.core.events import Delivered, encode_event
from antiphon.core.keys import encode_key
from antiphon.core.model import GroupId, MessageId, ProcessId
from antiphon.core.requests import encode_request, parse_request
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.disk import JournalIdentity, SegmentedLog
from antiphon.runtime.disk.stored import store
from cli.command import Command, Result


def refused(result: Result, words: str) -> None:
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert words in result.err


def made(path: Path, protocol: str = "skeen", options: dict[str, str] | None = None, cluster: str = "shop") -> Path:
    """A cluster of two groups, each with one message in its log."""
    groups = {group: [f"{group}.1"] for group in ("orders", "billing")}
    config = ClusterConfig(
        cluster=cluster,
        protocol=protocol,
        options=options or {},
        groups=groups,
        addresses={"orders.1": "127.0.0.1:1", "billing.1": "127.0.0.1:1"},
        run="shop",
    )
    ClusterFolder(path, config).save()
    for number, group in enumerate(groups):
        folder = path / f"{group}.1" / "delivered"
        folder.mkdir(parents=True)
        log = SegmentedLog.open(folder, JournalIdentity(cluster, f"{group}.1", ""), segment_bytes=4096)
        request = parse_request(encode_request("c", 0, 0, [b"x"]))
        id = MessageId(ProcessId("orders.1"), number)
        event = Delivered(id, (GroupId(group),), 0, 1, (request,), encode_key((number,)), 1)
        log.append(store(event, encode_event(event)))
        log.close()
    return path


def test_what_cannot_be_merged_is_refused(antiphon: Command, tmp_path: Path) -> None:
    shop, out = made(tmp_path / "shop"), tmp_path / "out"
    refused(antiphon("merge", tmp_path / "none", "--out", out), "none is not a folder")
    (tmp_path / "empty").mkdir()
    refused(antiphon("merge", tmp_path / "empty", "--out", out), "empty is neither a cluster's folder nor does it hold")
    other = made(tmp_path / "other", cluster="another")
    refused(antiphon("merge", shop, other, "--out", out), "are two clusters")
    foreign = tmp_path / "copy" / "foreign"
    shutil.copytree(other / "orders.1" / "delivered", foreign)
    refused(antiphon("merge", shop, foreign, "--out", out), "foreign is a log of another cluster than shop")
    refused(antiphon("merge", foreign, "--out", out), "None of these folders tells of which cluster they are")
    refused(antiphon("merge", "s3://bucket/shop", "--out", out), "a folder that can be mounted, not s3://bucket/shop")
    words = f"{shop} is a path of this machine, and spark://far:7077 runs tasks on others"
    refused(antiphon("merge", shop, "--out", out, "--master", "spark://far:7077"), words)
    assert not out.exists()


def test_a_log_that_lacks_what_is_not_in_the_table_is_refused(antiphon: Command, tmp_path: Path) -> None:
    shop, out = made(tmp_path / "shop"), tmp_path / "out"
    log = SegmentedLog.open(
        shop / "orders.1" / "delivered", JournalIdentity("shop", "orders.1", ""), segment_bytes=4096
    )
    for number in range(1, 100):
        request = parse_request(encode_request("c", number, 0, [b"x" * 100]))
        id = MessageId(ProcessId("orders.1"), number)
        event = Delivered(id, (GroupId("orders"),), number, 1, (request,), encode_key((number,)), 1)
        log.append(store(event, encode_event(event)))
        log.commit()
    first, _ = log.written.extents()[1]
    log.cut(first)
    log.close()
    words = f"orders keeps what it delivered from position {first} on, and what is before that is not all in the table"
    refused(antiphon("merge", shop, "--out", out), words)
    assert [path.name for path in out.iterdir()] == ["_table.json"]


@pytest.mark.parametrize(
    ("protocol", "options", "words"),
    [
        ("sequencer", {}, "The sequencer protocol sends a message to one group only"),
        ("fifo", {}, "The fifo protocol does not promise one order across groups"),
        ("toto", {"membership": "true"}, "The toto protocol with these options does not promise one order"),
        ("nosuch", {}, "nosuch"),
    ],
)
def test_a_protocol_without_order_across_groups_is_refused(
    antiphon: Command, tmp_path: Path, protocol: str, options: dict[str, str], words: str
) -> None:
    refused(antiphon("merge", made(tmp_path / "shop", protocol, options), "--out", tmp_path / "out"), words)


def test_a_folder_that_is_another_table_or_none_is_refused(antiphon: Command, tmp_path: Path) -> None:
    shop, out = made(tmp_path / "shop"), tmp_path / "out"
    refused(antiphon("merge", shop, "--out", shop), "holds something else than a merged table")
    out.mkdir()
    identity = {"version": 1, "cluster": "another", "protocol": "skeen", "groups": ["orders", "billing"]}
    for change, words in (({}, "is the table of another cluster"), ({"version": 7}, "is a table of version 7")):
        (out / "_table.json").write_bytes(msgspec.json.encode(identity | change))
        refused(antiphon("merge", shop, "--out", out), words)
    (out / "_table.json").write_text("no")
    refused(antiphon("merge", shop, "--out", out), "_table.json does not describe a merged table")


def test_a_log_that_is_damaged_or_of_another_version_is_refused(antiphon: Command, tmp_path: Path) -> None:
    shop, out = made(tmp_path / "shop"), tmp_path / "out"
    (segment,) = (shop / "billing.1" / "delivered").glob("segment-*")
    whole = segment.read_bytes()
    segment.write_bytes(b"ANTISEG1" + whole[8:])
    refused(antiphon("merge", shop, "--out", out), "is of an earlier version of Antiphon")
    segment.write_bytes(whole[:100] + bytes(8) + whole[108:])
    refused(antiphon("merge", shop, "--out", out), "cannot be trusted")
    segment.write_bytes(whole)
    journal = shop / "orders.1" / "delivered"
    shutil.rmtree(journal)
    log = SegmentedLog.open(journal, JournalIdentity("shop", "orders.1", "code 7"), segment_bytes=4096)
    log.close()
    refused(antiphon("merge", shop, "--out", out), "is not the delivered log of a process of this cluster")
