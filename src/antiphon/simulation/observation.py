"""What processes let out, kept as it is until somebody reads the trace; and the steps of messages, where asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from antiphon.checks import FrameRow, Violation
from antiphon.core.contract import Wire
from antiphon.core.effects import AnyEffect, Assured, Log, Record, Reply, Send
from antiphon.core.events import Delivered, Event
from antiphon.core.host import Turn
from antiphon.core.inputs import Receive, Recover
from antiphon.core.model import MessageId
from antiphon.core.prompt import Seen
from antiphon.services.consensus import Consensus
from antiphon.services.label import Label
from antiphon.services.matrix import Carried
from antiphon.simulation.site import Site, Steps
from antiphon.simulation.values import INVARIANT
from antiphon.trace import Row, RowMaker, names_of, receive_row

FOLLOWED_MAX = 16  # messages in flight whose steps are measured; the oldest gives way


class Observations:
    def __init__(self, *, follow_steps: bool) -> None:
        self._follow = follow_steps
        self._seen: list[Seen] = []
        self._evidence = Testimony()  # of the first of these
        self._taken_down = 0  # how many that are
        self._followed: dict[MessageId, list[Site]] = {}  # and where something is known of them
        self._answers: list[
            tuple[Site, int, Reply | Assured]
        ] = []  # all that left, whatever became of the process after it
        self._shown: list[tuple[Site, int, Delivered]] = []  # to readers before it was durable, likewise
        self._unsaid: dict[MessageId, tuple[Site, Record]] = {}  # multicasts, of which others may have heard early
        self.forgotten: set[MessageId] = set()  # those of them that their senders have forgotten

    def add(self, site: Site, now: int, turns: Sequence[Turn]) -> None:
        process, after = site.host.process, site.released_seq
        for turn in turns:
            effects, note, happened = turn.effects, turn.note, turn.happened
            if self._follow:
                self._begin_to_follow(site, effects, note)
            if type(happened) is Receive:
                self._seen.append((process, now, after, effects, note, turn.seq, happened.sender, happened.frame))
            else:
                self._seen.append((process, now, after, effects, note, turn.seq, None, None))

    def of(self, site: Site) -> Callable[[Seen], None]:
        """To be told, one by one, what the inputs of a site led to."""
        return partial(self._follow_and_add, site) if self._follow else self._seen.append

    def _follow_and_add(self, site: Site, seen: Seen) -> None:
        self._begin_to_follow(site, seen[3], seen[4])
        self._seen.append(seen)

    def answered(self, site: Site, now: int, answer: Reply | Assured) -> None:
        self._answers.append((site, now, answer))

    def shown(self, site: Site, now: int, event: Event) -> None:
        if type(event) is Delivered:
            self._shown.append((site, now, event))

    def cut_off(self, site: Site, waiting: Iterable[Turn], kept: int) -> None:
        """A crash came before this was let out; the inputs from the index ``kept`` on are forgotten. Amid a release,
        some of what that had has not left either, though it is durable: who is gone for good never says it."""
        for effect in site.interrupted:
            if type(effect) is Record and effect.kind == "multicast" and effect.message is not None:
                self._unsaid[effect.message] = site, effect
        for turn in waiting:
            if type(turn.happened) is Recover and turn.index >= kept:
                return  # a whole life: nothing was foretold in it, and the next one has its names
            for effect in turn.effects:
                if type(effect) is Record and effect.kind == "multicast" and effect.message is not None:
                    self._unsaid[effect.message] = site, effect
                    if turn.index >= kept:
                        self.forgotten.add(effect.message)

    def resaid(self) -> tuple[list[Row], list[str], list[Violation]]:
        """Of messages that others heard of before their senders crashed: the rows of senders that never came back to
        say that they multicast them; the senders that did, and have yet to hear of one; and what any said wrongly."""
        if not self._unsaid:
            return [], [], []
        delivered = {
            (process.me, e.event.id)
            for process, _, _, effects, *_ in self._seen
            for e in effects
            if type(e) is Log and type(e.event) is Delivered
        }
        effects = [effect for _, _, _, effects, *_ in self._seen for effect in effects]
        said = {e.message: e for e in effects if type(e) is Record and e.kind == "multicast"}
        shown = {id for e in effects if type(e) is Send for id in e.about}
        shown.update(id for _, id in delivered)
        rows: list[Row] = []
        incomplete: dict[str, None] = {}
        wrong: list[Violation] = []
        for id, (site, true) in self._unsaid.items():
            again = said.get(id)
            if again is not None:
                if (again.destinations, again.requests) != (true.destinations, true.requests):
                    wrong.append(Violation(INVARIANT, (site.id,), (str(id),), "It says again what it never said."))
            elif (site.id, id) in delivered and site.up:
                wrong.append(Violation(INVARIANT, (site.id,), (str(id),), "It does not say that it multicast this."))
            elif id in shown and site.up:
                incomplete[site.id] = None
            elif id in shown:
                true.seq = site.released_seq + 2 + len(self._answers) + len(self._shown) + len(rows)
                RowMaker().add_effects(rows, site.id, [true], site.crashed_at, None, 0)
        return rows, list(incomplete), wrong

    def unrecorded(self) -> list[Row]:
        """The receipts and deliveries that left a process and of which it knows nothing, behind all that it knows.

        Those that are true though their input be forgotten may leave before it is durable, and are judged like all
        others. For the rest, an honest process answers when the request is durable, and then a replay brings it back.
        """
        if not (self._answers or self._shown):
            return []
        known = {
            (process.me, *_named(effect))
            for process, _, _, effects, *_ in self._seen
            for effect in effects
            if type(effect) is Reply or type(effect) is Assured
        }
        lost = [(s, at, answer) for s, at, answer in self._answers if (s.id, *_named(answer)) not in known]
        maker = RowMaker()
        rows = [maker.receipt(s.id, s.released_seq + 2 + k, at, answer) for k, (s, at, answer) in enumerate(lost)]
        for site, at, event in self._unkept():
            rows.append(maker.delivery(site.id, site.released_seq + 2 + len(rows), at, event, None))
        return rows

    def _unkept(self) -> list[tuple[Site, int, Delivered]]:
        """What readers were shown, and the process has forgotten and not delivered again, at the same place with the
        same requests in it: it stands in its log all the same. Once, in how many lives it was shown and forgotten:
        readers drop what comes again at its position."""
        if not self._shown:
            return []
        kept = {
            (process.me, e.event.position, e.event.id): e.event.requests
            for process, _, _, effects, *_ in self._seen
            for e in effects
            if type(e) is Log and type(e.event) is Delivered
        }
        unkept = []
        for site, at, event in self._shown:
            place = site.id, event.position, event.id
            if kept.get(place) != event.requests:
                kept[place] = event.requests
                unkept.append((site, at, event))
        return unkept

    def hand_over(self) -> Observations:
        """All that was seen so far, for the outcome alone: a world is full of cycles, and what it holds outlives it."""
        seen = Observations(follow_steps=self._follow)
        seen._seen, self._seen = self._seen, []
        self._evidence, self._taken_down = Testimony(), 0
        seen.forgotten = self.forgotten
        return seen

    def rows(self, *, receives: bool = True) -> list[Row]:
        """The trace so far; without the frames that came it says as much to the checks, in half the time."""
        rows: list[Row] = []
        maker = RowMaker()
        for process, now, after, effects, note, seq, sender, frame in self._seen:
            step_of = partial(_step, note) if note else None
            if receives and frame is not None and sender is not None and seq > after:
                rows.append(receive_row(process, seq, now, sender, frame))
            if effects:
                maker.add_effects(rows, process.me, effects, now, step_of, after)
        return rows

    def take_down(self) -> None:
        """Make evidence of what was seen while it is at hand: later the processor would have to fetch it from memory.
        Only where nothing of it can change any more: a crash cuts a send in two, and a journal completes it."""
        self._evidence.add(self._seen[self._taken_down :])
        self._taken_down = len(self._seen)

    def evidence(self) -> Testimony:
        """Of all that was seen."""
        self.take_down()
        return self._evidence

    def came(self) -> Iterator[Wire]:
        """What processes got from one another."""
        for process, *_, frame in self._seen:
            if frame is not None:
                yield process.decode_frame(frame)[1]

    def rounds(self) -> dict[Label, int]:
        """The highest round in which anybody sent something, by instance of consensus."""
        highest: dict[Label, int] = {}
        processes = {process for process, *_ in self._seen}
        if not any(isinstance(part, Consensus) for process in processes for part in process.parts):
            return highest
        sends = ((process, e) for process, _, _, effects, *_ in self._seen for e in effects if type(e) is Send)
        for process, send in sends:
            part, message = process.decode_frame(send.frame)
            if isinstance(message, Carried):
                part, message = process.decode_frame(message.frame)
            if isinstance(part, Consensus) and (round := getattr(message, "round", None)) is not None:
                instance: Label = message.instance  # type: ignore[attr-defined]
                highest[instance] = max(highest.get(instance, 0), round)
        return highest

    # Steps --------------------------------------------------------------------------------------------------------

    def arrived(self, site: Site, carried: Steps | None) -> Steps:
        """An input came with these steps behind it. Returns what its effects have behind them."""
        steps = site.steps
        for id, step in (carried or {}).items():
            if step > steps.get(id, -1) and id in self._followed:
                if id not in steps:
                    self._followed[id].append(site)
                steps[id] = step
        return self.departing(site)

    def departing(self, site: Site) -> Steps:
        return {id: step + 1 for id, step in site.steps.items()}

    def _begin_to_follow(self, site: Site, effects: list[AnyEffect], note: Steps | None) -> None:
        for effect in effects:
            if type(effect) is Record and effect.kind == "multicast" and effect.message is not None:
                id = effect.message
                self._followed[id] = [site]
                site.steps.setdefault(id, 0)
                if note is not None:
                    note.setdefault(id, 1)
                if len(self._followed) > FOLLOWED_MAX:
                    self.forget(next(iter(self._followed)))

    def forget(self, id: MessageId) -> None:
        """Stop measuring a message's steps."""
        for site in self._followed.pop(id, ()):
            site.steps.pop(id, None)


