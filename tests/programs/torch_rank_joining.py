"""What one rank does with PyTorch as it joins groups: functions for the ``ranks`` fixture."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

import tributary
from torch_groups import default_group, options_of
from torch_rank_leaving import group_of_all
from tributary.torch.backend import TributaryBackend


def one_without_a_switch(rank: int, size: int, meet: str, switch: str) -> str:
    """The last rank does not reach the switch: what every rank hears. Nobody waits for the timeout in time."""
    return sentence_of_the_join(rank, size, meet, "127.0.0.1:9" if rank == size - 1 else switch)


def sentence_of_the_join(rank: int, size: int, meet: str, switch: str, seconds: float = 3600) -> str:
    """What a rank hears that cannot join."""
    # Without init_process_group, after whose failures PyTorch gives the next group of this process another name.
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    try:
        timeout, options = timedelta(seconds=seconds), options_of(switch=switch)
        TributaryBackend(dist.FileStore(meet, size), rank, size, timeout=timeout, options=options)
    except tributary.ConnectError as error:
        return str(error)
    return "nothing went wrong"


def unlike_switches(rank: int, size: int, meet: str, switches: list[str], seconds: float) -> str:
    """Each rank names another switch; what it hears."""
    return sentence_of_the_join(rank, size, meet, switches[rank], seconds)


def racks(rank: int, size: int, meet: str, leaves: list[str], protocol: str) -> float:
    """The first half of the ranks names one leaf of a tree of switches, the second half another; a rank's sum."""
    with default_group(rank, size, meet, switch=leaves[rank * len(leaves) // size], protocol=protocol):
        tensor = torch.full((100_000,), float(rank + 1))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full_like(tensor, tensor[0].item()))
        return float(tensor[0])


def split(rank: int, size: int, meet: str) -> list[float]:
    """Rank's sum in its half of a group that is split, and its rank there."""
    group_of_all(rank, size, meet)
    half = dist.split_group(split_ranks=[[2, 0], [1, 3]])
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=half)
    gathered = [torch.zeros(1) for _ in range(2)]
    dist.all_gather(gathered, torch.tensor([float(rank)]), group=half)
    assert [one.item() for one in gathered] == ([2.0, 0.0] if rank in (0, 2) else [1.0, 3.0])
    result = [tensor.item(), float(dist.get_rank(half))]
    dist.destroy_process_group()
    return result


def options_of_gloo(rank: int, size: int, meet: str) -> str:
    """What a new group says to another backend's options."""
    group_of_all(rank, size, meet)
    try:
        dist.new_group(pg_options=dist.ProcessGroupGloo._Options())
    except TypeError as error:
        return str(error)
    finally:
        dist.destroy_process_group()
    return "nothing"
