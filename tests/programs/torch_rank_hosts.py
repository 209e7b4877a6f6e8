"""What one rank does in a group that spans hosts with several ranks each: functions for the ``ranks`` fixture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import torch_rank_local
import tributary.torch
from torch_groups import data, datas, default_group, digest
from torch_rank import FLOATS, INTEGERS
from torch_rank_local import in_memory
from tributary.torch import addresses


@contextmanager
def host(number: int) -> Iterator[None]:
    """As if this process were on the host of this number, where no other host's processes share its memory."""
    with (
        mock.patch.object(addresses, "own_network", return_value=f"host {number}"),
        mock.patch.object(addresses, "is_loopback", return_value=False),
    ):
        yield


def on_hosts(rank: int, size: int, hosts: list[int], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call another test's function on the rank's host, with hosts' memory switched on."""
    with host(hosts[rank]):
        return in_memory(function, rank, size, *arguments)


def every_operation(rank: int, size: int, meet: str, switch: str | None) -> tuple[str | None, list[str], bool]:
    """All types of all operations, whose results are exact; why the network sums, what it summed, and whether here."""
    with default_group(rank, size, meet, local="on", switch=switch):
        for dtype in FLOATS + INTEGERS:
            exact = datas(size, dtype, 1001).double()
            dist.all_reduce(total := data(rank, dtype, 1001))
            assert torch.equal(total, exact.sum(0).to(dtype))
            dist.all_reduce(largest := data(rank, dtype, 1001), op=dist.ReduceOp.MAX)
            assert torch.equal(largest, exact.amax(0).to(dtype))
            for root in range(size):
                dist.reduce(here := data(rank, dtype, 1001), root)
                assert torch.equal(here, exact.sum(0).to(dtype) if rank == root else data(rank, dtype, 1001))
                dist.broadcast(sent := data(rank, dtype, 1001), root)
                assert torch.equal(sent, data(root, dtype, 1001))
            shards = [data(rank, dtype, size, 7)[index] for index in range(size)]
            dist.reduce_scatter(own := torch.empty(7, dtype=dtype), shards)
            everything = datas(size, dtype, size, 7).double().sum(0).to(dtype)
            assert torch.equal(own, everything[rank])
            dist.all_gather_single(gathered := torch.empty(size * 5000, dtype=dtype), data(rank, dtype, 5000))
            assert torch.equal(gathered, datas(size, dtype, 5000).flatten())
        dist.all_reduce(mean := torch.tensor([rank, 1, -rank]), op=dist.ReduceOp.AVG)
        ranks = sum(range(size))
        assert mean.tolist() == [ranks // size, 1, -(ranks // size)]
        half = torch.full((3,), 30_000.0, dtype=torch.float16)
        dist.all_reduce(half, op=dist.ReduceOp.AVG)
        assert half.tolist() == [30_000.0] * 3
        whole = data(rank, torch.float32, size * 300_000)
        dist.reduce_scatter_single(whole[300_000 * rank : 300_000 * (rank + 1)], whole)
        want = datas(size, torch.float32, size * 300_000).sum(0)[300_000 * rank : 300_000 * (rank + 1)]
        assert torch.equal(whole[300_000 * rank : 300_000 * (rank + 1)], want)
        dist.all_reduce(strided := data(rank, torch.float32, 60, 80).t())
        assert torch.equal(strided, datas(size, torch.float32, 60, 80).sum(0).t())
        dist.barrier()
        stats = tributary.torch.stats()
        return stats.why_network, sorted(stats.network), stats.packets is not None


def why(rank: int, size: int, meet: str, choices: dict[str, Any]) -> str | None:
    """Why the network sums; a sum is right."""
    with default_group(rank, size, meet, local="on", **choices):
        dist.all_reduce(tensor := torch.ones(10))
        assert tensor.tolist() == [size] * 10
        return tributary.torch.stats().why_network


def meshes(rank: int, size: int, meet: str) -> list[str | None]:
    """Why the network sums in the groups of a mesh, of two dimensions: across hosts, and within one."""
    with default_group(rank, size, meet, local="on"):
        mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("across", "within"))
        reasons = []
        for name in ("across", "within"):
            group = mesh.get_group(name)
            dist.all_reduce(tensor := torch.full((5,), float(rank)), group=group)
            assert tensor.tolist() == [float(sum(dist.get_process_group_ranks(group)))] * 5
            reasons.append(tributary.torch.stats(group).why_network)
        return reasons


def rounded(rank: int, size: int, meet: str, switch: str) -> list[str]:
    """The bits of sums that are rounded, which all ranks must have."""
    seen = []
    with default_group(rank, size, meet, local="on", switch=switch):
        for dtype in FLOATS:
            draw = torch.Generator().manual_seed(rank)
            for op in ("SUM", "AVG", "PRODUCT"):
                for elements in (3001, 1_200_003):
                    tensor = torch.randn(elements, generator=draw).to(dtype)
                    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                    seen.append(digest(tensor))
    return seen


def missing(rank: int, size: int, meet: str, absent: int) -> tuple[str, str]:
    """A rank does not come to the third collective; the errors of the others."""
    with default_group(rank, size, meet, timeout=2.0, local="on"):
        dist.all_reduce(torch.ones(4))
        dist.barrier()
        if rank == absent:
            time.sleep(9)
            return "", ""
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def leaves(rank: int, size: int, meet: str, leaver: int) -> str:
    """A rank destroys the group before an operation of the others; what they learn."""
    with default_group(rank, size, meet, timeout=60.0, local="on"):
        dist.all_reduce(torch.ones(4))
        if rank == leaver:
            return ""
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"
    return "nothing went wrong"


def bereaved(
    rank: int, size: int, hosts: list[int], meet: str, elements: int, switch: str | None
) -> tuple[str, str, float]:
    """Sum until a rank is missed; every sum before is right. The error."""
    with host(hosts[rank]):
        return torch_rank_local.bereaved(rank, size, meet, elements, switch=switch)


def _on_link() -> tuple[int, int]:
    """Bytes that this host has sent and received."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        line = next(line for line in file if line.strip().startswith(os.environ["GLOO_SOCKET_IFNAME"]))
    counts = line.split(":")[1].split()
    return int(counts[8]), int(counts[0])


def over_links(elements: int, times: int) -> dict[str, Any]:
    """Sums of a rank of several hosts, each of which is right; what its host sent and received meanwhile."""
    torch.set_num_threads(1)
    dist.init_process_group("tributary")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(elements))
    dist.barrier()
    before = _on_link()
    for step in range(times):
        dist.all_reduce(tensor := torch.full((elements,), float(rank + step)))
        assert tensor.min() == tensor.max() == sum(range(size)) + size * step
    sent, received = (late - early for early, late in zip(before, _on_link(), strict=True))
    stats = tributary.torch.stats()
    again = 0 if stats.packets is None else stats.packets.retransmissions
    dist.destroy_process_group()
    return {"sent": sent, "received": received, "again": again, "why": stats.why_network}


if __name__ == "__main__":
    # One host of a star, with several ranks: this process, and one for each other.
    number, per_host, words = int(os.environ["RANK"]), int(sys.argv[1]), sys.argv[2:]
    environment = os.environ | {"WORLD_SIZE": str(int(os.environ["WORLD_SIZE"]) * per_host)}
    others = [
        subprocess.Popen(
            [sys.executable, __file__, "0", *words], env=environment | {"RANK": str(number * per_host + index)}
        )
        for index in range(1, per_host)
    ]
    if per_host:
        os.environ.update(environment, RANK=str(number * per_host))
    found = over_links(*map(int, words))
    # Only the first rank of a host counts packets, so that it alone reports.
    if per_host:
        print(json.dumps(found))
    for other in others:
        assert other.wait(100) == 0
