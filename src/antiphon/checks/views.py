"""Views (toto.txt, section 5 and Figure 2): what processes deliver that go from one view to the next together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice, pairwise
from typing import NamedTuple

from antiphon.checks.graph import components
from antiphon.checks.history import RunHistory, SessionKey, groups_text, request_text
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise

Course = dict[str, "ViewStretch"]  # of a process: its views, in order


class ViewStretch(NamedTuple):
    """What a process delivers in one view."""

    process: str
    view: str
    next: str | None  # the view after it
    is_last: bool  # the process is up in this view at the end of a run that was given its time
    messages: list[str]

    def goes_with(self, other: ViewStretch) -> bool:
        """Whether the two, which deliver the same view, go on together."""
        return self.next == other.next and (self.next is not None or (self.is_last and other.is_last))


def courses(history: RunHistory) -> dict[str, Course]:
    """By process: its stretches. A view that it delivers again is none, and what it delivers before all is in none."""
    return {process: _course(history, process) for process in sorted(history.views)}


def _course(history: RunHistory, process: str) -> Course:
    begins = {row[4] or "": row[1] for row in reversed(history.views[process])}  # the first row counts
    names = sorted(begins, key=lambda name: begins[name])
    stays = history.facts.drained and process not in history.faulty
    found: Course = {}
    for name, after in zip(names, (*names[1:], None), strict=True):
        found[name] = ViewStretch(process, name, after, stays and after is None, [])
    seen: set[str] = set()
    at = 0
    for row in history.deliveries.get(process, ()):
        while at < len(names) and begins[names[at]] < row[1]:
            at += 1
        if row[4] is not None and row[4] not in seen:
            seen.add(row[4])
            if at:
                found[names[at - 1]].messages.append(row[4])
    return found


def _companies(known: dict[str, Course]) -> Iterator[list[ViewStretch]]:
    """The stretches of those that go on from a view together."""
    found: dict[tuple[str, str | None], list[ViewStretch]] = {}
    for stretch in chain.from_iterable(course.values() for course in known.values()):
        if stretch.next is not None or stretch.is_last:
            found.setdefault((stretch.view, stretch.next), []).append(stretch)
    return iter(found.values())


# ---- virtual_synchrony


def virtual_synchrony(history: RunHistory) -> list[Violation]:
    known = courses(history)
    found = chain(
        _announced_wrongly(history),
        _early(history),
        _of_strangers(history, known),
        _turned_around(known),
        _unequal(history, known),
    )
    return list(islice(found, VIOLATIONS_MAX))


def _synchrony(processes: tuple[str, ...], messages: tuple[str, ...], detail: str) -> Violation:
    return Violation(Promise.VIRTUAL_SYNCHRONY.value, processes, messages, detail)


def _announced_wrongly(history: RunHistory) -> Iterator[Violation]:
    """A view has the same members everywhere, the process among them, and comes once."""
    members_of: dict[str, tuple[str, frozenset[str]]] = {}  # and who says so
    for process, rows in sorted(history.views.items()):
        seen: set[str] = set()
        for row in rows:
            view, members = row[4] or "", frozenset(row.peers or ())
            first, known = members_of.setdefault(view, (process, members))
            if view in seen:
                yield _synchrony((process,), (), f"{process} delivers view {view} again.")
            if process not in members:
                yield _synchrony((process,), (), f"{process} delivers view {view}, of which it is no member.")
            if members != known:
                detail = f"{process} and {first} deliver view {view} with different members."
                yield _synchrony((first, process), (), detail)
            seen.add(view)


def _early(history: RunHistory) -> Iterator[Violation]:
    """In a run that has views, everything is delivered in one."""
    for process, rows in history.deliveries.items() if history.views else ():
        views = history.views.get(process)
        if rows and (not views or rows[0][1] < views[0][1]):
            message = rows[0].message
            detail = f"{process} delivers {message or 'a message without a name'} before its first view."
            yield _synchrony((process,), () if message is None else (message,), detail)


def _of_strangers(history: RunHistory, known: dict[str, Course]) -> Iterator[Violation]:
    """What comes from a member of some group was sent in the view in which it is delivered."""
    everybody = {member for members in history.groups.values() for member in members}
    for process, course in known.items():
        members_of = {row[4] or "": row.peers or () for row in reversed(history.views[process])}  # the first row counts
        for view, stretch in course.items():
            strangers = everybody.difference(members_of[view])
            for message in stretch.messages if strangers else ():
                multicast = history.multicasts.get(message)
                if multicast is not None and multicast.sender in strangers:
                    sender = multicast.sender
                    detail = f"{process} delivers {message} in view {view}, of which its sender {sender} is no member."
                    yield _synchrony((process, sender), (message,), detail)


def _turned_around(known: dict[str, Course]) -> Iterator[Violation]:
    for one, other in combinations(known, 2):
        common = [view for view in known[one] if view in known[other]]
        theirs = [view for view in known[other] if view in known[one]]
        for mine, its in zip(common, theirs, strict=True):
            if mine != its:
                detail = f"{one} delivers view {mine} before view {its}, but {other} after it."
                yield _synchrony((one, other), (), detail)
                break


def _unequal(history: RunHistory, known: dict[str, Course]) -> Iterator[Violation]:
    """Who goes on with another delivers in the view what the other delivers in it and is addressed to both."""
    for company in _companies(known):
        delivered = {stretch.process: set(stretch.messages) for stretch in company}
        witness = {message: stretch.process for stretch in reversed(company) for message in stretch.messages}
        for message, process in sorted(witness.items()):
            multicast = history.multicasts.get(message)
            if multicast is None:
                continue  # integrity says so
            for other in sorted(delivered):
                if message not in delivered[other] and other in multicast.addressed:
                    view, after = company[0].view, company[0].next
                    way = "both stay in it" if after is None else f"both go on to view {after}"
                    detail = f"{process} delivers {message} in view {view}, {other} does not, and {way}."
                    yield _synchrony((process, other), (message,), detail)


# ---- view_order


def view_order(history: RunHistory) -> list[Violation]:
    known = {
        process: {
            view: stretch._replace(messages=history.without_causal(stretch.messages))
            for view, stretch in course.items()
        }
        for process, course in courses(history).items()
    }
    return list(islice(chain(_different(known), _cycles(known)), VIOLATIONS_MAX))


def _different(known: dict[str, Course]) -> Iterator[Violation]:
    """Two processes deliver two messages in different orders; those that part may, in the view in which they do."""
    for one, other in combinations(known, 2):
        mine, its = _places(known[one], known[other]), _places(known[other], known[one])
        common = [message for message in mine if message in its]
        ends: dict[int, int] = {}  # of the other's stretches: where the last common message of each stands
        for message in common:
            place, block = its[message]
            ends[block] = max(ends.get(block, 0), place)
        # What comes before all of a block at one must not come after all of a block at the other.
        latest, before, block = (-1, ""), (-1, ""), -1
        for message in common:
            if mine[message][1] != block:
                before, block = latest, mine[message][1]
            if before[0] > ends[its[message][1]]:
                detail = f"{one} delivers {before[1]} before {message}, but {other} {message} before {before[1]}."
                yield Violation(Promise.VIEW_ORDER.value, (one, other), (before[1], message), detail)
                break
            latest = max(latest, (its[message][0], message))


def _places(course: Course, other: Course) -> dict[str, tuple[int, int]]:
    """The messages, each with its place and a block: those of a view in which the two part are one block."""
    found: dict[str, tuple[int, int]] = {}
    for stretch in course.values():
        parts = stretch.view in other and not stretch.goes_with(other[stretch.view])
        begin = len(found)
        for message in stretch.messages:
            place = len(found)
            found[message] = (place, begin if parts else place)
    return found


def _cycles(known: dict[str, Course]) -> Iterator[Violation]:
    """Where messages go to different groups, each two may agree and all together not."""
    for company in _companies(known):
        follows: dict[str, list[str]] = {}
        for stretch in company:
            for message in stretch.messages:
                follows.setdefault(message, [])
            for earlier, later in pairwise(stretch.messages):
                follows[earlier].append(later)
        for component in components(follows):
            if len(component) > 1:
                messages = tuple(sorted(component))
                processes = tuple(stretch.process for stretch in company)
                detail = f"The order in view {company[0].view} has a cycle among {', '.join(messages[:5])}."
                yield Violation(Promise.VIEW_ORDER.value, processes, messages[:5], detail)


# ---- view_client_order


def view_client_order(history: RunHistory) -> list[Violation]:
    return list(islice(chain(_disorderly(history), _left_out(history)), VIOLATIONS_MAX))


def _client_violation(processes: tuple[str, ...], message: str | None, detail: str) -> Violation:
    return Violation(Promise.VIEW_CLIENT_ORDER.value, processes, () if message is None else (message,), detail)


def _disorderly(history: RunHistory) -> Iterator[Violation]:
    """No request begins before the end of one that came before it; a repeated one is integrity's business."""
    for process, session, delivered in history.each_session(history.deliveries):
        expected, seen = 0, set[int]()
        for message, cell, _ in delivered if session.client not in history.processes_as_clients else ():
            if cell.first in seen:
                continue
            seen.add(cell.first)
            if cell.first < expected:
                which = "" if message is None else f" with {message}"
                detail = f"{process} delivers {request_text(cell, session.groups)}{which}, when it was at {expected}."
                yield _client_violation((process,), message, detail)
            expected = max(expected, cell.first + cell.payloads)


