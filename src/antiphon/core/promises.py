"""Every property that a protocol can promise: its name, what it means on a trace, and who checks it.

One place for all of it. What has no check in process and on Spark cannot be promised: ``tests/core/test_promises.py``
fails the build. A trace may name promises that are not here; `antiphon verify` calls those *unchecked*.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple


class Promise(StrEnum):
    """The names, in the order in which verdicts are shown."""

    INTEGRITY = "integrity"
    VALIDITY = "validity"
    AGREEMENT = "agreement"
    UNIFORM_AGREEMENT = "uniform_agreement"
    TOTAL_ORDER = "total_order"
    ACYCLIC_ORDER = "acyclic_order"
    REAL_TIME_ORDER = "real_time_order"
    GAPS = "gaps"
    VIRTUAL_SYNCHRONY = "virtual_synchrony"
    VIEW_ORDER = "view_order"
    GRAPH_DELIVERY = "graph_delivery"
    FIFO = "fifo"
    CAUSAL = "causal"
    CAUSAL_EXTENSION = "causal_extension"
    REQUEST_ORDER = "request_order"
    CLIENT_ORDER = "client_order"
    CLIENT_TURN_ORDER = "client_turn_order"
    VIEW_CLIENT_ORDER = "view_client_order"
    RECEIPTS = "receipts"
    DURABLE_RECEIPTS = "durable_receipts"
    GENUINENESS = "genuineness"
    LOCALITY = "locality"


class Definition(NamedTuple):
    """What a promise means, and where its two checks are: ``module:function``."""

    meaning: str
    in_process: str
    on_spark: str
    drained: bool = False  # judged only where every promised delivery had its time
    in_part: bool = False  # where it had not, what is found counts, but not that nothing is found
    timed: bool = False  # judged only where the run says how far its clocks may be apart

    def checks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Both checks, loaded. The second needs pyspark."""
        return load(self.in_process), load(self.on_spark)


def load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _definition(
    meaning: str, module: str, name: str, *, drained: bool = False, in_part: bool = False, timed: bool = False
) -> Definition:
    in_process, on_spark = f"antiphon.checks.{module}:{name}", f"antiphon.pipeline.{module}:{name}"
    return Definition(meaning, in_process, on_spark, drained, in_part, timed)


