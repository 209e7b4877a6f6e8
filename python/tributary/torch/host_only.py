"""Operations that move data without summing it: they take the host path."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from tributary.torch.paths import Paths
from tributary.torch.tensors import Tensors
from tributary.torch.untraced import untraced

#: Why these operations take the host path.
MOVES = "moves data, sums nothing"


@untraced
class HostOnly(Paths):
    """The operations of c10d that move tensors from rank to rank unchanged."""

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """Like :meth:`barrier`, over the host path: rank 0 waits for all ranks."""
        lane = self._lane("monitored_barrier")
        with self._order:
            title = self._next_title("monitored_barrier", lane)
        self._ledger.host("monitored_barrier", "rank 0 asks every rank", 0)
        given = opts.timeout >= timedelta(0)  # Zero seconds are a timeout here.
        lane.host.monitored_barrier(title, opts.timeout if given else self._options._timeout, wait_all_ranks)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Every rank's tensor on every rank."""
        return self._over_host("all_gather", MOVES, inputs, "allgather", [outputs, inputs, opts])

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Like :meth:`allgather`, for several tensors."""
        return self._over_host("all_gather_coalesced", MOVES, inputs, "allgather_coalesced", [outputs, inputs, opts])

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Every rank's tensor on the root."""
        return self._over_host("gather", MOVES, inputs, "gather", [outputs, inputs, opts])

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        """Each rank gets one of the root's tensors."""
        brought = [tensor for tensors in inputs for tensor in tensors]
        return self._over_host("scatter", MOVES, brought or outputs, "scatter", [outputs, inputs, opts])

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """Each rank gets a tensor from every rank."""
        return self._over_host("all_to_all", MOVES, inputs, "alltoall", [outputs, inputs, opts])

    def all_to_all_single(
        self, output: torch.Tensor, source: torch.Tensor, received: list[int], sent: list[int], opts: Any
    ) -> Any:
        """Like :meth:`alltoall`, for slices of one tensor."""
        arguments = [output, source, received, sent, opts]
        return self._over_host("all_to_all_single", MOVES, [source], "all_to_all_single", arguments)

    def send(self, tensors: Tensors, destination: int, tag: int) -> Any:
        """Send to one rank."""
        return self._over_host("send", MOVES, tensors, "send", [tensors, destination, tag])

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        """Receive from one rank."""
        return self._over_host("recv", MOVES, tensors, "recv", [tensors, source, tag])

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """Receive from any rank that sends."""
        return self._over_host("recv", MOVES, tensors, "recv_anysource", [tensors, tag])
