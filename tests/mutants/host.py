"""The host's level with one mistake each: what is taken, gathered, made durable, admitted and brought back.

These are not protocols. Each is a function that stands in the place of one method while a run lasts (``made``), under
any protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.effects import AnyEffect, Log, Reply, Send
from antiphon.core.events import Event
from antiphon.core.gather import Gather, Gathering
from antiphon.core.host import Host, Outside
from antiphon.core.inputs import AnyInput, Submit, TurnEnd
from antiphon.core.model import GroupId, Message
from antiphon.core.process import Process
from antiphon.core.requests import Request, encode_request, parse_request, trusted_requests_in
from antiphon.core.sessions import Session, SessionId, Sessions
from antiphon.protocols.skeen import Skeen
from antiphon.simulation import MILLISECOND, Scenario
from antiphon.simulation.campaign import scenarios


class Slip(msgspec.Struct, frozen=True):
    """A method that is wrong."""

    of: type
    method: str
    wrong: Callable[..., Any]

    @property
    def name(self) -> str:
        return "".join(word.capitalize() for word in self.wrong.__name__.split("_"))

    @contextmanager
    def made(self) -> Iterator[None]:
        with patch.object(self.of, self.method, self.wrong):
            yield


SLIPS: list[Slip] = []


def instead_of(of: type, method: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(wrong: Callable[..., Any]) -> Callable[..., Any]:
        SLIPS.append(Slip(of, method, wrong))
        return wrong

    return keep


# The sync -------------------------------------------------------------------------------------------------------

_take = Host.take


class Hasty:
    """The outside of a host that is too fast: what went out early does not go out again when it is durable."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self.gone: list[object] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outside, name)

    def on_reply(self, reply: Reply) -> None:
        if not self._went(reply):
            self.outside.on_reply(reply)

    def on_event(self, event: Event) -> None:
        if not self._went(event):
            self.outside.on_event(event)

    def on_send(self, send: Send, note: Any) -> None:
        if not self._went(send):
            self.outside.on_send(send, note)

    def _went(self, what: object) -> bool:
        return any(each is what for each in self.gone)


def _hasty(host: Host, happened: AnyInput, note: Any) -> tuple[list[AnyEffect], Hasty]:
    if type(host.outside) is not Hasty:
        host.outside = Hasty(host.outside)
    _take(host, happened, note)
    return host._held[-1].effects, host.outside


@instead_of(Host, "take")
def answers_before_the_sync(self: Host, happened: AnyInput, note: Any = None) -> None:
    effects, hasty = _hasty(self, happened, note)
    for reply in effects:
        if type(reply) is Reply:
            hasty.outside.on_reply(reply)
            hasty.gone.append(reply)


@instead_of(Host, "take")
def delivers_before_the_sync(self: Host, happened: AnyInput, note: Any = None) -> None:
    effects, hasty = _hasty(self, happened, note)
    for log in effects:
        if type(log) is Log:
            hasty.outside.on_event(log.event)
            hasty.gone.append(log.event)


@instead_of(Host, "take")
def sends_before_the_sync(self: Host, happened: AnyInput, note: Any = None) -> None:
    effects, hasty = _hasty(self, happened, note)
    for send in effects:
        if type(send) is Send:
            hasty.outside.on_send(send, note)
            hasty.gone.append(send)


@instead_of(Host, "take")
def acknowledges_before_the_sync(self: Host, happened: AnyInput, note: Any = None) -> None:
    """A peer may forget a frame that is not durable here."""
    _take(self, happened, note)
    turn = self._held[-1]
    if turn.channel is not None:
        self.received[turn.channel] = turn.held
        self.fresh[turn.channel] = None


@instead_of(Host, "end_turn")
def does_not_journal_the_end_of_a_turn(self: Host, at: int, note: Any = None) -> None:
    if self.process.turn_is_open:
        journal, self.journal, self._index = self.journal, None, self.next_index
        self.take(TurnEnd(at), note)
        self.journal = journal
        self._held[-1].index -= 1 if journal is not None else 0


# A restart ------------------------------------------------------------------------------------------------------

