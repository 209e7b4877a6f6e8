"""Which operators and types the network knows, and PyTorch's operator that is ours with a twist: PREMUL_SUM."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from tributary.torch.tensors import DTYPES, Tensors, flat_copy, way_back
from tributary.torch.transit import Finish

_OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PREMUL_SUM: "sum",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "bitwise and",
    ReduceOp.BOR: "bitwise or",
    ReduceOp.BXOR: "bitwise xor",
}


def op_name(reduce_op: Any) -> str:
    """Our name of the operator."""
    return _OPS[reduce_op.op]


def why_not(tensors: Tensors, reduce_op: Any) -> str | None:
    """Why the network cannot make this reduction, if it cannot."""
    op = op_name(reduce_op)
    dtypes = {tensor.dtype for tensor in tensors}
    if op not in ("sum", "avg"):
        return f"the network does not know the operator {op}"
    if not dtypes <= DTYPES.keys():
        unknown = ", ".join(sorted(str(dtype) for dtype in dtypes - DTYPES.keys()))
        return f"the network cannot sum {unknown}"
    if reduce_op.op == ReduceOp.PREMUL_SUM and torch.int32 in dtypes:
        return "the network does not scale integers"
    return None


def scaled_copy(tensor: torch.Tensor, reduce_op: Any) -> torch.Tensor | None:
    """For PREMUL_SUM, which FSDP2 uses: the tensor times the factor, in memory of its own; None for other operators."""
    if reduce_op.op != ReduceOp.PREMUL_SUM:
        return None
    return flat_copy(tensor).mul_(reduce_op.factor)


def premultiplied(tensor: torch.Tensor, reduce_op: Any) -> tuple[torch.Tensor, Finish] | None:
    """As :func:`scaled_copy`, with the way back into the tensor."""
    scaled = scaled_copy(tensor, reduce_op)
    return None if scaled is None else (scaled, way_back(tensor.detach(), scaled))
