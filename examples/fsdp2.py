"""Shard a model's parameters with FSDP2 and sum its gradients in the network.

    torchrun --nproc-per-node 4 examples/fsdp2.py

Every layer's gradients are reduced and scattered through the switch (AVG of float32), and its parameters gathered: each
rank sends its shard once, and the switch copies it. Prints the loss, and what went where.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tributary.torch


def main() -> None:
    """Train on every rank; rank 0 speaks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(args.backend, timeout=timedelta(seconds=60))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(
        nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, args.width), nn.ReLU(), nn.Linear(args.width, 8)
    )
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Every rank draws its own data; the function to learn is the same.
    truth = torch.randn(64, 8, generator=torch.Generator().manual_seed(2))
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(args.steps):
        x = torch.randn(32, 64, generator=data)
        loss = nn.functional.mse_loss(model(x), (x @ truth).tanh())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"step {step:3}  loss {mean.item():.4f}", flush=True)
    if dist.get_rank() == 0 and args.backend == "tributary":
        print(tributary.torch.stats())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
