"""The description of a new cluster: what is asked for, checked against what its protocol can do."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from antiphon.core import Detector, FaultModel, Process, Topology
from antiphon.core.errors import UsageError
from antiphon.core.model import RUN_NAME
from antiphon.protocols import DEFAULT_PROTOCOL, in_words, options_of, protocol_named, protocols, protocols_with
from antiphon.runtime.cluster.config import ClusterConfig
from antiphon.runtime.cluster.folder import ClusterFolder
from antiphon.runtime.cluster.ports import HOST, free_ports
from antiphon.runtime.cluster.spares import check as check_spares
from antiphon.runtime.disk import Retain
from antiphon.runtime.net.datagrams import offers_multicast

DROP_MAX = 90


def create(
    path: Path,
    sizes: Mapping[str, int],
    *,
    protocol: str = DEFAULT_PROTOCOL,
    options: Mapping[str, str] | None = None,
    journal: bool = True,
    trace: bool = True,
    base_port: int | None = None,
    run: str | None = None,
    gather: int = 4096,
    snapshot_bytes: int = 128 << 20,
    segment_bytes: int = 16 << 20,
    spill_bytes: int = 8 << 20,
    multicast: bool = True,
    drop: int = 0,
    spares: Iterable[str] = (),
    retain: Sequence[str] = (),
) -> ClusterFolder:
    """Write the description of a new cluster. Nothing runs yet."""
    _check_place(path)
    if retain:
        Retain.parse(retain)
    if gather < 1:
        raise UsageError(f"A message gathers at least 1 request, not {gather}.")
    if run is not None and not RUN_NAME.fullmatch(run):
        raise UsageError(f"{run!r} is not a valid run name: use letters, digits, '.', '_' and '-'.")
    topology = Topology.sized(sizes)
    spares = list(dict.fromkeys(spares))
    sends_datagrams = _check_protocol(protocol, options or {}, topology, spares, journal)
    _check_drop(drop, protocol, sends_datagrams)
    ports = free_ports(len(topology.processes), base_port)
    cluster = secrets.token_hex(8)
    config = ClusterConfig(
        cluster=cluster,
        protocol=protocol,
        options=dict(options or {}),
        groups={group: list(members) for group, members in topology.groups.items()},
        addresses={p: f"{HOST}:{port}" for p, port in zip(topology.processes, ports, strict=True)},
        journal=journal,
        trace=trace,
        run=run or f"{protocol}-{cluster[:8]}",
        gather=gather,
        snapshot_bytes=snapshot_bytes,
        segment_bytes=segment_bytes,
        spill_bytes=spill_bytes,
        multicast=_multicast_address(ports[0]) if multicast and sends_datagrams else "",
        drop=drop,
        spares=spares,
    )
    return _saved(ClusterFolder(path, config), retain)


def _check_place(path: Path) -> None:
    if ClusterFolder.exists(path):
        raise UsageError(f"There is already a cluster in {path}.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is not an empty folder: a new cluster needs one.")


def _check_protocol(
    protocol: str, options: Mapping[str, str], topology: Topology, spares: list[str], journal: bool
) -> bool:
    """Refuse what cannot run between real processes, or not in these groups. Whether it sends datagrams."""
    kind = protocol_named(protocol)
    parsed = options_of(kind, options)
    if kind.assumes(parsed).detector is Detector.PERFECT:
        raise UsageError(
            f"{protocol} with these options needs a failure detector that is never wrong, and between real processes "
            "a slow one looks like a dead one: only the simulator runs it so; "
            "primcast and tom go on here without the dead."
        )
    kind.check(parsed, FaultModel(permanent=not journal, sent_survives=journal))
    check_spares(spares, topology, kind.promises(parsed))
    firsts = [Process(members[0], topology, kind, options) for members in topology.groups.values()]
    return firsts[-1].sends_datagrams


def _check_drop(drop: int, protocol: str, sends_datagrams: bool) -> None:
    if not 0 <= drop <= DROP_MAX:
        raise UsageError(f"A process can throw away 0 to {DROP_MAX} per cent of its datagrams, not {drop}.")
    if drop and not sends_datagrams:
        raise UsageError(f"{protocol} with these options sends no datagrams; {_who_sends_datagrams()}.")


def _multicast_address(port: int) -> str:
    """A random one, where the system offers IP multicast."""
    group = f"239.192.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"
    return f"{group}:{port}" if offers_multicast((group, port), HOST) else ""


def _saved(folder: ClusterFolder, retain: Sequence[str]) -> ClusterFolder:
    try:
        folder.save()
        if retain:
            folder.retain(retain)
    except OSError as error:
        raise UsageError(f"{folder.path} cannot be written: {error.strerror or error}.") from None
    return folder


def _who_sends_datagrams() -> str:
    pair = Topology.sized({"a": 2})
    always = [n for n, kind in protocols().items() if Process(pair.processes[0], pair, kind).sends_datagrams]
    return f"{in_words(always)} do, and with -o transport=datagram {in_words(protocols_with('transport', 'datagram'))}"
