"""What a training step of a 25 MB model costs on shaped links: through the network, and over Gloo.

    python experiments/ddp_step.py                      # 8 hosts, 1 Gbit/s, both backends in turns; needs root
    python experiments/ddp_step.py --loss 1% --steps 200 --backend tributary
    python experiments/ddp_step.py --backend tributary --protocol atp pa-atp   # under these, one after the other
    python experiments/ddp_step.py --sharded            # FSDP2 in place of DDP, which prefetches a layer
    python experiments/ddp_step.py --one-word           # without the switch: the ranks' own hosts sum
    python experiments/ddp_step.py --hosts 2 --ranks-per-host 4   # ranks that share their host's memory and link

The model is so cheap to compute that a step is communication: what it takes beyond a step that does not synchronise
(DDP's no_sync; under FSDP2 a step of the same model that is not sharded) is counted as that. `link_megabytes` is what
the link of rank 0's host carries from it in a step. Under DDP every rank notes a hash of its parameters after every
step; all must agree. Under FSDP2 the sharded model must compute what the other does.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any


def main() -> int:
    """Be one rank, or start the stars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["tributary", "gloo"], help="one of them only")
    parser.add_argument("--protocol", nargs="+", default=[], help="of tributary's groups, one after the other")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks-per-host", type=int, default=1, metavar="N", help="which share its link")
    parser.add_argument("--rate", default="1 Gbit/s", help="of each link")
    parser.add_argument("--loss", default="0 %", help="share of packets that each link loses")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each backend, in turns")
    parser.add_argument("--layers", type=int, default=10, help="linear layers")
    parser.add_argument("--width", type=int, default=790, help="of a layer; 790 is 2.5 MB")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in place of DDP")
    parser.add_argument("--one-word", action="store_true", help="name no switch")
    args = parser.parse_args()
    if "RANK" in os.environ:
        return train(args) if args.ranks_per_host == 1 else be_host(args.ranks_per_host)
    backends = [args.backend] if args.backend else ["tributary", "gloo"]
    seconds: dict[str, list[float]] = {}
    for _ in range(args.repetitions):
        for backend in backends:
            for run in on_a_star(args, backend):
                seconds.setdefault(run.get("protocol", backend), []).append(run["communication_s"])
                print(json.dumps({"backend": backend} | run), flush=True)
    medians = {backend: statistics.median(times) for backend, times in seconds.items()}
    for backend, median in medians.items():
        print(f"{backend:9}  {median * 1e3:.0f} ms of communication in a step")
    if medians.keys() == {"tributary", "gloo"}:
        print(f"ratio      {medians['tributary'] / medians['gloo']:.2f}")
    return 0


def on_a_star(args: argparse.Namespace, backend: str) -> list[dict[str, Any]]:
    """Run this file on every host; what rank 0 says, once for each protocol."""
    star = ["--hosts", str(args.hosts), "--rate", args.rate, "--loss", args.loss]
    rank = [__file__, "--backend", backend, "--steps", str(args.steps), "--layers", str(args.layers)]
    rank += ["--width", str(args.width), *(["--sharded"] if args.sharded else [])]
    rank += ["--ranks-per-host", str(args.ranks_per_host), *(["--one-word"] if args.one_word else [])]
    rank += ["--protocol", *args.protocol] if args.protocol and backend == "tributary" else []
    command = [sys.executable, "-m", "tributary", "lab", "star", *star, "--", sys.executable, *rank]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def be_host(ranks: int) -> int:
    """Start all ranks of this host, which the star has started as one."""
    host, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    numbers = [{"RANK": str(host * ranks + local), "WORLD_SIZE": str(hosts * ranks)} for local in range(ranks)]
    command = [sys.executable, *sys.argv, "--ranks-per-host", "1"]
    running = [subprocess.Popen(command, env=os.environ | own) for own in numbers]
    return max(abs(rank.wait()) for rank in running)


