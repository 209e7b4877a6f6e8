"""Conversion between tensors of any layout and flat memory for the network: elements in C order."""

from __future__ import annotations

from functools import partial

import torch

from tributary.errors import UnsupportedError
from tributary.torch import staging
from tributary.torch.transit import Finish

Tensors = list[torch.Tensor]

#: The types that protocols can reduce, and this package's names of them.
DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}


def refuse_unfit(name: str, tensors: list[torch.Tensor]) -> None:
    """Refuse tensors that neither path can take."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise UnsupportedError(
                f"{name} of a sparse tensor ({tensor.layout}) is not supported; use tensor.to_dense(), or "
                "sparse=False in an Embedding"
            )
        if tensor.device.type != "cpu" and not staging.is_staged(tensor):
            raise UnsupportedError(f"{name} of a tensor on {tensor.device} is not supported; use tensor.cpu()")


def size_in_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of all elements."""
    return sum(held(tensor).numel() * tensor.element_size() for tensor in tensors)


def held(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that the tensor holds: of a sparse tensor, its values."""
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor


def is_flat(tensor: torch.Tensor) -> bool:
    """Whether the tensor is in the host's memory, with its elements in C order."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj() and not staging.is_staged(tensor)


def flat(tensor: torch.Tensor, values: torch.Tensor | None = None) -> tuple[torch.Tensor, Finish | None]:
    """The tensor's elements in C order, and the conversion back; the tensor itself where that will do.

    With `values` the result comes back from there, in any case.
    """
    tensor = tensor.detach()
    if values is None and is_flat(tensor):
        return tensor, None
    copy = flat_copy(tensor) if values is None else values
    return copy, way_back(tensor, copy)


def flat_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in C order, in memory of their own."""
    if staging.is_staged(tensor):
        return staging.fetch(tensor.detach())
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def part_of(source: torch.Tensor, start: int, output: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """Where the elements from `start` of the sum of `source` go: into the output itself, or into memory in between.

    The network may write into the source only what it has read there: the part at its own place.
    """
    output = output.detach()
    size = source.element_size()
    at, place = output.data_ptr(), source.data_ptr()
    in_place = at == place + start * size
    apart = at + output.numel() * size <= place or place + source.numel() * size <= at
    if is_flat(output) and (in_place or apart):
        return output, None
    copy = torch.empty(output.shape, dtype=output.dtype)
    return copy, way_back(output, copy)


def words(tensor: torch.Tensor, keep: bool) -> tuple[torch.Tensor, Finish | None]:
    """The tensor's memory as 32-bit words, with its values if `keep`, and the conversion back.

    Broadcasts bring words as they are, whatever they mean.
    """
    target = tensor.detach()
    size = size_in_bytes([target])
    if is_flat(target) and size % 4 == 0 and target.data_ptr() % 4 == 0:
        as_words = target.reshape(-1).view(torch.uint8).view(torch.int32)
        return as_words, None
    travelling = torch.zeros((size + 3) // 4, dtype=torch.int32)
    as_target = travelling.view(torch.uint8)[:size].view(target.dtype).view(target.shape)
    if keep:
        as_target.copy_(flat_copy(target) if staging.is_staged(target) else target)
        return travelling, None
    return travelling, way_back(target, as_target)


def way_back(tensor: torch.Tensor, values: torch.Tensor) -> Finish:
    """How a result gets to its tensor, once `values` has it. Call it when the operation begins."""
    if staging.is_staged(tensor):
        return partial(staging.Landing(tensor).bring, values)
    return partial(write, tensor, values)


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write a result to a tensor of the host."""
    tensor.copy_(values)


def in_order(finishes: list[Finish | None]) -> Finish | None:
    """A function that calls all of them in turn; None if there are none."""
    todo = [finish for finish in finishes if finish is not None]
    if not todo:
        return None

    def finish_all() -> None:
        with torch.no_grad():
            for finish in todo:
                finish()

    return finish_all
