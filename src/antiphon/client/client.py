"""`connect` to a cluster, `multicast` to any set of groups, `subscribe` to what a group delivers."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import Literal

from antiphon.client.known import KnownCluster
from antiphon.client.outgoing import NO_DEADLINE
from antiphon.client.route import Route
from antiphon.client.sender import Sender
from antiphon.client.subscription import Subscription
from antiphon.client.values import Receipt
from antiphon.core import Topology
from antiphon.core.errors import UsageError
from antiphon.core.model import Service
from antiphon.core.requests import (
    NUMBER_MAX,
    PAYLOAD_BYTES_MAX,
    REQUEST_BYTES_MAX,
    check_payloads,
    check_service,
    join_payloads,
)
from antiphon.runtime.net.frames import OrderKind, ReceiptKind

TIMEOUT_SECONDS = 30.0
BATCH_BYTES = 512 << 10
LINGER_SECONDS_MAX = 60.0
_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
_NOT_OPEN = "The client is not open: use it inside `async with antiphon.connect(...) as client:`."
SHOWN_MAX = 60
EARLIEST = "earliest"


def connect(
    target: str | Path,
    *,
    name: str | None = None,
    linger: float = 0.0,
    batch_bytes: int = BATCH_BYTES,
    receipt: ReceiptKind | None = None,
    order: OrderKind | None = None,
) -> Client:
    """A client of the cluster in a folder, or at ``host:port[,host:port]``; use it with ``async with``.

    Each client is an identity of its own: ``name`` is a prefix of its name, not a way to resume. Multicasts to the same
    groups that are called together leave as one request: those of one turn of the event loop, or, with ``linger``, of
    so many seconds; up to ``batch_bytes``.

    ``receipt``: who holds what `multicast` returns for, on disk: a "majority" of each destination group, or one
    "member"; None: the first, where the cluster's protocol can tell.

    ``order``: whether what this "client" sends is delivered in the order of its calls everywhere, whatever the groups,
    or only what it sends to one "set" of groups; None: the first, where the cluster's protocol can keep that.
    """
    return Client(target, name=name, linger=linger, batch_bytes=batch_bytes, receipt=receipt, order=order)


class Client:
    """Made by `connect`. Any number of multicasts and subscriptions may be under way at once."""

    def __init__(
        self,
        target: str | Path,
        *,
        name: str | None = None,
        linger: float = 0.0,
        batch_bytes: int = BATCH_BYTES,
        receipt: ReceiptKind | None = None,
        order: OrderKind | None = None,
    ) -> None:
        if not isinstance(target, (str, Path)) or target == "":
            raise UsageError(f"Connect to a cluster's folder or to its addresses, not to {_shown(target)}.")
        if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise UsageError("A client's name must be 1 to 48 letters, digits, '_' or '-'.")
        if not _is_number(linger) or not 0 <= linger <= LINGER_SECONDS_MAX:
            raise UsageError(f"The linger time must be 0 to {LINGER_SECONDS_MAX:.0f} seconds, not {_shown(linger)}.")
        if type(batch_bytes) is not int or not 1 <= batch_bytes <= REQUEST_BYTES_MAX:
            raise UsageError(f"batch_bytes must be 1 to {REQUEST_BYTES_MAX}, not {_shown(batch_bytes)}.")
        _check_receipt(receipt)
        if order not in (None, "client", "set"):
            raise UsageError(f'The order must be "client" or "set", not {_shown(order)}.')
        self.name = f"{name or 'client'}-{secrets.token_hex(6)}"
        self._linger = linger
        self._batch_bytes = batch_bytes
        self._receipt = receipt
        self._order = order
        self._default: ReceiptKind = "member"
        self._cluster = KnownCluster(target, self.name, self._follow)
        self._sender: Sender  # once it was opened
        self._was_opened = False
        self._is_open = False
        self._spellings: dict[Iterable[str], Route] = {}  # the sender's; empty while the client is not open
        self._subscriptions: dict[Subscription, None] = {}
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Client:
        if self._was_opened:
            raise UsageError("This client was opened before: connect again for a new one.")
        self._loop = asyncio.get_running_loop()
        found = self._cluster
        await found.find()
        self._default = found.receipt if self._receipt is None else self._known_receipt(self._receipt)
        if self._order == "client" and found.order != self._order:
            raise UsageError("This cluster's protocol cannot keep a client's order across different sets of groups.")
        assures = found.receipt == "majority"
        across_sets = (self._order or found.order) == "client"
        ways = (found.topology, found.join, self._linger, self._batch_bytes)
        self._sender = Sender(self.name, *ways, assures=assures, across_sets=across_sets)
        self._spellings = self._sender.spellings
        self._is_open = self._was_opened = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give up what is still under way, and close every connection."""
        self._is_open = False
        if self._was_opened:
            await self._sender.close()
        for subscription in list(self._subscriptions):
            await subscription.aclose()
        await asyncio.sleep(0)  # lets the transports end

    # Sending --------------------------------------------------------------------------------------------------------

    async def multicast(
        self,
        groups: Iterable[str],
        payload: bytes,
        *,
        timeout: float | None = TIMEOUT_SECONDS,
        service: Service | None = None,
        receipt: ReceiptKind | None = None,
    ) -> Receipt:
        """Send to every member of the groups; returns when it is on disk where ``receipt`` says (`connect`).

        ``service``: how it is delivered, where the cluster's protocol leaves the choice: "agreed" or "causal".

        Unavailable: it surely did not happen. OutcomeUnknown: it was handed to a member that did not answer in
        time; the client goes on trying for as long as it is open, so it may still be delivered, once.
        """
        try:
            route = self._spellings[tuple(groups) if type(groups) is list else groups]
        except (KeyError, TypeError):  # not seen before, or a set, which cannot be looked up
            route = self._check_open().route(groups)
        if type(payload) is not bytes or len(payload) > PAYLOAD_BYTES_MAX:
            check_payloads((payload,))
            payload = bytes(payload)
        if service is not None:
            check_service(service)
        kind = self._default if receipt is None else self._known_receipt(receipt)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        if timeout is None:
            route.add(payload, future, NO_DEADLINE, service, kind)
        else:
            try:
                deadline = self._loop.time() + timeout
                is_later = deadline >= self._sender.next_sweep
            except (TypeError, OverflowError):
                raise _bad_timeout(timeout) from None
            if not is_later:  # earlier, or in the past, or not a number at all
                self._sweep_by(deadline, timeout)
            route.add(payload, future, deadline, service, kind)
        try:
            return await future
        except asyncio.CancelledError:
            route.caller_left()
            raise

    async def multicast_many(
        self,
        groups: Iterable[str],
        payloads: Sequence[bytes],
        *,
        timeout: float | None = TIMEOUT_SECONDS,
        service: Service | None = None,
        receipt: ReceiptKind | None = None,
    ) -> Receipt:
        """Send all of them in this order in one request: they are delivered together or not at all, with nothing
        between them, in every group."""
        try:
            route = self._spellings[tuple(groups) if type(groups) is list else groups]
        except (KeyError, TypeError):  # as in multicast
            route = self._check_open().route(groups)
        if type(payloads) is not list:
            if isinstance(payloads, (str, bytes, bytearray, memoryview)) or not isinstance(payloads, Iterable):
                raise UsageError("A batch is a list of payloads, not one payload.")
            payloads = list(payloads)
        if service is not None:
            check_service(service)
        kind = self._default if receipt is None else self._known_receipt(receipt)
        lengths, joined = join_payloads(payloads)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        route.add_batch(lengths, joined, future, self._deadline(timeout), service, kind)
        try:
            return await future
        except asyncio.CancelledError:
            route.caller_left()
            raise

    def _known_receipt(self, receipt: ReceiptKind) -> ReceiptKind:
        """Refuse one that the cluster does not give."""
        _check_receipt(receipt)
        if receipt == "majority" and self._cluster.receipt != receipt:
            raise UsageError(
                "This cluster's protocol cannot tell when a majority of each group holds something; primcast can."
            )
        return receipt

    def _check_open(self) -> Sender:
        if not self._is_open:
            raise UsageError(_NOT_OPEN)
        return self._sender

    def _deadline(self, timeout: float | None) -> float:
        if timeout is None:
            return NO_DEADLINE
        try:
            deadline = self._loop.time() + timeout
            is_later = deadline >= self._sender.next_sweep
        except (TypeError, OverflowError):
            raise _bad_timeout(timeout) from None
        if not is_later:  # as in multicast
            self._sweep_by(deadline, timeout)
        return deadline

    def _sweep_by(self, deadline: float, timeout: float) -> None:
        if isnan(deadline) or timeout < 0:
            raise _bad_timeout(timeout)
        self._sender.sweep_by(deadline)

    # Reading --------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        group: str,
        *,
        start: int | Literal["earliest"] = 0,
        follow: bool = True,
        member: str | None = None,
        cluster: str | None = None,
    ) -> Subscription:
        """Iterate over what the group delivers, from position ``start`` on; without ``follow``, up to its end.

        ``start="earliest"``: from the oldest that is kept. ``member``: read the log of this one, and of no other.
        ``cluster``: that of which the position is, as `Client.cluster` said: in another one it means nothing.

        PositionGone, while reading: what comes next is no longer kept.
        """
        self._check_open()
        if not isinstance(group, str):
            raise UsageError(f"Subscribe to one group by its name, not to {_shown(group)}.")
        topology = self._cluster.topology
        destinations = topology.destinations(group)
        if start != EARLIEST and (type(start) is not int or not 0 <= start <= NUMBER_MAX):
            wanted = f"a whole number from 0 to 2**62, or {EARLIEST!r}"
            raise UsageError(f"A position must be {wanted}, not {_shown(start)}.")
        if cluster not in (None, self._cluster.identity):
            raise UsageError(
                f"This is cluster {self._cluster.identity!r}: positions of cluster {_shown(cluster)} mean nothing here."
            )
        members = topology.addressees(destinations)
        if member is not None and member not in members:
            raise UsageError(f"{_shown(member)} is not a member of {group}: its members are {', '.join(members)}.")
        first = start if isinstance(start, int) else None
        subscription = Subscription(group, members, self._cluster.join, first, follow, self._subscriptions, member)
        self._subscriptions[subscription] = None
        return subscription

    # The cluster ----------------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> str:
        """The identity of the cluster, once it was found: keep it with positions that are to be gone on from."""
        if not self._was_opened:
            raise UsageError(_NOT_OPEN)
        return self._cluster.identity

    @property
    def groups(self) -> dict[str, list[str]]:
        """The groups of the cluster, and their members, once it was found."""
        if not self._was_opened:
            raise UsageError(_NOT_OPEN)
        return {group: list(members) for group, members in self._cluster.topology.groups.items()}

    def check(self, groups: Iterable[str]) -> None:
        """Raise UsageError unless there are such groups."""
        self._check_open().route(groups)

    def _follow(self, topology: Topology) -> None:
        """Members were replaced."""
        if self._was_opened:
            self._sender.follow(topology)
        for subscription in self._subscriptions:
            subscription.follow(topology)


def _check_receipt(receipt: object) -> None:
    if receipt not in (None, "member", "majority"):
        raise UsageError(f'The receipt must be "member" or "majority", not {_shown(receipt)}.')


def _bad_timeout(timeout: object) -> UsageError:
    wanted = "a number of seconds, 0 or more, or None to wait for ever"
    return UsageError(f"A timeout must be {wanted}, not {_shown(timeout)}.")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """As the caller wrote it, or the beginning of that."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out numbers of thousands of digits
        return "one that large"
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."
