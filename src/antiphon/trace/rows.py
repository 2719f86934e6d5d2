"""From what came of an input to rows: the one place where both drivers' traces are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from antiphon.core.buffers import Buffers
from antiphon.core.effects import AnyEffect, Assured, Log, Record, Reply, Send
from antiphon.core.events import Adopted, Delivered, Gap, View
from antiphon.core.host import Turn
from antiphon.core.inputs import Receive
from antiphon.core.model import MessageId, ProcessId
from antiphon.core.process import Process
from antiphon.core.requests import Request
from antiphon.trace.schema import MAJORITY, RequestCell, Row

StepOf = Callable[[AnyEffect], "int | None"]


class RowMaker:
    """Makes rows. What many of them share it makes once: all who deliver a message deliver the same requests."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Request, tuple[RequestCell]]] = {}  # by identity, of requests that are held

    def add(
        self, rows: list[Row], process: Process, turn: Turn, time_ns: int, step_of: StepOf | None = None, after: int = 0
    ) -> None:
        """Put the rows of an input behind others. Its effects were released at ``time_ns``; only those with a seq
        beyond ``after`` are rows."""
        happened = turn.happened
        if type(happened) is Receive and turn.seq > after:
            rows.append(receive_row(process, turn.seq, time_ns, happened.sender, happened.frame))
        self.add_effects(rows, process.me, turn.effects, time_ns, step_of, after)

    def add_effects(
        self, rows: list[Row], me: str, effects: list[AnyEffect], time_ns: int, step_of: StepOf | None, after: int
    ) -> None:
        """The same without the frame that came: the row of its send says what it is about, and to whom."""
        for effect in effects:
            if type(effect) is Send:  # most are, so that these are made here
                if effect.seq > after:
                    seq, step = effect.seq, None if step_of is None else step_of(effect)
                    to, about, layer, size = effect.to, names_of(effect.about), effect.layer, effect.frame.size
                    cells = (me, seq, time_ns, "send", None, None, None, to, about, layer, size, step, None, None)
                    rows.append(_row(cells))
            else:
                self.add_effect(rows, me, effect, time_ns, step_of, after)

    def add_effect(
        self, rows: list[Row], me: str, effect: AnyEffect, time_ns: int, step_of: StepOf | None, after: int
    ) -> None:
        """The row of an effect that sends no frame, where it has one."""
        make = _MAKERS.get(type(effect))
        if make is not None and effect.seq > after:  # type: ignore[union-attr]
            rows.append(make(self, me, effect, time_ns, None if step_of is None else step_of(effect)))

    def receipt(self, process: str, seq: int, time_ns: int, answer: Reply | Assured) -> Row:
        requests = self._cells(answer.requests)
        row = Row(process, seq, time_ns, "receipt", None, answer.destinations, requests)
        if type(answer) is Assured:
            return row._replace(layer=MAJORITY)
        turn = answer.requests[0].turn if answer.requests else 0
        return row._replace(position=turn) if turn else row

    def _receipt(self, process: str, answer: Reply | Assured, time_ns: int, step: int | None) -> Row:
        return self.receipt(process, answer.seq, time_ns, answer)

    def _record(self, process: str, record: Record, time_ns: int, step: int | None) -> Row:
        time_ns = time_ns if record.time_ns is None else record.time_ns
        name = None if record.message is None else _name(record.message)
        cells = self._cells(record.requests) if record.kind == "multicast" else None
        peers = None if record.peer is None else (record.peer,)
        about = None if record.about is None else names_of(record.about)
        to, layer, at = record.destinations, record.layer, record.position
        row = (process, record.seq, time_ns, record.kind, name, to, cells, peers, about, layer, None, step, None, at)
        return _row(row)

    def _log(self, process: str, log: Log, time_ns: int, step: int | None) -> Row:
        event = log.event
        if type(event) is Gap:
            return Row(process, log.seq, time_ns, "gap", position=event.position)
        if type(event) is Adopted:
            last = None if event.last is None else _name(event.last)
            return Row(process, log.seq, time_ns, "adopt", last, peers=(event.donor,), position=event.position)
        if type(event) is View:
            name, position = str(event.id), event.position
            return Row(process, log.seq, time_ns, "view", name, peers=event.members, position=position)
        assert type(event) is Delivered
        return self.delivery(process, log.seq, time_ns, event, step)

    def delivery(self, process: str, seq: int, time_ns: int, event: Delivered, step: int | None) -> Row:
        name, to, requests = _name(event.id), event.destinations, event.requests
        known = self._known.get(id(requests[0])) if len(requests) == 1 else None
        cells = self._cells(requests) if known is None else known[1]
        key, at = event.key, event.position
        return _row((process, seq, time_ns, "deliver", name, to, cells, None, None, None, None, step, key, at))

    def _cells(self, requests: tuple[Request, ...]) -> tuple[RequestCell, ...]:
        if len(requests) != 1:
            return tuple([cell for request in requests for cell in self._cells((request,))])
        (request,) = requests
        known = self._known.get(id(request))
        if known is None:
            cell = _cell((request.client, request.first, request.count, request.digest))
            known = self._known[id(request)] = request, (cell,)
        return known[1]


def rows_of(process: Process, turn: Turn, time_ns: int, *, after: int = 0) -> list[Row]:
    """The rows of one input."""
    rows: list[Row] = []
    RowMaker().add(rows, process, turn, time_ns, None, after)
    return rows


def receive_row(process: Process, seq: int, time_ns: int, sender: ProcessId, frame: Buffers) -> Row:
    """Of a frame that came."""
    me, layer = process.me, process.parts[frame.joined()[0]].layer
    cells = (me, seq, time_ns, "receive", None, None, None, (sender,), None, layer, frame.size, None, None, None)
    return _row(cells)


@lru_cache(maxsize=1 << 16)
def _name(id: MessageId) -> str:
    return str(id)


@lru_cache(maxsize=1 << 16)
def names_of(ids: tuple[MessageId, ...]) -> tuple[str, ...]:
    """Messages as rows name them."""
    return tuple([_name(id) for id in ids])


# A Row of all its cells, without the detour through its constructor: a run has many.
_row: Callable[[tuple[object, ...]], Row] = partial(tuple.__new__, Row)
_cell: Callable[[tuple[object, ...]], RequestCell] = partial(tuple.__new__, RequestCell)
_MAKERS: dict[type, Callable[..., Row]] = {
    Record: RowMaker._record,
    Log: RowMaker._log,
    Reply: RowMaker._receipt,
    Assured: RowMaker._receipt,
}
