"""Clusters of real processes on this machine: start, look after, stop."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from antiphon.core import ProcessId
from antiphon.core.errors import TraceError, Unavailable, UsageError
from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster.control import ask_all
from antiphon.runtime.cluster.folder import ClusterFolder
from antiphon.runtime.cluster.health import is_there
from antiphon.runtime.cluster.ports import becomes_free
from antiphon.runtime.cluster.spawning import Spawned, command, has_ended, reap, spawn, starved_seconds
from antiphon.runtime.net.frames import StatusAnswer
from antiphon.trace import RunFacts, read_facts, remove_facts, write_facts
from antiphon.trace.coverage import last_rows, torn

START_SECONDS = 20.0
BEGIN_SECONDS = 2.0  # for those that were started to meet their peers, as far as these are up
DRAIN_SECONDS = 5.0  # for what is under way to be delivered, before the processes are ended
MOMENT_SECONDS = 3.0  # that a process which runs has to say whether it is ending
GONE_SECONDS = 18.0  # within which a process that was told to end gives up its lock
EXIT_DISK = 4  # of a process whose disk failed, docs/operations.md
CLOCK_ERROR_NS = 1_000_000  # between two processes of one machine


def alive(folder: ClusterFolder) -> dict[ProcessId, int | None]:
    """The pid of every process, None where it is down."""
    return {process: folder.process(process).pid() for process in folder.config.processes}


def start(folder: ClusterFolder, processes: Iterable[str] | None = None) -> list[ProcessId]:
    """Start whatever is down, or ending, of those that are to run (or of ``processes``), and wait until it listens.

    Returns what was started.
    """
    wanted = folder.in_use() if processes is None else [folder.config.known(p) for p in processes]
    _wait_for_ending(folder, wanted)
    down = [process for process in wanted if folder.process(process).pid() is None]
    for process in down:
        _, port = folder.config.listens_on(process)
        if not becomes_free(port):
            raise UsageError(f"Port {port}, on which {process} listens, is in use by another program.")
    spawned: dict[ProcessId, Spawned] = {}
    failed: dict[ProcessId, str] = {}
    if folder.config.trace and down:
        _begin_facts(folder, down)
    try:
        for process in down:
            spawned[process] = spawn(folder, process)
    except OSError as error:
        why = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        failed = {process: f"{process} did not start: {why}." for process in down if process not in spawned}
    failed |= _wait_listening(folder, spawned)
    if failed:
        raise Unavailable(" ".join(failed[process] for process in down if process in failed))
    return down


def _wait_for_ending(folder: ClusterFolder, processes: Iterable[ProcessId]) -> None:
    """Wait until those that were told to end are gone: they run, but not for long.

    Who does not answer may be about to end, too, and is given a moment; it may also hang, or just start.
    """
    begun = time.monotonic()
    told: set[ProcessId] = set()
    while True:
        running = [process for process in processes if folder.process(process).pid() is not None]
        answers = ask_all(folder.config, running, here=True, timeout=1.0)
        for process in running:
            answer = answers[process]
            if isinstance(answer, StatusAnswer):
                told = told | {process} if answer.draining else told - {process}
        ending = [process for process in running if process in told]
        seconds = time.monotonic() - begun
        if not ending and (seconds > MOMENT_SECONDS or None not in answers.values()):
            return
        if seconds > GONE_SECONDS:
            raise Unavailable(f"{ending[0]} was told to end, but still runs after {GONE_SECONDS:.0f} seconds.")
        time.sleep(0.05)


def _begin_facts(folder: ClusterFolder, started: Iterable[ProcessId]) -> None:
    """Until the run ends nobody's trace is whole. Where there is no room to say so, nothing is said of the run.

    Who lacks what is looked for in all of the trace only when the run ends: a member that was killed has no time."""
    known = _facts(folder)
    lacking = {*started, *(known.incomplete if known is not None else ())}
    try:
        incomplete = [p for p in folder.config.ever_processes if p in lacking or not folder.is_traced(p)]
        write_run_facts(folder, drained=False, faulty=[], incomplete=incomplete)
    except OSError:
        with suppress(OSError):
            remove_facts(folder.trace, folder.config.run)


def _wait_listening(folder: ClusterFolder, spawned: Mapping[ProcessId, Spawned]) -> dict[ProcessId, str]:
    """Wait until each answers and takes part, as far as its peers are up; returns a sentence on each that does not."""
    failed: dict[ProcessId, str] = {}
    started, answered = time.monotonic(), math.inf
    while True:
        running = [process for process in spawned if process not in failed]
        answers = ask_all(folder.config, running, here=True, timeout=1.0)
        for process in running:
            code = reap(spawned[process].pid)
            if code is not None:
                words = folder.process(process).last_words(spawned[process].logged)
                failed[process] = f"{process} did not start: {_why(process, words, code)}."
        # One that answered before and no longer does is ending: why it does is worth waiting for.
        silent = [process for process in running if process not in failed and answers[process] is None]
        now = time.monotonic()
        starved = {process: starved_seconds(spawned[process].pid) for process in running}
        if not silent:
            answered = min(answered, now)
            returning = [a for a in answers.values() if isinstance(a, StatusAnswer) and a.returning]
            if failed or not returning or now - answered - max(starved.values()) > BEGIN_SECONDS:
                return failed
        late = [process for process in silent if now - started - starved[process] > START_SECONDS]
        if late:
            return failed | {process: _late(folder, process) for process in late}
        time.sleep(0.03)


def _late(folder: ClusterFolder, process: ProcessId) -> str:
    log = folder.process(process).log
    return f"{process} was started, but does not answer after {START_SECONDS:.0f} seconds; what it says is in {log}."


def _why(process: ProcessId, words: str, code: int) -> str:
    """Why a process ended: its own last words, if it could write any."""
    if words:
        return words.removeprefix(f"{process} cannot start: ").removeprefix(f"{process} stops: ").rstrip(".")
    if code < 0:
        return f"it was ended by signal {-code}"
    if code == EXIT_DISK:
        return f"it ended with exit code {code} and could not write why, as on a disk that is full or read-only"
    return f"it ended with exit code {code} and did not say why"


def kill(folder: ClusterFolder, process: str, signal_number: int = signal.SIGKILL) -> None:
    """Send a signal to one process, and wait until it is gone if that is a kill. No error if it is down."""
    own = folder.process(folder.config.known(process))
    pid = own.pid()
    if pid is None:
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal_number)
    if signal_number == signal.SIGKILL:
        _wait_gone(folder, {ProcessId(process): pid}, GONE_SECONDS)


def _wait_gone(folder: ClusterFolder, pids: Mapping[ProcessId, int], seconds: float) -> list[ProcessId]:
    """Wait until the processes have given up their locks and their addresses; returns those that have not."""
    deadline = time.monotonic() + seconds
    while True:
        for pid in pids.values():
            reap(pid)
        left = [
            process for process, pid in pids.items() if not (folder.process(process).pid() is None and has_ended(pid))
        ]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


class ClusterEnding(NamedTuple):
    """How a cluster ended."""

    ended: tuple[ProcessId, ...] = ()  # those that were running
    delivered: bool = False  # all were alive, and nothing was under way
    drained: bool = False  # and all ended cleanly, with nothing of their trace missing
    unclean: tuple[ProcessId, ...] = ()  # those that did not end cleanly: of all, where none was running
    untraced: tuple[ProcessId, ...] = ()  # those whose trace is not whole
    elsewhere: tuple[ProcessId, ...] = ()  # those that run on another machine or folder, or did: their trace is there


def stop(folder: ClusterFolder, *, drain_seconds: float = DRAIN_SECONDS) -> bool:
    """End every process cleanly; True if the run is drained: all were alive, and nothing was under way."""
    return end(folder, drain_seconds=drain_seconds).drained


def end(folder: ClusterFolder, *, drain_seconds: float = DRAIN_SECONDS) -> ClusterEnding:
    """The same, with what there is to say about it; where nothing runs, that is how it ended before."""
    own = {process: folder.process(process) for process in folder.config.ever_processes}
    used = folder.in_use()
    pids = {process: pid for process, pid in alive(folder).items() if pid is not None}
    if not pids and (all(own[p].was_drained for p in used) or not any(each.has_run for each in own.values())):
        gaps = _untraced(folder)
        return ClusterEnding(delivered=True, drained=not gaps, untraced=gaps)  # and its facts are written
    idle = bool(pids) and wait_idle(folder, drain_seconds, drain=True)
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    for process in _wait_gone(folder, pids, GONE_SECONDS):
        kill(folder, process)
    unclean = tuple(p for p in pids or used if own[p].has_run and not own[p].stopped_cleanly)
    delivered = idle and all(process in pids for process in used)
    drained = delivered and not unclean
    elsewhere: list[ProcessId] = []
    lacking: tuple[ProcessId, ...] = ()
    if folder.config.trace:
        for process in own:
            salvage_trace(folder, process)
        try:
            elsewhere = _elsewhere(folder)
            down = [p for p in own if p not in pids and p not in elsewhere]
            gone = [p for p in down if p not in folder.config.addresses]
            faulty = [p for p in down if p in gone or pids or not own[p].stopped_cleanly]
            lacking = tuple(untraced(folder))
            write_run_facts(folder, drained=drained, faulty=faulty, incomplete=(*lacking, *elsewhere))
        except OSError:  # those of the start stand, if any: not drained, and nobody's trace is whole
            return ClusterEnding(tuple(pids), delivered, False, unclean, tuple(own))
    if drained:
        for process in used:
            own[process].mark_drained()
    return ClusterEnding(tuple(pids), delivered, drained and not lacking, unclean, lacking, tuple(elsewhere))


def _elsewhere(folder: ClusterFolder) -> list[ProcessId]:
    """The processes that never ran here but somewhere: they answer, or somebody here has received something of them."""
    strange = [process for process in folder.config.processes if not folder.process(process).path.exists()]
    if not strange:
        return []
    from antiphon.trace.parquet import heard_processes  # pyarrow is slow to load

    heard = heard_processes(folder.trace, folder.config.run)
    found = ask_all(folder.config, strange)
    return [process for process in strange if process in heard or is_there(found[process])]


def _untraced(folder: ClusterFolder) -> tuple[ProcessId, ...]:
    return tuple(untraced(folder)) if folder.config.trace else ()


def salvage_trace(folder: ClusterFolder, process: ProcessId) -> None:
    """Write the end of the trace of a process that was killed, from its journal.

    Without a journal, or with a damaged one, the end of a killed process's trace is lost; `untraced` says so."""
    own = folder.process(process)
    if not folder.config.journal or own.stopped_cleanly or own.salvaged.exists() or not own.journal.exists():
        return
    with suppress(OSError), own.log.open("ab") as log:
        ended = subprocess.run([*command(folder, process), "--salvage-trace"], stdout=log, stderr=log, check=False)
        if ended.returncode == 0:
            own.salvaged.touch()


