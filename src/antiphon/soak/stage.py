"""The cluster that a soak is about, and which sets of groups its clients send to."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import msgspec

from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.cluster.ports import HOST, free_ports
from antiphon.soak.values import SoakSettings

SMALL_SEGMENT_BYTES = 128 << 10  # small, so that a full disk is soon felt
SNAPSHOT_BYTES = 512 << 10  # small, so that kills also meet snapshots

RouteGroups = tuple[str, ...]


def create(path: Path, settings: SoakSettings) -> ClusterFolder:
    """A cluster whose processes listen behind the addresses that others dial."""
    folder = cluster.create(
        path,
        settings.groups,
        protocol=settings.protocol,
        options=settings.options,
        run=f"soak-{settings.seed}",
        snapshot_bytes=SNAPSHOT_BYTES,
        segment_bytes=SMALL_SEGMENT_BYTES,
        multicast=False,  # it would pass by the proxies
    )
    own = folder.config.addresses
    proxies = free_ports(len(own), None)
    while {f"{HOST}:{port}" for port in proxies} & set(own.values()):
        proxies = free_ports(len(own), None)
    addresses = {process: f"{HOST}:{port}" for process, port in zip(own, proxies, strict=True)}
    folder.config = msgspec.structs.replace(folder.config, addresses=addresses, listen=own)
    folder.save()
    return folder


def routes_of(settings: SoakSettings) -> list[RouteGroups]:
    """The sets of groups that are sent to: all that the protocol takes, up to pairs."""
    groups = tuple(settings.groups)
    kind = protocol_named(settings.protocol)
    assumes = kind.assumes(parse_options(kind, settings.options))
    if assumes.all_groups:
        return [groups]
    single: list[RouteGroups] = [(group,) for group in groups]
    if assumes.one_group:
        return single
    return list(dict.fromkeys([*single, *combinations(groups, min(2, len(groups))), groups]))
