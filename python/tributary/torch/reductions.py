"""Operations that go through the network if it can make them: reductions, and others that are made of reductions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch._C._distributed_c10d import AllreduceOptions, ReduceOp

from tributary import Operator
from tributary.errors import MismatchError, UnsupportedError
from tributary.torch import claims, sparse
from tributary.torch.at_once import AtOnce
from tributary.torch.custom import elements_of
from tributary.torch.network import Network
from tributary.torch.operators import on_elements, op_name, premultiplied, scaled_copy
from tributary.torch.paths import ALONE, Start
from tributary.torch.sparse import SparseTensor
from tributary.torch.tensors import (
    Tensors,
    flat,
    flat_copy,
    in_order,
    landing,
    refuse_shared,
    refuse_unfit,
    slice_for,
    source_of,
)
from tributary.torch.transit import Finish
from tributary.torch.untraced import untraced
from tributary.torch.work import DoneWork

#: The elements of a result that a rank keeps, if it keeps none.
NOTHING = (0, 0)


def _travelling(tensor: torch.Tensor, reduce_op: Any) -> torch.Tensor:
    """The tensor's elements in flat memory, which the network reads."""
    scaled = scaled_copy(tensor, reduce_op)
    return source_of(tensor) if scaled is None else scaled


def _reduce(
    source: torch.Tensor, target: torch.Tensor, op: Any, kept: tuple[int, int] | None, root: int | None
) -> Start:
    """A reduce to a root, or an all-reduce of which this rank keeps a part."""
    return partial(Network.all_reduce, source=source, target=target, op=op_name(op), kept=kept, root=root)


