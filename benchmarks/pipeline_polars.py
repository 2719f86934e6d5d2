"""The checks and figures of benchmarks/pipeline.py as Polars does them best: lazy, streamed, one query each.

As pipeline_duckdb it only counts what is not plainly in order; of a trace in which all holds, nothing. It needs keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MESSAGE = ["run", "message"]


def judge(folder: Path, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    import polars as pl  # of no use but here, so nothing of ours requires it

    members = [member for names in groups.values() for member in names]
    bits = {name: 1 << place for place, name in enumerate(members)}
    of_groups = {name: sum(bits[member] for member in set(names)) for name, names in groups.items()}
    files = "run=*/*.parquet" if list(folder.glob("events/run=*")) else "*.parquet"
    raw = pl.scan_parquet(f"{folder}/events/{files}", hive_partitioning=True)
    raw = raw.with_columns(pl.col("run").cast(pl.String))
    bit = pl.col("process").replace_strict(bits, default=0, return_dtype=pl.Int64).alias("bit")
    yield "start"
    word = pl.col("seq") // 64
    per_word = raw.group_by("run", "process", word.alias("word")).agg(
        pl.len().alias("rows"), pl.col("seq").mod(64).n_unique().alias("bits")
    )
    twice = _count(per_word.filter(pl.col("rows") != pl.col("bits")))
    events = raw if not twice else raw.sort("time_ns").unique(["run", "process", "seq"], keep="first")
    yield "read"
    summary = _summary(pl, events, bits, of_groups, bit).collect(engine="streaming")
    _none(summary.filter(~pl.col("plain").fill_null(value=False)).height, "suspects")
    _none(_count(_disorder(pl, events, summary)), "order")
    _none(_count(_displaced(pl, events)), "positions")
    cells = events.filter(pl.col("kind").is_in(["multicast", "deliver", "receipt"])).explode("requests")
    cells = cells.select("run", "process", "seq", "kind", "message", "destinations", "requests").unnest("requests")
    request = ["run", "client", "destinations", "first"]
    odd = cells.group_by(request).agg(
        (pl.col("kind") == "multicast").any().alias("sent"),
        *(pl.col(name).n_unique().alias(name) for name in ("payloads", "digest", "message")),
    )
    same = (pl.col("payloads") == 1) & (pl.col("digest") == 1) & (pl.col("message") == 1)
    _none(_count(odd.filter(~(pl.col("sent") & same))), "requests")
    before = pl.col("first").shift().over(["run", "process", "client", "destinations"], order_by="seq")
    _none(_count(cells.filter(pl.col("kind") == "deliver").filter(pl.col("first") <= before)), "sessions")
    yield "verify"
    _totals(pl, events).collect(engine="streaming")
    _latencies(pl, events).collect(engine="streaming")
    yield "metrics"


def _summary(pl: Any, events: Any, bits: Mapping[str, int], of_groups: Mapping[str, int], bit: Any) -> Any:
    peer = pl.col("peers").list.first()
    peer_bit = peer.replace_strict(bits, default=0, return_dtype=pl.Int64)
    outsider = pl.when(bit == 0).then(pl.col("process")).when(peer_bit == 0).then(peer)
    touched = (
        events.filter(pl.col("kind").is_in(["send", "receive"]))
        .select("run", pl.col("about").alias("message"), (bit | peer_bit).alias("bits"), outsider.alias("outsider"))
        .explode("message")
        .group_by(MESSAGE)
        .agg(
            pl.col("bits").bitwise_or().alias("touched"),
            pl.col("outsider").min().alias("one"),
            pl.col("outsider").max().alias("other"),
        )
    )
    multicast, deliver = pl.col("kind") == "multicast", pl.col("kind") == "deliver"
    to = pl.col("destinations").list.sort().list.join("+")
    named = (
        events.filter(multicast | deliver)
        .with_columns(bit, to.alias("to"), pl.col("requests").hash().alias("requests"))
        .group_by(MESSAGE)
        .agg(
            pl.col("process").filter(multicast).first().alias("sender"),
            pl.col("seq").filter(multicast).min(),
            multicast.sum().alias("multicasts"),
            deliver.sum().alias("deliveries"),
            pl.col("bit").filter(deliver).bitwise_or().alias("delivered"),
            pl.col("order_key").filter(deliver).min().alias("key"),
            pl.col("order_key").filter(deliver).max().alias("last_key"),
            pl.col("to").min().alias("to_one"),
            pl.col("to").max().alias("to_other"),
            pl.col("requests").filter(deliver).min().alias("with_one"),
            pl.col("requests").filter(deliver).max().alias("with_other"),
        )
    )
    sets = _sets(of_groups)
    addressed = pl.col("to_one").replace_strict(sets, default=None, return_dtype=pl.Int64)
    sender_bit = pl.col("sender").replace_strict(bits, default=0, return_dtype=pl.Int64)
    strange = pl.col("touched").fill_null(0) & ~(addressed | sender_bit)
    plain = (
        (pl.col("multicasts") == 1)
        & (pl.col("to_one") == pl.col("to_other"))
        & (pl.col("delivered") == addressed)
        & (pl.col("deliveries") == pl.col("delivered").bitwise_count_ones())
        & (pl.col("key") == pl.col("last_key"))
        & (pl.col("with_one") == pl.col("with_other"))
        & (strange == 0)
        & (pl.col("one") == pl.col("sender")).fill_null(value=True)
        & (pl.col("other") == pl.col("sender")).fill_null(value=True)
    )
    return named.join(touched, on=MESSAGE, how="left").select("run", "sender", "seq", "key", plain.alias("plain"))


def _sets(of_groups: Mapping[str, int]) -> dict[str, int]:
    """The members of every set of groups, by the groups' names in order."""
    found = {"": 0}
    for name in sorted(of_groups):
        found |= {f"{to}+{name}" if to else name: bits | of_groups[name] for to, bits in found.items()}
    return found


