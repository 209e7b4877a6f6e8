"""Operations that move data without summing it: they take the host path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any

import torch

from tributary.torch import claims
from tributary.torch.claims import Claim
from tributary.torch.paths import Paths
from tributary.torch.tensors import Tensors, refuse_shared, refuse_unfit
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
        name, arguments = "all_gather", [outputs, inputs, opts]
        claim = self._claim(name, opts, chain(*outputs), inputs, partial(claims.gathered, name, outputs, inputs))
        return self._over_host(name, MOVES, inputs, "allgather", arguments, claim)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Like :meth:`allgather`, for several tensors."""
        name, arguments = "all_gather_coalesced", [outputs, inputs, opts]
        of_ranks = partial(claims.gathered_together, name, outputs, inputs)
        claim = self._claim(name, opts, chain(*outputs), inputs, of_ranks)
        return self._over_host(name, MOVES, inputs, name.replace("all_", "all"), arguments, claim)

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Every rank's tensor on the root."""
        name, root, arguments = "gather", opts.rootRank, [outputs, inputs, opts]
        at_root = partial(claims.rooted, name, self.rank() == root, root, outputs, inputs)
        claim = self._claim(name, opts, chain(*outputs), inputs, at_root)
        return self._over_host(name, MOVES, inputs, name, arguments, claim)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        """Each rank gets one of the root's tensors."""
        name, root, arguments = "scatter", opts.rootRank, [outputs, inputs, opts]
        brought = list(chain(*inputs))
        at_root = partial(claims.rooted, name, self.rank() == root, root, inputs, outputs)
        claim = self._claim(name, opts, outputs, brought, at_root)
        return self._over_host(name, MOVES, brought or outputs, name, arguments, claim)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """Each rank gets a tensor from every rank."""
        name, arguments = "all_to_all", [outputs, inputs, opts]
        claim = self._claim(name, opts, outputs, inputs, partial(claims.exchanged, outputs, inputs))
        return self._over_host(name, MOVES, inputs, "alltoall", arguments, claim)

    def all_to_all_single(
        self, output: torch.Tensor, source: torch.Tensor, received: list[int], sent: list[int], opts: Any
    ) -> Any:
        """Like :meth:`alltoall`, for slices of one tensor."""
        name, of_slices = "all_to_all_single", partial(claims.sliced, output, source, received, sent)
        claim = self._claim(name, opts, [output], [source], of_slices)
        arguments = [output, source, list(claim.received), list(claim.sent), opts]
        return self._over_host(name, MOVES, [source], name, arguments, claim)

    def send(self, tensors: Tensors, destination: int, tag: int) -> Any:
        """Send to one rank."""
        refuse_unfit("send", tensors)
        return self._over_host("send", MOVES, tensors, "send", [tensors, destination, tag], None)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        """Receive from one rank."""
        return self._receive(tensors, "recv", [tensors, source, tag])

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """Receive from any rank that sends."""
        return self._receive(tensors, "recv_anysource", [tensors, tag])

    def _receive(self, tensors: Tensors, method: str, arguments: list[Any]) -> Any:
        refuse_unfit("recv", tensors)
        refuse_shared("recv", tensors)
        return self._over_host("recv", MOVES, tensors, method, arguments, None)

    def _claim(
        self, name: str, opts: Any, written: Iterable[torch.Tensor], read: Tensors, of_ranks: Callable[[int], Claim]
    ) -> Claim:
        """What the ranks must agree on; refuses tensors that do not fit together."""
        results = list(written)
        with self._announced(name, opts):
            refuse_unfit(name, [*results, *read])
            refuse_shared(name, results)
            return of_ranks(self.size())
