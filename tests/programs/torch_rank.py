"""What one rank does with PyTorch, in a process of its own: functions for the ``ranks`` fixture.

Here are the operations. ``torch_rank_failures`` has what goes wrong, ``torch_rank_training`` what trains,
``torch_rank_staged`` what counts as a GPU's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from typing import Any

import pytest
import torch
import torch.distributed as dist

import tributary
import tributary.torch
from torch_groups import data, datas, default_group, digest

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}


def reductions(rank: int, size: int, meet: str, options: str, in_network: int, protocol: str = "auto") -> list[str]:
    """All types and operators; the bits of the results."""
    seen = []
    with default_group(rank, size, meet, protocol=protocol, options=options):
        for dtype in FLOATS + INTEGERS:
            exact = datas(size, dtype, 1001).double()
            wants = {
                "SUM": exact.sum(0),
                "AVG": exact.sum(0) / size,
                "MIN": exact.amin(0),
                "MAX": exact.amax(0),
                "PRODUCT": exact.prod(0),
            }
            if dtype in INTEGERS:
                inputs = datas(size, dtype, 1001)
                wants |= {name: reduce(function, inputs) for name, function in BITWISE.items()}
            for name, want in wants.items():
                if name == "AVG" and not dtype.is_floating_point:
                    want = want.trunc()
                tensor = data(rank, dtype, 1001)
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
                torch.testing.assert_close(tensor, want.to(dtype))
                seen.append(digest(tensor))
        stats = tributary.torch.stats()
        assert stats.network["all_reduce"].collectives == in_network
        reasons = {reason for _, reason in stats.host}
        fixed = (
            "switchml cannot do a min of f32 in fixed point: choose numbers=float, or sum or average f32, f16 or bf16"
        )
        assert (fixed in reasons) == (options == "numbers=fixed")
    return seen


def flags(rank: int, size: int, meet: str, options: str) -> None:
    """Every operator that flags have, and one that they do not have."""
    with default_group(rank, size, meet, options=options):
        every = torch.tensor([[False, False, True, True, True], [False, True, False, True, True], [False] * 4 + [True]])
        any_, all_, odd = every.any(0), every.all(0), every.sum(0) % 2 == 1
        wants = {"SUM": any_, "MAX": any_, "BOR": any_, "PRODUCT": all_, "MIN": all_, "BAND": all_, "BXOR": odd}
        for name, want in wants.items():
            tensor = every[rank].clone()
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
            assert torch.equal(tensor, want), name
            # What PyTorch computes with these must be what it computes with flags of its own.
            assert tensor.view(torch.uint8).amax() <= 1
        with pytest.raises(tributary.UnsupportedError, match=r"torch\.bool has no AVG: use tensor\.float"):
            dist.all_reduce(every[rank].clone(), op=dist.ReduceOp.AVG)
        assert "all_reduce" in tributary.torch.stats().network


def roundings(rank: int, size: int, meet: str, protocol: str) -> list[str]:
    """Floats whose sums and products are rounded; the bits of the results."""
    seen = []
    with default_group(rank, size, meet, protocol=protocol):
        for dtype in FLOATS:
            draw = torch.Generator().manual_seed(rank)
            for op in ("SUM", "AVG", "PRODUCT"):
                tensor = (torch.randn(3001, generator=draw) * torch.logspace(-6, 4, 3001)).to(dtype)
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                seen.append(digest(tensor))
    return seen


def layouts(rank: int, size: int, meet: str) -> None:
    """Tensors of every shape and memory layout."""
    with default_group(rank, size, meet):
        views: list[Callable[[torch.Tensor], torch.Tensor]] = [
            lambda x: x,
            lambda x: x.t(),
            lambda x: x[::2, 1:],
            lambda x: x[0, 0],
            lambda x: x[:0],
            lambda x: x.expand(3, *x.shape)[1],
        ]
        for make in views:
            base = data(rank, torch.float32, 6, 8)
            dist.all_reduce(make(base))
            want = torch.stack([make(data(r, torch.float32, 6, 8)) for r in range(size)]).sum(0)
            assert torch.equal(make(base), want)
        parameter = torch.nn.Parameter(torch.ones(5))
        dist.all_reduce(parameter.data)
        assert parameter.tolist() == [size] * 5
        with torch.inference_mode():
            dist.all_reduce(scalar := torch.tensor(1.5))
            assert scalar.item() == 1.5 * size


def broadcasts(rank: int, size: int, meet: str) -> list[str]:
    """Broadcast of every type, whatever its size, and from every root."""
    seen = []
    with default_group(rank, size, meet):
        for dtype in [*FLOATS, *INTEGERS, torch.bool, torch.complex64]:
            for shape in [(7,), (), (0,), (4, 5)]:
                for root in range(size):
                    tensor = data(rank, dtype, *shape)
                    dist.broadcast(tensor, root)
                    assert torch.equal(tensor, data(root, dtype, *shape))
                    seen.append(digest(tensor))
        strided = data(rank, torch.int64, 5, 4).t()
        dist.broadcast(strided, 1)
        assert torch.equal(strided, data(1, torch.int64, 5, 4).t())
        nan = torch.tensor([float("nan"), float("-inf"), -0.0])
        sent = nan.clone() if rank == 0 else torch.ones(3)
        dist.broadcast(sent, 0)
        assert digest(sent) == digest(nan)
        assert tributary.torch.stats().host == {}
    return seen


def reduces_and_scatters(rank: int, size: int, meet: str, protocol: str, options: str) -> None:
    """Reduce, and reduce-scatter in all its forms."""
    on_host = [torch.float64] if options == "numbers=fixed" else []
    with default_group(rank, size, meet, protocol=protocol, options=options):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            total = datas(size, dtype, size * 3).sum(0)
            mine = total[3 * rank : 3 * rank + 3]
            tensor = data(rank, dtype, size * 3)
            dist.reduce(tensor, 1)
            # Gloo leaves partial sums on the other ranks.
            if rank == 1 or dtype not in on_host:
                assert torch.equal(tensor, total if rank == 1 else data(rank, dtype, size * 3))
            source, out = data(rank, dtype, size * 3), torch.empty(3, dtype=dtype)
            dist.reduce_scatter_single(out, source)
            assert torch.equal(out, mine)
            assert torch.equal(source, data(rank, dtype, size * 3)), "the input was touched"
            dist.reduce_scatter_single(out, source, op=dist.ReduceOp.AVG)
            torch.testing.assert_close(out, mine / size)
            dist.reduce_scatter(out, list(source.split(3)))
            assert torch.equal(out, mine)
        halves = dist._make_nccl_premul_sum(0.5)
        out = torch.empty(3)
        source = data(rank, torch.float32, size * 3)
        dist.reduce_scatter_single(out, source, op=halves)
        assert torch.equal(out, datas(size, torch.float32, size * 3).sum(0)[3 * rank : 3 * rank + 3] / 2)
        for shard in (rank, (rank + 1) % size):
            # FSDP2 keeps its shard where it was; another rank's shard is read until the end.
            source = data(rank, torch.float32, size * 3)
            out = source[3 * shard : 3 * shard + 3]
            dist.reduce_scatter_single(out, source)
            assert torch.equal(out, datas(size, torch.float32, size * 3).sum(0)[3 * rank : 3 * rank + 3])
        out = torch.empty(6)[::2]
        dist.reduce_scatter_single(out, data(rank, torch.float32, size * 3))
        assert torch.equal(out, datas(size, torch.float32, size * 3).sum(0)[3 * rank : 3 * rank + 3])
        uneven = list(data(rank, torch.float32, 6).split([1, 2, 3]))
        out = torch.empty(rank + 1)
        dist.reduce_scatter(out, uneven)
        assert torch.equal(out, datas(size, torch.float32, 6).sum(0).split([1, 2, 3])[rank])


def spread(rank: int, size: int, meet: str, switch: str) -> tuple[list[str], int]:
    """Tensors that are cut and tensors that are not, over several switches; their bits, and the packets sent again."""
    seen = []
    with default_group(rank, size, meet, switch=switch):
        for elements in (1, 1000, 131_071, 131_072, 300_001):
            tensor = data(rank, torch.float32, elements)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, datas(size, torch.float32, elements).sum(0))
            seen.append(digest(tensor))
            tensor = data(rank, torch.float64, elements)
            dist.broadcast(tensor, 1)
            assert torch.equal(tensor, data(1, torch.float64, elements))
        for elements in (10, 100_000):
            out = torch.empty(elements)
            dist.reduce_scatter_single(out, data(rank, torch.float32, size * elements))
            total = datas(size, torch.float32, size * elements).sum(0)
            assert torch.equal(out, total[elements * rank : elements * (rank + 1)])
        for _ in range(3):
            dist.barrier()
        stats = tributary.torch.stats()
        assert stats.packets is not None
        assert stats.packets.in_network == 1.0
    return seen, stats.packets.retransmissions


def profiled(rank: int, size: int, meet: str, trace: str) -> list[str]:
    """The names of the events in a profile, which goes to a file of each rank."""
    with default_group(rank, size, meet):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            dist.all_reduce(torch.ones(1000))
            work = dist.broadcast(torch.ones(1000), 0, async_op=True)
            assert work is not None
            work.wait()
            dist.all_gather([torch.empty(2) for _ in range(size)], torch.ones(2))
            dist.all_gather_single(torch.empty(2000 * size), torch.ones(2000))
        profile.export_chrome_trace(f"{trace}-{rank}.json")
        return sorted({str(event.name) for event in profile.events()})


def stepped(rank: int, size: int, meet: str) -> list[Any]:
    """Three steps; in the second one rank 1 is late."""
    with default_group(rank, size, meet):
        steps, seen = tributary.torch.Steps(), []
        for number in range(3):
            if number == 1 and rank == 1:
                time.sleep(3)
            dist.all_reduce(torch.ones(1000))
            seen.append(steps.end())
        assert tributary.torch.stats().waited_s >= sum(step.waited_s for step in seen)
        return seen


def moves(rank: int, size: int, meet: str) -> None:
    """What moves data: all of it over the host path."""
    with default_group(rank, size, meet):
        gathered = [torch.empty(2) for _ in range(size)]
        dist.all_gather(gathered, torch.full((2,), float(rank)))
        assert [int(tensor[0]) for tensor in gathered] == list(range(size))
        whole = torch.empty(2 * size)
        dist.all_gather_single(whole, torch.full((2,), float(rank)))
        assert whole.tolist() == [float(r) for r in range(size) for _ in range(2)]
        own = torch.empty(2)
        dist.scatter(own, [torch.full((2,), float(r)) for r in range(size)] if rank == 1 else None, src=1)
        assert own.tolist() == [rank, rank]
        lists = [torch.empty(2) for _ in range(size)] if rank == 2 else None
        dist.gather(own, lists, dst=2)
        received = torch.empty(size)
        dist.all_to_all_single(received, torch.full((size,), float(rank)))
        assert received.tolist() == list(range(size))
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": r} for r in range(size)]
        said = [f"from {rank}"]
        dist.broadcast_object_list(said, src=1)
        assert said == ["from 1"]
        if rank == 0:
            dist.send(torch.ones(3), 1)
        elif rank == 1:
            arrived = torch.zeros(3)
            assert dist.recv(arrived) == 0
            assert arrived.sum() == 3
        dist.barrier()
        assert "all_gather" in {name for name, _ in tributary.torch.stats().host}


def works(rank: int, size: int, meet: str) -> list[str]:
    """Operations under way: many at once, futures, questions."""
    with default_group(rank, size, meet):
        tensors = [data(rank, torch.float32, 50_000 + i) for i in range(8)]
        handles = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for handle in reversed(handles):
            assert handle.wait()
            assert handle.is_completed()
            assert handle.exception() is None
        for i, tensor in enumerate(tensors):
            assert torch.equal(tensor, datas(size, torch.float32, 50_000 + i).sum(0))
        strided = data(rank, torch.float32, 30, 30)
        handle = dist.all_reduce(strided.t(), async_op=True)
        deadline = time.monotonic() + 20
        while not handle.is_completed():
            assert time.monotonic() < deadline
        assert torch.equal(strided, datas(size, torch.float32, 30, 30).sum(0))
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        assert future.then(lambda f: f.value()[0] * 2).wait().tolist() == [2 * size] * 3
        handle = dist.all_reduce(torch.ones(3, dtype=torch.float64), op=dist.ReduceOp.AVG, async_op=True)
        assert handle.get_future().wait()[0].tolist() == [1, 1, 1]
    return [digest(tensor) for tensor in tensors]


def subgroups(rank: int, size: int, meet: str) -> None:
    """Groups in groups, each from a thread of its own; a group of one."""
    with default_group(rank, size, meet):
        pairs = [dist.new_group([left, right]) for left, right in [(0, 1), (1, 2), (0, 2)]]
        mine = [group for group in pairs if group != dist.GroupMember.NON_GROUP_MEMBER]
        totals = [torch.full((1000,), float(rank)) for _ in mine]

        def sum_often(group: Any, tensor: torch.Tensor) -> None:
            for _ in range(20):
                dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group)

        threads = [threading.Thread(target=sum_often, args=pair) for pair in zip(mine, totals, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        for group, tensor in zip(mine, totals, strict=True):
            members = dist.get_process_group_ranks(group)
            assert tensor.unique().tolist() == [sum(members) / 2]
            assert tributary.torch.stats(group).network["all_reduce"].collectives == 20
            # PyTorch gives half an hour to a group whose script gives nothing.
            assert tributary.torch.plugin.groups[group.group_name].options._timeout == timedelta(seconds=20)
        alone = [dist.new_group([r]) for r in range(size)][rank]
        one = torch.ones(3)
        dist.all_reduce(one, group=alone)
        dist.broadcast(one, rank, group=alone)
        dist.barrier(group=alone)
        assert one.tolist() == [1, 1, 1]
        dist.destroy_process_group(mine[0])
        dist.barrier()


def threads_in_turn(rank: int, size: int, meet: str) -> None:
    """Three threads start operations of one group, in an order that is the same on all ranks, and wait at once."""
    with default_group(rank, size, meet):
        turn, change = [0], threading.Condition()
        seen: dict[int, float] = {}

        def sum_often(thread: int) -> None:
            for label in range(thread, 60, 3):
                # Every third one over the host path. All are of one size: a wrong order would be a wrong sum.
                dtype = torch.float64 if label % 3 == 0 else torch.float32
                tensor = torch.full((1000,), float(10 * label + rank), dtype=dtype)
                with change:
                    while turn[0] != label:
                        change.wait()
                    work = dist.all_reduce(tensor, async_op=True)
                    turn[0] += 1
                    change.notify_all()
                assert work is not None
                work.wait()
                seen[label] = tensor[999].item()

        threads = [threading.Thread(target=sum_often, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert seen == {label: float(sum(10 * label + r for r in range(size))) for label in range(60)}
