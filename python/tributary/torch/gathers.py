"""All-gathers into one tensor: each rank sends its own shard, and the network copies it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from tributary.torch import claims
from tributary.torch.host_only import MOVES
from tributary.torch.network import Network
from tributary.torch.paths import Paths, Start
from tributary.torch.tensors import Tensors, in_order, landing, refuse_shared, refuse_unfit, size_in_bytes
from tributary.torch.transit import Finish
from tributary.torch.untraced import untraced

#: Smaller shards take the host path, where a round trip does not cost a packet for each rank.
LEAST_BYTES = 4096
#: Why they take it.
SMALL = f"shards of fewer than {LEAST_BYTES} bytes"


@untraced
class Gathers(Paths):
    """The operations that bring every rank's shard to every rank."""

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Any:
        """Every rank's tensor on every rank, in one tensor."""
        return self._gather("all_gather_single", [output], [source], opts, [output, source, opts])

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """Like :meth:`all_gather_single`, for several tensors."""
        return self._gather("all_gather_single_coalesced", outputs, inputs, opts, [outputs, inputs, opts])

    def _gather(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any, arguments: list[Any]) -> Any:
        self._spread(name, outputs, size_in_bytes(outputs), opts)
        uses_network = not self._is_alone(name) and self._rooted_is_unicast(name)
        is_local = uses_network and self._present(name).is_local
        # Small gathers meet the others' large ones in the network.
        beside = partial(self._moving, name) if uses_network and not is_local else lambda: None
        with self._announced(name, opts, beside):
            refuse_unfit(name, [*outputs, *inputs])
            refuse_shared(name, outputs)
            claim = claims.shards(name, outputs, inputs, self.size(), of_outputs=True)
        if not (is_local or (uses_network and size_in_bytes(inputs) >= LEAST_BYTES)):
            reason = SMALL if uses_network else MOVES
            return self._over_host(name, reason, inputs, name, arguments, claim, beside=beside())
        starts: list[Start] = []
        finishes: list[Finish | None] = []
        for output, source in zip(outputs, inputs, strict=True):
            travelling, finish = landing(output)
            shards = travelling.view(-1).tensor_split(self.size())
            shards[self.rank()].copy_(source.detach().reshape(-1))
            starts.append(partial(Network.all_gather, output=travelling))
            finishes.append(finish)
        network = self._moving(name)
        return self._through_network(name, inputs, starts, in_order(finishes), opts, network)
