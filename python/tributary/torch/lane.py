"""One order of operations in a group: the program's own, or that of what callbacks start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tributary.torch.host import HostPath
from tributary.torch.network import Network


@dataclass
class Lane:
    """A job at the switch and a Gloo group, in which every rank starts the same operations in one order."""

    #: None in a group of one rank.
    network: Network | None
    host: HostPath
    #: For messages: "of group 0".
    place: str
    #: Joins the job for sparse tensors, which takes no others.
    join_sparse: Callable[[], Network | None]
    #: That job, once a sparse tensor was there to be summed.
    sparse: Network | None = None
    #: Operations so far.
    number: int = 0
    _joining: threading.Lock = field(default_factory=threading.Lock)

    def open_sparse(self) -> None:
        """Meet the other ranks in the job for sparse tensors, unless it was done: all bring their first one here."""
        with self._joining:
            if self.sparse is None:
                self.sparse = self.join_sparse()

    def networks(self) -> list[Network]:
        """The jobs that were joined."""
        return [network for network in (self.network, self.sparse) if network is not None]

    def leave(self) -> None:
        """Leave the jobs; what is under way there fails."""
        for network in self.networks():
            network.close()
