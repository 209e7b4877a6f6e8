"""What one rank does with PyTorch when it trains: functions for the ``ranks`` fixture."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import tributary.torch
from torch_groups import default_group, digest


def hooked(rank: int, size: int, meet: str) -> str:
    """DDP over Gloo with our hook: the gradients go through the network."""
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=size)
    group = dist.new_group(backend="tributary", timeout=timedelta(seconds=20))
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 5))
    model.register_comm_hook(group, tributary.torch.all_reduce_hook)
    for _ in range(3):
        model(torch.randn(4, 20)).square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert tributary.torch.stats(group).network["all_reduce"].bytes >= 3 * 4 * 105
    dist.destroy_process_group()
    return digest(*gradients)


def agreeing_through(rank: int, size: int, meet: str, switch: str) -> list[str]:
    """As :func:`agreeing`, through a switch that runs already."""
    return agreeing(rank, size, meet, 5, switch=switch)


def ending(rank: int, size: int, meet: str, bucket_cap_mb: float, options: str) -> str:
    """Train with DDP whose buckets have this size; the parameters' bits in the end."""
    return agreeing(rank, size, meet, 10, bucket_cap_mb, options=options)[-1]


def agreeing(rank: int, size: int, meet: str, steps: int, bucket_cap_mb: float = 0.005, **options: Any) -> list[str]:
    """Train with DDP; the parameters' bits after every step."""
    seen = []
    with default_group(rank, size, meet, **options):
        torch.manual_seed(1)
        layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=bucket_cap_mb)
        optimizer = torch.optim.Adam(model.parameters())
        draw = torch.Generator().manual_seed(rank)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 32, generator=draw)).square().mean().backward()
            optimizer.step()
            seen.append(digest(*model.parameters()))
    return seen