def _disorder(pl: Any, events: Any, summary: Any) -> Any:
    deliver = events.filter(pl.col("kind") == "deliver").select(
        "run", "process", "seq", pl.col("order_key").alias("delivered"), pl.lit(None, pl.Binary).alias("sent")
    )
    sent = summary.lazy().select(
        "run", pl.col("sender").alias("process"), "seq", pl.lit(None, pl.Binary).alias("delivered"),
        pl.col("key").alias("sent"),
    )  # fmt: skip
    # In an honest trace the last one is the largest, and where one is not, it is found right there.
    steps = pl.concat([deliver, sent]).sort("run", "process", "seq")
    names = ("delivered", "sent")
    tops = [pl.col(name).forward_fill().shift().over(["run", "process"]).alias(f"top_{name}") for name in names]
    falls = pl.col("delivered") <= pl.col("top_delivered")
    late = (pl.col("sent") <= pl.col("top_sent")) | (pl.col("sent") <= pl.col("top_delivered"))
    return steps.with_columns(tops).filter(falls.fill_null(value=False) | late.fill_null(value=False))


def _displaced(pl: Any, events: Any) -> Any:
    payloads = pl.col("requests").list.eval(pl.element().struct.field("payloads")).list.sum()
    placed = events.filter(pl.col("kind") == "deliver").select(
        "run", "process", "seq", "position", (pl.col("position") + payloads).alias("following")
    )
    expected = pl.col("following").shift(fill_value=0).over(["run", "process"], order_by="seq")
    return placed.filter(pl.col("position") != expected)


def _totals(pl: Any, events: Any) -> Any:
    layer = pl.when(pl.col("kind") == "send").then(pl.col("layer")).alias("layer")
    peers, payloads = pl.col("peers").list.len(), pl.col("requests").list.eval(pl.element().struct.field("payloads"))
    return (
        events.filter(pl.col("kind").is_in(["multicast", "deliver", "send", "enter"]))
        .group_by("run", "kind", layer)
        .agg(
            pl.len(),
            peers.sum().alias("sends"),
            (pl.col("bytes") * peers).sum().alias("bytes"),
            payloads.list.sum().sum().alias("payloads"),
            pl.col("step").max().alias("steps_max"),
            pl.col("step").mean().alias("steps_mean"),
            pl.col("time_ns").min().alias("first_ns"),
            pl.col("time_ns").max().alias("last_ns"),
        )
    )


def _latencies(pl: Any, events: Any) -> Any:
    sent = (
        events.filter(pl.col("kind") == "multicast")
        .group_by(MESSAGE)
        .agg(pl.col("time_ns").min().alias("sent_ns"), pl.col("destinations").list.len().max().alias("groups"))
    )
    took = events.filter(pl.col("kind") == "deliver").select(*MESSAGE, "time_ns").join(sent, on=MESSAGE)
    took = took.with_columns((pl.col("time_ns") - pl.col("sent_ns")).alias("ns"))
    last = took.group_by(*MESSAGE, "groups").agg(pl.col("ns").max())
    both = pl.concat(
        [
            rows.select("run", "groups", "ns", pl.lit(name).alias("measure"))
            for name, rows in (("each", took), ("last", last))
        ]
    )
    bucket = (pl.col("ns").log(2) * 128).floor().alias("bucket")
    counts = (pl.len().alias("count"), pl.col("ns").max().alias("top"), pl.col("ns").sum().alias("sum"))
    return both.filter(pl.col("ns") > 0).group_by("run", "measure", "groups", bucket).agg(*counts)


def _count(rows: Any) -> int:
    import polars as pl

    return int(rows.select(pl.len()).collect(engine="streaming").item())


def _none(found: int, what: str) -> None:
    if found:
        raise SystemExit(f"This trace is honest, and yet there are {found} odd {what}.")
