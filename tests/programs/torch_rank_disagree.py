"""What ranks hear when they bring other sizes than each other: functions for the ``ranks`` fixture."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import tributary
from torch_groups import default_group

#: The rank that brings something else.
ODD = 1


def _ones(*sizes: int) -> list[torch.Tensor]:
    return [torch.ones(size) for size in sizes]


def _sparse(odd: bool) -> None:
    dist.all_reduce(torch.eye(5).to_sparse() if odd else torch.eye(5))


def _halves(odd: bool, size: int) -> None:
    dist.reduce_scatter_single(torch.ones(6 if odd else 5), torch.ones(5 * size))


def _scattered(odd: bool, size: int) -> None:
    root = dist.get_rank() == ODD
    dist.scatter(torch.ones(5), _ones(*[5] * (size - odd)) if root else None, src=ODD)


def _exchanged(odd: bool, size: int) -> None:
    rows = [3, *[2] * (size - 2), 1] if odd else [2] * size
    dist.all_to_all_single(torch.ones(2 * size), torch.ones(2 * size), None, rows)


def _gathered_single(odd: bool, size: int, elements: int, others: int) -> None:
    own = others if odd else elements
    dist.all_gather_single(torch.ones(size * own), torch.ones(own))


#: Operations of which one rank brings another size: called with whether this rank is that one, and how many there are.
OPERATIONS: dict[str, Callable[[bool, int], None]] = {
    "all_gather": lambda odd, size: dist.all_gather(_ones(*[5] * size), torch.ones(5 + odd)),
    "all_gather of another type": lambda odd, size: dist.all_gather(
        [torch.ones(5, dtype=torch.int32 if odd else torch.float32) for _ in range(size)],
        torch.ones(5, dtype=torch.int32 if odd else torch.float32),
    ),
    "all_gather of a short list": lambda odd, size: dist.all_gather(_ones(*[5] * (size - odd)), torch.ones(5)),
    "a short scatter list": _scattered,
    "scatter": lambda odd, size: dist.scatter(
        torch.ones(5 + odd), _ones(*[5] * size) if dist.get_rank() == 0 else None, src=0
    ),
    "gather": lambda odd, size: dist.gather(
        torch.ones(5 + odd), _ones(*[5] * size) if dist.get_rank() == 0 else None, dst=0
    ),
    "all_to_all_single": _exchanged,
    "all_to_all_single of split sizes that are too many": lambda odd, size: dist.all_to_all_single(
        torch.ones(2 * size), torch.ones(2 * size), None, [2 + odd] * size
    ),
    "all_to_all": lambda odd, size: dist.all_to_all(_ones(*[5] * size), _ones(*[5 + odd] * size)),
    "all_gather_single, small": lambda odd, size: _gathered_single(odd, size, 5, 6),
    "all_gather_single, large": lambda odd, size: _gathered_single(odd, size, 5000, 6000),
    "all_gather_single, small and large": lambda odd, size: _gathered_single(odd, size, 5000, 5),
    "all_gather_single of a wrong output": lambda odd, size: dist.all_gather_single(
        torch.ones(5000 * size + odd), torch.ones(5000)
    ),
    "reduce_scatter_single": _halves,
    "all_reduce of elements that share memory": lambda odd, size: dist.all_reduce(
        torch.ones(1).expand(5) if odd else torch.ones(5)
    ),
    "all_reduce of a sparse tensor": lambda odd, size: _sparse(odd),
}


def odd(rank: int, size: int, meet: str, name: str) -> tuple[str, str]:
    """One rank brings another size; what this one is answered."""
    # Nobody waits for this timeout in a test that passes.
    with default_group(rank, size, meet, timeout=500.0):
        dist.barrier()
        try:
            OPERATIONS[name](rank == ODD, size)
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def of_three_sizes(rank: int, size: int, meet: str) -> tuple[str, str]:
    """Each rank brings another size; what this one is answered."""
    with default_group(rank, size, meet, timeout=500.0):
        dist.barrier()
        try:
            dist.all_reduce(torch.ones(3 + rank))
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def frames(rank: int, size: int, meet: str) -> list[list[str]]:
    """This package's files in the traceback of a reduction that is refused, and of one that the ranks disagree on."""
    found = []
    with default_group(rank, size, meet, timeout=500.0):
        for tensor in (torch.ones(1).expand(5), torch.ones(5 + (rank == ODD))):
            try:
                dist.all_reduce(tensor)
            except RuntimeError as error:
                files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
                found.append([file.name for file in files if file.is_relative_to(Path(tributary.__file__).parent)])
    return found


def alike(rank: int, size: int, meet: str, name: str) -> str:
    """All ranks make the same mistake, and go on."""
    with default_group(rank, size, meet, timeout=500.0):
        sentence = ""
        for _ in range(3):
            try:
                OPERATIONS[name](True, size)
            except RuntimeError as error:
                sentence = str(error)
            total = torch.ones(5)
            dist.all_reduce(total)
            assert total.tolist() == [size] * 5
        return sentence
