"""The same work on Antiphon and on others' software, each in its own file; `antiphon bench peers`."""

from antiphon.bench.peers.antiphon import Antiphon
from antiphon.bench.peers.bare_log import BareLog
from antiphon.bench.peers.contract import Figures, Peer, Served, Work
from antiphon.bench.peers.corosync import Corosync
from antiphon.bench.peers.etcd import Etcd
from antiphon.bench.peers.nats import Nats
from antiphon.bench.peers.pysyncobj import PySyncObj
from antiphon.bench.peers.redis import IN_MEMORY, SYNCED, Redis
from antiphon.core.errors import UsageError
from antiphon.protocols import DEFAULT_PROTOCOL

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        BareLog(),
        Etcd(),
        Redis("redis", "Redis Streams, in memory", "two processes, in memory", IN_MEMORY),
        Redis("redis-aof", "Redis Streams, append-only file", "the primary, synced; a second process", SYNCED),
        Nats(),
        PySyncObj(),
        Corosync(),
    )
}


def named(name: str) -> Peer:
    if name not in PEERS:
        raise UsageError(f"{name!r} is not a peer: there are {', '.join(PEERS)}.")
    return PEERS[name]


def with_ends(name: str) -> Served:
    """The peer that a worker speaks to. The protocol of a cluster is its own."""
    peer = Antiphon(DEFAULT_PROTOCOL) if name == Antiphon.name else named(name)
    assert isinstance(peer, Served)
    return peer


__all__ = ["PEERS", "Antiphon", "Figures", "Peer", "Served", "Work", "named", "with_ends"]
