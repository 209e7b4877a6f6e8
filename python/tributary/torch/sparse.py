"""Sparse tensors (COO), converted to the elements that a group sums as sparse arrays, and back."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import ReduceOp

from tributary import _core
from tributary.errors import UnsupportedError
from tributary.sparse import SparseBytes, big_endian
from tributary.torch.options import Options
from tributary.torch.tensors import DTYPES, Tensors, row_of

#: The operators for which zeros that no rank brings change nothing.
_OPS = {ReduceOp.SUM: "sum", ReduceOp.AVG: "avg"}


def are_sparse(tensors: Tensors) -> bool:
    """Whether all of these are COO tensors."""
    for tensor in tensors:
        if tensor.layout != torch.sparse_coo:
            return False
    return bool(tensors)


@cache
def options_of(options: Options) -> dict[str, str] | None:
    """The options of the job that sums a group's sparse tensors; None where its protocol has no such jobs.

    Raises `UnsupportedError` where the group's other options do not go with that.
    """
    sparse = _core.sparse_options(options.protocol, options.protocol_options)
    if sparse is None:
        return None
    try:
        _core.check_options(options.protocol, sparse)
    except ValueError as error:
        raise UnsupportedError(
            f"a sparse tensor has no sum with TRIBUTARY_OPTIONS={options.options}: {error}"
        ) from None
    return sparse


def op_name(name: str, tensors: Tensors, reduce_op: Any) -> str:
    """This package's name of the operator; refuses operators that cannot combine indices and values."""
    if reduce_op.op not in _OPS:
        op = reduce_op.op.name
        raise UnsupportedError(f"{name} of a sparse tensor is SUM or AVG; for {op} use tensor.to_dense()")
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise UnsupportedError(f"{name} of a sparse tensor on {tensor.device} is not supported; use tensor.cpu()")
        if tensor.sparse_dim() == 0:
            raise UnsupportedError(f"{name} of a sparse tensor without indices is not supported; use tensor.to_dense()")
        if tensor.dtype not in DTYPES:
            raise UnsupportedError(f"{name} of a sparse tensor of {tensor.dtype} is not supported; use tensor.float()")
    return _OPS[reduce_op.op]


class SparseTensor:
    """One tensor's elements in the network."""

    def __init__(self, tensor: torch.Tensor) -> None:
        #: Not detached: a detached tensor would be another one, and replacing its elements would not change this one.
        self._tensor = tensor
        self._whole = tensor.shape[: tensor.sparse_dim()]
        #: The shape of the elements that each index of the tensor stands for.
        self._dense = tensor.shape[tensor.sparse_dim() :]
        self._width = prod(self._dense)
        self._total: _core.SparseSum | None = None

    def brought(self) -> SparseBytes:
        """This rank's contribution: equal indices become one, as in every other sum of sparse tensors."""
        tensor = self._tensor.detach().coalesce()
        values = row_of(tensor.values().contiguous())
        indices = np.empty(0, dtype=np.int64)
        if values.numel():
            rows = np.ravel_multi_index(tuple(tensor.indices().numpy()), self._whole)
            indices = (rows[:, None] * self._width + np.arange(self._width)).reshape(-1)
        words = values.view(torch.uint8).numpy().view(f"u{values.element_size()}")
        return SparseBytes(indices, big_endian(words), DTYPES[tensor.dtype], tensor.numel())

    def expects(self, total: _core.SparseSum) -> None:
        """The object that will have the sum."""
        self._total = total

    def finish(self) -> None:
        """Write the sum to the tensor."""
        assert self._total is not None, "the transfer was submitted"
        indices, values = self._total.take()
        if self._tensor.numel() == 0:
            return
        # All ranks bring either every element of an index or none.
        rows = np.unravel_index(indices[:: self._width] // self._width, self._whole)
        positions = torch.from_numpy(np.stack(rows))
        size = self._tensor.element_size()
        words = torch.from_numpy(big_endian(values.view(f"u{size}"))).view(self._tensor.dtype)
        total = torch.sparse_coo_tensor(
            positions, words.reshape(-1, *self._dense), self._tensor.shape, is_coalesced=True, check_invariants=False
        )
        self._tensor.copy_(total)
