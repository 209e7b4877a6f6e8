"""Operations that go through the network if it can make them: reductions, and others that are made of reductions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch._C._distributed_c10d import AllreduceOptions

from tributary import Operator
from tributary.errors import UnsupportedError
from tributary.torch import sparse
from tributary.torch.network import Broadcast, Transfer
from tributary.torch.operators import op_name, premultiplied, scaled_copy
from tributary.torch.own import OwnTransfer
from tributary.torch.paths import ALONE, Paths
from tributary.torch.sparse import SparseTransfer
from tributary.torch.tensors import Tensors, flat, in_order, part_of, refuse_unfit, words
from tributary.torch.transit import Finish
from tributary.torch.untraced import untraced
from tributary.torch.work import DoneWork


@untraced
class Reductions(Paths):
    """The reductions of c10d, broadcast and barrier."""

    def allreduce(self, tensors: Tensors, opts: Any) -> Any:
        """Reduce over all ranks, in place."""
        return self._reduce_everywhere("all_reduce", "allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Any:
        """Like :meth:`allreduce`, for several tensors."""
        return self._reduce_everywhere("all_reduce_coalesced", "allreduce_coalesced", tensors, opts)

    def _reduce_everywhere(self, name: str, method: str, tensors: Tensors, opts: Any) -> Any:
        if sparse.are_sparse(tensors) and sparse.options_of(self._present(name).chosen) is not None:
            return self._reduce_sparse(name, method, tensors, opts)
        refuse_unfit(name, tensors)
        reason = self._why_not(name, tensors, opts.reduceOp)
        if reason:
            return self._over_host(name, reason, tensors, method, [tensors, opts], averaged=tensors)
        transfers: list[Transfer] = []
        finishes: list[Finish | None] = []
        for tensor in tensors:
            travelling, finish = premultiplied(tensor, opts.reduceOp) or flat(tensor)
            transfers.append(Transfer.of_all(travelling))
            finishes.append(finish)
        return self._through_network(name, tensors, transfers, op_name(opts.reduceOp), in_order(finishes), opts)

    def _reduce_sparse(self, name: str, method: str, tensors: Tensors, opts: Any) -> Any:
        op = sparse.op_name(name, tensors, opts.reduceOp)
        if self._is_alone(name):
            return self._over_host(name, ALONE, tensors, method, [tensors, opts], averaged=tensors, is_fit=True)
        lane = self._lane(name)
        self._refuse_closed(name)
        members = self._present(name)
        members.join_sparse(lane)
        if self._closed or self._members is not members:  # Meanwhile, by another thread, which has not seen this job.
            lane.leave()
        transfers = [SparseTransfer(tensor) for tensor in tensors]
        finish = in_order([transfer.finish for transfer in transfers])
        return self._through_network(name, tensors, transfers, op, finish, opts)

    def all_reduce_custom(self, tensors: Tensors, op: Operator, async_op: bool) -> Any:
        """Combine tensors of all ranks, in place, with a person's own operator. Not one of c10d's operations."""
        name = "all_reduce"
        lane = self._lane(name)
        self._refuse_closed(name)
        own = [OwnTransfer.of(op, tensor) for tensor in tensors]
        members = self._present(name)
        if self._is_alone(name):
            return DoneWork(f"{name} of group {self._name}", self._callbacks, self._health, tensors)
        members.join_own(lane, op)
        if self._closed or self._members is not members:  # Meanwhile, by another thread, which has not seen this job.
            lane.leave()
        opts = AllreduceOptions()
        opts.asyncOp = async_op
        finish = in_order([finish for _, finish in own])
        return self._through_network(name, tensors, [transfer for transfer, _ in own], "", finish, opts)

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Any:
        """Refuse the operation."""
        refuse_unfit("all_reduce", tensors)
        raise UnsupportedError("all_reduce of a sparse tensor is not supported; use tensor.to_dense()")

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        """Reduce over all ranks, into the root's tensor; the other ranks' tensors stay unchanged."""
        refuse_unfit("reduce", tensors)
        reason = self._why_not("reduce", tensors, opts.reduceOp) or self._why_not_words("reduce")
        is_root = self.rank() == opts.rootRank
        if reason:
            averaged = tensors if is_root else []
            return self._over_host("reduce", reason, tensors, "reduce", [tensors, opts], averaged=averaged)
        transfers: list[Transfer] = []
        finishes: list[Finish | None] = []
        for tensor in tensors:
            travelling, finish = premultiplied(tensor, opts.reduceOp) or flat(tensor)
            kept = (0, travelling.numel() if is_root else 0)
            transfers.append(Transfer(travelling, travelling, kept, opts.rootRank))
            finishes.append(finish if is_root else None)
        return self._through_network("reduce", tensors, transfers, op_name(opts.reduceOp), in_order(finishes), opts)

    def _keep_nothing(self, source: torch.Tensor, root: int | None) -> Transfer:
        """Results still arrive, since each frees a slot of the switch, but this rank does not use them."""
        return Transfer(source, source, (0, 0), root)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        """Reduce over all ranks; each keeps the part whose place in the list is its rank."""
        name, everything = "reduce_scatter", [*outputs, *(tensor for parts in inputs for tensor in parts)]
        refuse_unfit(name, everything)
        reason = self._why_not(name, everything, opts.reduceOp)
        if reason:
            arguments = [outputs, inputs, opts]
            return self._over_host(name, reason, everything, "reduce_scatter", arguments, averaged=outputs)
        transfers: list[Transfer] = []
        finishes: list[Finish | None] = []
        for output, parts in zip(outputs, inputs, strict=True):
            for rank, part in enumerate(parts):
                root = rank if self._rooted_is_unicast(name) else None
                if rank != self.rank():
                    scaled = scaled_copy(part, opts.reduceOp)
                    transfers.append(self._keep_nothing(flat(part)[0] if scaled is None else scaled, root))
                    continue
                transfer, finish = self._keep(part, 0, output, opts.reduceOp)
                transfers.append(replace(transfer, root=root))
                finishes.append(finish)
        return self._through_network(name, outputs, transfers, op_name(opts.reduceOp), in_order(finishes), opts)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Any:
        """Like :meth:`reduce_scatter`, for parts of one tensor."""
        return self._scatter_sums("reduce_scatter_single", [output], [source], opts, [output, source, opts])

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """Like :meth:`reduce_scatter_single`, for several tensors."""
        return self._scatter_sums("reduce_scatter_single_coalesced", outputs, inputs, opts, [outputs, inputs, opts])

    def _scatter_sums(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any, arguments: list[Any]) -> Any:
        refuse_unfit(name, [*outputs, *inputs])
        reason = self._why_not(name, [*outputs, *inputs], opts.reduceOp)
        if reason:
            return self._over_host(name, reason, inputs, name, arguments, averaged=outputs)
        transfers: list[Transfer] = []
        finishes: list[Finish | None] = []
        for output, source in zip(outputs, inputs, strict=True):
            if source.numel() != output.numel() * self.size():
                raise ValueError(
                    f"{name}: the input has {source.numel()} elements, which is not {self.size()} times the "
                    f"output's {output.numel()}"
                )
            transfer, finish = self._keep(source, self.rank() * output.numel(), output, opts.reduceOp)
            transfers += self._for_each(transfer) if self._rooted_is_unicast(name) else [transfer]
            finishes.append(finish)
        return self._through_network(name, inputs, transfers, op_name(opts.reduceOp), in_order(finishes), opts)

    def _for_each(self, transfer: Transfer) -> list[Transfer]:
        """Make a reduce-scatter of one reduce for each rank, which brings the rank its part and nothing else."""
        parts = transfer.source.tensor_split(self.size())
        return [
            Transfer(part, transfer.target, (0, part.numel()), rank)
            if rank == self.rank()
            else self._keep_nothing(part, rank)
            for rank, part in enumerate(parts)
        ]

    def _keep(
        self, source: torch.Tensor, start: int, output: torch.Tensor, reduce_op: Any
    ) -> tuple[Transfer, Finish | None]:
        """Bring the output's elements of the sum, which begin at `start`, to the output."""
        scaled = scaled_copy(source, reduce_op)
        travelling = flat(source)[0] if scaled is None else scaled
        target, finish = part_of(travelling, start, output)
        return Transfer(travelling, target, (start, start + output.numel())), finish

    # A sum of no elements is a barrier.

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        """Bring the root's tensor to every rank, whatever its type."""
        refuse_unfit("broadcast", tensors)
        reason = self._why_not_words("broadcast")
        if reason:
            return self._over_host("broadcast", reason, tensors, "broadcast", [tensors, opts])
        is_root = self.rank() == opts.rootRank
        transfers: list[Broadcast] = []
        finishes: list[Finish | None] = []
        for tensor in tensors:
            travelling, finish = words(tensor, keep=is_root)
            transfers.append(Broadcast(travelling, opts.rootRank))
            finishes.append(finish)
        return self._through_network("broadcast", tensors, transfers, "", in_order(finishes), opts)

    def barrier(self, opts: Any) -> Any:
        """Wait until every rank is here."""
        if self._is_alone("barrier"):
            return self._over_host("barrier", ALONE, [], "barrier", [opts])
        return self._through_network("barrier", [], [], "sum", None, opts)