@untraced
class Reductions(AtOnce):
    """The reductions of c10d, broadcast and barrier."""

    def allreduce(self, tensors: Tensors, opts: Any) -> Any:
        """Reduce over all ranks, in place."""
        work = self._sum_at_once("all_reduce", tensors, opts)
        return work or self._reduce_everywhere("all_reduce", "allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Any:
        """Like :meth:`allreduce`, for several tensors."""
        return self._reduce_everywhere("all_reduce_coalesced", "allreduce_coalesced", tensors, opts)

    def _operator(self, name: str, written: Tensors, tensors: Tensors, opts: Any) -> tuple[Any, str | None]:
        """The operator on the elements as they travel, and why the network cannot make the reduction, if it cannot.

        Refuses tensors and operators that neither path takes.
        """
        refuse_unfit(name, tensors)
        refuse_shared(name, written)
        op = on_elements(name, tensors, opts.reduceOp)
        return op, self._why_not(name, tensors, op)

    def all_reduce_with_loss(self, tensor: torch.Tensor, loss: torch.Tensor | None) -> Any:
        """Average over all ranks, in place, and write to `loss` what codes lose of this rank's elements.

        Not one of c10d's operations. The loss is flat, of the tensor's type, as long, in the host's memory, and all
        zero before: it stays so where no codes travel.
        """
        opts = AllreduceOptions()
        opts.reduceOp = ReduceOp.AVG
        return self._reduce_everywhere("all_reduce", "allreduce", [tensor], opts, loss)

    def _reduce_everywhere(
        self, name: str, method: str, tensors: Tensors, opts: Any, loss: torch.Tensor | None = None
    ) -> Any:
        if sparse.are_sparse(tensors) and sparse.options_of(self._present(name).chosen) is not None:
            return self._reduce_sparse(name, method, tensors, opts)
        try:
            op, reason = self._operator(name, tensors, tensors, opts)
        except (MismatchError, UnsupportedError) as error:
            # As `_announced`, whose generator would cost each small sum a few calls.
            self._announce(error, name, opts)
            raise
        if reason:
            claim = claims.reduction(name, op_name(op), tensors)
            return self._over_host(name, reason, tensors, method, [tensors, opts], claim, op=op, scaled=tensors)
        starts: list[Start] = []
        finishes: list[Finish | None] = []
        for tensor in tensors:
            travelling, finish = premultiplied(tensor, op) or flat(tensor)
            starts.append(partial(Network.all_reduce, source=travelling, target=travelling, op=op_name(op), loss=loss))
            finishes.append(finish)
        return self._through_network(name, tensors, starts, in_order(finishes), opts, codes=self._codes(tensors))

    def _reduce_sparse(self, name: str, method: str, tensors: Tensors, opts: Any) -> Any:
        op = sparse.op_name(name, tensors, opts.reduceOp)
        if self._is_alone(name):
            return self._over_host(name, ALONE, tensors, method, [tensors, opts], None, op=opts.reduceOp)
        lane = self._lane(name)
        self._refuse_closed(name)
        members = self._present(name)
        members.join_sparse(lane)
        if self._closed or self._members is not members:  # Meanwhile, by another thread, which has not seen this job.
            lane.leave()
        sums = [SparseTensor(tensor) for tensor in tensors]
        starts = [partial(Network.all_reduce_sparse, tensor=tensor, op=op) for tensor in sums]
        finish = in_order([tensor.finish for tensor in sums])
        return self._through_network(name, tensors, starts, finish, opts, lane.sparse)

    def all_reduce_custom(self, tensors: Tensors, op: Operator, async_op: bool) -> Any:
        """Combine tensors of all ranks, in place, with a custom operator. Not one of c10d's operations."""
        name = "all_reduce"
        lane = self._lane(name)
        self._refuse_closed(name)
        flats = [elements_of(op, tensor) for tensor in tensors]
        members = self._present(name)
        if self._is_alone(name):
            return DoneWork(f"{name} of group {self._name}", self._callbacks, self._health, tensors)
        members.join_custom(lane, op)
        if self._closed or self._members is not members:  # Meanwhile, by another thread, which has not seen this job.
            lane.leave()
        opts = AllreduceOptions()
        opts.asyncOp = async_op
        starts = [partial(Network.all_reduce_custom, elements=elements, op=op) for elements, _ in flats]
        finish = in_order([finish for _, finish in flats])
        return self._through_network(name, tensors, starts, finish, opts, lane.custom[op.sha256])

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Any:
        """Refuse the operation."""
        refuse_unfit("all_reduce", tensors)
        raise UnsupportedError("all_reduce of a sparse tensor is not supported; use tensor.to_dense()")

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        """Reduce over all ranks, into the root's tensor; the other ranks' tensors stay unchanged."""
        is_root = self.rank() == opts.rootRank
        with self._announced("reduce", opts):
            op, reason = self._operator("reduce", tensors if is_root else [], tensors, opts)
        reason = reason or self._why_not_words("reduce")
        if reason:
            claim = claims.reduction(f"reduce to rank {opts.rootRank}", op_name(op), tensors)
            # Gloo leaves partial sums in the tensors of other ranks.
            brought = tensors if is_root else [flat_copy(tensor) for tensor in tensors]
            return self._over_host("reduce", reason, tensors, "reduce", [brought, opts], claim, op=op, scaled=brought)
        starts: list[Start] = []
        finishes: list[Finish | None] = []
        for tensor in tensors:
            travelling, finish = premultiplied(tensor, op) or flat(tensor)
            kept = None if is_root else NOTHING
            starts.append(_reduce(travelling, travelling, op, kept, opts.rootRank))
            finishes.append(finish if is_root else None)
        return self._through_network("reduce", tensors, starts, in_order(finishes), opts, codes=self._codes(tensors))

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        """Reduce over all ranks; each keeps the tensor whose index in the list is its rank: a reduce for each."""
        name, everything = "reduce_scatter", [*outputs, *(tensor for shards in inputs for tensor in shards)]
        with self._announced(name, opts):
            op, reason = self._operator(name, outputs, everything, opts)
            claim = claims.reductions_of_lists(op_name(op), outputs, inputs, self.rank(), self.size())
        if reason:
            arguments = [outputs, inputs, opts]
            return self._over_host(name, reason, everything, name, arguments, claim, op=op, scaled=outputs)
        starts: list[Start] = []
        finishes: list[Finish | None] = []
        for output, shards in zip(outputs, inputs, strict=True):
            for rank, shard in enumerate(shards):
                root = rank if self._rooted_is_unicast(name) else None
                source = _travelling(shard, op)
                if rank != self.rank():
                    # Results still arrive, since each frees a slot of the switch, but this rank does not use them.
                    starts.append(_reduce(source, source, op, NOTHING, root))
                    continue
                target, finish = slice_for(source, 0, output)
                starts.append(_reduce(source, target, op, None, root))
                finishes.append(finish)
        return self._through_network(name, outputs, starts, in_order(finishes), opts, codes=self._codes(outputs))

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Any:
        """Like :meth:`reduce_scatter`, for shards of one tensor."""
        return self._scatter_sums("reduce_scatter_single", [output], [source], opts, [output, source, opts])

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """Like :meth:`reduce_scatter_single`, for several tensors."""
        return self._scatter_sums("reduce_scatter_single_coalesced", outputs, inputs, opts, [outputs, inputs, opts])

    def _scatter_sums(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any, arguments: list[Any]) -> Any:
        with self._announced(name, opts):
            op, reason = self._operator(name, outputs, [*outputs, *inputs], opts)
            claim = claims.shards(f"{name}: {op_name(op)}", outputs, inputs, self.size(), of_outputs=False)
        if reason:
            return self._over_host(name, reason, inputs, name, arguments, claim, op=op, scaled=outputs)
        starts: list[Start] = []
        finishes: list[Finish | None] = []
        for output, source in zip(outputs, inputs, strict=True):
            travelling = _travelling(source, op)
            target, finish = slice_for(travelling, self.rank() * output.numel(), output)
            starts.append(partial(Network.reduce_scatter, source=travelling, target=target, op=op_name(op)))
            finishes.append(finish)
        return self._through_network(name, inputs, starts, in_order(finishes), opts, codes=self._codes(inputs))

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        """Bring the root's tensor to every rank, whatever its type."""
        is_root = self.rank() == opts.rootRank
        with self._announced("broadcast", opts):
            refuse_unfit("broadcast", tensors)
            refuse_shared("broadcast", [] if is_root else tensors)
        reason = self._why_not_words("broadcast")
        if reason:
            return self._over_host("broadcast", reason, tensors, "broadcast", [tensors, opts], None)
        starts: list[Start] = []
        finishes: list[Finish | None] = []
        for tensor in tensors:
            travelling, finish = (source_of(tensor), None) if is_root else landing(tensor)
            starts.append(partial(Network.broadcast, tensor=travelling, root=opts.rootRank))
            finishes.append(finish)
        return self._through_network("broadcast", tensors, starts, in_order(finishes), opts)

    def barrier(self, opts: Any) -> Any:
        """Wait until every rank is here."""
        if self._is_alone("barrier"):
            return self._over_host("barrier", ALONE, [], "barrier", [opts], None)
        return self._through_network("barrier", [], [Network.barrier], None, opts)