def train(args: argparse.Namespace) -> int:
    """Train on this rank, under one protocol after the other."""
    import torch
    import torch.distributed as dist

    import tributary.torch

    torch.set_num_threads(1)
    if args.one_word:
        os.environ.pop("TRIBUTARY_SWITCH", None)
    dist.init_process_group(args.backend, timeout=timedelta(seconds=300))
    if not args.protocol:
        train_in(args, dist.group.WORLD, {})
    for protocol in args.protocol:
        # A group without options of its own has those of the default group.
        options = tributary.torch.Options.from_environment(os.environ | {"TRIBUTARY_PROTOCOL": protocol})
        group = dist.new_group(backend=args.backend, timeout=timedelta(seconds=300), pg_options=options)
        train_in(args, group, {"protocol": protocol})
        dist.destroy_process_group(group)
    dist.destroy_process_group()
    return 0


def train_in(args: argparse.Namespace, group: Any, report: dict[str, Any]) -> None:
    """Train in a group; rank 0 prints the medians of the slowest rank's times."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    plain = nn.Sequential(*[nn.Linear(args.width, args.width) for _ in range(args.layers)])
    model = sharded(plain, group) if args.sharded else DistributedDataParallel(plain, process_group=group)
    without = plain if args.sharded else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(dist.get_rank())

    def step(model: nn.Module = model) -> float:
        x = torch.randn(1, args.width, generator=draw)
        start = time.perf_counter()
        model(x).square().mean().backward()
        return time.perf_counter() - start

    def slowest(times: list[float]) -> float:
        all_times = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(all_times, op=dist.ReduceOp.MAX)
        return float(all_times.median())

    if args.sharded:
        x = torch.randn(1, args.width, generator=draw)
        if not torch.equal(model(x), plain(x)):
            raise SystemExit("the sharded model computes something else")
    for _ in range(3):
        step()
    alone, together, hashes = [], [], []
    carried = 0
    for _ in range(args.steps):
        dist.barrier()
        with contextlib.nullcontext() if args.sharded else model.no_sync():
            alone.append(step(without))
        optimizer.zero_grad()
        dist.barrier()
        before = sent_bytes()
        together.append(step())
        carried += sent_bytes() - before
        optimizer.step()
        optimizer.zero_grad()
        if not args.sharded:
            hashes.append(digest(model))
    compute, whole = slowest(alone), slowest(together)
    everyone: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, hashes)
    if any(other != hashes for other in everyone):
        raise SystemExit("ranks hold different parameters")
    if dist.get_rank() == 0:
        megabytes = sum(parameter.numel() for parameter in model.parameters()) * 4e-6
        report |= {"packets_sent": sent(group)} if args.protocol else {}
        report |= {"step_s": whole, "compute_s": compute, "communication_s": whole - compute, "megabytes": megabytes}
        report |= {"link_megabytes": carried / args.steps / 1e6}
        report |= {} if args.sharded else {"steps_with_equal_parameters": len(set(hashes))}
        print(json.dumps(report), flush=True)


def sent_bytes() -> int:
    """What the links of this rank's host have carried from it."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    links = (line.split(":") for line in lines)
    return sum(int(counts.split()[8]) for name, counts in links if name.strip() != "lo")


def sent(group: Any) -> int:
    """The packets that this rank has sent in a group."""
    from tributary.torch import stats

    packets = stats(group).packets
    return 0 if packets is None else packets.packets_sent


def sharded(plain: Any, group: Any) -> Any:
    """A copy of the model, sharded layer by layer with FSDP2; the backward pass fetches a layer ahead."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    model = copy.deepcopy(plain)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    layers = list(model)
    for layer, following in itertools.pairwise(layers):
        layer.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([layer])
    # Without a GPU's streams nothing else lets a gather go on while its rank goes on.
    model._set_unshard_async_op(True)
    return model


def digest(model: object) -> str:
    """The bits of all parameters."""
    sha = hashlib.sha256()
    for parameter in model.parameters():  # type: ignore[attr-defined]
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