def untraced(folder: ClusterFolder) -> list[ProcessId]:
    """The processes whose trace is not whole: they were killed, or there was no room for it, or a file is gone, or what
    they saw in an earlier life, of which their folder knows nothing."""
    gone = [*torn(folder.trace, folder.config.run, _last_known_rows(folder)), *_reborn(folder), *_forgetful(folder)]
    return [p for p in folder.config.ever_processes if p in gone or not folder.is_traced(p)]


def _reborn(folder: ClusterFolder) -> list[ProcessId]:
    """Those who have run, and ended without having begun anything, but of whom others have received something: so their
    folder is not the one with which they did. It was lost, and they were refused since, or met nobody."""
    rows = last_rows(folder.trace, folder.config.run, {})
    ended = [p for p in folder.config.ever_processes if p not in rows and folder.process(p).has_ended]
    if not ended:
        return []
    from antiphon.trace.parquet import heard_processes  # pyarrow is slow to load

    heard = heard_processes(folder.trace, folder.config.run)
    return [process for process in ended if process in heard]


def _forgetful(folder: ClusterFolder) -> list[str]:
    """Those who were killed, and had foretold what they did not come to have on disk: others have heard it, and took it
    for what it is, but in no journal stands that it was multicast. Who returns says so then."""
    config = folder.config
    protocol = protocol_named(config.protocol)
    if not protocol.foretells(parse_options(protocol, config.options)):
        return []
    every = {process: folder.process(process) for process in config.ever_processes}
    killed = [process for process, own in every.items() if own.has_ended and not own.stopped_cleanly]
    if not killed:
        return []
    from antiphon.trace.parquet import forgetful_processes  # pyarrow is slow to load

    return forgetful_processes(folder.trace, config.run, killed)


