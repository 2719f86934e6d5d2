"""What a run can be asked for, in the words of `antiphon simulate`'s flags. A sweep's file has the same words."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from antiphon.core.errors import UsageError
from antiphon.core.model import Topology, parse_groups
from antiphon.core.options import parse_options
from antiphon.core.requests import PAYLOADS_MAX, REQUEST_BYTES_MAX
from antiphon.protocols import DEFAULT_PROTOCOL, options_of, protocol_named
from antiphon.simulation.generate import Workload, parse_faults, random_scenario, workload_scenario
from antiphon.simulation.values import MILLISECOND, Constant, Exponential, Latency, Scenario, Uniform

RANDOM = "random"  # faults, and all else: the seed chooses, as in a campaign
CHOSEN_FOR_RANDOM = ("protocol", "option", "faults")  # what one can choose of such a run
TURN_NS = MILLISECOND // 5  # how long a member gathers
MESSAGES_TRIED = 100  # of a run that is looked at and not made


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run but for its seed. Every field is a flag of the same name, with the same values and the same default."""

    protocol: str = DEFAULT_PROTOCOL
    option: dict[str, str] = {}
    groups: str = "3x3"
    clients: Annotated[int, Meta(ge=0, le=10_000)] = 2
    messages: Annotated[int, Meta(ge=0, le=10_000_000)] = 1000
    fanout: int | None = None
    faults: str = "none"
    sent_survives: bool = False
    workload: Workload = Workload.CLOSED
    interval: Annotated[float, Meta(ge=0.001)] = 1.0
    latency: str = "1"
    loss: Annotated[float, Meta(ge=0, le=0.9)] = 0.0
    causal: Annotated[float, Meta(ge=0, le=1)] = 0.0
    size: Annotated[int, Meta(ge=0)] = 16
    payloads: Annotated[int, Meta(ge=1)] = 1
    gather: Annotated[int, Meta(ge=1)] = 1

    def scenario(self, seed: int) -> Scenario:
        """The run of a seed; refuses in one sentence what cannot be run."""
        chosen = protocol_named(self.protocol)
        parsed = options_of(chosen, self.option)
        if self.faults == RANDOM:
            return random_scenario(chosen, seed, self.option)
        scenario = workload_scenario(
            chosen,
            self.option,
            parse_groups(self.groups),
            clients=self.clients,
            messages=self.messages,
            seed=seed,
            fanout=self.fanout,
            faults=parse_faults(self.faults, chosen.watched(parsed), chosen.assumes(parsed).detector),
            sent_survives=self.sent_survives,
            workload=self.workload,
            interval_ns=round(self.interval * MILLISECOND),
            latency=parse_latency(self.latency),
            size=self.size,
            loss=self.loss,
            causal=self.causal,
        )
        return _gathered(_batched(scenario, self.payloads), self.gather)

    def check(self, seed: int) -> None:
        """Refuse what `simulate` would refuse, without a run: of many messages, a few stand for all."""
        few = msgspec.structs.replace(self, messages=min(self.messages, MESSAGES_TRIED))
        scenario, protocol = few.scenario(seed), protocol_named(self.protocol)
        protocol.check(parse_options(protocol, scenario.options), scenario.model)
        topology = Topology.sized(scenario.groups)
        for plan in scenario.plans:
            protocol.admit(topology, topology.destinations(plan.destinations))
            protocol.admit_service(plan.service)


def parse_latency(text: str) -> Latency:
    """``1``, ``0.5-3`` or ``~0.2+2``: milliseconds, constant, uniform, or a floor and an exponential tail."""
    number = r"(\d+(?:\.\d+)?)"
    if match := re.fullmatch(number, text):
        return Constant(round(float(match[1]) * MILLISECOND))
    if (match := re.fullmatch(f"{number}-{number}", text)) and float(match[1]) <= float(match[2]):
        return Uniform(round(float(match[1]) * MILLISECOND), round(float(match[2]) * MILLISECOND))
    if (match := re.fullmatch(rf"~{number}\+{number}", text)) and float(match[2]) > 0:
        return Exponential(round(float(match[1]) * MILLISECOND), round(float(match[2]) * MILLISECOND))
    raise UsageError(f"{text!r} is not a latency: write 1 (constant ms), 0.5-3 (uniform) or ~0.2+2 (floor and tail).")


def _batched(scenario: Scenario, payloads: int) -> Scenario:
    """The same multicasts with so many payloads each."""
    largest = max((plan.size for plan in scenario.plans), default=0)
    if payloads > PAYLOADS_MAX or payloads * (largest + 4) > REQUEST_BYTES_MAX:
        raise UsageError(
            f"A batch has at most {PAYLOADS_MAX} payloads and {REQUEST_BYTES_MAX} bytes, 4 for each payload included: "
            f"{payloads} payloads of {largest} bytes are too many."
        )
    plans = [msgspec.structs.replace(plan, payloads=payloads) for plan in scenario.plans]
    return msgspec.structs.replace(scenario, plans=tuple(plans))


def _gathered(scenario: Scenario, gather: int) -> Scenario:
    """Above 1, clients hand their requests to members, who gather what one turn brings."""
    if gather == 1:
        return scenario
    members = Topology.sized(scenario.groups).index_of
    if any(plan.sender in members for plan in scenario.plans):
        raise UsageError("Members gather the requests of clients: --gather needs --clients.")
    return msgspec.structs.replace(scenario, gather=gather, turn_ns=TURN_NS, through_members=True, closed_loop=False)