REGISTRY: dict[Promise, Definition] = {
    Promise.INTEGRITY: _definition(
        "a process delivers a message at most once, only if it was multicast, with the same destinations, and only "
        "where it is addressed; and a request at most once, whole, with the bytes with which it was multicast; each at "
        "the position behind all that the process delivered before",
        "delivery",
        "integrity",
    ),
    Promise.VALIDITY: _definition(
        "a message with a correct sender is delivered by at least one correct addressed process, if there is any",
        "delivery",
        "validity",
        drained=True,
    ),
    Promise.AGREEMENT: _definition(
        "a message that a correct process delivers is delivered by every correct addressed process",
        "delivery",
        "agreement",
        drained=True,
    ),
    Promise.UNIFORM_AGREEMENT: _definition(
        "a message that any process delivers, even one that then crashes, is delivered by every correct addressed "
        "process",
        "delivery",
        "uniform_agreement",
        drained=True,
    ),
    Promise.TOTAL_ORDER: _definition(
        "within each group, the sequences of agreed messages that any two members deliver are prefixes of one another",
        "order",
        "total_order",
    ),
    Promise.ACYCLIC_ORDER: _definition(
        "the relation 'some process delivers m before m2' among agreed messages has no cycle, over all groups together",
        "order",
        "acyclic_order",
    ),
    Promise.REAL_TIME_ORDER: _definition(
        "the relation 'some process delivers m before m2, or some process delivered m before m2 was multicast, by more "
        "than the error of the clocks' among agreed messages has no cycle, over all groups together",
        "real_time",
        "real_time_order",
        timed=True,
    ),
    Promise.GAPS: _definition(
        "when a member of a group delivers m right after m0, without a gap in between, or as its first message, "
        "without a gap before it, no other member that delivers m, and m0 if there is one, delivers "
        "anything in between",
        "gaps",
        "gaps",
    ),
    Promise.VIRTUAL_SYNCHRONY: _definition(
        "processes that go on together from a view deliver the same messages in it, as far as these address them; a "
        "process is in each view that it delivers, once, and delivers no message before its first; a message of a "
        "member of some group is delivered only in views in which its sender is; a view has the same members "
        "everywhere, and two processes deliver the views that both deliver in the same order",
        "views",
        "virtual_synchrony",
        in_part=True,  # who goes on from the last view is known at the end only
    ),
    Promise.VIEW_ORDER: _definition(
        "processes that go on together from a view deliver their agreed messages in it in one order without a cycle; "
        "and any two processes deliver any two of these in the same order, except where one of them delivers both "
        "messages in a view from which the two do not go on together",
        "views",
        "view_order",
        in_part=True,
    ),
    Promise.GRAPH_DELIVERY: _definition(
        "a message that entered the graph of a correct process which it addresses is delivered there",
        "views",
        "graph_delivery",
        drained=True,
    ),
    Promise.FIFO: _definition(
        "when a process multicasts m and later m2, a process addressed by both delivers m2 only after m",
        "precedence",
        "fifo",
    ),
    Promise.CAUSAL: _definition(
        "what the sender of a message had multicast or delivered before it is delivered before it wherever both are "
        "addressed, and transitively",
        "precedence",
        "causal",
    ),
    Promise.CAUSAL_EXTENSION: _definition(
        "what the sender of a message had multicast or delivered before it, and transitively, is delivered before it "
        "by every process that delivers both",
        "precedence",
        "causal_extension",
    ),
    Promise.REQUEST_ORDER: _definition(
        "a request is delivered with the same message everywhere, and all who deliver a message deliver the same "
        "requests with it, in the same order; so the order of messages is one of requests",
        "clients",
        "request_order",
    ),
    Promise.CLIENT_ORDER: _definition(
        "what one client sends to one set of groups is delivered in the order of its numbers, without a hole but where "
        "a gap was announced",
        "clients",
        "client_order",
    ),
    Promise.CLIENT_TURN_ORDER: _definition(
        "what a client that counts its turns sends in a later one, to whatever set of groups, is delivered after what "
        "it sends in an earlier one by every process that delivers both",
        "clients",
        "client_turn_order",
    ),
    Promise.VIEW_CLIENT_ORDER: _definition(
        "what one client sends to one set of groups is delivered in the order of its numbers; and of the processes "
        "that go on together from a view, each that is addressed delivers in the view what another one delivers of it "
        "there, unless it had delivered this or something later when the view began",
        "views",
        "view_client_order",
        in_part=True,
    ),
    Promise.RECEIPTS: _definition(
        "a request that a process which is up at the end acknowledged is delivered by every correct addressed process",
        "clients",
        "receipts",
        drained=True,
    ),
    Promise.DURABLE_RECEIPTS: _definition(
        "a request that any process acknowledged as held by a majority of each of its groups, even one that is then "
        "gone for good, is delivered by every correct addressed process",
        "clients",
        "durable_receipts",
        drained=True,
    ),
    Promise.GENUINENESS: _definition(
        "a process sends something about a message only if it is sender or addressee of it, and so are all receivers",
        "genuineness",
        "genuineness",
    ),
    Promise.LOCALITY: _definition(
        "what a component named consensus sends or receives stays within one group",
        "locality",
        "locality",
    ),
}


def with_those_of_the_host(promises: tuple[Promise, ...], *, mixed: bool = False) -> tuple[Promise, ...]:
    """What the host makes of a protocol (core/sessions.py): a client's order always; requests in the order of messages
    where that is total, unless it is ``mixed`` with messages that have no place in it; and receipts where agreement is
    uniform. Elsewhere a client may hear of a delivery by a process that is then gone for good, alone with it."""
    requests = (Promise.REQUEST_ORDER,) if Promise.TOTAL_ORDER in promises and not mixed else ()
    receipts = (Promise.RECEIPTS,) if Promise.UNIFORM_AGREEMENT in promises else ()
    with_views = Promise.VIRTUAL_SYNCHRONY in promises
    return (*promises, *requests, Promise.VIEW_CLIENT_ORDER if with_views else Promise.CLIENT_ORDER, *receipts)
