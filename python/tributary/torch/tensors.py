"""Between tensors of any layout and the flat memory that travels: elements in C order."""

from __future__ import annotations

from functools import partial

import torch

from tributary.errors import Unsupported
from tributary.torch.work import Finish

#: What the network can sum: PyTorch's types, and our names of them.
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32"}


def refuse_unfit(name: str, tensors: list[torch.Tensor]) -> None:
    """Refuse tensors that can travel neither way."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise Unsupported(
                f"{name} of a sparse tensor ({tensor.layout}) is not supported; use tensor.to_dense(), or "
                "sparse=False in an Embedding"
            )
        if tensor.device.type != "cpu":
            raise Unsupported(
                f"{name} of a tensor on {tensor.device} is not supported; use "
                f'init_process_group("cpu:tributary,{tensor.device.type}:nccl"), or tensor.cpu()'
            )


def size_in_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of all elements."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def is_flat(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is its elements in C order, as they are."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def flat(tensor: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """The tensor's elements in C order, and how the result comes back; the tensor itself where that will do."""
    tensor = tensor.detach()
    if is_flat(tensor):
        return tensor, None
    copy = torch.empty(tensor.shape, dtype=tensor.dtype)
    copy.copy_(tensor)
    return copy, partial(write, tensor, copy)


def flat_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in C order, in memory of their own."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype)
    return copy.copy_(tensor.detach())


def words(tensor: torch.Tensor, keep: bool) -> tuple[torch.Tensor, Finish | None]:
    """The tensor's memory as 32-bit words, zeros unless `keep`, and how the result comes back.

    Words of one rank plus zeros of all others are that rank's words: a sum is a broadcast of any type.
    """
    source = tensor.detach()
    if is_flat(source) and size_in_bytes([source]) % 4 == 0 and source.data_ptr() % 4 == 0:
        as_words = source.reshape(-1).view(torch.uint8).view(torch.int32)
        return (as_words if keep else as_words.zero_()), None
    staging = torch.zeros((size_in_bytes([source]) + 3) // 4, dtype=torch.int32)
    as_source = staging.view(torch.uint8)[: size_in_bytes([source])].view(source.dtype).view(source.shape)
    if keep:
        as_source.copy_(source)
        return staging, None
    return staging, partial(write, source, as_source)


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Bring a result to where the caller looks for it."""
    tensor.copy_(values)


def in_order(finishes: list[Finish | None]) -> Finish | None:
    """All of them, one after the other; None where there is nothing to do."""
    todo = [finish for finish in finishes if finish is not None]
    if not todo:
        return None

    def finish_all() -> None:
        with torch.no_grad():
            for finish in todo:
                finish()

    return finish_all
