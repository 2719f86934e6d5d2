"""Faults and commands as values become events of the world here."""

from __future__ import annotations

import random
from collections.abc import Iterable

from antiphon.core import inputs
from antiphon.core.commands import parse_command
from antiphon.core.errors import UsageError
from antiphon.core.model import GroupId, ProcessId
from antiphon.core.options import parse_options
from antiphon.simulation.links import Link
from antiphon.simulation.site import Site
from antiphon.simulation.values import (
    MILLISECOND,
    Crash,
    Depose,
    Distrust,
    Fault,
    Instruction,
    Partition,
    Pause,
    Replace,
    Slow,
    WrongSuspicion,
)
from antiphon.simulation.world import World

SPREAD_NS = 5 * MILLISECOND  # within this time distrust reaches all those whom it befalls


def schedule_command(world: World, instruction: Instruction) -> None:
    """Refuses at once what the protocol cannot be told. As `antiphon tell`, it speaks to members only."""
    if ProcessId(instruction.process) not in world.topology.group_of:
        raise UsageError(f"{instruction.process} is in no group: commands are for members.")
    options = parse_options(world.protocol, world.scenario.options)
    command = parse_command(world.protocol, options, instruction.command.split())
    world.at(instruction.at, _tell, world, world.sites[ProcessId(instruction.process)], command)


def _tell(world: World, site: Site, command: bytes) -> None:
    world.take(site, inputs.Tell(world.now, command))


def schedule(world: World, fault: Fault) -> None:
    if isinstance(fault, Replace):
        _check_replacement(world, fault)
    world.at(fault.at, _begin, world, fault)


def _begin(world: World, fault: Fault) -> None:
    if isinstance(fault, Partition):
        _cut(world, fault, _links(world, fault))
        return
    if isinstance(fault, Distrust):
        _distrust(world, fault)
        return
    if isinstance(fault, Depose):
        _depose(world, fault)
        return
    if isinstance(fault, Replace):
        _replace(world, fault)
        return
    site = world.sites.get(ProcessId(fault.process))
    if site is None or not site.up:
        return
    if isinstance(fault, Crash):
        _crash(world, site, fault)
    elif isinstance(fault, Pause):
        world.pause(site, fault)
        world.at(world.now + fault.for_ns, world.resume, site, fault)
    elif isinstance(fault, Slow):
        world.hinder(site)
        site.delay_ns, site.slowness = fault.delay_ns, fault
        world.at(world.now + fault.for_ns, _speed_up, site, fault)
    else:
        _suspect(world, site, (ProcessId(fault.suspect),), fault)


def _crash(world: World, site: Site, fault: Crash) -> None:
    if fault.effects is not None:
        world.hinder(site)
        site.doom = fault
        return
    world.effective(fault)
    world.crash(site, fault.down_ns)


def _speed_up(site: Site, fault: Slow) -> None:
    if site.slowness is fault:
        site.slowness = None
        site.delay_ns = 0


def _links(world: World, fault: Partition) -> list[Link]:
    inside = {ProcessId(name) for name in fault.side}
    found = []
    for site in world.sites.values():
        for target, link in site.links.items():
            crosses = (site.id in inside) != (target in inside)
            outward = site.id in inside
            bridged = fault.bridge in (site.id, target)
            if crosses and not bridged and (outward or not fault.one_way):
                found.append(link)
    return found


def _depose(world: World, fault: Depose) -> None:
    """Nobody leads while the next one is being chosen; then nothing happens."""
    members = world.topology.members(GroupId(fault.group))
    leader = next((p for p in members if world.sites[p].up and world.sites[p].process.protocol.led_by() == p), None)
    others = [p for p in members if p != leader]
    if leader is None:
        return
    site = world.sites[leader]
    if fault.how == "crash":
        world.effective(fault)
        world.crash(site, fault.for_ns)
    elif fault.how == "pause":
        world.pause(site, fault)
        world.at(world.now + fault.for_ns, world.resume, site, fault)
    elif fault.how == "suspicion" and others:
        wrong = others[world.now % len(others)]
        _suspect(world, world.sites[wrong], (leader,), fault)
    elif fault.how != "suspicion":
        _cut(world, fault, _links(world, Partition((leader,), fault.at, fault.for_ns, fault.how == "mute")))


def _check_replacement(world: World, fault: Replace) -> None:
    if not world.protocol.replaces:
        raise UsageError(f"With {world.scenario.protocol} no member can be replaced.")
    group = world.topology.group_of.get(ProcessId(fault.process))
    if group is None or len(world.topology.members(group)) < 3:
        raise UsageError(f"{fault.process} cannot be replaced: it is in no group whose majority goes on without it.")


def _replace(world: World, fault: Replace) -> None:
    process = ProcessId(fault.process)
    if process not in world.topology.group_of:
        return  # it was replaced before
    world.effective(fault)
    if fault.lingers:
        world.at(world.now + fault.for_ns + 1, world.retire, world.sites[process])
    else:
        world.retire(world.sites[process])
    world.topology, newcomer = world.topology.replacing(process)
    rng = random.Random(f"{world.scenario.seed}/{fault}")
    world.join(newcomer)
    for site in world.sites.values():
        if site.id != process:
            world.at(world.now + rng.randrange(fault.for_ns + 1), world.tell_topology, site)
    if fault.then is not None:
        world.at(world.now, _lose_another, world, world.sites[newcomer], fault)


def _lose_another(world: World, newcomer: Site, fault: Replace) -> None:
    """When the newcomer counts, durably."""
    if newcomer.up and newcomer.process.protocol.counts and not newcomer.host.held:
        world.at(world.now + fault.after_ns, world.retire, world.sites[ProcessId(fault.then or "")])
    elif not newcomer.is_gone:
        world.at(world.now + MILLISECOND, _lose_another, world, newcomer, fault)


def _cut(world: World, fault: Partition | Depose, links: list[Link]) -> None:
    for link in links:
        link.cuts.append(fault)
        link.host = None
        world.detector.contact_changed(world.sites[link.source], world.sites[link.target])
    world.at(world.now + fault.for_ns, _heal, world, fault, links)


def _heal(world: World, fault: Partition | Depose, links: list[Link]) -> None:
    for link in links:
        link.cuts.remove(fault)
        if not link.cuts:
            world.reconnect(link)
            world.detector.contact_changed(world.sites[link.source], world.sites[link.target])


def _distrust(world: World, fault: Distrust) -> None:
    """Also of processes that are down: they suspect the same when they are back."""
    rng = random.Random(f"{world.scenario.seed}/{fault}")
    for name in fault.by:
        site = world.sites[ProcessId(name)]
        others = [other for other in world.sites if other != site.id and other not in fault.trusted]
        world.at(world.now + rng.randrange(SPREAD_NS), _suspect, world, site, others, fault)


def _suspect(world: World, site: Site, others: Iterable[ProcessId], fault: WrongSuspicion | Distrust | Depose) -> None:
    for other in others:
        world.detector.wrong(site, other, fault, suspected=True)
    if fault.for_ns is not None:
        world.at(world.now + fault.for_ns, _trust, world, site, others, fault)


def _trust(world: World, site: Site, others: Iterable[ProcessId], fault: WrongSuspicion | Distrust | Depose) -> None:
    for other in others:
        world.detector.wrong(site, other, fault, suspected=False)