_restore_process, _restore_host = Process.restore, Host.restore


@instead_of(Process, "restore")
def forgets_its_timers_on_restart(self: Process, data: bytes) -> None:
    _restore_process(self, data)
    self.state.timers.clear()


@instead_of(Process, "restore")
def forgets_the_sessions_on_restart(self: Process, data: bytes) -> None:
    _restore_process(self, data)
    self.state.sessions = Sessions()


@instead_of(Process, "restore")
def forgets_what_it_took_on_restart(self: Process, data: bytes) -> None:
    _restore_process(self, data)
    self.state.sessions.taken.clear()


@instead_of(Process, "restore")
def forgets_the_requests_that_wait_on_restart(self: Process, data: bytes) -> None:
    _restore_process(self, data)
    for session in self.state.sessions.known.values():
        session.waiting.clear()


@instead_of(Process, "restore")
def forgets_its_suspicions_on_restart(self: Process, data: bytes) -> None:
    _restore_process(self, data)
    self.state.suspects.clear()


@instead_of(Process, "restore")
def counts_its_positions_anew_on_restart(self: Process, data: bytes) -> None:
    _restore_process(self, data)
    self.state.position = 0


@instead_of(Host, "restore")
def forgets_unacknowledged_frames_on_restart(self: Host, data: bytes) -> None:
    _restore_host(self, data)
    for box in self.outboxes.values():
        box.let_go(box.sent)


@instead_of(Host, "go_on")
def watches_nobody_after_a_restart(self: Host) -> None:
    self.received = {channel: inbox.prefix for channel, inbox in self.process.state.inboxes.items()}
    for (part, timer), due in self.process.state.timers.items():
        self.process.set_timer(part, timer, due)


# Payloads and requests on their way to the application --------------------------------------------------------------

_deliver = Process.deliver


def _deliver_changed(process: Process, m: Message, key: Any, change: Callable[[list[Request]], list[Request]]) -> None:
    """What is delivered is not what was multicast."""
    _deliver(process, m, key)
    log = process._effects[-1]
    assert type(log) is Log
    requests = tuple(change(list(log.event.requests)))
    log.event = msgspec.structs.replace(log.event, requests=requests)


def _remade(request: Request, payloads: list[bytes]) -> Request:
    return parse_request(encode_request(request.client, request.first, request.settled, payloads))


@instead_of(Process, "deliver")
def corrupts_a_payload(self: Process, m: Message, key: Any, *, early: bool = False) -> None:
    def flip(requests: list[Request]) -> list[Request]:
        if not requests or m.id.number % 5:
            return requests
        first, *rest = requests
        payloads = list(first.payloads())
        payloads[-1] = payloads[-1][:-1] + bytes([payloads[-1][-1] ^ 1]) if payloads[-1] else b"x"
        return [_remade(first, payloads), *rest]

    _deliver_changed(self, m, key, flip)


@instead_of(Process, "deliver")
def swaps_two_payloads(self: Process, m: Message, key: Any, *, early: bool = False) -> None:
    def swap(requests: list[Request]) -> list[Request]:
        return [_remade(r, [*reversed(list(r.payloads()))]) if r.count == 2 else r for r in requests]

    _deliver_changed(self, m, key, swap)


@instead_of(Process, "deliver")
def swaps_two_requests(self: Process, m: Message, key: Any, *, early: bool = False) -> None:
    _deliver_changed(self, m, key, lambda requests: requests[::-1])


@instead_of(Process, "deliver")
def swaps_the_bytes_of_two_requests(self: Process, m: Message, key: Any, *, early: bool = False) -> None:
    """Each has the name and the numbers of its own, and the payloads of the other."""

    def swap(requests: list[Request]) -> list[Request]:
        if len(requests) != 2 or requests[0].count != requests[1].count:
            return requests
        one, two = requests
        return [_remade(one, list(two.payloads())), _remade(two, list(one.payloads()))]

    _deliver_changed(self, m, key, swap)


