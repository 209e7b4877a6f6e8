"""What communication costs each step of a training, in TensorBoard.

torchrun --nproc-per-node 2 examples/step_costs.py --folder runs
tensorboard --logdir runs

Rank 0 writes, beside the loss, the seconds of each step in which an operation was under way, the rate of its bytes, and
the rank for which the others waited, with the share of the step that they did.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

import tributary.torch


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="runs", help="the folder for TensorBoard")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("tributary")
    torch.manual_seed(1)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(dist.get_rank())
    writer = SummaryWriter(arguments.folder) if dist.get_rank() == 0 else None
    steps = tributary.torch.Steps()
    for number in range(arguments.steps):
        inputs = torch.randn(32, 64, generator=draw)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step = steps.end()
        if writer is not None:
            writer.add_scalar("loss", loss.item(), number)
            writer.add_scalar("tributary/under way, seconds", step.under_way_s, number)
            writer.add_scalar("tributary/bytes a second", step.rate, number)
            writer.add_scalar("tributary/straggler", step.straggler, number)
            writer.add_scalar("tributary/straggler's share", step.straggler_share, number)
    if writer is not None:
        writer.close()
        print(f"rank 0 wrote {arguments.steps} steps to {arguments.folder}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
