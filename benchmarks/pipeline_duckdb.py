"""The checks and figures of benchmarks/pipeline.py as DuckDB does them best: bits, keys and windows, one query each.

It only counts what is not plainly in order, as our first look does; of a trace in which all holds, nothing. To judge
what is left over is not here: this is a measure for what the first look may cost. It needs keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TWICE = """
select count(*) from (
  select count(*) as n, bit_count(bit_or(1::ubigint << (seq & 63))) as bits from raw group by run, process, seq >> 6
) where n <> bits
"""
DISTINCT = """
create temp table events as select * exclude (copy) from (
  select *, row_number() over (partition by run, process, seq order by time_ns) as copy from raw
) where copy = 1
"""
SUMMARY = """
create temp table summary as
with touch as (
  select run, unnest(about) as message, coalesce(p.bit, 0) | coalesce(q.bit, 0) as bits,
         case when p.bit is null then process when q.bit is null then peers[1] end as outsider
  from events left join roster p on process = p.name left join roster q on peers[1] = q.name
  where kind in ('send', 'receive')
), touched as (
  select run, message, bit_or(bits) as touched, min(outsider) as one, max(outsider) as other
  from touch group by run, message
), named as (
  select run, message,
    min({'sender': process, 'seq': seq, 'destinations': destinations}) filter (kind = 'multicast') as sent,
    count(*) filter (kind = 'deliver') as deliveries,
    coalesce(bit_or(bit) filter (kind = 'deliver'), 0) as delivered,
    min(order_key) filter (kind = 'deliver') as key, max(order_key) filter (kind = 'deliver') as last_key,
    min(destinations) filter (kind = 'deliver') as to_one, max(destinations) filter (kind = 'deliver') as to_other,
    min(hash(requests)) filter (kind = 'deliver') as with_one,
    max(hash(requests)) filter (kind = 'deliver') as with_other
  from events left join roster on process = name where kind in ('multicast', 'deliver') group by run, message
)
select run, message, sent.sender as sender, sent.seq as seq, key,
  coalesce(sent is not null and to_one = sent.destinations and to_other = sent.destinations
    and delivered = bits and deliveries = bit_count(delivered) and key = last_key and with_one = with_other
    and (touched & ~(bits | coalesce(s.bit, 0))) = 0
    and coalesce(one = sent.sender, true) and coalesce(other = sent.sender, true), false) as plain
from named left join touched using (run, message)
left join sets on sent.destinations = sets.destinations left join roster s on sent.sender = s.name
"""
SUSPECTS = "select count(*) from summary where not plain"
ORDER = """
select count(*) from (
  select what, key,
    max(key) filter (what = 0) over before as delivered, max(key) filter (what = 1) over before as sent
  from (
    select run, process, seq, 0 as what, order_key as key from events where kind = 'deliver'
    union all select run, sender, seq, 1, key from summary
  )
  window before as (partition by run, process order by seq rows between unbounded preceding and 1 preceding)
) where key <= delivered or (what = 1 and key <= sent)
"""
POSITIONS = """
select count(*) from (
  select position, lag(position + list_sum(list_transform(requests, lambda r: r.payloads)), 1, 0)
    over (partition by run, process order by seq) as expected
  from events where kind = 'deliver'
) where position <> expected
"""
REQUESTS = """
create temp view cells as
select run, process, seq, kind, message, destinations, request.client, request.first, request.payloads, request.digest
from (select run, process, seq, kind, message, destinations, unnest(requests) as request
      from events where kind in ('multicast', 'deliver', 'receipt'))
"""
ODD_REQUESTS = """
select count(*) from (
  select 1 from cells group by run, client, destinations, first
  having not bool_or(kind = 'multicast') or min(payloads) <> max(payloads) or min(digest) <> max(digest)
    or min(message) <> max(message)
)
"""
SESSIONS = """
select count(*) from (
  select first, lag(first) over (partition by run, process, client, destinations order by seq) as before
  from cells where kind = 'deliver'
) where first <= before
"""
TOTALS = """
select run, kind, case when kind = 'send' then layer end as layer, count(*), sum(len(peers)), sum(bytes * len(peers)),
  sum(list_sum(list_transform(requests, lambda r: r.payloads))), max(step), avg(step), min(time_ns), max(time_ns)
from events where kind in ('multicast', 'deliver', 'send', 'enter') group by all
"""
LATENCIES = """
with sent as (select run, message, min(time_ns) as sent_ns, max(len(destinations)) as groups from events
              where kind = 'multicast' group by all),
took as (select run, message, groups, time_ns - sent_ns as ns from events join sent using (run, message)
         where kind = 'deliver'),
latencies as (select run, groups, 'each' as measure, ns from took union all
         select run, any_value(groups), 'last', max(ns) from took group by run, message)
select run, measure, groups, floor(log2(ns) * 128) as bucket, count(*), max(ns), sum(ns) from latencies
where ns > 0 group by all
"""


def judge(folder: Path, groups: Mapping[str, Sequence[str]], memory_gib: int) -> Iterator[str]:
    import duckdb  # of no use but here, so nothing of ours requires it

    base = duckdb.connect(config={"threads": 2, "memory_limit": f"{memory_gib}GB", "temp_directory": str(folder)})
    members = [member for names in groups.values() for member in names]
    bits = {name: 1 << place for place, name in enumerate(members)}
    files = "run=*/*.parquet" if list(folder.glob("events/run=*")) else "*.parquet"
    base.execute(f"create view raw as select * from read_parquet('{folder}/events/{files}', hive_partitioning=true)")
    base.execute("create table roster (name varchar, bit bigint)")
    base.executemany("insert into roster values (?, ?)", list(bits.items()))
    base.execute("create table sets (destinations varchar[], bits bigint)")
    named = base.execute("select distinct destinations from raw where kind = 'multicast'").fetchall()
    of_sets = [(list(to), sum(bits[p] for g in set(to) for p in groups[g])) for (to,) in named]
    base.executemany("insert into sets values (?, ?)", of_sets)
    yield "start"
    twice = _one(base, TWICE)
    base.execute(DISTINCT if twice else "create view events as select * from raw")
    yield "read"
    base.execute(SUMMARY)
    base.execute(REQUESTS)
    for query in (SUSPECTS, ORDER, POSITIONS, ODD_REQUESTS, SESSIONS):
        if _one(base, query):
            raise SystemExit(f"This trace is honest, and yet this finds something: {query}")
    yield "verify"
    for query in (TOTALS, LATENCIES):
        base.execute(query).fetchall()
    yield "metrics"


def _one(base: Any, query: str) -> int:
    (found,) = base.execute(query).fetchone()
    return int(found)
