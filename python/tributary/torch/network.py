"""The network of a group: its workers at the switches, to which tensors are submitted by their memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch

import tributary
from tributary import Operator
from tributary.torch.rendezvous import Meeting
from tributary.torch.sparse import SparseTensor
from tributary.torch.spread import measure, plan
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
        #: The workers at the switches, which take small tensors and data that is only moved.
        self._at_switches = list(self.groups)
        #: Whether the switches' shares of large sums are made in jobs that share the hosts' links with others.
        self.has_wide_switches = False
        #: The workers that make large sums, and which share each makes.
        self._summing, self._shares = list(self.groups), [1.0] * len(self.groups)
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
        for core, start, end in self._sums(elements):
            first, last = (min(max(at, start), end) for at in (begin, finish))
            skipped = max(0, first - begin)
            output = memory(target, skipped, skipped + last - first)
            here = (first - start, last - start)
            pending.append(core.all_reduce(memory(source, start, end), output, dtype, op, timeout, here, root))
        return pending

    def reduce_scatter(self, source: torch.Tensor, target: torch.Tensor, op: str, timeout: float) -> list[Handle]:
        """Start a reduce-scatter of a flat tensor; the target is this rank's shard of it, or does not overlap it."""
        input, output, dtype = memory(source), memory(target), NETWORK_DTYPES[source.dtype]
        return [
            core.reduce_scatter(input, output, dtype, op, timeout, (start, end))
            for core, start, end in self._sums(source.numel())
        ]

    def all_gather(self, output: torch.Tensor, timeout: float) -> list[Handle]:
        """Start an all-gather in place of a flat tensor that has this rank's shard already."""
        data, size = memory(output), output.element_size()
        shard = output.numel() // self.size * size
        return [
            self._next().all_gather(data, shard, timeout, (start * size, end * size))
            for start, end in cuts(output.numel(), [1.0] * self._count())
        ]

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

    def go_on(self) -> None:
        """Do nothing: workers have threads of their own, whether anybody waits or not."""

    def _count(self) -> int:
        """How many switches share a tensor."""
        return len(self._at_switches)

    def _next(self) -> Any:
        group = self._at_switches[self._turn % len(self._at_switches)]
        self._turn += 1
        return group._core

    def _sums(self, elements: int) -> list[tuple[Any, int, int]]:
        """Who sums which of this many elements."""
        ranges = cuts(elements, self._shares, self.groups[0].info.elements_per_packet)
        if len(ranges) == 1 and elements < CUT_ELEMENTS * len(self._shares):
            return [(self._next(), *ranges[0])]
        groups = zip(self._summing, ranges, strict=True)
        return [(group._core, *range_) for group, range_ in groups if range_[0] < range_[1]]

    def take_in(self, at_hosts: Network) -> None:
        """Take in the worker of a job in which the ranks' own hosts sum."""
        self.groups += at_hosts.groups
        self._summing, self._shares = [*self._at_switches, *at_hosts.groups], [*self._shares, 0.0]

    def spread(self, hosts: Sequence[int], timeout: float) -> str:
        """Measure how fast switches and ranks' hosts sum, and share large sums out; the shares as a sentence."""
        *at_switches, own = measure(self._summing, timeout)
        spread = plan(hosts, at_switches, own)
        self._shares = spread.shares
        return spread.sentence([group.info.switch for group in self._at_switches])

    def replace_switches(self, at_switches: Network) -> None:
        """Make the switches' shares of large sums in other jobs there."""
        self.groups += at_switches.groups
        self.has_wide_switches = True
        self._summing = [*at_switches.groups, *self._summing[len(self._at_switches) :]]

    @property
    def has_hosts(self) -> bool:
        """Whether the worker of a job in which the ranks' own hosts sum was taken in."""
        return len(self._summing) > len(self._at_switches)

    @property
    def is_spread(self) -> bool:
        """Whether the ranks' own hosts make a share of large sums: the switches' links are too narrow for all."""
        return self.has_hosts and self._shares[-1] > 0

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


def cuts(elements: int, shares: Sequence[float], block: int = 1) -> list[tuple[int, int]]:
    """Where a tensor is cut, between whole blocks, if it is large enough: a range of each share."""
    count = len(shares)
    if elements < count * CUT_ELEMENTS:
        return [(0, elements)]
    ends = [round(elements * end / sum(shares) / block) * block for end in accumulate(shares)]
    ends[-1] = elements
    return list(pairwise([0, *(min(end, elements) for end in ends)]))


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
