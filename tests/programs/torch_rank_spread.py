"""What one rank does whose large sums are spread over switches and the ranks' hosts: for the ``ranks`` fixture."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import tributary.torch
from program import last_json, run
from torch_groups import default_group, digest, planned
from torch_rank_hosts import on_link, sent_again
from tributary.torch import plugin, spread
from tributary.torch.spread import Shares

#: Elements of two large tensors, one of which ends in the middle of a block.
LARGE = (300_000, 1_000_003)
#: The switch and the ranks' own hosts sum a half each.
HALVES = Shares([0.5, 0.5], [1e9, 1e9], 1e9, [1.0, 1.0], 1e9)


def measured_again(rank: int, size: int, meet: str, switches: str) -> int:
    """Sums between which the shares change, each of which is right; how often switches and hosts were measured."""
    with default_group(rank, size, meet, timeout=60.0, switch=switches):
        rendezvous = plugin.groups["0"]._present("")._rendezvous
        rendezvous.meeting = replace(rendezvous.meeting, hosts=list(range(size)))
        shares = [[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]]
        plans = mock.Mock(side_effect=[Shares(each, [1.0, 1.0], 1.0, [1.0, 1.0], 1.0) for each in shares])
        with planned(plans), mock.patch.object(spread, "AGAIN_BYTES", 4_000_000):
            for step in range(6):
                tensor = torch.full((LARGE[0],), float(rank + step))
                work = dist.all_reduce(tensor, async_op=True)
                if step % 2:
                    work.wait()
        dist.barrier()
        assert tensor.unique().tolist() == [size * (size - 1) / 2 + size * 5]
        return plans.call_count


def summed(
    rank: int, size: int, meet: str, switches: str, shares: list[float] | None
) -> tuple[str, list[str], list[tuple[str, float]]]:
    """The bits of sums whose order matters, with these shares of switches, servers and hosts, or with those that are
    measured; over which path each operation went; and the shares in the statistics."""
    with default_group(rank, size, meet, timeout=60.0, switch=switches):
        rendezvous = plugin.groups["0"]._present("")._rendezvous
        # As if each rank had a host of its own.
        rendezvous.meeting = replace(rendezvous.meeting, hosts=list(range(size)))
        fixed = None if shares is None else Shares(shares, [1e9] * len(shares), 1e9, shares, 1e9)
        draw = torch.Generator().manual_seed(rank)
        tensors = [torch.randn(elements, generator=draw) for elements in LARGE]
        scattered = torch.empty(LARGE[0] // size)
        with nullcontext() if fixed is None else planned(lambda *_: fixed):
            for tensor in tensors:
                dist.all_reduce(tensor)
        dist.reduce_scatter_tensor(scattered, torch.randn(LARGE[0] // size * size, generator=draw))
        whole = torch.empty(scattered.numel() * size)
        dist.all_gather_into_tensor(whole, scattered)
        dist.barrier()
        stats = tributary.torch.stats()
        ways = sorted({*stats.network, *(f"host {name}" for name, _ in stats.host)})
        return digest(*tensors, whole), ways, [(share.where, share.share) for share in stats.shares]


def shown(rank: int, size: int, meet: str, switches: str, shares: list[float]) -> list[tuple[str, str, str]]:
    """Sums with these shares; what `status --json`, `status` and `top` then show of them, on rank 0 at each switch."""
    with default_group(rank, size, meet, timeout=60.0, switch=switches):
        rendezvous = plugin.groups["0"]._present("")._rendezvous
        rendezvous.meeting = replace(rendezvous.meeting, hosts=list(range(size)))
        fixed = Shares(shares, [1e9] * len(shares), 1.5e9, [1.0, *shares[1:]], 2e9)
        with planned(lambda *_: fixed):
            dist.all_reduce(torch.ones(LARGE[0]))
        seen = [_shown(switch) for switch in switches.split(",")] if rank == 0 else []
        dist.barrier()
        return seen


def _shown(switch: str) -> tuple[str, str, str]:
    def ask(*words: str) -> Any:
        result = run(words[0], "--switch", switch, *words[1:])
        return last_json(result) if "--json" in words else result.stdout

    # The report and a sample of `top` come a moment after the sum.
    for _ in range(200):
        table, top = ask("status"), ask("top", "--once")
        if "large sums of" in table and "large sums of" in top:
            break
        time.sleep(0.05)
    jobs = [job["large_sums"] for job in ask("status", "--json")["jobs"] if "large_sums" in job]
    return json.dumps(jobs), table, top


def disagreeing(rank: int, size: int, meet: str, switches: str) -> tuple[str, str]:
    """One rank brings a small tensor to the others' first large operation; what this one learns."""
    # Nobody waits for this timeout in a test that passes.
    with default_group(rank, size, meet, timeout=500.0, switch=switches):
        rendezvous = plugin.groups["0"]._present("")._rendezvous
        rendezvous.meeting = replace(rendezvous.meeting, hosts=list(range(size)))
        return _learned(lambda: dist.all_reduce(torch.ones(10 if rank == 1 else LARGE[0])))


def _learned(operation: Callable[[], object]) -> tuple[str, str]:
    try:
        operation()
    except RuntimeError as error:
        return type(error).__name__, str(error)
    return "nothing", "went wrong"


def shards_and_a_small_tensor(rank: int, size: int, meet: str, switches: str, scatters: bool) -> tuple[str, str]:
    """Shards go from host to host, and one rank brings a small tensor instead; what this one learns."""
    with default_group(rank, size, meet, timeout=500.0, switch=switches):
        rendezvous = plugin.groups["0"]._present("")._rendezvous
        rendezvous.meeting = replace(rendezvous.meeting, hosts=list(range(size)))
        with planned(lambda *_: HALVES):
            dist.all_reduce(torch.ones(LARGE[0]))
        whole, shard = torch.ones(LARGE[0] // size * size), torch.ones(LARGE[0] // size)
        if rank != 1:
            single = dist.reduce_scatter_tensor if scatters else dist.all_gather_into_tensor
            return _learned(lambda: single(*((shard, whole) if scatters else (whole, shard))))
        if scatters:
            return _learned(lambda: dist.all_reduce(torch.ones(10)))
        return _learned(lambda: dist.all_gather_into_tensor(torch.ones(5 * size), torch.ones(5)))


def shards_over_links(elements: int, times: int) -> dict[str, Any]:
    """Shards of a rank of several hosts, one rank on each, scattered and gathered by hosts that sum the half of large
    sums; what this host's link carries meanwhile, and over which path operations went."""
    torch.set_num_threads(1)
    dist.init_process_group("tributary")
    rank, size = dist.get_rank(), dist.get_world_size()
    with planned(lambda *_: HALVES):
        dist.all_reduce(torch.ones(elements))
    shard, whole = torch.empty(elements // size), torch.empty(elements)

    def step(number: int) -> None:
        dist.reduce_scatter_tensor(shard, torch.full((elements,), float(rank + number)))
        dist.all_gather_into_tensor(whole, shard)
        dist.barrier()
        assert whole.unique().tolist() == [sum(range(size)) + float(size * number)]

    step(0)
    before, again = on_link(), sent_again()
    for number in range(times):
        step(number)
    sent, received = (late - early for early, late in zip(before, on_link(), strict=True))
    stats = tributary.torch.stats()
    found: dict[str, Any] = {"sent": sent, "received": received, "again": sent_again() - again}
    found |= {"network": sorted(stats.network), "host": sorted(name for name, _ in stats.host)}
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    # One host of a star.
    print(json.dumps(shards_over_links(*map(int, sys.argv[1:]))))
