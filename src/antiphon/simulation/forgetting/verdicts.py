"""What must hold in each configuration, and at the end of each run that can follow it.

After each step, what readers saw and clients were told must agree with the rest. And from each configuration the run
is brought to its end, once with all members back and once without those who are down: then everybody who is there has
delivered all of that, at the same places.
"""

from __future__ import annotations

from antiphon.core.inputs import Suspect
from antiphon.simulation.forgetting.schedule import Schedule, request_of
from antiphon.simulation.forgetting.values import CLIENT, LAST, Broken, MemberState, Rings, Syncs, WholeState

ROUNDS = 8  # of timers, in which a run has to come to its end


class Verdicts:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.scope = schedule, schedule.scope
        self.topology, self.names = schedule.table.topology, schedule.names
        self._ended: set[tuple[WholeState, bool]] = set()

    def check(self, at: WholeState) -> None:
        """What anybody saw, at a place of the group's log, is what all see there; and groups agree on an order."""
        logs: dict[str, dict[int, str]] = {}
        for name, state in zip(self.names, self.schedule.states(at), strict=True):
            log = logs.setdefault(self.topology.group_of[name], {})
            for position, id in (*state.log, *state.shown):
                if log.setdefault(position, id) != id:
                    raise Broken(f"{name} has {id} at {position}, where {log[position]} was seen.")
        orders = [[id for _, id in sorted(log.items())] for log in logs.values()]
        for one in orders:
            for two in orders:
                if [id for id in one if id in two] != [id for id in two if id in one]:
                    raise Broken(f"Two groups have other orders: {one}, {two}.")

    def end(self, at: WholeState, *, with_all: bool) -> None:
        """Bring the run to its end, and see whether everybody who is there has what anybody saw or was promised."""
        if (at, with_all) in self._ended:
            return
        self._ended.add((at, with_all))
        down = [place for place, state in enumerate(self.schedule.states(at)) if not state.is_up]
        if not with_all and self._is_stuck(down):
            return
        if with_all:
            for place in down:
                at = self.schedule.bring_back(at, place)
        at = self._go_on(at, [] if with_all else down)
        self._check_end(at)
        self._check_one_more(at)

    # To the end -----------------------------------------------------------------------------------------------------

    def _is_stuck(self, down: list[int]) -> bool:
        """Whether a group has lost too many of its members to go on."""
        groups = [self.topology.group_of[self.names[place]] for place in down]
        return any(2 * groups.count(group) >= len(self.topology.members(group)) for group in groups)

    def _go_on(self, at: WholeState, gone: list[int]) -> WholeState:
        """Until nothing happens but by timers, and then by these, a few times."""
        for turn in range(ROUNDS):
            at = self._settle(at)
            for place in self.schedule.up(at):
                for other in gone if not turn else ():
                    at = self.schedule.after(at, place, Suspect(0, self.names[other]))
                at = self.schedule.after(at, place, Rings())
        at = self._settle(at)
        self.check(at)
        return at

    def _settle(self, at: WholeState) -> WholeState:
        """All that is under way arrives, and all is durable."""
        schedule = self.schedule
        while True:
            before = at
            for place in schedule.up(at):
                if waiting := schedule.states(at)[place].waiting:
                    at = schedule.after(at, place, Syncs(waiting))
            for source, target in schedule.pairs:
                while at.wires[schedule.pair(source, target)]:
                    at = schedule.arrive(at, source, target)
            if at == before:
                return at

    # At the end -----------------------------------------------------------------------------------------------------

    def _check_end(self, at: WholeState) -> None:
        states = self.schedule.states(at)
        for group, members in self.topology.groups.items():
            its = {name: states[self.names.index(name)] for name in members}
            seen = {each for state in its.values() for each in (*state.log, *state.shown)}
            for name, state in its.items():
                if not state.is_up:
                    continue
                if {*state.log} != seen:
                    raise Broken(f"{name} has {[*state.log]} at the end, and others saw {sorted(seen)}.")
                if state.pending:
                    raise Broken(f"{name} never delivers what it knows of.")
                self._check_receipts(name, group, state, states)

    def _check_receipts(self, name: str, group: str, state: MemberState, states: list[MemberState]) -> None:
        """Whoever gave it, and whatever became of that one."""
        had = dict(state.requests)
        for giver in states:
            for client, end in giver.promised:
                _, groups = self.scope.requests[int(client.removeprefix(CLIENT))]
                if group in groups and had.get(client, 0) < end:
                    raise Broken(f"{name} never delivers what {client} has a receipt for.")

    def _check_one_more(self, at: WholeState) -> None:
        """Whoever is there goes on: also those who have forgotten what there was to lead."""
        place = self.schedule.up(at)[-1]
        group = self.topology.group_of[self.names[place]]
        at = self._go_on(self.schedule.after(at, place, request_of(LAST, (group,))), [])
        for member in self.topology.members(group):
            state = self.schedule.states(at)[self.names.index(member)]
            if state.is_up and LAST not in dict(state.requests):
                raise Broken(f"{member} does not go on.")
