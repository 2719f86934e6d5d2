"""The cluster as one client knows it: found by a folder or by addresses, and followed where members are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.client.connection import JOIN_SECONDS, JOIN_SECONDS_MAX, MemberConnection, NoAnswer
from antiphon.core import Topology
from antiphon.core.errors import Unavailable, UsageError
from antiphon.core.options import parse_options
from antiphon.core.promises import Promise
from antiphon.runtime.net import parse_address
from antiphon.runtime.net.frames import Directory, OrderKind, ReceiptKind

if TYPE_CHECKING:
    from antiphon.runtime.cluster import ClusterFolder

ASKING_SECONDS = (JOIN_SECONDS, *[JOIN_SECONDS_MAX] * 3)  # that a process has to describe the cluster, from try to try

_ADDRESSES = re.compile(r"[^/,\s]+:\d+(,[^/,\s]+:\d+)*")


class KnownCluster:
    """Its identity, its members and where they are, and the most that it promises to clients."""

    def __init__(self, target: str | Path, client: str, on_replaced: Callable[[Topology], None]) -> None:
        """``on_replaced`` is told who the members are now."""
        self.identity = ""
        self.topology: Topology
        self.addresses: dict[str, str] = {}
        self.receipt: ReceiptKind = "member"  # the strongest that it gives
        self.order: OrderKind = "set"  # the strongest that it keeps
        self._target = target
        self._client = client
        self._on_replaced = on_replaced
        self._folder: ClusterFolder | None = None

    async def find(self) -> None:
        target = self._target
        if isinstance(target, str) and _ADDRESSES.fullmatch(target) and not Path(target).exists():
            await self._ask(target.split(","))
            return
        from antiphon.protocols import protocol_named  # a client that has an address needs neither
        from antiphon.runtime.cluster import ClusterFolder

        self._folder = ClusterFolder.load(Path(target))
        config = self._folder.config
        protocol = protocol_named(config.protocol)
        promises = protocol.promises(parse_options(protocol, config.options))
        self.receipt = "majority" if Promise.DURABLE_RECEIPTS in promises else "member"
        self.order = "client" if Promise.CLIENT_TURN_ORDER in promises else "set"
        self.identity, self.addresses = config.cluster, config.addresses
        self.topology = config.topology()

    async def _ask(self, addresses: list[str]) -> None:
        """Let the first process that answers describe the cluster. Where a crowd asks, answers take longer."""
        parsed = [parse_address(address) for address in addresses]
        failures: list[Unavailable] = []
        for seconds in ASKING_SECONDS:
            for address in parsed:
                connection = MemberConnection()
                try:
                    await connection.join(address, "", self._client, seconds=seconds)
                except Unavailable as error:
                    failures.append(error)
                    continue
                connection.give_up()
                found = connection.directory
                self.identity, self.addresses = found.cluster, found.addresses
                self.topology = Topology(found.groups, found.epoch)
                self.receipt, self.order = found.receipt, found.order
                return
            if not any(isinstance(failure, NoAnswer) for failure in failures):
                break  # nobody is there
        raise failures[-1]

    async def join(self, connection: MemberConnection, member: str, seconds: float = JOIN_SECONDS) -> MemberConnection:
        """Connect to a member, as `MemberConnection.join` does."""
        connection.on_directory = self._learn
        try:
            if member not in self.addresses:
                raise Unavailable(f"{member} was replaced.")
            address = parse_address(self.addresses[member])
            return await connection.join(address, self.identity, self._client, member, seconds)
        except Unavailable:
            self._look_again()
            raise

    def _learn(self, found: Directory) -> None:
        """Members may have been replaced: whoever was told of it last tells who they are now."""
        if found.epoch > self.topology.epoch:
            self._follow(Topology(found.groups, found.epoch), found.addresses)

    def _look_again(self) -> None:
        """A member cannot be reached: the folder says whether it was replaced, where there is one."""
        if self._folder is not None:
            with suppress(UsageError):  # it is gone, or being changed by another version
                self._folder.reload()
                config = self._folder.config
                if config.epoch > self.topology.epoch:
                    self._follow(config.topology(), config.addresses)

    def _follow(self, topology: Topology, addresses: dict[str, str]) -> None:
        self.topology, self.addresses = topology, addresses
        self._on_replaced(topology)