@instead_of(Process, "deliver")
def positions_count_requests(self: Process, m: Message, key: Any, *, early: bool = False) -> None:
    before = self.state.position
    _deliver(self, m, key)
    log = self._effects[-1]
    assert type(log) is Log
    self.state.position = before + len(log.event.requests)


# Sessions at delivery -----------------------------------------------------------------------------------------------

_admit = Sessions.admit


@instead_of(Sessions, "admit")
def admits_half_a_request(self: Sessions, session: SessionId, request: Request, **keeping: bool) -> list[Request]:
    admitted = _admit(self, session, request, **keeping)
    return [_remade(r, list(r.payloads())[: (r.count + 1) // 2]) for r in admitted]


@instead_of(Sessions, "admit")
def admits_what_is_left_of_a_request(
    self: Sessions, session: SessionId, request: Request, **keeping: bool
) -> list[Request]:
    """Takes the first payload of a request for delivered when another request came before it."""
    admitted = _admit(self, session, request, **keeping)
    return [
        parse_request(encode_request(r.client, r.first + 1, r.settled, list(r.payloads(1)))) if r.count > 2 else r
        for r in admitted
    ]


@instead_of(Sessions, "admit")
def forgets_the_sessions_mark(self: Sessions, session: SessionId, request: Request, **keeping: bool) -> list[Request]:
    """Every request is the first of its session."""
    self.known[session] = Session(request.first)
    return _admit(self, session, request, **keeping)


@instead_of(Sessions, "admit")
def delivers_a_repeated_request_again(
    self: Sessions, session: SessionId, request: Request, **keeping: bool
) -> list[Request]:
    known = self.known.get(session)
    if known is not None and request.end == known.next:
        return [request]
    return _admit(self, session, request, **keeping)


@instead_of(Sessions, "admit")
def ignores_the_predecessor(self: Sessions, session: SessionId, request: Request, **keeping: bool) -> list[Request]:
    known = self.known.get(session)
    if known is not None and request.first > known.next:
        known.next = request.first
    elif known is None:
        self.known[session] = Session(request.first)
    return _admit(self, session, request, **keeping)


@instead_of(Sessions, "admit")
def drops_what_comes_before_its_predecessor(
    self: Sessions, session: SessionId, request: Request, **keeping: bool
) -> list[Request]:
    admitted = _admit(self, session, request, **keeping)
    self.known[session].waiting.clear()
    return admitted


@instead_of(Sessions, "admit")
def delivers_one_of_those_that_waited(
    self: Sessions, session: SessionId, request: Request, **keeping: bool
) -> list[Request]:
    """Its next follower, and not the followers of that one."""
    admitted = _admit(self, session, request, **keeping)
    known = self.known[session]
    for late in admitted[2:]:
        known.waiting[late.first] = Buffers(late.data)
    if admitted[2:]:
        known.next = admitted[2].first
    return admitted[:2]


@instead_of(Sessions, "admit")
def begins_every_session_at_nought(
    self: Sessions, session: SessionId, request: Request, **keeping: bool
) -> list[Request]:
    """Ignores the client's word for what is settled."""
    return _admit(self, session, request, ordered=False)


# Sessions at the member ---------------------------------------------------------------------------------------------

_check, _expected, _on_submit = Sessions.check, Sessions.expected, Process._on_submit


@instead_of(Sessions, "check")
def takes_requests_out_of_turn(
    self: Sessions, session: SessionId, request: Request, expected: int | None = None, **keeping: bool
) -> None:
    self.taken[session] = request.first


@instead_of(Sessions, "expected")
def takes_only_what_follows_its_deliveries(self: Sessions, session: SessionId, settled: int) -> int:
    """Forgets what it has taken and not delivered, so that it takes it again, and refuses what follows it."""
    known = self.known.get(session)
    return max(known.next if known is not None else 0, settled)


@instead_of(Sessions, "expected")
def ignores_what_is_settled(self: Sessions, session: SessionId, settled: int) -> int:
    """A member that does not know the session waits for its first number, which will never come again."""
    return _expected(self, session, 0)


@instead_of(Sessions, "check")
def believes_what_the_client_calls_settled(
    self: Sessions, session: SessionId, request: Request, expected: int | None = None, **keeping: bool
) -> None:
    known = self.known.get(session)
    settled = min(request.settled, known.next) if known is not None else request.settled
    _check(self, session, msgspec.structs.replace(request, settled=settled), expected, **keeping)


@instead_of(Process, "_on_submit")
def loses_a_request_at_a_retry(self: Process, submitted: Submit) -> None:
    """Of requests that come in one piece, only the first is multicast; all are answered."""
    state, destinations = self.state, submitted.destinations
    requests = trusted_requests_in(submitted.requests)
    session = SessionId(requests[0].client, destinations)
    taken = fresh = 0
    for request in requests:
        taken, is_new = state.sessions.take(session, request)
        if is_new:
            fresh += 1
            if fresh == 1:
                state.gathering.add(destinations, request, self.gather)
    state.seq += 1
    self._effects.append(Reply(state.seq, session.client, destinations, taken, tuple(requests), fresh))


@instead_of(Process, "_on_submit")
def answers_what_it_did_not_take(self: Process, submitted: Submit) -> None:
    """Multicasts nothing of a piece that begins with what it had before."""
    requests = trusted_requests_in(submitted.requests)
    session = SessionId(requests[0].client, submitted.destinations)
    if requests[0].first < self.state.sessions.expected(session, requests[0].settled):
        self.state.sessions.taken[session] = requests[-1].end
    _on_submit(self, submitted)


# Gathering ----------------------------------------------------------------------------------------------------------

_add = Gathering.add


@instead_of(Gathering, "add")
def loses_what_does_not_fit(
    self: Gathering, destinations: tuple[GroupId, ...], request: Request, limit: Gather
) -> None:
    index = self.open.get((destinations, request.service), -1)
    if index < 0 or self._fits(index, len(request.data), limit):
        _add(self, destinations, request, limit)


@instead_of(Gathering, "add")
def gathers_past_another_set(
    self: Gathering, destinations: tuple[GroupId, ...], request: Request, limit: Gather
) -> None:
    """A request joins the open message of its set, although its client has sent to another set since."""
    self.newest.clear()
    _add(self, destinations, request, limit)


@instead_of(Gathering, "add")
def gathers_the_newest_first(
    self: Gathering, destinations: tuple[GroupId, ...], request: Request, limit: Gather
) -> None:
    _add(self, destinations, request, limit)
    message = self.messages[self.open[destinations, request.service]]
    message.requests.insert(0, message.requests.pop())


@instead_of(Gathering, "add")
def counts_a_request_for_a_payload(
    self: Gathering, destinations: tuple[GroupId, ...], request: Request, limit: Gather
) -> None:
    """The message says fewer payloads than it has."""
    _add(self, destinations, request, limit)
    self.messages[self.open[destinations, request.service]].count -= request.count - 1


ELSEWHERE = (  # a test of its own catches these, or nothing can: docs/mutants.md says which
    "DeliversBeforeTheSync",
    "ForgetsItsTimersOnRestart",
    "ForgetsTheRequestsThatWaitOnRestart",
    "ForgetsItsSuspicionsOnRestart",
    "WatchesNobodyAfterARestart",
    "BeginsEverySessionAtNought",
    "TakesOnlyWhatFollowsItsDeliveries",
    "IgnoresWhatIsSettled",
    "BelievesWhatTheClientCallsSettled",
    "GathersPastAnotherSet",
    "GathersTheNewestFirst",
    "CountsARequestForAPayload",
)
MUTANTS = tuple(slip for slip in SLIPS if slip.name not in ELSEWHERE)

SLOW_DISK_NS = 100 * MILLISECOND  # much is under way when a process crashes, and not yet durable


def runs_from(first: int) -> Iterator[Scenario]:
    """Seeds of skeen without causal order, every other one on slow disks; on fast ones a restart brings back more.

    The protocol is one that makes no mistake and never hides one: it has neither votes nor copies to make up for it.
    """
    for scenario in scenarios(Skeen, first, {"causal": "false"}):
        yield msgspec.structs.replace(scenario, sync_ns=SLOW_DISK_NS) if scenario.seed % 2 else scenario
