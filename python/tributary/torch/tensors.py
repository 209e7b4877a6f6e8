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
#: The types that the network takes; flags are bytes there.
NETWORK_DTYPES = DTYPES | {torch.bool: "u8"}


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


def refuse_shared(name: str, written: list[torch.Tensor]) -> None:
    """Refuse tensors for results of which several elements are in one place: ``tensor.expand`` makes such."""
    for tensor in written:
        if tensor.layout != torch.strided or (tensor.is_contiguous() and tensor.numel()):
            continue
        if any(n > 1 and not step for n, step in zip(tensor.shape, tensor.stride(), strict=True)):
            raise UnsupportedError(
                f"{name} cannot write to a tensor whose elements share memory (shape {list(tensor.shape)}, strides "
                f"{list(tensor.stride())}); use tensor.contiguous()"
            )


def size_in_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of all elements."""
    size = 0
    for tensor in tensors:
        size += elements_in(tensor).numel() * tensor.element_size()
    return size


def elements_in(tensor: torch.Tensor) -> torch.Tensor:
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


def row_of(flat_tensor: torch.Tensor) -> torch.Tensor:
    """A flat tensor in one dimension, whose elements follow each other: a single one may have any stride."""
    return flat_tensor.as_strided((flat_tensor.numel(),), (1,))


def source_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in C order, for the network to read: the tensor itself if it is flat, else a copy."""
    tensor = tensor.detach()
    return tensor if is_flat(tensor) else flat_copy(tensor)


def flat_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in C order, in memory of their own."""
    if staging.is_staged(tensor):
        return staging.fetch(tensor.detach())
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def slice_for(source: torch.Tensor, start: int, output: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """Where the elements from `start` of the sum of `source` go: into the output itself, or into memory in between.

    The network may write into the source only where it has read the same elements.
    """
    size = source.element_size()
    at, base = output.data_ptr(), source.data_ptr()
    same_memory = at == base + start * size
    separate = at + output.numel() * size <= base or base + source.numel() * size <= at
    if same_memory or separate:
        return landing(output)
    copy = torch.empty(output.shape, dtype=output.dtype)
    return copy, way_back(output.detach(), copy)


def landing(tensor: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """Memory in C order for a result, and the conversion back; the tensor itself if it is flat."""
    tensor = tensor.detach()
    if is_flat(tensor):
        return tensor, None
    copy = torch.empty(tensor.shape, dtype=tensor.dtype)
    return copy, way_back(tensor, copy)


def memory(tensor: torch.Tensor, start: int = 0, end: int | None = None) -> tuple[int, int, torch.Tensor]:
    """The memory of a flat tensor's elements from `start` to before `end`: address, bytes, and the tensor as owner."""
    size = tensor.element_size()
    stop = tensor.numel() if end is None else end
    return tensor.data_ptr() + start * size, (stop - start) * size, tensor


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
