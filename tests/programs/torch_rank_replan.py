"""What one rank does whose group loses a switch or a parameter server: for the ``ranks`` fixture."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from torch_groups import default_group
from tributary.torch import plugin

#: Elements of a tensor that several switches share, and of one that goes through one of them.
SIZES = (300_000, 100)


def failed(rank: int, victim: int) -> str:
    """An operation that the loss of this process ends on every rank: rank 0 kills it before it brings its own part."""
    if rank == 0:
        os.kill(victim, signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(SIZES[0]))
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing went wrong"


def sums(rank: int, size: int) -> list[bool]:
    """Whether operations of several kinds are right."""
    right = []
    for elements in SIZES:
        tensor = torch.full((elements,), float(rank + 1))
        dist.all_reduce(tensor)
        right.append(tensor.unique().tolist() == [size * (size + 1) / 2])
    shard = torch.empty(SIZES[0] // size)
    dist.reduce_scatter_tensor(shard, torch.full((SIZES[0] // size * size,), 1.0))
    right.append(shard.unique().tolist() == [float(size)])
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, rank)
    right.append(gathered == list(range(size)))
    return right


def loses(
    rank: int, size: int, meet: str, switches: str | None, victims: Sequence[int], options: dict[str, str]
) -> list[tuple[str, list[bool], list[str]]]:
    """After the loss of each of these processes: the error, whether later sums are right, and where they are made."""
    with default_group(rank, size, meet, timeout=60.0, switch=switches, on_loss="replan", **options):
        assert all(sums(rank, size))
        outcomes = []
        for victim in victims:
            error = failed(rank, victim)
            right = sums(rank, size)
            members = plugin.groups["0"]._present("")
            outcomes.append((error, right, members.switches if members.chosen.switches else []))
        return outcomes


def has_come_further(rank: int, size: int, meet: str, switches: str, victim: int) -> list[str]:
    """A loss after which rank 1 has seen another operation fail than the other ranks: what later operations say."""
    with default_group(rank, size, meet, timeout=60.0, switch=switches, on_loss="replan"):
        dist.barrier()
        failed(rank, victim)
        if rank == 1:
            plugin.groups["0"]._health.lost_in = "all_reduce 3 of group 0"
        errors = []
        for _ in range(2):
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                errors.append(str(error))
        return errors
