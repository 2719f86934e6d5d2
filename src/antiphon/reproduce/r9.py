"""R9, slides.txt: the ISIS example, whose hold-back queues are drawn after each of four steps."""

from __future__ import annotations

from html import escape

from antiphon.core import Buffers, MessageId, Process, ProcessId, Topology, Transport
from antiphon.core.effects import Log, Send
from antiphon.core.events import Delivered
from antiphon.core.inputs import Multicast, Receive
from antiphon.protocols.skeen import Held, Propose, Skeen
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.table import PaperResult, ResultTable, equal

TITLE = "the ISIS example"
SITES = Topology({"sites": ["1", "2", "3"]})
STARTED_AT = {"1": 14, "2": 15, "3": 16}  # the clocks that give the slides' proposals
ARRIVALS = {"1": ["m3", "m1", "m2"], "2": ["m2", "m1", "m3"], "3": ["m1", "m3", "m2"]}

Queues = dict[str, list[str]]  # by site, the head first: message, timestamp, and whether it is deliverable or not

# As drawn: what a step delivers is still at the head of its queue.
STEPS = ("the messages arrive", "m1 gets 17.3", "m2 gets 19.3", "m3 gets 18.3")
DRAWN: tuple[Queues, ...] = (
    {
        "1": ["m3 15.1 u", "m1 16.1 u", "m2 17.1 u"],
        "2": ["m2 16.2 u", "m1 17.2 u", "m3 18.2 u"],
        "3": ["m1 17.3 u", "m3 18.3 u", "m2 19.3 u"],
    },
    {
        "1": ["m3 15.1 u", "m2 17.1 u", "m1 17.3 d"],
        "2": ["m2 16.2 u", "m1 17.3 d", "m3 18.2 u"],
        "3": ["m1 17.3 d", "m3 18.3 u", "m2 19.3 u"],
    },
    {
        "1": ["m3 15.1 u", "m1 17.3 d", "m2 19.3 d"],
        "2": ["m1 17.3 d", "m3 18.2 u", "m2 19.3 d"],
        "3": ["m3 18.3 u", "m2 19.3 d"],
    },
    {
        "1": ["m1 17.3 d", "m3 18.3 d", "m2 19.3 d"],
        "2": ["m3 18.3 d", "m2 19.3 d"],
        "3": ["m3 18.3 d", "m2 19.3 d"],
    },
)


def name_of(id: MessageId) -> str:
    """The slides call the messages m1, m2, m3: m1 is the only message of s1."""
    return f"m{id.origin[1:]}"


def _entry(held: Held, *, deliverable: bool) -> str:
    time, process = held.timestamp
    return f"{name_of(held.message.id)} {time}.{process} {'d' if deliverable else 'u'}"


class Isis:
    """Three sites with three messages under way; sender s sends m, collects the proposals, and announces."""

    def __init__(self) -> None:
        self.sites = {name: Process(ProcessId(name), SITES, Skeen) for name in "123"}
        self.senders = {m: Process(ProcessId(f"s{m[1]}"), SITES, Skeen) for m in ("m1", "m2", "m3")}
        self.numbers: dict[tuple[str, str], int] = {}
        self.proposals: dict[str, list[tuple[str, Send]]] = {m: [] for m in self.senders}
        for name, site in self.sites.items():
            _skeen(site).clock = STARTED_AT[name]
        starts = {m: self._start(m) for m in self.senders}
        for name, arrivals in ARRIVALS.items():
            for m in arrivals:
                (send,) = [
                    e for e in self._receive(self.sites[name], self.senders[m].me, starts[m]) if isinstance(e, Send)
                ]
                self.proposals[m].append((name, send))

    def _start(self, m: str) -> Buffers:
        effects = self.senders[m].step(Multicast(0, SITES.destinations({"sites"}), (b"",)))
        (start,) = [effect for effect in effects if isinstance(effect, Send)]
        assert start.to == ("1", "2", "3")
        return start.frame

    def _receive(self, process: Process, sender: str, frame: Buffers) -> list[Send | Log]:
        key = (sender, str(process.me))
        self.numbers[key] = self.numbers.get(key, 0) + 1
        effects = process.step(Receive(0, ProcessId(sender), Transport.RELIABLE, self.numbers[key], frame))
        return [effect for effect in effects if isinstance(effect, Send | Log)]

    def queues(self) -> Queues:
        return {name: self._drawn(site, []) for name, site in self.sites.items()}

    def _drawn(self, site: Process, delivered: list[str]) -> list[str]:
        """A hold-back queue as the slides draw it; what this step delivers is still shown at its head."""
        queue = sorted(_skeen(site).holdback.values(), key=lambda held: held.timestamp)
        return delivered + [_entry(held, deliverable=held.deliverable) for held in queue]

    def announce(self, m: str) -> Queues:
        """m gets its final timestamp; returns the queues as drawn."""
        sender = self.senders[m]
        decided = [effect for name, p in self.proposals[m] for effect in self._receive(sender, name, p.frame)]
        (final,) = [effect for effect in decided if isinstance(effect, Send)]
        found: Queues = {}
        for name in final.to:
            site = self.sites[name]
            before = {id: _entry(held, deliverable=True) for id, held in _skeen(site).holdback.items()}
            logged = [effect.event for effect in self._receive(site, sender.me, final.frame) if isinstance(effect, Log)]
            ids = [event.id for event in logged if isinstance(event, Delivered)]
            last = f"{m} {max(self._proposed(m))}.3 d"
            found[str(name)] = self._drawn(site, [last if name_of(id) == m else before[id] for id in ids])
        return found

    def _proposed(self, m: str) -> list[int]:
        decode = self.senders[m].decode
        messages = [decode(send.frame.joined())[1] for _, send in self.proposals[m]]
        return [message.proposal.time for message in messages if isinstance(message, Propose)]


