"""What one rank does with PyTorch as it joins groups: functions for the ``ranks`` fixture."""

from __future__ import annotations

import os
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist

import tributary
from torch_groups import options_of
from torch_rank_leaving import group
from tributary.torch import rendezvous
from tributary.torch.backend import TributaryBackend


def one_without_a_switch(rank: int, size: int, meet: str) -> str:
    """The last rank does not reach the switch: what every rank hears. Nobody waits for the timeout in time."""
    if rank == size - 1:
        with mock.patch.object(rendezvous, "_own_switches", return_value=["127.0.0.1:9"]):
            return _sentence_of_the_join(rank, size, meet)
    return _sentence_of_the_join(rank, size, meet)


def _sentence_of_the_join(rank: int, size: int, meet: str) -> str:
    # Without init_process_group, after whose failures PyTorch gives the next group of this process another name.
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    try:
        TributaryBackend(dist.FileStore(meet, size), rank, size, timeout=timedelta(hours=1), options=options_of())
    except tributary.ConnectError as error:
        return str(error)
    return "nothing went wrong"


def split(rank: int, size: int, meet: str) -> list[float]:
    """Rank's sum in its half of a group that is split, and its rank there."""
    group(rank, size, meet)
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
    group(rank, size, meet)
    try:
        dist.new_group(pg_options=dist.ProcessGroupGloo._Options())
    except TypeError as error:
        return str(error)
    finally:
        dist.destroy_process_group()
    return "nothing"