def _facts(folder: ClusterFolder) -> RunFacts | None:
    """Those of an earlier start or end."""
    try:
        return next((facts for facts in read_facts(folder.trace) if facts.run == folder.config.run), None)
    except TraceError:
        return None


def _last_known_rows(folder: ClusterFolder) -> dict[str, int]:
    known = _facts(folder)
    return known.rows if known is not None else {}


def wait_idle(folder: ClusterFolder, seconds: float, *, drain: bool = False) -> bool:
    """Wait until two looks in a row find nothing under way at any live process; ``drain`` first ends the intake.

    False: for so many seconds nothing more was delivered, not counting those in which others had the processor.
    """
    running = {process: pid for process, pid in alive(folder).items() if pid is not None}
    since, starved, delivered, was_idle = time.monotonic(), 0.0, 0, False
    while True:
        found = ask_all(folder.config, running, here=True, drain=drain).values()
        present = [answer for answer in found if isinstance(answer, StatusAnswer)]
        is_idle = len(present) == len(running) and all(_is_idle(answer) for answer in present)
        before, delivered = delivered, max(delivered, sum(answer.delivered for answer in present))
        if is_idle and was_idle and delivered == before:
            return True
        was_idle = is_idle
        waited = max((starved_seconds(pid) for pid in running.values()), default=0.0)
        if delivered > before:
            since, starved = time.monotonic(), waited
        elif time.monotonic() - since - (waited - starved) > seconds:
            return False
        time.sleep(0.03)


def _is_idle(answer: StatusAnswer) -> bool:
    return not (answer.pending or answer.unacknowledged)


def write_run_facts(
    folder: ClusterFolder, *, drained: bool, faulty: Iterable[str], incomplete: Iterable[str] | None = None
) -> None:
    """Write down what holds for the cluster's run, beside its trace."""
    config = folder.config
    protocol = protocol_named(config.protocol)
    facts = RunFacts(
        run=config.run,
        driver="runtime",
        protocol=config.protocol,
        options=config.options,
        groups=config.ever,
        promises=[promise.value for promise in protocol.promises(parse_options(protocol, config.options))],
        drained=drained,
        faulty=list(faulty),
        incomplete=list(untraced(folder) if incomplete is None else incomplete),
        rows=last_rows(folder.trace, config.run, _last_known_rows(folder)),
        clock_error_ns=CLOCK_ERROR_NS,
    )
    write_facts(folder.trace, facts)
