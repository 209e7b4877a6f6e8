"""The network of a group: its workers at the switches, to which tensors are submitted by their memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import tributary
from tributary import Operator
from tributary.torch.rendezvous import Meeting
from tributary.torch.sparse import SparseTensor
from tributary.torch.tensors import NETWORK_DTYPES, memory
from tributary.torch.transit import Handle

#: Tensors of at least this many elements for each switch are cut; smaller ones go whole through one switch.
CUT_ELEMENTS = 1 << 16


class Network:
    """One rank's workers: one at each switch, each in a job of the group's own."""

    #: Whether it is this host's memory, which all ranks share, in place of a network.
    is_local = False

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        size: int,
        timeout: float,
        protocol: str,
        options: Mapping[str, str],
        operators: Sequence[Operator] = (),
        poll: Callable[[], None] | None = None,
    ) -> None:
        """Join; `poll` is called while it waits for the other ranks."""
        self.size = size
        self.groups: list[tributary.Group] = []
        try:
            for switch in meeting.switches:
                self.groups.append(
                    tributary.connect(
                        switch,
                        job=meeting.job,
                        rank=rank,
                        world_size=size,
                        timeout=timeout,
                        protocol=protocol,
                        options=options,
                        operators=operators,
                        check=poll,
                    )
                )
        except BaseException:
            self.close()
            raise
        #: The switch of the next collective. All ranks start the same ones in the same order, so they choose alike.
        self._turn = 0
        self._last: tributary.GroupStats | None = None

    def all_reduce(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        op: str,
        timeout: float,
        kept: tuple[int, int] | None = None,
        root: int | None = None,
    ) -> list[Handle]:
        """Start an all-reduce of flat tensors of one type, or with a root a reduce.

        The target gets the elements `kept` of the result, from the first to before the second, or all of them; it is
        the same memory of the source, or does not overlap it. Both are kept alive until the collective has ended.
        """
        elements, dtype = source.numel(), NETWORK_DTYPES[source.dtype]
        begin, finish = kept or (0, elements)
        pending: list[Handle] = []
        for start, end in cuts(elements, self._count()):
            first, last = (min(max(at, start), end) for at in (begin, finish))
            skipped = max(0, first - begin)
            output = memory(target, skipped, skipped + last - first)
            here = (first - start, last - start)
            core = self._next()
            pending.append(core.all_reduce(memory(source, start, end), output, dtype, op, timeout, here, root))
        return pending

    def reduce_scatter(self, source: torch.Tensor, target: torch.Tensor, op: str, timeout: float) -> list[Handle]:
        """Start a reduce-scatter of a flat tensor; the target is this rank's shard of it, or does not overlap it."""
        input, output, dtype = memory(source), memory(target), NETWORK_DTYPES[source.dtype]
        return [
            self._next().reduce_scatter(input, output, dtype, op, timeout, range_)
            for range_ in cuts(source.numel(), self._count())
        ]

    def all_gather(self, output: torch.Tensor, timeout: float) -> list[Handle]:
        """Start an all-gather in place of a flat tensor that has this rank's shard already."""
        data, size = memory(output), output.element_size()
        shard = output.numel() // self.size * size
        return [
            self._next().all_gather(data, shard, timeout, (start * size, end * size))
            for start, end in cuts(output.numel(), self._count())
        ]

    def broadcast(self, tensor: torch.Tensor, root: int, timeout: float) -> list[Handle]:
        """Start a broadcast of a flat tensor, in place."""
        return [
            self._next().broadcast(memory(tensor, start, end), root, timeout)
            for start, end in cuts(tensor.numel(), self._count())
        ]

    def all_reduce_custom(self, elements: torch.Tensor, op: Operator, timeout: float) -> list[Handle]:
        """Start an all-reduce in place with a custom operator, in its job: of bytes, a row for each element."""
        pending: list[Handle] = []
        for start, end in cuts(elements.shape[0], self._count()):
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

    def go_on(self) -> None:
        """Do nothing: workers have threads of their own, whether anybody waits or not."""

    def _count(self) -> int:
        """How many switches share a tensor."""
        return len(self.groups)

    def _next(self) -> Any:
        group = self.groups[self._turn % len(self.groups)]
        self._turn += 1
        return group._core

    def stats(self) -> tributary.GroupStats | None:
        """The workers' counts; after they are closed, their last counts."""
        with contextlib.suppress(tributary.TributaryError):  # After they are closed the last numbers stay.
            self._last = together([group.stats() for group in self.groups])
        return self._last

    def finish(self) -> None:
        """Wait until the operations under way have ended, successfully or not."""
        for group in self.groups:
            group.finish()

    def close(self, orderly: bool = True) -> None:
        """Leave the jobs; operations under way fail. If orderly, wait for peers that still need something."""
        if self.groups:
            self.stats()
        for group in self.groups:
            if orderly:
                group.close()
            else:
                group.abort()


def cuts(elements: int, switches: int) -> list[tuple[int, int]]:
    """Where a tensor is cut: into about equal parts, one for each switch, if it is large enough."""
    count = switches if elements >= switches * CUT_ELEMENTS else 1
    return [(elements * i // count, elements * (i + 1) // count) for i in range(count)]


def _mean(shares: Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def together(stats: Sequence[tributary.GroupStats]) -> tributary.GroupStats:
    """The joined counts of several workers."""
    drops: Counter[str] = Counter()
    for one in stats:
        drops.update(one.drops)
    received = sum(one.packets_received for one in stats)
    # Weighed by what each received: of blocks in the network only shares are known here.
    in_network = sum(one.in_network * one.packets_received for one in stats) / received if received else 0.0
    sentences = {one.where_summed for one in stats}
    orders = {one.order for one in stats}
    return tributary.GroupStats(
        packets_sent=sum(one.packets_sent for one in stats),
        retransmissions=sum(one.retransmissions for one in stats),
        packets_received=received,
        in_network=in_network,
        blocks_at_hosts=sum(one.blocks_at_hosts for one in stats),
        where_summed=sentences.pop() if len(sentences) == 1 else f"{in_network * 100:.1f} % of the blocks",
        contributed=_mean([one.contributed for one in stats if one.contributed is not None]),
        order=orders.pop() if len(orders) == 1 else None,
        drops=dict(drops),
    )
