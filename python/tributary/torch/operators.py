"""Which reductions the network can make; and PREMUL_SUM, PyTorch's operator that is our sum after a multiplication."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from tributary import _core
from tributary.errors import UnsupportedError
from tributary.torch.options import Options
from tributary.torch.tensors import NETWORK_DTYPES, Tensors, flat_copy, way_back
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
#: The operators of flags (torch.bool), as those of bytes that are 0 or 1: a sum is an "or", as PyTorch defines it.
_OF_FLAGS = {
    ReduceOp.SUM: ReduceOp.BOR,
    ReduceOp.MAX: ReduceOp.BOR,
    ReduceOp.BOR: ReduceOp.BOR,
    ReduceOp.PRODUCT: ReduceOp.BAND,
    ReduceOp.MIN: ReduceOp.BAND,
    ReduceOp.BAND: ReduceOp.BAND,
    ReduceOp.BXOR: ReduceOp.BXOR,
}
#: The types that Gloo reduces. Flags are bytes there, too.
_GLOO_DTYPES = {
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
}


def on_elements(name: str, tensors: Tensors, reduce_op: Any) -> Any:
    """The operator on the tensors' elements as they travel; refuses operators that flags do not have."""
    dtypes = {tensor.dtype for tensor in tensors}
    if torch.bool not in dtypes:
        return reduce_op
    if len(dtypes) > 1:
        raise UnsupportedError(f"{name} of torch.bool together with other types is not supported; use several calls")
    if reduce_op.op not in _OF_FLAGS:
        raise UnsupportedError(
            f"{name} of torch.bool has no {reduce_op.op.name}: use tensor.float() for a share of the ranks, SUM or MAX "
            "for whether any rank brings True, or MIN for whether all do"
        )
    return ReduceOp(_OF_FLAGS[reduce_op.op])


def refuse_unknown(reason: str, tensors: Tensors) -> None:
    """Refuse types that neither way can reduce."""
    unknown = sorted({str(tensor.dtype) for tensor in tensors} - {str(dtype) for dtype in _GLOO_DTYPES})
    if unknown:
        raise UnsupportedError(
            f"{reason}, and the host path does not reduce {', '.join(unknown)} either; use tensor.float() or "
            "tensor.int()"
        )


def op_name(reduce_op: Any) -> str:
    """This package's name of the operator."""
    return _OPS[reduce_op.op]


def why_not(tensors: Tensors, reduce_op: Any, options: Options | None) -> str | None:
    """Why the network cannot make this reduction with the group's protocol; None if it can.

    Without options it is this host's memory in place of the network.
    """
    dtypes = {tensor.dtype for tensor in tensors}
    unknown = dtypes - NETWORK_DTYPES.keys()
    if unknown:
        return f"the network cannot reduce {', '.join(sorted(str(dtype) for dtype in unknown))}"
    if reduce_op.op == ReduceOp.PREMUL_SUM and not all(dtype.is_floating_point for dtype in dtypes):
        return "the network does not scale integers"
    op = op_name(reduce_op)
    for dtype in dtypes:
        if (refusal := _refusal(options, NETWORK_DTYPES[dtype], op)) is not None:
            return refusal
    return None


def plain_name(tensor: torch.Tensor, reduce_op: Any, options: Options | None) -> str | None:
    """The name of an operator that takes a tensor's elements as they are; None if the network does not combine so."""
    is_plain = tensor.dtype != torch.bool and reduce_op.op != ReduceOp.PREMUL_SUM
    return op_name(reduce_op) if is_plain and why_not([tensor], reduce_op, options) is None else None


def why_not_words(options: Options) -> str | None:
    """Why the network cannot move all ranks' words unchanged, or bring a result to one rank alone; None if it can."""
    return _refusal(options, "i32", "sum")


@cache
def _refusal(options: Options | None, dtype: str, op: str) -> str | None:
    """The protocol's answer, asked for once, since operations come by the thousand."""
    if options is None:
        return _core.local_refusal(dtype, op)
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
