"""What an all_reduce costs ranks on one machine: in its memory, and over Gloo, in turns.

    python benches/one_host.py                          # 2 and 4 ranks, 1 KiB to 25 MB
    python benches/one_host.py --ranks 4 --size 1000000 --ways memory network gloo

Prints the median of all calls, as the slowest rank saw them, and the ratio to Gloo. With several sizes the groups of
all ways are there at the same time, and take turns at each size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

SIZES = [1 << 10, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000]
#: How many calls follow each other before it is another way's turn.
CALLS = 15


def main() -> int:
    """Be one rank, or start all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--size", type=int, nargs="+", default=SIZES, help="bytes of float32")
    parser.add_argument("--ways", nargs="+", choices=["memory", "network", "gloo"], default=["memory", "gloo"])
    parser.add_argument("--turns", type=int, default=4, help="of each way at each size")
    args = parser.parse_args()
    if "RANK" in os.environ:
        measure(args)
        return 0
    for ranks in args.ranks:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), __file__]
        sizes = [str(size) for size in args.size]
        flags = ["--size", *sizes, "--ways", *args.ways, "--turns", str(args.turns)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([*command, *flags], check=True, env=environment)
    return 0


def measure(args: argparse.Namespace) -> None:
    """Be one rank."""
    import torch
    import torch.distributed as dist

    from tributary.torch import Options

    torch.set_num_threads(1)
    patience = timedelta(seconds=120)
    dist.init_process_group("gloo", timeout=patience)
    groups: dict[str, Any] = {}
    for way in args.ways:
        given = {"memory": Options(local="on"), "network": Options(local="off"), "gloo": None}[way]
        backend = "gloo" if way == "gloo" else "tributary"
        groups[way] = dist.new_group(backend=backend, pg_options=given, timeout=patience)
    for size in args.size:
        seconds: dict[str, list[float]] = {way: [] for way in args.ways}
        for _ in range(args.turns):
            for way, group in groups.items():
                tensor = torch.ones(size // 4)
                dist.all_reduce(tensor, group=group)
                dist.barrier()
                for _ in range(CALLS):
                    called = time.monotonic()
                    dist.all_reduce(tensor, group=group)
                    seconds[way].append(time.monotonic() - called)
                    tensor.fill_(1.0)
        median = torch.tensor([statistics.median(seconds[way]) for way in args.ways], dtype=torch.float64)
        dist.all_reduce(median, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            found = dict(zip(args.ways, median.tolist(), strict=True))
            row: dict[str, Any] = {"ranks": dist.get_world_size(), "bytes": size}
            row |= {way: f"{value * 1e3:.3f} ms" for way, value in found.items()}
            if "gloo" in found:
                row |= {f"gloo/{way}": round(found["gloo"] / value, 2) for way, value in found.items() if way != "gloo"}
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