def _left_out(history: RunHistory) -> Iterator[Violation]:
    """Who goes on with another delivers in the view what the other delivers in it of a client, and is for both; unless
    it was beyond that when the view began."""
    known = courses(history)
    within, before = _numbers_in_views(history, known)
    for company in _companies(known):
        view = company[0].view
        witness: dict[tuple[SessionKey, int], str] = {}
        for stretch in company:
            for number in within[stretch.process, view]:
                witness.setdefault(number, stretch.process)
        for (session, first), process in witness.items():
            addressed = history.resolve(tuple(sorted(session.groups)))[1]
            for other in sorted(stretch.process for stretch in company if stretch.process in addressed):
                if (session, first) not in within[other, view] and first > before[other, view].get(session, -1):
                    what = f"number {first} of {session.client} to {groups_text(session.groups)}"
                    detail = f"{process} delivers {what} in view {view}, and {other}, which goes on with it, does not."
                    yield _client_violation((process, other), None, detail)


def _numbers_in_views(
    history: RunHistory, known: dict[str, Course]
) -> tuple[dict[tuple[str, str], dict[tuple[SessionKey, int], None]], dict[tuple[str, str], dict[SessionKey, int]]]:
    """By process and view: the requests that it delivers in the view; and of each session the last one before it."""
    within: dict[tuple[str, str], dict[tuple[SessionKey, int], None]] = {}
    before: dict[tuple[str, str], dict[SessionKey, int]] = {}
    for process, course in known.items():
        last: dict[SessionKey, int] = {}
        begins = {row[4] or "": row[1] for row in reversed(history.views[process])}
        rows = iter(history.deliveries.get(process, ()))
        row = next(rows, None)
        for view, following in zip(course, [*list(course)[1:], None], strict=True):
            before[process, view] = dict(last)
            here = within[process, view] = {}
            end = None if following is None else begins[following]
            while row is not None and (end is None or row[1] < end):
                if row[1] > begins[view]:
                    for cell in row[6] or ():
                        if cell.client not in history.processes_as_clients:
                            here[SessionKey(cell.client, history.resolve(row[5])[0]), cell.first] = None
                row = next(rows, None)
            for session, first in here:
                last[session] = max(last.get(session, -1), first)
    return within, before


# ---- graph_delivery


def graph_delivery(history: RunHistory) -> list[Violation]:
    return list(islice(_stuck(history), VIOLATIONS_MAX))


def _stuck(history: RunHistory) -> Iterator[Violation]:
    for process, entered in sorted(history.entered.items()):
        delivered = history.delivered.get(process, {})
        for message in dict.fromkeys(row[4] or "" for row in entered) if process not in history.faulty else ():
            multicast = history.multicasts.get(message)
            if message not in delivered and multicast and process in multicast.addressed:
                detail = f"{message} entered the graph of {process}, which is correct and never delivers it."
                yield Violation(Promise.GRAPH_DELIVERY.value, (process,), (message,), detail)
