"""What a rank says to the others of an operation on the host path, and whether its own tensors fit together.

Bytes travel there, so nothing else notices that ranks bring other types; and Gloo tells only the rank whose sizes are
wrong, while the others wait for their timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tributary.errors import MismatchError
from tributary.torch.tensors import Tensors


@dataclass(frozen=True)
class Claim:
    """A rank's description of its operation."""

    #: The same on every rank.
    what: str
    #: Bytes for each rank, and from each rank, which is what that rank sends; where there are such.
    sent: Sequence[int] = ()
    received: Sequence[int] = ()


def size_of(tensor: torch.Tensor) -> str:
    """`7 elements of torch.float32`."""
    return f"{tensor.numel()} element{'s' * (tensor.numel() != 1)} of {tensor.dtype}"


def sizes_of(tensors: Tensors) -> str:
    """The sizes of several tensors."""
    return ", ".join(map(size_of, tensors)) or "nothing"


def brought(name: str, tensors: Tensors, opts: Any) -> str:
    """This rank's operation in the network, for a sentence about ranks that disagree."""
    op, root = getattr(opts, "reduceOp", None), getattr(opts, "rootRank", None)
    what = [name] if root is None else [name, f"with root {root}"]
    if tensors:
        what.append(f"of {sizes_of(tensors)}")
    return " ".join(what if op is None else [*what, f"by {op.op.name}"])


def reduction(name: str, op: str, tensors: Tensors) -> Claim:
    """All ranks bring the same operator, types and sizes."""
    return Claim(f"{name}: {op} of {sizes_of(tensors)}")


def reductions_of_lists(op: str, outputs: Tensors, inputs: Sequence[Tensors], rank: int, size: int) -> Claim:
    """Each output has an input for each rank; the rank's own is like it."""
    _same_count("reduce_scatter", inputs, outputs)
    for output, many in zip(outputs, inputs, strict=True):
        one_for_each(many, size, "input")
        _one_type([output, *many])
        like([output], many[rank], f"input for rank {rank}")
    return Claim(f"reduce_scatter: {op} of {'; '.join(map(sizes_of, inputs))}")


def shards(name: str, outputs: Tensors, inputs: Tensors, size: int, of_outputs: bool) -> Claim:
    """One tensor has a shard for each rank: the outputs of a gather, or the inputs of a reduce-scatter."""
    one, whole = ("input", "output") if of_outputs else ("output", "input")
    _same_count(name, outputs, inputs)
    for output, source in zip(outputs, inputs, strict=True):
        shard, everything = (source, output) if of_outputs else (output, source)
        if everything.numel() != size * shard.numel() or everything.dtype != shard.dtype:
            raise MismatchError(
                f"the {whole} has {size_of(everything)}, which is not {size} times the {one}'s {size_of(shard)}"
            )
    return Claim(f"{name} of {sizes_of(inputs)}")


def gathered(name: str, outputs: Sequence[Tensors], inputs: Tensors, size: int) -> Claim:
    """Each input has an output for each rank, like it."""
    _same_count(name, outputs, inputs)
    for many, source in zip(outputs, inputs, strict=True):
        one_for_each(many, size, "output")
        like(many, source, "input")
    return Claim(f"{name} of {sizes_of(inputs)}")


def gathered_together(name: str, outputs: Sequence[Tensors], inputs: Tensors, size: int) -> Claim:
    """There are outputs like all inputs for each rank."""
    one_for_each(outputs, size, "output")
    for many in outputs:
        _same_count(name, many, inputs)
        for output, source in zip(many, inputs, strict=True):
            like([output], source, "input")
    return Claim(f"{name} of {sizes_of(inputs)}")


def rooted(name: str, is_root: bool, root: int, many: Sequence[Tensors], one: Tensors, size: int) -> Claim:
    """The root has a tensor for each rank: the outputs of a gather, the inputs of a scatter."""
    outputs = name == "gather"
    kinds = ("output", "input") if outputs else ("input", "output")
    if is_root:
        _same_count(name, many, one)
        for tensors, tensor in zip(many, one, strict=True):
            one_for_each(tensors, size, kinds[0])
            like(tensors, tensor, kinds[1])
    return Claim(f"{name} {'to' if outputs else 'from'} rank {root} of {sizes_of(one)}")


def exchanged(outputs: Tensors, inputs: Tensors, size: int) -> Claim:
    """A tensor for each rank, and one from each rank."""
    one_for_each(outputs, size, "output")
    one_for_each(inputs, size, "input")
    _one_type([*outputs, *inputs])
    return Claim(f"all_to_all of {inputs[0].dtype}", _bytes(inputs), _bytes(outputs))


def sliced(output: torch.Tensor, source: torch.Tensor, received: list[int], sent: list[int], size: int) -> Claim:
    """Slices of one tensor's rows for each rank, and from each rank."""
    _one_type([output, source])
    into, out_of = slices(output, received, size, "output"), slices(source, sent, size, "input")
    return Claim(f"all_to_all_single of {source.dtype}", out_of, into)


def slices(tensor: torch.Tensor, splits: list[int], size: int, kind: str) -> list[int]:
    """The bytes of each rank's slice of a tensor's rows."""
    rows = tensor.shape[0] if tensor.ndim else 1
    if not splits:
        if rows % size:
            raise MismatchError(f"the {kind} has {rows} rows, which is not a multiple of {size} ranks")
        splits = [rows // size] * size
    if len(splits) != size or min(splits) < 0 or sum(splits) != rows:
        raise MismatchError(
            f"the {kind}'s split sizes are {splits}: they are {size}, one for each rank, and add up to its {rows} rows"
        )
    row = tensor.numel() // rows * tensor.element_size() if rows else 0
    return [split * row for split in splits]


def one_for_each(tensors: Sequence[Any], size: int, kind: str) -> None:
    """Refuse too few or too many tensors."""
    if len(tensors) != size:
        raise MismatchError(f"there are {len(tensors)} {kind} tensors for {size} ranks")


def like(tensors: Tensors, other: torch.Tensor, kind: str) -> None:
    """Refuse tensors of another size or type."""
    for index, tensor in enumerate(tensors):
        if tensor.numel() != other.numel() or tensor.dtype != other.dtype:
            raise MismatchError(
                f"the {kind} has {size_of(other)}, and the tensor for it, number {index}, has {size_of(tensor)}"
            )


def _same_count(name: str, many: Sequence[Any], one: Sequence[Any]) -> None:
    if len(many) != len(one):
        raise MismatchError(f"{name} of {len(one)} tensors has {len(many)} partners for them")


def _one_type(tensors: Tensors) -> None:
    types = sorted({str(tensor.dtype) for tensor in tensors})
    if len(types) > 1:
        raise MismatchError(f"its tensors are of several types, {' and '.join(types)}")


def _bytes(tensors: Tensors) -> list[int]:
    return [tensor.numel() * tensor.element_size() for tensor in tensors]