def _skeen(process: Process) -> Skeen:
    assert isinstance(process.protocol, Skeen)
    return process.protocol


def played() -> list[Queues]:
    isis = Isis()
    return [isis.queues(), *(isis.announce(m) for m in ("m1", "m2", "m3"))]


def reproduce(lab: Lab) -> PaperResult:
    found = played()
    rows = [
        equal((f"{step}: {words}", site), "queue", ", ".join(drawn[site]), ", ".join(ours[site]))
        for step, (words, drawn, ours) in enumerate(zip(STEPS, DRAWN, found, strict=True), start=1)
        for site in drawn
    ]
    caption = "The hold-back queues of three sites after each of four steps"
    return PaperResult(
        name="r9",
        title=TITLE,
        source='slides.txt, "Totally ordered multicast" 6 and 7',
        setting="Three messages reach three sites of skeen in different orders. 17.3 is time 17 at site 3; u is "
        "undeliverable, d deliverable; the head of a queue comes first, with what the step delivers.",
        tables=[ResultTable(title="Hold-back queues", labels=("step", "site"), rows=rows)],
        pictures=[lab.keep("r9", picture(found), "queues.svg", caption)],
        notes=["The proposals follow from the arrival orders, with clocks of 14, 15 and 16 before them."],
    )


# The picture --------------------------------------------------------------------------------------------------------

SITE, BOX, STEP, TOP = 230, 64, 92, 48  # widths and heights, in pixels
PAPER, INK, COLOURS = "#f6f8fa", "#1f2933", ("#1b6ca8", "#2a9d5c", "#c8553d")


def picture(found: list[Queues]) -> str:
    """Site by site and step by step, the head of a queue on the left; what a step delivers has a thick border."""
    width, height = 3 * SITE + 10, TOP + len(found) * STEP + 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
        *(_text(20 + SITE * column, 28, f"Site {name}", "start", "bold") for column, name in enumerate(found[0])),
    ]
    for row, (queues, after) in enumerate(zip(found, [*found[1:], {}], strict=True)):
        top = TOP + STEP * row
        lines.append(_text(20, top + 12, f"Step {row + 1}: {STEPS[row]}", "start", "bold"))
        for column, (site, queue) in enumerate(queues.items()):
            left = {entry.split()[0] for entry in after.get(site, ())}
            for place, entry in enumerate(queue):
                lines += _box(20 + SITE * column + BOX * place, top + 22, entry, entry.split()[0] not in left)
    return "\n".join([*lines, "</svg>", ""])


def _box(x: int, y: int, entry: str, delivered: bool) -> list[str]:
    message, timestamp, state = entry.split()
    fill = COLOURS[int(message[1:]) - 1]
    return [
        f'<rect x="{x}" y="{y}" width="{BOX - 4}" height="44" fill="{fill}" fill-opacity="0.25" stroke="{INK}" '
        f'stroke-width="{3 if delivered else 0.5}"/>',
        _text(x + BOX // 2 - 2, y + 18, message, "middle", "bold"),
        _text(x + BOX // 2 - 2, y + 36, f"{timestamp} {state}", "middle"),
    ]


def _text(x: int, y: int, text: str, anchor: str, weight: str = "normal") -> str:
    words = escape(text)
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">{words}</text>'
