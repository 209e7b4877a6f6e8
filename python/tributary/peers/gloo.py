"""One rank of PyTorch's all-reduce with Gloo or another backend, as ``tributary lab bench`` runs it on every host.

Started with rank, world size, the address of rank 0 and the interface, it joins and then follows lines on its input,
``ELEMENTS ITERS [DENSITY]``: it sums that many float32 that often, and answers with one line of JSON. Small sums are
back to back; before large ones all ranks meet. With a density it sums sparse tensors that have about this share of the
elements. It ends with its input.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

#: Bytes from which all ranks meet before a sum. They copy the input before it, and ranks that share cores would measure
#: how long they wait for each other's copies.
_LARGE = 1 << 20


def cpu_seconds() -> float:
    """CPU time of this process, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def retransmitted_segments() -> int:
    """TCP segments that this network namespace sent again."""
    lines = Path("/proc/self/net/snmp").read_text().splitlines()
    names, values = [line.split() for line in lines if line.startswith("Tcp:")]
    return int(values[names.index("RetransSegs")])


def measure(dist: Any, source: Any, iters: int) -> dict[str, float | int]:
    """Sum a copy of ``source`` that often; return the median time and the costs."""
    dist.all_reduce(data := source.clone())  # Warm up: connections, buffers.
    meets = source.numel() * source.element_size() >= _LARGE
    seconds = []
    cpu = 0.0
    segments = retransmitted_segments()
    for _ in range(iters):
        # Gloo sums in place: without fresh data the values would grow to infinity.
        data = source.clone() if source.is_sparse else data.copy_(source)
        if meets:
            dist.barrier()
        cpu_start, start = cpu_seconds(), time.perf_counter()
        dist.all_reduce(data)
        seconds.append(time.perf_counter() - start)
        cpu += cpu_seconds() - cpu_start
    return {
        "seconds": statistics.median(seconds),
        "cpu_seconds": cpu,
        "retransmissions": retransmitted_segments() - segments,
    }


def main() -> int:
    """Join, then carry out commands until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m tributary.peers.gloo", description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--rendezvous", metavar="ADDR:PORT", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--timeout", type=float, metavar="S", default=120.0)
    args = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = args.interface
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        hint = "pip install 'tributary-ina[torch]', or in a clone: make torch"
        print(f"PyTorch cannot be imported ({error}); install it with: {hint}", file=sys.stderr)
        return 3
    torch.set_num_threads(1)
    torch.manual_seed(args.rank)
    dist.init_process_group(
        args.backend,
        init_method=f"tcp://{args.rendezvous}",
        rank=args.rank,
        world_size=args.world_size,
        timeout=timedelta(seconds=args.timeout),
    )
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        elements, iters, *density = line.split()
        source = torch.randn(int(elements))
        if density:
            there = torch.rand(int(elements)) < float(density[0])
            source = (source * there).to_sparse()
        print(json.dumps(measure(dist, source, int(iters))), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