class _Names(dict[tuple[MessageId, ...], tuple[str, ...]]):
    """``names_of``, for whoever asks for those of every frame."""

    def __missing__(self, about: tuple[MessageId, ...]) -> tuple[str, ...]:
        self[about] = names = names_of(about)
        return names


class Testimony:
    """What the checks read of a run: the rows that are about no frame, and the frames that were sent."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.frames: list[FrameRow] = []
        self._maker, self._names = RowMaker(), _Names()

    def add(self, seen: Iterable[Seen]) -> None:
        maker, names, rows = self._maker, self._names, self.rows
        delivery, add_other, add_row, add_frame = maker.delivery, maker.add_effect, rows.append, self.frames.append
        for process, now, after, effects, note, _, _, frame in seen:
            if frame is not None:
                frame.decoded = None  # it takes much memory; who asks again, as one whom it has yet to reach, reads it
            if not effects:
                continue
            me, step_of = process.me, None if note is None else partial(_step, note)
            for effect in effects:
                if type(effect) is Send:
                    if effect.seq > after:
                        add_frame((me, "send", effect.to, names[effect.about], effect.layer, effect.frame.size))
                elif step_of is None and type(effect) is Log and type(effect.event) is Delivered:
                    if effect.seq > after:
                        add_row(delivery(me, effect.seq, now, effect.event, None))
                else:
                    add_other(rows, me, effect, now, step_of, after)


def _named(answer: Reply | Assured) -> tuple[object, ...]:
    return type(answer), answer.seq, answer.client, answer.assured if isinstance(answer, Assured) else answer.taken


def _step(steps: Steps, effect: AnyEffect) -> int | None:
    """Of one message: the longest chain of frames behind an effect, the frame itself included where it is one."""
    if type(effect) is Send:
        return steps.get(effect.about[0]) if len(effect.about) == 1 else None
    id: MessageId | None = None
    if type(effect) is Log:
        id = effect.event.id if type(effect.event) is Delivered else None
    elif type(effect) is Record:
        id = effect.message
    step = None if id is None else steps.get(id)
    return None if step is None else step - 1
