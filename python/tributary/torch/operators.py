"""Which reductions the network can make; and PREMUL_SUM, PyTorch's operator that is our sum after a multiplication."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from tributary import _core
from tributary.torch.options import Options
from tributary.torch.tensors import DTYPES, Tensors, flat_copy, way_back
from tributary.torch.transit import Finish

_OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PREMUL_SUM: "sum",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
}


def op_name(reduce_op: Any) -> str:
    """This package's name of the operator."""
    return _OPS[reduce_op.op]


def why_not(tensors: Tensors, reduce_op: Any, options: Options) -> str | None:
    """Why the network cannot make this reduction with the group's protocol; None if it can."""
    dtypes = {tensor.dtype for tensor in tensors}
    unknown = dtypes - DTYPES.keys()
    if unknown:
        return f"the network cannot reduce {', '.join(sorted(str(dtype) for dtype in unknown))}"
    if reduce_op.op == ReduceOp.PREMUL_SUM and not all(dtype.is_floating_point for dtype in dtypes):
        return "the network does not scale integers"
    refusals = (_refusal(options, DTYPES[dtype], op_name(reduce_op)) for dtype in dtypes)
    return next(filter(None, refusals), None)


def why_not_words(options: Options) -> str | None:
    """Why the network cannot move all ranks' words unchanged, or bring a result to one rank alone; None if it can."""
    return _refusal(options, "i32", "sum")


@cache
def _refusal(options: Options, dtype: str, op: str) -> str | None:
    """The protocol's answer, asked for once, since operations come by the thousand."""
    return _core.refusal(options.protocol, options.protocol_options, dtype, op)


def scaled_copy(tensor: torch.Tensor, reduce_op: Any) -> torch.Tensor | None:
    """For PREMUL_SUM, which FSDP2 uses: the tensor times the factor, in memory of its own; None for other operators."""
    if reduce_op.op != ReduceOp.PREMUL_SUM:
        return None
    return flat_copy(tensor).mul_(reduce_op.factor)


def premultiplied(tensor: torch.Tensor, reduce_op: Any) -> tuple[torch.Tensor, Finish] | None:
    """Like :func:`scaled_copy`, with the conversion back into the tensor."""
    scaled = scaled_copy(tensor, reduce_op)
    return None if scaled is None else (scaled, way_back(tensor.detach(), scaled))
