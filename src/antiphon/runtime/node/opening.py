"""A process's driver, with the logs in its folder: what the cluster's file says becomes their limits."""

from __future__ import annotations

import msgspec

from antiphon.core import Gather, Process, ProcessId
from antiphon.core.version import __version__
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.cluster.spares import advice
from antiphon.runtime.disk import JournalIdentity, SegmentedLog, Spills
from antiphon.runtime.node.driver import Driver
from antiphon.runtime.node.observer import TurnObserver

GATHERED_BYTES = 48 << 10  # in a message that travels in datagrams: on one machine it fits into one
# Of the delivered log, a segment holds up to so many segments of the journal, nearly all of which it refers to; so its
# file is a small part of that, and yet not so small that small messages fill one after the other.
REFERRED_SEGMENTS, FILE_SHARE, FILE_BYTES_MIN = 4, 32, 64 << 10
CODE = f"antiphon {__version__}"  # only this code may replay what it journaled


def open_driver(cluster: ClusterFolder, me: ProcessId) -> Driver:
    """Take the process's folder, and check all that lies there. Nobody hears of anything yet."""
    config, folder = cluster.config, cluster.process(me)
    process = _process(config, me)
    observer = TurnObserver()
    if config.trace:
        from antiphon.runtime.node.recorder import Recorder  # pyarrow is slow to load

        observer = Recorder(cluster.trace, config.run, process, folder)
    journal = _open_journal(cluster, me) if config.journal else None
    plain = JournalIdentity(config.cluster, me, "")  # these logs mean the same to every version of the code
    try:
        held_bytes = cluster.retained().segment_bytes(REFERRED_SEGMENTS * config.segment_bytes)
        segment_bytes = max(held_bytes // FILE_SHARE, min(held_bytes, FILE_BYTES_MIN))
        delivered = SegmentedLog.open(folder.delivered, plain, segment_bytes=segment_bytes, direct=True)
    except BaseException:
        if journal is not None:
            journal.abandon()
        raise
    if journal is not None:
        delivered.shares_room_with(journal)
    driver = Driver(process, journal, delivered, observer, config.snapshot_bytes, cluster.retained, held_bytes)
    driver.spills = Spills(folder.spill, plain, config.spill_bytes, driver.jobs.submit, driver.spilling)
    driver.on_refused = folder.mark_refused
    driver.advice = advice(cluster, me, process.protocol) or "."
    return driver


def _process(config: ClusterConfig, me: ProcessId) -> Process:
    topology = config.topology_at_first(me)
    gather = Gather(requests=config.gather)
    process = Process(me, topology, protocol_named(config.protocol), config.options, gather)
    if process.sends_datagrams:
        process.gather = msgspec.structs.replace(gather, bytes=GATHERED_BYTES)
    return process


def _open_journal(cluster: ClusterFolder, me: ProcessId) -> SegmentedLog:
    config = cluster.config
    return SegmentedLog.open(
        cluster.process(me).journal,
        JournalIdentity(config.cluster, me, CODE),
        segment_bytes=config.segment_bytes,
        recycled_max=config.snapshot_bytes // config.segment_bytes,
        direct=True,
        lends=True,
    )
