"""One rank on a host of a fabric: every operation that goes through the network, and one that does not.

Started by `test_torch_fabric.py`, with RANK, WORLD_SIZE and MEET in the environment.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

import tributary.torch
from torch_groups import data, datas, digest
from tributary.errors import MismatchError


def main() -> None:
    """Raise at the first thing that is wrong."""
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meet = f"file://{os.environ['MEET']}"
    dist.init_process_group("tributary", init_method=meet, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    for count in (1, 1000, 100_003):
        everything = datas(size, torch.float32, count)
        tensor = data(rank, torch.float32, count)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, everything.sum(0)), "all_reduce"
        for root in range(size):
            tensor = data(rank, torch.float32, count)
            dist.reduce(tensor, root)
            assert torch.equal(tensor, everything.sum(0) if rank == root else everything[rank]), f"reduce to {root}"
            tensor = data(rank, torch.float64, count)
            dist.broadcast(tensor, root)
            assert digest(tensor) == digest(data(root, torch.float64, count)), f"broadcast from {root}"
    dist.barrier()
    gathered = [torch.empty(7) for _ in range(size)]
    dist.all_gather(gathered, data(rank, torch.float32, 7))
    assert torch.equal(torch.stack(gathered), datas(size, torch.float32, 7)), "all_gather"
    stats = tributary.torch.stats()
    text = str(stats)
    # Last of all, since the group is of no use after it.
    try:
        dist.broadcast(torch.zeros(1000), 1 if rank == 0 else 2)
        raise AssertionError("ranks that name different roots are told")
    except MismatchError as error:
        assert "rank 0 brings broadcast with root 1" in str(error), error
        assert "ranks 1, 2, 3 bring broadcast with root 2" in str(error), error
    # In one piece: all ranks write to one pipe.
    print(f"rank {rank} is right: {text}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
