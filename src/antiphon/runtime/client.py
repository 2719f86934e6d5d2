"""The client: `connect` to a cluster, `multicast` to any set of groups, `subscribe` to what a group delivers."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from antiphon.core import Topology
from antiphon.core.errors import Unavailable, UsageError
from antiphon.runtime.connection import MemberConnection
from antiphon.runtime.folder import ClusterFolder
from antiphon.runtime.requests import Receipt, Requests
from antiphon.runtime.subscription import Delivery, Subscription

__all__ = ["Client", "Delivery", "Receipt", "Subscription", "connect"]

TIMEOUT_SECONDS = 30.0

_ADDRESSES = re.compile(r"[^/:,\s]+:\d{1,5}(,[^/:,\s]+:\d{1,5})*")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")


def connect(target: str | Path, *, name: str | None = None) -> Client:
    """A client of the cluster in a folder, or at ``host:port[,host:port]``; use it with ``async with``.

    Each client is an identity of its own: ``name`` is where its messages' names begin, not a way to resume.
    """
    return Client(target, name=name)


class Client:
    """Made by `connect`. Any number of multicasts and subscriptions may be under way at once."""

    def __init__(self, target: str | Path, *, name: str | None = None) -> None:
        if name is not None and not _NAME.fullmatch(name):
            raise UsageError("A client's name is 1 to 48 letters, digits, '_' or '-'.")
        self.name = f"{name or 'client'}-{secrets.token_hex(6)}"
        self._target = target
        self._cluster = ""
        self._addresses: dict[str, str] = {}
        self._topology: Topology
        self._requests: Requests
        self._subscriptions: set[Subscription] = set()

    async def __aenter__(self) -> Client:
        await self._find_cluster()
        self._requests = Requests(self.name, self._topology, self.dial)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give up what is still under way, and close every connection."""
        await self._requests.close()
        for subscription in list(self._subscriptions):
            await subscription.aclose()
        await asyncio.sleep(0)  # lets the transports end

    async def multicast(
        self, destinations: Iterable[str], payload: bytes, *, timeout: float | None = TIMEOUT_SECONDS
    ) -> Receipt:
        """Send to every member of the destination groups; returns when a member has journaled the message.

        Unavailable: it surely did not happen. OutcomeUnknown: it was handed to a member that did not answer in
        time; the client goes on trying for as long as it is open, so it may still be delivered, once.
        """
        return await self._requests.multicast(destinations, payload, timeout)

    def subscribe(self, group: str, *, start: int = 0, follow: bool = True) -> Subscription:
        """Iterate over what the group delivers, from position ``start`` on; without ``follow``, up to its end."""
        self._topology.destinations([group])
        if start < 0:
            raise UsageError(f"Positions begin at 0; {start} is none.")
        subscription = Subscription(self, group, start, follow)
        self._subscriptions.add(subscription)
        return subscription

    def check(self, destinations: Iterable[str]) -> None:
        """Raise UsageError unless there are such groups."""
        self._topology.destinations(destinations)

    @property
    def groups(self) -> dict[str, list[str]]:
        """The groups of the cluster, and their members."""
        return {group: list(members) for group, members in self._topology.groups.items()}

    # For the parts ----------------------------------------------------------------------------------------------

    def members(self, groups: Iterable[str]) -> list[str]:
        return list(self._topology.addressees(self._topology.destinations(groups)))

    async def dial(self, member: str) -> MemberConnection:
        host, _, port = self._addresses[member].rpartition(":")
        return await MemberConnection.dial((host, int(port)), self._cluster, self.name)

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    async def _find_cluster(self) -> None:
        target = self._target
        if isinstance(target, str) and _ADDRESSES.fullmatch(target) and not Path(target).exists():
            await self._ask(target.split(","))
            return
        config = ClusterFolder.load(Path(target)).config
        self._cluster, self._addresses = config.cluster, config.addresses
        self._topology = Topology(config.groups)

    async def _ask(self, addresses: list[str]) -> None:
        """Let the first process that answers describe the cluster."""
        failure: Unavailable | None = None
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                connection = await MemberConnection.dial((host, int(port)), "", self.name)
            except Unavailable as error:
                failure = error
                continue
            found = connection.directory
            connection.close()
            self._cluster, self._addresses = found.cluster, found.addresses
            self._topology = Topology(found.groups)
            return
        assert failure is not None, "there is at least one address"
        raise failure
