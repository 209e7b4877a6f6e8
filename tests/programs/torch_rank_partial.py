"""What one rank does with PyTorch where averages may lack ranks: functions for the ``ranks`` fixture."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

import tributary.torch
from torch_groups import default_group, digest


def lacking(rank: int, size: int, meet: str, protocol: str, options: str) -> tuple[list[str], float | None, set[float]]:
    """DDP whose last rank is late, three times.

    Returns:
        the gradients' bits after each step, the share of ranks that was in the averages, and the last one's values.

    """
    with default_group(rank, size, meet, protocol=protocol, options=options):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4000, 1, bias=False))
        model.register_comm_hook(None, tributary.torch.all_reduce_hook)
        seen = []
        for _ in range(3):
            model.zero_grad()
            if rank == size - 1:
                time.sleep(0.5)
            # The gradient of a sum is its input: one number of each rank's own.
            model(torch.full((1, 4000), 2.0**rank)).sum().backward()
            (gradient,) = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            seen.append(digest(gradient))
        packets = tributary.torch.stats().packets
        assert packets is not None
        dist.barrier()
    return seen, packets.contributed, set(gradient.flatten().tolist())
