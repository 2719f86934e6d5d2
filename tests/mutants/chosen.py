"""What allack and toto have in common where a sender chooses the service, with one mistake each."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from antiphon.services.causal_graph import CausalGraph
from antiphon.services.configuration import GraphProtocol
from antiphon.services.dag import Ack, Cast, Name, Node


class DeliversCausalOnesBeforeWhatTheyFollow(GraphProtocol):
    """As soon as they have entered, whatever agreed ones they follow."""

    def undelivered_before(self, m: Node) -> Name | None:
        return None


class DeliversItsOwnAsCausalOnes(GraphProtocol):
    """Agreed ones of this machine, which finds them in its graph before anybody else has them."""

    def when_entered(self, m: Node) -> None:
        mine = m.service == "agreed" and m.name.sender == self.me
        super().when_entered(msgspec.structs.replace(m, service="causal") if mine else m)


class ForgetsWhatIsHeldBackOnRestart(GraphProtocol):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.held_back = {}


class LetsGoInAnotherOrder(GraphProtocol):
    """The last that entered first."""

    def deliver_held_back(self, delivered: list[Node]) -> None:
        let_go = [m for agreed in delivered for m in self.held_back.pop(agreed.name, ())]
        for m in sorted(let_go, key=lambda m: -m.entered):
            self.deliver_causal(m)


class LetsGoTooLate(GraphProtocol):
    """When the next message enters; what was agreed upon meanwhile is delivered before."""

    def deliver_held_back(self, delivered: list[Node]) -> None:
        pass

    def when_entered(self, m: Node) -> None:
        super().when_entered(m)
        held, self.held_back = self.held_back, {}
        for late in sorted((late for waiting in held.values() for late in waiting), key=lambda m: m.entered):
            self.deliver_causal(late)


class HoldsBackForEver(GraphProtocol):
    def deliver_held_back(self, delivered: list[Node]) -> None:
        pass


class LosesTheServiceOfWhatIsFetched(CausalGraph):
    """Who missed a message gets it as an agreed one."""

    def kept(self, name: Name) -> Cast | Ack | None:
        return _agreed(super().kept(name))


class LosesTheServiceOnRestart(CausalGraph):
    """What was not stable when the snapshot was taken is agreed afterwards."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        for row in self.dag.rows.values():
            for node in row.values():
                node.service = "ack" if node.service == "ack" else "agreed"
        self.held = {p: {n: _agreed(cast) or cast for n, cast in row.items()} for p, row in self.held.items()}


def _agreed(cast: Cast | Ack | None) -> Cast | Ack | None:
    return msgspec.structs.replace(cast, service="agreed") if isinstance(cast, Cast) else cast


Protocol = TypeVar("Protocol", bound=GraphProtocol)


def chosen_wrongly(protocol: type[Protocol]) -> tuple[type[Protocol], ...]:
    """The protocol with each of these mistakes."""
    kinds = (
        DeliversCausalOnesBeforeWhatTheyFollow,
        DeliversItsOwnAsCausalOnes,
        ForgetsWhatIsHeldBackOnRestart,
        LetsGoInAnotherOrder,
        LetsGoTooLate,
        HoldsBackForEver,
    )
    return tuple(type(kind.__name__, (kind, protocol), {"__module__": __name__}) for kind in kinds)


# In toto, where the agreed messages decide on the next set. In allack all messages do, so that these break nothing:
# what is asked for as causal comes in its place in the order, which is later than it need be, at some machines.
SERVICE_LOST = (LosesTheServiceOfWhatIsFetched, LosesTheServiceOnRestart)
