"""One order of operations in a group: the program's own, or that of what callbacks start."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch._C._distributed_c10d import ErrorType

from tributary.torch.health import Health
from tributary.torch.host import HostPath
from tributary.torch.network import Network
from tributary.torch.transit import Hints


@dataclass
class Lane:
    """A job at the switch and a Gloo group, in which every rank starts the same operations in one order."""

    #: None in a group of one rank.
    network: Network | None
    host: HostPath
    #: For messages: "of group 0".
    place: str
    #: Of its jobs' names.
    suffix: str
    #: Told of what fails.
    health: Health
    #: What to add to errors.
    hints: Hints
    #: The same at a job of its own, for what only moves: it goes beside the sums, whose way is the other one. Where the
    #: switch has no room for it, the job of the sums.
    moves: Network | None = None
    #: A job for sparse tensors, which takes no others.
    sparse: Network | None = None
    #: Jobs of operators of a person's own, by their SHA-256.
    own: dict[str, Network] = field(default_factory=dict)
    #: Operations so far.
    number: int = 0

    def networks(self) -> list[Network]:
        """The jobs that were joined."""
        ways = dict.fromkeys((self.network, self.moves, self.sparse, *self.own.values()))
        return [network for network in ways if network is not None]

    def leave(self) -> None:
        """Leave the jobs; what is under way there fails. Nobody is waited for where something has failed before."""
        for network in self.networks():
            network.close(orderly=self.health.error == ErrorType.SUCCESS)
