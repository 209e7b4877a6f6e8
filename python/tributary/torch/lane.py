"""One order of operations in a group: the order of the program, or of the operations that callbacks start."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch._C._distributed_c10d import ErrorType

from tributary.torch.health import Health
from tributary.torch.host import HostPath
from tributary.torch.network import Network
from tributary.torch.transit import Hints
from tributary.torch.work import NO_TIMEOUT


@dataclass
class Lane:
    """A job at the switch and a Gloo group, in which every rank starts the same operations in one order."""

    #: None in a group of one rank.
    network: Network | None
    host: HostPath
    #: The lane's name in messages: "of group 0".
    title: str
    #: The ending of its jobs' names.
    suffix: str
    #: The health that failures are reported to.
    health: Health
    #: Sentences to add to errors.
    hints: Hints
    #: Another job, for operations that only move data, so that they run beside the sums. If the switch has no room for
    #: it, this is the job of the sums.
    moves: Network | None = None
    #: A job for sparse tensors, which takes no dense ones.
    sparse: Network | None = None
    #: Jobs of custom operators, by the operators' SHA-256.
    custom: dict[str, Network] = field(default_factory=dict)
    #: Bytes of large operations until switches and hosts are measured, for the shares of later ones.
    until_measured: int = 0
    #: How many operations there were.
    number: int = 0

    def networks(self) -> list[Network]:
        """The jobs that were joined."""
        ways = dict.fromkeys((self.network, self.moves, self.sparse, *self.custom.values()))
        return [network for network in ways if network is not None]

    def finish(self) -> None:
        """Wait until the operations under way have ended, unless one has failed: nothing may come of the others."""
        for network in self.networks():
            if self.health.error == ErrorType.SUCCESS:
                network.finish()
        if self.health.error == ErrorType.SUCCESS:
            # The ranks have agreed on these, as far as they ever will.
            self.host.order.start(None, NO_TIMEOUT)

    def leave(self) -> None:
        """Leave the jobs; operations under way fail. After an earlier failure it does not wait for other ranks."""
        for network in self.networks():
            network.close(orderly=self.health.error == ErrorType.SUCCESS)

    def abort(self) -> None:
        """Leave at once, together with the host path."""
        for network in self.networks():
            network.close(orderly=False)
        self.host.close(orderly=False)
