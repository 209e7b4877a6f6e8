"""The operands of an operation on the host path: flat memory of the host in place of the caller's tensors.

Gloo reads and writes strided tensors wrongly in some operations, without an error, and moves only some types. So it
gets tensors whose elements are in C order, and of operations that only move data their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tributary.torch.tensors import flat, in_order, row_of
from tributary.torch.transit import Finish


@dataclass(frozen=True)
class Operands:
    """The arguments of Gloo's operation."""

    arguments: list[Any]
    #: Those that are to be divided where the operator is an average, in their own type.
    scaled: list[torch.Tensor]
    #: The ways back to the caller's tensors.
    back: list[Finish]

    @staticmethod
    def of(arguments: list[Any], scaled: Sequence[torch.Tensor], *, writes: bool, as_bytes: bool) -> Operands:
        """Replace the tensors. The first argument is what Gloo writes, if it writes anything."""
        flats: dict[int, torch.Tensor] = {}
        rows: dict[int, torch.Tensor] = {}
        back: list[Finish] = []

        def replace(value: Any, written: bool) -> Any:
            if isinstance(value, list):
                return [replace(item, written) for item in value]
            if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
                return value
            if id(value) not in flats:
                elements, finish = flat(value)
                row = rows[id(value)] = row_of(elements)
                # The sums of flags are sums of bytes (`operators.on_elements`).
                flats[id(value)] = row.view(torch.uint8) if as_bytes or row.dtype == torch.bool else row
                if written and finish is not None:
                    back.append(finish)
            return flats[id(value)]

        replaced = [replace(argument, writes and index == 0) for index, argument in enumerate(arguments)]
        return Operands(replaced, [rows.get(id(tensor), tensor) for tensor in scaled], back)

    def after(self, finish: Finish | None) -> Finish | None:
        """What remains to do when Gloo is done: Gloo's own last step, then the ways back."""
        return in_order([finish, *self.back])


def exchange(outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> tuple[list[Any], Finish]:
    """The same exchange in slices of one tensor, and what remains to do after it."""
    sizes = [output.numel() for output in outputs]
    received = torch.empty(sum(sizes), dtype=torch.uint8)

    def distribute() -> None:
        for output, shard in zip(outputs, received.split(sizes), strict=True):
            output.copy_(shard)

    return [received, torch.cat(inputs), sizes, [source.numel() for source in inputs], opts], distribute
