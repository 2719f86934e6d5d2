"""What a cluster is, as it stands in ``cluster.json``: who is in which group, and where; who was replaced by whom."""

from __future__ import annotations

import hashlib

import msgspec

from antiphon.core import ProcessId, Topology
from antiphon.core.errors import UsageError
from antiphon.runtime.net import Address, parse_address

CLUSTER_VERSION = 2


class Replacement(msgspec.Struct, frozen=True):
    """A member that is lost for good, and who has its place."""

    lost: str
    newcomer: str
    counts: bool = False  # the newcomer has learnt what the others know; else `antiphon replace` has yet to see that


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of cluster.json."""

    version: int = CLUSTER_VERSION
    cluster: str  # a random name, so that processes of two clusters never mix
    protocol: str
    options: dict[str, str]
    groups: dict[str, list[str]]
    addresses: dict[str, str]  # where others reach a process
    listen: dict[str, str] = {}  # where it listens, if that is elsewhere: behind a proxy or NAT, in a container
    journal: bool = True
    trace: bool = True
    run: str
    gather: int = 4096  # requests that a member may put into one message; 1: it gathers none
    snapshot_bytes: int = 128 << 20  # journaled between two snapshots
    segment_bytes: int = 16 << 20
    spill_bytes: int = 8 << 20  # kept in memory for one channel; more goes to disk
    multicast: str = ""  # a group and port that every process hears datagrams from; empty: each gets its own copy
    drop: int = 0  # per cent of the datagrams that come are thrown away, to try a network that loses so many
    spares: list[str] = []  # processes that are not started before they are to take the place of others
    replaced: list[Replacement] = []  # in the order in which it was done; groups and addresses are those of now

    @property
    def processes(self) -> list[ProcessId]:
        return [ProcessId(member) for members in self.groups.values() for member in members]

    def known(self, name: str) -> ProcessId:
        if (found := self.replacement_of(name)) is not None:
            raise UsageError(f"{name} was replaced by {found.newcomer}.")
        if name not in self.addresses:
            raise UsageError(f"There is no process {name!r}; the processes are {', '.join(self.processes)}.")
        return ProcessId(name)

    def address(self, process: str) -> Address:
        return parse_address(self.addresses[process])

    def listens_on(self, process: str) -> Address:
        return parse_address(self.listen.get(process, self.addresses[process]))

    # Members that were replaced ---------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return len(self.replaced)

    def replacement_of(self, name: str) -> Replacement | None:
        return next((each for each in self.replaced if each.lost == name), None)

    def present(self, name: str) -> str:
        """Who has the place of this one now; itself, where it was not replaced."""
        while (found := self.replacement_of(name)) is not None:
            name = found.newcomer
        return name

    def topology(self, epoch: int | None = None) -> Topology:
        """Who is in which group, now or as of an epoch: each replacement began one."""
        groups = {group: list(members) for group, members in self.groups.items()}
        for each in reversed(self.replaced):
            groups = {g: [each.lost if p == each.newcomer else p for p in members] for g, members in groups.items()}
        found = Topology(groups)
        for each in self.replaced[:epoch]:
            if each.lost not in found.group_of:
                raise UsageError(f"{each.lost} cannot have been replaced by {each.newcomer}: it was no member.")
            found, newcomer = found.replacing(ProcessId(each.lost))
            if newcomer != each.newcomer:
                raise UsageError(f"{each.newcomer} cannot have the place of {each.lost}: that is for {newcomer}.")
        return found

    def follows(self, before: Topology) -> bool:
        """Whether it has come of that one, by the replacements that are written here."""
        return self.epoch >= before.epoch and self.topology(before.epoch).roster == before.roster

    def check_members(self) -> None:
        """UsageError: who are members does not follow from who was replaced, or nobody knows where one is."""
        if self.topology().roster.groups != Topology(self.groups).roster.groups:
            raise UsageError("its members are not those that its replacements have left")
        for process in self.processes:
            if process not in self.addresses:
                raise UsageError(f"{process} has no address")

    def check_replaceable(self, lost: ProcessId) -> None:
        """What the lost one knew must surely be known to others."""
        members = next(members for members in self.groups.values() if lost in members)
        if len(members) < 3:
            others = "has no other member" if len(members) == 1 else "has no majority without it"
            raise UsageError(f"{lost} cannot be replaced: its group {others}, so nobody surely knows what it knew.")

    def topology_at_first(self, process: str) -> Topology:
        """The one that a process begins with. What was changed since it is told, and has in its journal."""
        joined = next((at for at, each in enumerate(self.replaced, 1) if each.newcomer == process), 0)
        return self.topology(joined)

    @property
    def ever(self) -> dict[str, list[str]]:
        """Everybody who was a member at any time, in the order of joining."""
        found = {str(group): [str(p) for p in members] for group, members in self.topology(0).groups.items()}
        for each in self.replaced:
            next(members for members in found.values() if each.lost in members).append(each.newcomer)
        return found

    @property
    def ever_processes(self) -> list[ProcessId]:
        return [ProcessId(member) for members in self.ever.values() for member in members]

    def replacing(self, lost: str, newcomer: str, address: str, listen: str = "") -> ClusterConfig:
        """The same cluster, with somebody new in the place of a member."""
        groups = {g: [newcomer if p == lost else p for p in members] for g, members in self.groups.items()}
        at = {newcomer if p == lost else p: address if p == lost else at for p, at in self.addresses.items()}
        listens = {p: where for p, where in self.listen.items() if p != lost} | ({newcomer: listen} if listen else {})
        replaced = [*self.replaced, Replacement(lost, newcomer)]
        return msgspec.structs.replace(self, groups=groups, addresses=at, listen=listens, replaced=replaced)

    def settled(self, newcomer: str) -> ClusterConfig:
        """The same, where a newcomer counts."""
        replaced = [Replacement(e.lost, e.newcomer, e.counts or e.newcomer == newcomer) for e in self.replaced]
        return msgspec.structs.replace(self, replaced=replaced)

    def digest(self) -> bytes:
        """Of what all its processes must agree on, in eight bytes."""
        agreed = (self.cluster, self.protocol, sorted(self.options.items()), list(self.groups.items()))
        return hashlib.blake2b(msgspec.json.encode(agreed), digest_size=8).digest()
