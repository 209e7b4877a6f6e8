"""What one rank does with PyTorch as its groups end: functions for the ``ranks`` fixture."""

from __future__ import annotations

import time
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist

import tributary
from torch_groups import begin_group, options_of
from tributary.torch import rendezvous
from tributary.torch.backend import TributaryBackend


def group(rank: int, size: int, meet: str, options: str = "", timeout: float = 60.0) -> None:
    """A default group, whose end is the caller's."""
    begin_group(rank, size, meet, timeout, options_of(listen="127.0.0.1", options=options))


def destroys_with_work_pending(rank: int, size: int, meet: str, options: str) -> list[float]:
    """The sums of operations that are under way when the group is destroyed; the ranks are not equally fast."""
    group(rank, size, meet, options)
    tensors = [torch.full((100_000,), rank + 1.0) for _ in range(50)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
        if rank == size - 1:
            time.sleep(0.002)
    dist.destroy_process_group()
    return [tensor[-1].item() for tensor in tensors]


def destroys_with_work_of_its_own(rank: int, size: int, meet: str) -> list[str]:
    """What the first rank hears of an operation that the other has not started when it destroys the group."""
    group(rank, size, meet)
    dist.all_reduce(torch.ones(10))
    errors = []
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        assert work is not None
        dist.destroy_process_group()
        try:
            work.wait()
        except RuntimeError as error:
            errors.append(f"{type(error).__name__}: {error}")
    else:
        dist.destroy_process_group()
    return errors


def leaves_a_dead_rank(rank: int, size: int, meet: str) -> str:
    """The last rank dies without a word; the others lose it and leave."""
    with mock.patch.object(rendezvous, "GRACE_S", 3600.0):
        backend = TributaryBackend(
            dist.FileStore(meet, size), rank, size, timeout=timedelta(hours=1), options=options_of(listen="127.0.0.1")
        )
        opts = dist.AllreduceOptions()
        backend.allreduce([torch.ones(10)], opts).wait()
        if rank == size - 1:
            assert backend._members is not None
            backend._members.main.abort()
            return "dead"
        try:
            backend.allreduce([torch.ones(10)], opts).wait()
        except tributary.RankLostError:
            backend.shutdown()
            return "left"
    return "nothing went wrong"
