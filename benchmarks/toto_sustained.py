"""A million messages of eight machines by ToTo, in the simulator: does memory stay bounded?

    python benchmarks/toto_sustained.py [--messages 1000000] [--protocol toto] [--loss 1] [--samples 20]

Every machine sends as a Poisson source, 200 messages a second in all, over links of 2 ms that lose and double 1 % of
the datagrams. Nothing is kept of what has happened, but a checksum of each machine's order, which must be that of the
others. State is sampled on the way: the messages in the graphs of all machines, those that wait for their place in the
order, what is held because something before it is missing, a snapshot of all machines, and the resident memory of the
whole simulator.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from zlib import crc32

from antiphon.core.events import Delivered
from antiphon.protocols import protocol_named
from antiphon.services.configuration import GraphProtocol
from antiphon.simulation import MILLISECOND, Constant, Scenario
from antiphon.simulation.site import Site
from antiphon.simulation.world import World

MACHINES, LOAD = 8, 200  # messages per second in all
COMPARED_EVERY = 1_000  # deliveries
SIZE = 16  # of a payload


class Order:
    """Whether all machines deliver the same messages in the same order, by checksums at every thousandth."""

    def __init__(self) -> None:
        self.delivered: dict[str, int] = {}
        self.sums: dict[str, int] = {}
        self.open: dict[int, tuple[int, int]] = {}  # by position: the checksum, and how many have come so far

    def on_delivered(self, site: Site, event: Delivered) -> None:
        name = site.id
        self.sums[name] = crc32(str(event.id).encode(), self.sums.get(name, 0))
        self.delivered[name] = position = self.delivered.get(name, 0) + 1
        if position % COMPARED_EVERY == 0:
            expected, come = self.open.get(position, (self.sums[name], 0))
            assert self.sums[name] == expected, f"{name} has another order before its delivery {position}"
            self.open[position] = (expected, come + 1)
            if come + 1 == MACHINES:
                del self.open[position]


class Sources:
    """Each machine multicasts, waits for a random time, and multicasts again."""

    def __init__(self, world: World, each: int) -> None:
        self.world, self.each = world, each
        self.sent = 0
        for site in world.sites.values():
            rng = random.Random(f"{world.scenario.seed}/{site.id}")
            world.at(self.gap(rng), self.send, site, rng, 1)

    def gap(self, rng: random.Random) -> int:
        return int(rng.expovariate(LOAD / MACHINES / 1e9))

    def send(self, site: Site, rng: random.Random, number: int) -> None:
        self.world.multicast(site, ("g",), (rng.randbytes(SIZE),))
        self.sent += 1
        if number < self.each:
            self.world.at(self.world.now + self.gap(rng), self.send, site, rng, number + 1)


def megabytes(field: str) -> float:
    """VmRSS: the memory that is resident now; VmHWM: the most that ever was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


class Sampler:
    """Looks at the state each time so many more messages were sent."""

    def __init__(self, world: World, sources: Sources, order: Order, every: int) -> None:
        self.world, self.sources, self.order, self.every = world, sources, order, every
        self.begun = time.process_time()
        print(
            "| sent | delivered everywhere | in the graphs | waiting | held | snapshot, KiB | resident, MiB | CPU s |"
        )
        print("| --- " * 8 + "|")
        self.due = every
        self.look()

    def look(self) -> None:
        self.world.observations.hand_over()  # and forget it
        self.world.acknowledge_all()
        if self.sources.sent >= self.due:
            self.due += self.every
            self.show()
        if self.sources.sent < self.sources.each * MACHINES:
            self.world.at(self.world.now + 1_000 * MILLISECOND, self.look)

    def show(self) -> None:
        protocols = [site.process.protocol for site in self.world.sites.values()]
        graphs = [protocol.graph for protocol in protocols if isinstance(protocol, GraphProtocol)]
        cells = (
            self.sources.sent,
            min(self.order.delivered.values(), default=0),
            sum(len(row) for graph in graphs for row in graph.dag.rows.values()),
            sum(protocol.undelivered() for protocol in protocols if isinstance(protocol, GraphProtocol)),
            sum(len(row) for graph in graphs for row in graph.held.values()),
            sum(len(site.process.snapshot()) for site in self.world.sites.values()) // 1024,
            round(megabytes("VmRSS")),
            round(time.process_time() - self.begun),
        )
        print("| " + " | ".join(f"{cell:,}" for cell in cells) + " |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--protocol", default="toto", choices=["toto", "allack", "transis"])
    parser.add_argument("--loss", type=float, default=1.0, help="per cent of the datagrams; as many are doubled")
    parser.add_argument("--samples", type=int, default=20)
    arguments = parser.parse_args()
    scenario = Scenario(
        protocol=arguments.protocol,
        options={"idle": "200"},
        groups={"g": MACHINES},
        plans=(),
        latency=Constant(2 * MILLISECOND),
        loss=arguments.loss / 100,
        duplication=arguments.loss / 100,
        limit_ns=10**18,
        events_max=10**12,
        seed=1,
    )
    world = World(scenario, protocol_named(arguments.protocol))
    for site in world.sites.values():
        site.process.traced = False
    order = Order()
    world.on_delivered = order.on_delivered
    sources = Sources(world, arguments.messages // MACHINES)
    sampler = Sampler(world, sources, order, arguments.messages // arguments.samples)
    world.run()
    sampler.show()
    total = sources.each * MACHINES
    assert all(delivered == total for delivered in order.delivered.values()), order.delivered
    same = len(set(order.sums.values())) == 1 or arguments.protocol == "transis"
    print(
        f"\n{total:,} messages in {world.now / 1e9:,.0f} virtual seconds; all {MACHINES} machines delivered all of them"
        f"{' in the same order' if same else ', NOT IN THE SAME ORDER'}; {megabytes('VmHWM'):.0f} MiB at the most"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
