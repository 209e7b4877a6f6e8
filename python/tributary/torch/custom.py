"""Tensors for custom operators: which tensors fit, their bytes, and the job that combines them."""

from __future__ import annotations

import torch

from tributary import Operator, _core
from tributary.errors import ConfigError, UnsupportedError
from tributary.torch.options import AUTO, Options
from tributary.torch.tensors import DTYPES, flat, refuse_unfit, row_of
from tributary.torch.transit import Finish

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)

#: PyTorch's types as operators write elements. Only the operator knows what the eight bits of a float are.
_ELEMENTS = {
    **DTYPES,
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.complex64: "re:f32,im:f32",
    torch.complex128: "re:f64,im:f64",
    **dict.fromkeys(_FLOAT8, "u8"),
}


def elements_of(op: Operator, tensor: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """The tensor's elements as rows of bytes, which the network changes in place, and the conversion of the result."""
    refuse_unfit("all_reduce", [tensor])
    refuse_other_elements(op, tensor)
    travelling, finish = flat(tensor)
    return row_of(travelling).view(torch.uint8).view(-1, op.dtype.itemsize), finish


def refuse_other_elements(op: Operator, tensor: torch.Tensor) -> None:
    """Refuse a tensor whose elements are not the operator's: see :func:`tributary.torch.all_reduce`."""
    element, last = _ELEMENTS.get(tensor.dtype), tensor.shape[-1] if tensor.ndim else 0
    if element == op.element or (tensor.dtype == torch.uint8 and last == op.dtype.itemsize):
        return
    fields = op.element.split(",")
    if ":" in fields[0] and all(field.partition(":")[2] == element for field in fields) and last == len(fields):
        return
    raise ConfigError(
        f"the tensor is {tensor.dtype}{list(tensor.shape)}, and {op.name} is for {op.element}: use a tensor of this "
        f"type, or one whose last dimension has the fields, or {op.dtype.itemsize} bytes (torch.uint8)"
    )


def protocol_of(given: Options, chosen: Options) -> tuple[str, dict[str, str]]:
    """The protocol of a group's jobs with custom operators, and its options.

    That is the group's; if nobody has chosen one, the first that has such jobs.
    """
    if _core.takes_operators(chosen.protocol):
        return chosen.protocol, chosen.protocol_options
    able = [protocol for protocol in _core.protocols() if _core.takes_operators(protocol)]
    if given.protocol == AUTO and able:
        return able[0], {}
    raise UnsupportedError(
        f"{chosen.protocol} takes no custom operators: set TRIBUTARY_PROTOCOL to {' or '.join(able)}"
    )
