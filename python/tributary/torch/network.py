"""One rank's way to the others of its group: what all ways start, in the network or in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

import tributary
from tributary import Operator
from tributary._core import cuts
from tributary.torch.ledger import Share
from tributary.torch.sparse import SparseTensor
from tributary.torch.tensors import NETWORK_DTYPES, memory
from tributary.torch.transit import Handle


class Network(ABC):
    """One rank's way, by which tensors are submitted by their memory; all ranks have one of the same kind."""

    #: Whether it is this host's memory, which all ranks share, in place of a network.
    is_local = False
    #: Whether hosts are its members, whose ranks sum in memory first.
    is_of_hosts = False
    #: Whether the worker of a job in which the ranks' own hosts sum was taken in.
    has_hosts = False
    #: Whether the ranks' own hosts make a share of large sums: the switches' links are too narrow for all.
    is_spread = False
    #: Whether the switches' shares of large sums are made in jobs that share the hosts' links with others.
    has_wide_switches = False
    #: Whether shards go from host to host: through the switches they would take longer.
    has_shards_at_hosts = False
    #: Bytes of large operations until switches and hosts are measured again.
    again_bytes = 0

    def __init__(self, size: int) -> None:
        self.size = size
        #: Where large sums are made, if they are shared out.
        self.shares: list[Share] = []

    def all_reduce(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        op: str,
        timeout: float,
        kept: tuple[int, int] | None = None,
        root: int | None = None,
        loss: torch.Tensor | None = None,
    ) -> list[Handle]:
        """Start an all-reduce of flat tensors of one type, or with a root a reduce.

        The target gets the elements `kept` of the result, from the first to before the second, or all of them; it is
        the same memory of the source, or does not overlap it. Both are kept alive until the collective has ended. What
        codes lose of the source is written to `loss`, which is as long; nothing is where none travel.
        """
        elements, dtype = source.numel(), NETWORK_DTYPES[source.dtype]
        begin, finish = kept or (0, elements)
        pending: list[Handle] = []
        for core, start, end in self._sums(elements):
            input = memory(source, start, end)
            if kept is None:
                output, here = input if target is source else memory(target, start, end), (0, end - start)
            else:
                first, last = min(max(begin, start), end), min(max(finish, start), end)
                skipped = max(0, first - begin)
                output, here = memory(target, skipped, skipped + last - first), (first - start, last - start)
            arguments = [input, output, dtype, op, timeout, here, root]
            if loss is not None and not self.is_local:
                arguments.append(memory(loss, start, end))
            pending.append(core.all_reduce(*arguments))
        return [*self._meet_others(elements, timeout), *pending]

    def reduce_scatter(self, source: torch.Tensor, target: torch.Tensor, op: str, timeout: float) -> list[Handle]:
        """Start a reduce-scatter of a flat tensor; the target is this rank's shard of it, or does not overlap it."""
        input, output, dtype = memory(source), memory(target), NETWORK_DTYPES[source.dtype]
        pending = [
            core.reduce_scatter(input, output, dtype, op, timeout, (start, end))
            for core, start, end in self._scatters(source.numel())
        ]
        return [*self._meet_others(source.numel(), timeout), *pending]

    def all_gather(self, output: torch.Tensor, timeout: float) -> list[Handle]:
        """Start an all-gather in place of a flat tensor that has this rank's shard already."""
        data, size = memory(output), output.element_size()
        shard = output.numel() // self.size * size
        pending = [
            core.all_gather(data, shard, timeout, (start * size, end * size))
            for core, start, end in self._gathers(output.numel())
        ]
        return [*self._meet_others(output.numel(), timeout), *pending]

    def broadcast(self, tensor: torch.Tensor, root: int, timeout: float) -> list[Handle]:
        """Start a broadcast of a flat tensor, in place."""
        return [
            self._next().broadcast(memory(tensor, start, end), root, timeout)
            for start, end in cuts(tensor.numel(), [1.0] * self._count())
        ]

    def all_reduce_custom(self, elements: torch.Tensor, op: Operator, timeout: float) -> list[Handle]:
        """Start an all-reduce in place with a custom operator, in its job: of bytes, a row for each element."""
        pending: list[Handle] = []
        for start, end in cuts(elements.shape[0], [1.0] * self._count()):
            here = memory(elements, start * elements.shape[1], end * elements.shape[1])
            pending.append(self._next().all_reduce(here, here, "u8", op._core, timeout))
        return pending

    def all_reduce_sparse(self, tensor: SparseTensor, op: str, timeout: float) -> list[Handle]:
        """Start the sum of a sparse tensor, in a job for sparse tensors: whole, through the switches in turn."""
        brought = tensor.brought()
        pending, total = self._next().all_reduce_sparse(
            brought.indices, brought.values, brought.size, brought.dtype, op, timeout
        )
        tensor.expects(total)
        return [pending]

    def barrier(self, timeout: float) -> list[Handle]:
        """Start a sum of no elements, which ends when every rank has started it (Canary, section 6)."""
        nothing = (0, 0, None)
        return [self._next().all_reduce(nothing, nothing, "i32", "sum", timeout)]

    @abstractmethod
    def go_on(self) -> None:
        """Let collectives come to their end for which nobody waits."""

    @abstractmethod
    def stats(self) -> tributary.GroupStats | None:
        """The workers' counts, if there are workers; after they are closed, their last counts."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until the operations under way have ended, successfully or not."""

    @abstractmethod
    def close(self, orderly: bool = True) -> None:
        """Leave; operations under way fail. If orderly, wait for peers that still need something."""

    @abstractmethod
    def _count(self) -> int:
        """How many workers share a tensor."""

    @abstractmethod
    def _next(self) -> Any:
        """Who makes the next collective that is not cut."""

    @abstractmethod
    def _sums(self, elements: int) -> list[tuple[Any, int, int]]:
        """Who sums which of this many elements."""

    def _scatters(self, elements: int) -> list[tuple[Any, int, int]]:
        """Who brings which of this many summed elements to the ranks that want them."""
        return self._sums(elements)

    def _gathers(self, elements: int) -> list[tuple[Any, int, int]]:
        """Who brings which of this many elements from the ranks that have them to all."""
        return [(self._next(), *range_) for range_ in cuts(elements, [1.0] * self._count())]

    def _meet_others(self, elements: int, timeout: float) -> list[Handle]:
        """Start what ranks meet that bring another operation than one over this many elements, if that is needed."""
        return []
