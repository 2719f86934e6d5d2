"""`antiphon replace`: somebody new takes the place of a member that is lost for good, with its disk or its machine.

The folder says first who has whose place; then the others are told, then the newcomer is started. Whatever ends the
command in between, it can be called again, and goes on: until the newcomer counts, the folder says that it does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from antiphon.core import ProcessId
from antiphon.core.errors import OutcomeUnknown, Unavailable, UsageError
from antiphon.protocols import in_words, protocol_named, protocols
from antiphon.runtime.cluster.control import Answered, ask_all, tell, tell_replaced
from antiphon.runtime.cluster.folder import ClusterFolder
from antiphon.runtime.cluster.health import is_there
from antiphon.runtime.cluster.ports import HOST, free_ports
from antiphon.runtime.cluster.processes import start
from antiphon.runtime.net.frames import StatusAnswer

LEARN_SECONDS = 60.0  # that a newcomer has to learn what the others know
RETELL_SECONDS = 0.02

_ONLY_THE_LOST = "only a member that is lost for good is replaced."


class Whereabouts(NamedTuple):
    """Where a newcomer is reached; where it listens, if that is elsewhere."""

    address: str
    listen: str = ""


class Succession(NamedTuple):
    """What came of it."""

    lost: str
    newcomer: str
    seconds: float
    position: int  # the first of its log: what is before it was delivered by others
    oldest: int  # the oldest position that some member of the group keeps
    unaware: tuple[str, ...] = ()  # those that may run and have not heard of it
    told: tuple[str, ...] = ()  # it was done before, and these have heard of it now


def replace_lost(
    folder: ClusterFolder,
    name: str,
    on_step: Callable[[str], None] = lambda step: None,
    choose_place: Callable[[str], Whereabouts] | None = None,
) -> Succession:
    """Call it while nobody else starts or ends processes (`ClusterFolder.commanded`).

    ``on_step`` hears what is done now. ``choose_place`` is given the newcomer's name; else any free port is taken.
    """
    begun = time.monotonic()
    on_step("looking who is there")
    if (done := _done_before(folder, name)) is not None:
        return _tell_the_rest(folder, name, done, begun)
    newcomer = _begun_before(folder, name)
    lost = newcomer or folder.config.known(name)
    if newcomer is None:
        _check_protocol(folder, lost)
        if (pid := folder.process(lost).pid()) is not None:
            raise UsageError(f"{lost} is alive, as process {pid}: {_ONLY_THE_LOST}")
    found = ask_all(folder.config, folder.config.processes)
    _check_copy(folder, found)
    _check_history(folder, found)
    if newcomer is None and is_there(found[lost]):
        raise UsageError(f"{lost} is alive, and answers: {_ONLY_THE_LOST}")
    _check_others(folder, lost, found)
    if newcomer is None:
        newcomer = _write(folder, lost, choose_place or _place_here)
    on_step(f"telling the others of {newcomer}")
    _tell(folder, {process: answer for process, answer in found.items() if process != lost})
    on_step(f"starting {newcomer}")
    start(folder, [newcomer])
    _wake(folder, newcomer)
    on_step(f"{newcomer} learns what the others know")
    position, found = _wait(folder, newcomer)
    folder.config = folder.config.settled(newcomer)
    folder.save()
    oldest = _oldest(folder, newcomer, found)
    return Succession(name, newcomer, round(time.monotonic() - begun, 2), position, oldest, _unaware(folder, found))


def _done_before(folder: ClusterFolder, name: str) -> str | None:
    """Who has taken the place of this member, where that was seen to its end."""
    found = folder.config.replacement_of(name)
    return (
        found.newcomer
        if found is not None and (found.counts or found.newcomer not in folder.config.addresses)
        else None
    )


def _tell_the_rest(folder: ClusterFolder, name: str, newcomer: str, begun: float) -> Succession:
    """Those who did not hear of it then, as they were paused or out of reach. UsageError: there is nothing to do."""
    found = ask_all(folder.config, folder.config.processes)
    _check_copy(folder, found)
    lacking = _unaware(folder, found)
    _tell(folder, found)
    still = _unaware(folder, after := ask_all(folder.config, folder.config.processes)) if lacking else ()
    told = tuple(process for process in lacking if process not in still)
    if not told:
        waits = f"; {in_words(still)} {'has' if len(still) == 1 else 'have'} not heard of it yet" if still else ""
        raise UsageError(f"{name} was replaced before, by {newcomer}{waits}.")
    own = after.get(newcomer)
    position = own.begins if isinstance(own, StatusAnswer) else 0
    oldest = _oldest(folder, folder.config.present(newcomer), after)
    return Succession(name, newcomer, round(time.monotonic() - begun, 2), position, oldest, still, told)


def _oldest(folder: ClusterFolder, newcomer: str, found: Mapping[str, Answered]) -> int:
    """Who is down may keep more."""
    answers = [found[member] for member in _members(folder, newcomer)]
    kept = [answer.begins if isinstance(answer, StatusAnswer) else 0 for answer in answers]
    return min(kept, default=0)


def _unaware(folder: ClusterFolder, found: Mapping[str, Answered]) -> tuple[str, ...]:
    """Who is down learns of it when it is started; all others had to be told."""
    epoch = folder.config.epoch
    return tuple(
        process
        for process, answer in found.items()
        if not (answer.epoch >= epoch if isinstance(answer, StatusAnswer) else _is_down(folder, process))
    )


def _is_down(folder: ClusterFolder, process: str) -> bool:
    """As far as this folder knows: what runs elsewhere has nothing here."""
    own = folder.process(process)
    return own.path.exists() and own.pid() is None


def _begun_before(folder: ClusterFolder, name: str) -> ProcessId | None:
    """Who was to take the place of this member, if that was not seen to its end."""
    found = folder.config.replacement_of(name)
    if found is None:
        return None
    if found.counts or found.newcomer not in folder.config.addresses:
        raise UsageError(f"{name} was replaced before, by {found.newcomer}.")
    return ProcessId(found.newcomer)


def _check_copy(folder: ClusterFolder, found: Mapping[str, Answered]) -> None:
    """Names must not be given away twice, nor topologies."""
    for process, answer in found.items():
        if isinstance(answer, StatusAnswer) and answer.epoch > folder.config.epoch:
            raise UsageError(
                f"{folder.path}/cluster.json is an old copy: {process} knows of {answer.epoch} replaced members, "
                f"and it of {folder.config.epoch}."
            )


def _check_history(folder: ClusterFolder, found: Mapping[str, Answered]) -> None:
    """They must have been given away by this folder, or a copy of it: UsageError is what somebody says who knows of
    others. To be told what one knows already changes nothing."""
    for process, answer in found.items():
        if folder.config.epoch and isinstance(answer, StatusAnswer):
            with suppress(Unavailable, OutcomeUnknown):
                tell_replaced(folder.config, process)


def _check_protocol(folder: ClusterFolder, lost: ProcessId) -> None:
    kind = protocol_named(folder.config.protocol)
    if not kind.replaces:
        able = in_words([name for name, each in protocols().items() if each.replaces])
        raise UsageError(
            f"A member of {folder.config.protocol} cannot be replaced: of the protocols {able} can do that."
        )
    folder.config.check_replaceable(lost)


def _check_others(folder: ClusterFolder, lost: ProcessId, found: Mapping[str, Answered]) -> None:
    """The newcomer learns from a majority of the group as it was before: what nobody there knows was never promised."""
    if not any(is_there(answer) for answer in found.values()):
        raise Unavailable(f"Nothing runs in {folder.path}: start the other members with `antiphon up`.")
    members = _members(folder, lost)
    able = [member for member in members if member != lost and _counts(found[member])]
    needed = len(members) // 2 + 1
    if len(able) < needed:
        raise Unavailable(
            f"There is no majority to learn from: of the {len(members)} members of {_group(folder, lost)} {needed} "
            f"others have to take part, and only {in_words(able) if able else 'nobody'} can be reached and does."
        )


def _counts(answer: Answered) -> bool:
    return isinstance(answer, StatusAnswer) and not (answer.returning or answer.learns)


def _members(folder: ClusterFolder, process: str) -> list[str]:
    return folder.config.groups[_group(folder, process)]


def _group(folder: ClusterFolder, process: str) -> str:
    return next(group for group, members in folder.config.groups.items() if process in members)


def _write(folder: ClusterFolder, lost: ProcessId, choose_place: Callable[[str], Whereabouts]) -> ProcessId:
    _, newcomer = folder.config.topology().replacing(lost)
    place = choose_place(newcomer)
    folder.config = folder.config.replacing(lost, newcomer, place.address, place.listen)
    try:
        folder.save()
    except OSError as error:
        raise Unavailable(f"{folder.path} cannot be written: {error.strerror or error}.") from None
    return newcomer


def _place_here(newcomer: str) -> Whereabouts:
    return Whereabouts(f"{HOST}:{free_ports(1, None)[0]}")


def _tell(folder: ClusterFolder, answers: Mapping[str, Answered]) -> None:
    """Tell all that are there and have not heard of it. Who does not answer is told again, or asks the folder."""
    for process, answer in answers.items():
        if isinstance(answer, StatusAnswer) and answer.epoch < folder.config.epoch:
            with suppress(Unavailable, OutcomeUnknown):
                tell_replaced(folder.config, process)


def _wake(folder: ClusterFolder, newcomer: ProcessId) -> None:
    """A group in which nothing ever happened stays silent, and then nobody learns there: have it order a message that
    brings nothing."""
    for member in _members(folder, newcomer):
        if member != newcomer:
            with suppress(Unavailable, OutcomeUnknown):
                tell(folder.config, member, ["advance", "floor=1"])
                return


def _wait(folder: ClusterFolder, newcomer: ProcessId) -> tuple[int, dict[str, Answered]]:
    """Until it counts, and all of its group that are there know of it; returns the first position of its log, and what
    all say."""
    begun = time.monotonic()
    members = [ProcessId(p) for p in _members(folder, newcomer)]
    while True:
        found = ask_all(folder.config, folder.config.processes)
        own, there = found[newcomer], [a for p in members if isinstance(a := found[p], StatusAnswer)]
        all_know = all(answer.epoch >= folder.config.epoch for answer in there)
        if isinstance(own, StatusAnswer) and _counts(own) and all_know:
            return own.begins, found
        if time.monotonic() - begun > LEARN_SECONDS:
            raise Unavailable(
                f"{newcomer} has the place, and did not learn within {LEARN_SECONDS:.0f} seconds what the others know: "
                "see `antiphon status`, and call this again."
            )
        _tell(folder, found)
        time.sleep(RETELL_SECONDS)
