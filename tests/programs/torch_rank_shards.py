"""What one rank does with shards, as FSDP does: functions for the ``ranks`` fixture."""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed as dist

import tributary.torch
from torch_groups import data, default_group

SIZES = [1, 63, 1000, 4097, 100_003]


def gathers(rank: int, size: int, meet: str, protocol: str, options: str) -> list[str]:
    """All-gathers of every type; the ways that they took."""
    with default_group(rank, size, meet, protocol=protocol, options=options):
        for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.bool, torch.int64, torch.complex64):
            for elements in SIZES:
                shards = [data(other, torch.int64, elements).to(dtype) for other in range(size)]
                whole = torch.empty(size * elements, dtype=dtype)
                dist.all_gather_into_tensor(whole, shards[rank])
                assert torch.equal(whole, torch.cat(shards)), (dtype, elements)
        several = [torch.empty(size * 2000), torch.empty(size * 33)]
        with dist._coalescing_manager(async_ops=True) as coalesced:
            for whole in several:
                dist.all_gather_into_tensor(whole, torch.full((whole.numel() // size,), float(rank)))
        coalesced.wait()
        for whole in several:
            assert whole.reshape(size, -1).mean(1).tolist() == list(range(size))
        stats = tributary.torch.stats()
        return sorted({*stats.network, *(f"host {name}" for name, _ in stats.host)})


def overlapping(rank: int, size: int, meet: str, switch: str | None, protocol: str) -> None:
    """Reduce-scatters and all-gathers under way at the same time, as FSDP2 has them."""
    given: dict[str, Any] = {} if switch is None else {"switch": switch}
    with default_group(rank, size, meet, protocol=protocol, **given):
        works = []
        for step in range(6):
            elements = 5000 + step
            source = torch.full((size * elements,), float(rank + step))
            mine, shard = torch.empty(elements), torch.full((elements,), 10.0 * rank + step)
            whole = torch.empty(size * elements)
            average = dist.reduce_scatter_tensor(mine, source, op=dist.ReduceOp.AVG, async_op=True)
            gathered = dist.all_gather_into_tensor(whole, shard, async_op=True)
            works.append((step, average, mine, gathered, whole))
        for step, average, mine, gathered, whole in works:
            average.wait()
            gathered.wait()
            assert torch.allclose(mine, torch.full_like(mine, (size - 1) / 2 + step))
            assert whole.reshape(size, -1).mean(1).tolist() == [10.0 * other + step for other in range(size)]


def crowded(rank: int, size: int, meet: str, switch: str, protocol: str) -> list[str]:
    """Gathers at a switch that has no room for a second job; what the log says of that."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("tributary.torch")
    log.addHandler(handler)
    try:
        overlapping(rank, size, meet, switch, protocol)
    finally:
        log.removeHandler(handler)
    return lines


def moving(rank: int, size: int, meet: str, switch: str, what: str, elements: int) -> int:
    """One operation on this many float32 in all; how many packets this rank has sent again."""
    with default_group(rank, size, meet, switch=switch):
        whole, shard = torch.ones(elements), torch.ones(elements // size)
        if what == "reduce-scatter":
            dist.reduce_scatter_tensor(shard, whole)
        elif what == "all-gather":
            dist.all_gather_into_tensor(whole, shard)
        else:
            dist.all_reduce(whole)
        packets = tributary.torch.stats().packets
        assert packets is not None
        return packets.retransmissions
