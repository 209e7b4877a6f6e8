"""Events of ``torch.profiler``: one from the beginning of an operation to its end, and one with what it moves.

PyTorch's own backends record the latter as ``record_param_comms``, from C++ only. Ours has the same arguments under the
same names, which trace tools read. The profiler keeps arguments with ``record_shapes=True``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

#: How PyTorch's traces call operations, where that differs from the operation's name without underscores.
_COLLECTIVES = {
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_allv",
}
#: How they call types, where that is not the type's name with a capital.
_TYPES = {
    torch.float64: "Double",
    torch.float32: "Float",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def arguments(
    name: str, tensors: Sequence[torch.Tensor], path: str, group: str, ranks: Sequence[int], rank: int
) -> dict[str, Any]:
    """The arguments of an operation's event.

    `tensors` are those that count as the rank's; for a reduce-scatter of lists that are its results in the network.
    """
    elements = sum(tensor.numel() for tensor in tensors)
    size = len(ranks)
    dtype = tensors[0].dtype if tensors else None
    return {
        "Collective name": _COLLECTIVES.get(name, name.replace("_", "")),
        "dtype": "" if dtype is None else _TYPES.get(dtype, str(dtype).removeprefix("torch.").capitalize()),
        "In msg nelems": elements,
        "Out msg nelems": _results(name, elements, size),
        "Bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "Group size": size,
        "Process Group Name": group,
        "Process Group Ranks": str(list(ranks)),
        "Rank": ranks[rank],
        "Path": path,
    }


def _results(name: str, elements: int, size: int) -> int:
    if name.startswith("all_gather"):
        return elements * size
    return elements // size if name.startswith("reduce_scatter_single") else elements


def note(given: dict[str, Any]) -> None:
    """Record the event with an operation's arguments."""
    # An event that is called like PyTorch's own would need arguments that only C++ can give it.
    with _RecordFunctionFast("tributary:record_param_comms", (), given):
        pass


def is_on() -> bool:
    """Whether a profiler runs."""
    return bool(torch.autograd._profiler_enabled())


#: What stands for an event while nobody looks.
_NOBODY = nullcontext()


def spanning(name: str) -> AbstractContextManager[Any]:
    """Record an event from the beginning of the operation to its end, which its future marks; None if nobody looks."""
    return torch.profiler.record_function(f"tributary:{name}") if is_on() else _NOBODY
