"""The network of a group: its workers at the switches, to which tensors are submitted by their memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

import tributary
from tributary import Memory, Operator, Pending
from tributary.torch.own import OwnTransfer
from tributary.torch.rendezvous import Meeting
from tributary.torch.sparse import SparseTransfer
from tributary.torch.tensors import DTYPES

#: Tensors of at least this many elements for each switch are cut into pieces; smaller ones go whole through one switch.
CUT_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class Transfer:
    """The memory that goes into the network, and the memory that the sum comes to. Both are flat and of one type."""

    source: torch.Tensor
    #: Gets the elements `kept` of the sum; it is that part of the source, or does not overlap it.
    target: torch.Tensor
    #: From the first element to before the second.
    kept: tuple[int, int]
    #: The rank that the sum is for, if it is for one rank alone.
    root: int | None = None

    @staticmethod
    def of_all(tensor: torch.Tensor) -> Transfer:
        """A transfer of the whole sum, in place."""
        return Transfer(tensor, tensor, (0, tensor.numel()))


@dataclass(frozen=True)
class Broadcast:
    """The root's words, and their place on the other ranks: flat, in place."""

    words: torch.Tensor
    root: int


class Network:
    """One rank's workers: one at each switch, each in a job of the group's own."""

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        size: int,
        timeout: float,
        protocol: str,
        options: Mapping[str, str],
        operators: Sequence[Operator] = (),
    ) -> None:
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
                    )
                )
        except BaseException:
            self.close()
            raise
        #: The switch of the next transfer. All ranks submit the same transfers in the same order, so they choose alike.
        self._turn = 0
        self._last: tributary.GroupStats | None = None

    def submit(self, transfer: Transfer, op: str, timeout: float) -> list[Pending]:
        """Start a transfer, in one piece or one for each switch; the tensors are kept until it has ended."""
        source, target = transfer.source, transfer.target
        size = source.element_size()
        pending = []
        for start, end in cuts(source.numel(), len(self.groups)):
            first, last = (min(max(at, start), end) for at in transfer.kept)
            dtype, skipped = DTYPES[source.dtype], max(0, first - transfer.kept[0])
            brought = Memory(source.data_ptr() + start * size, end - start, dtype, source)
            wanted = Memory(target.data_ptr() + skipped * size, last - first, dtype, target)
            kept = (first - start, last - start)
            pending.append(self._next().reduce_memory(brought, wanted, op, kept, transfer.root, timeout))
        return pending

    def submit_broadcast(self, broadcast: Broadcast, timeout: float) -> list[Pending]:
        """Start a broadcast, in one piece or one for each switch; the tensor is kept until it has ended."""
        words = broadcast.words
        address, size = words.data_ptr(), words.element_size()
        return [
            self._next().broadcast_memory(
                Memory(address + start * size, (end - start) * size, "u8", words), broadcast.root, timeout
            )
            for start, end in cuts(words.numel(), len(self.groups))
        ]

    def submit_own(self, transfer: OwnTransfer, timeout: float) -> list[Pending]:
        """Start a collective of an own operator, in a job for it, cut at whole elements."""
        words, size = transfer.words, transfer.element_size
        pending = []
        for start, end in cuts(words.numel() // size, len(self.groups)):
            part = Memory(words.data_ptr() + start * size, (end - start) * size, "u8", words)
            pending.append(self._next().reduce_memory(part, part, transfer.op, timeout=timeout))
        return pending

    def submit_sparse(self, transfer: SparseTransfer, op: str, timeout: float) -> list[Pending]:
        """Start a sum of a sparse tensor, in a job for sparse tensors: in one piece, through the switches in turn."""
        pending, total = self._next().reduce_sparse_bytes(transfer.brought(), op, timeout)
        transfer.expects(total)
        return [pending]

    def submit_nothing(self, timeout: float) -> list[Pending]:
        """Start a sum of no elements, which ends when every rank has started it: a barrier (Canary, section 6)."""
        nothing = Memory(0, 0, "i32", None)
        return [self._next().reduce_memory(nothing, nothing, timeout=timeout)]

    def _next(self) -> tributary.Group:
        group = self.groups[self._turn % len(self.groups)]
        self._turn += 1
        return group

    def stats(self) -> tributary.GroupStats | None:
        """The workers' counts; after they are closed, their last counts."""
        with contextlib.suppress(tributary.TributaryError):  # Once they are closed the last numbers stand.
            self._last = together([group.stats() for group in self.groups])
        return self._last

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
    """The pieces of a tensor: about equal ones, one for each switch, if it is large enough."""
    pieces = switches if elements >= switches * CUT_ELEMENTS else 1
    return [(elements * i // pieces, elements * (i + 1) // pieces) for i in range(pieces)]


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
