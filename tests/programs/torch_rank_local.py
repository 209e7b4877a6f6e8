"""What one rank does where all ranks share a host's memory: functions for the ``ranks`` fixture."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions

import tributary
import tributary.torch
from torch_groups import data, datas, default_group, digest
from torch_rank import BITWISE, FLOATS, INTEGERS
from tributary import Operator
from tributary.torch import spread
from tributary.torch.plugin import backend_of


def in_memory(function: Callable[..., Any], rank: int, size: int, *arguments: Any) -> Any:
    """Call another test's function with this host's memory switched on."""
    before = os.environ["TRIBUTARY_LOCAL"]
    os.environ["TRIBUTARY_LOCAL"] = "on"
    try:
        return function(rank, size, *arguments)
    finally:
        os.environ["TRIBUTARY_LOCAL"] = before


def called(rank: int, size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The same, for the fixture."""
    return in_memory(function, rank, size, *arguments)


def roundings(rank: int, size: int, meet: str, local: str) -> list[str]:
    """Sums, averages and products that are rounded, of few and many elements; their bits, whichever way they took."""
    seen = []
    with default_group(rank, size, meet, local=local):
        for dtype in FLOATS:
            draw = torch.Generator().manual_seed(rank)
            for op in ("SUM", "AVG", "PRODUCT"):
                for elements in (3001, 200_003):
                    scales = torch.logspace(-6, 4, elements)
                    tensor = (torch.randn(elements, generator=draw) * scales).to(dtype)
                    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                    seen.append(digest(tensor))
        stats = tributary.torch.stats()
        way = stats.memory if local == "on" else stats.network
        assert way["all_reduce"].collectives == len(seen)
        assert (stats.why_network is None) == (local == "on")
    return seen


def operations(rank: int, size: int) -> None:
    """All types and operators of all operations that take memory; each result is exact."""
    for dtype in FLOATS + INTEGERS:
        exact = datas(size, dtype, 1001).double()
        dist.all_reduce(total := data(rank, dtype, 1001))
        assert torch.equal(total, exact.sum(0).to(dtype))
        dist.all_reduce(largest := data(rank, dtype, 1001), op=dist.ReduceOp.MAX)
        assert torch.equal(largest, exact.amax(0).to(dtype))
        if dtype in INTEGERS:
            for name, function in BITWISE.items():
                dist.all_reduce(bits := data(rank, dtype, 1001), op=getattr(dist.ReduceOp, name))
                want = data(0, dtype, 1001)
                for other in range(1, size):
                    want = function(want, data(other, dtype, 1001))
                assert torch.equal(bits, want)
        for root in range(size):
            dist.reduce(here := data(rank, dtype, 1001), root)
            assert torch.equal(here, exact.sum(0).to(dtype) if rank == root else data(rank, dtype, 1001))
            dist.broadcast(sent := data(rank, dtype, 1001), root)
            assert torch.equal(sent, data(root, dtype, 1001))
        shards = [data(rank, dtype, size, 7)[index] for index in range(size)]
        dist.reduce_scatter(own := torch.empty(7, dtype=dtype), shards)
        everything = datas(size, dtype, size, 7).double().sum(0).to(dtype)
        assert torch.equal(own, everything[rank])
        dist.reduce_scatter_single(own := torch.empty(7, dtype=dtype), data(rank, dtype, size * 7))
        assert torch.equal(own, datas(size, dtype, size * 7).double().sum(0).to(dtype)[7 * rank : 7 * rank + 7])
        for elements in (5, 5000):
            gathered = torch.empty(size * elements, dtype=dtype)
            dist.all_gather_single(gathered, data(rank, dtype, elements))
            assert torch.equal(gathered, datas(size, dtype, elements).flatten())
    dist.all_reduce(mean := torch.tensor([rank, 1, -rank]), op=dist.ReduceOp.AVG)
    ranks = sum(range(size))
    assert mean.tolist() == [ranks // size, 1, -(ranks // size)]
    dist.all_reduce(half := torch.full((3,), 30_000.0, dtype=torch.float16), op=dist.ReduceOp.AVG)
    assert half.tolist() == [30_000.0] * 3
    dist.barrier()
    # In place: the shard of the input and of the output.
    for elements in (1000, 300_000):
        own_shard = slice(elements * rank, elements * (rank + 1))
        whole = data(rank, torch.float32, size * elements)
        dist.reduce_scatter_single(whole[own_shard], whole)
        assert torch.equal(whole[own_shard], datas(size, torch.float32, size * elements).sum(0)[own_shard])
    dist.all_reduce(strided := data(rank, torch.float32, 60, 80).t())
    assert torch.equal(strided, datas(size, torch.float32, 60, 80).sum(0).t())


def every_operation(rank: int, size: int, meet: str) -> str:
    """All of them, without a switch; the line at the end."""
    no_switch = mock.patch.object(tributary, "Switch", side_effect=OSError("no switch is needed"))
    with no_switch, default_group(rank, size, meet, local="on"):
        operations(rank, size)
        stats = tributary.torch.stats()
        assert not stats.network
        assert {name for name, _ in stats.host} <= {"all_gather"}
        return str(stats)


def at_once(rank: int, size: int, meet: str, local: str) -> None:
    """Sums whose caller waits at once: they have ended when the call returns, and count as others do."""
    opts = AllreduceOptions()
    opts.asyncOp = False
    with default_group(rank, size, meet, local=local):
        group = dist.distributed_c10d._get_default_group()
        for elements in (1, 256, 200_000, 300_000):
            tensor, total = data(rank, torch.float32, elements), datas(size, torch.float32, elements).sum(0)
            work = group.allreduce([tensor], opts)
            # What may be shared out among hosts goes the usual way, in which the wait is the caller's.
            if local == "on" or tensor.nbytes < spread.LEAST_BYTES:
                assert work.is_completed()
                assert torch.equal(tensor, total)
            assert work.wait()
            assert work.is_completed()
            assert work.is_success()
            assert torch.equal(work.result()[0], total)
            assert torch.equal(work.get_future().wait()[0], total)
        # What needs more than memory takes as long as it needs.
        dist.all_reduce(columns := torch.ones(4, 6).T)
        assert columns.tolist() == torch.full((6, 4), float(size)).tolist()
        dist.all_reduce(flags := torch.tensor([rank == 0, False]))
        assert flags.tolist() == [True, False]
        dist.all_reduce(nothing := torch.ones(0))
        assert nothing.numel() == 0
        stats = tributary.torch.stats()
        way = stats.memory if local == "on" else stats.network
        assert way["all_reduce"].collectives == 7
        assert way["all_reduce"].bytes == 4 * (1 + 256 + 200_000 + 300_000 + 24) + 2
        assert 0 < stats.waited_s <= stats.under_way_s


def several_in_flight(rank: int, size: int, meet: str) -> None:
    """Operations that nobody waits for until all have begun; and those of callbacks."""
    with default_group(rank, size, meet, local="on"):
        tensors = [data(rank, torch.float32, elements) for elements in (1, 500_000, 3, 70_000, 1000)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        dist.all_reduce(last := torch.ones(5))
        assert last.tolist() == [size] * 5
        for tensor, work in zip(tensors, works, strict=True):
            assert work is not None
            work.wait()
            assert torch.equal(tensor, datas(size, torch.float32, tensor.numel()).sum(0))
        future = dist.all_reduce(torch.ones(5), async_op=True).get_future()

        def again(done: Any) -> Any:
            return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()

        assert future.then(again).wait()[0].tolist() == [size * size] * 5
        polled = dist.all_reduce(tensor := torch.ones(300_000), async_op=True)
        assert polled is not None
        while not polled.is_completed():
            time.sleep(0.001)
        assert tensor.sum().item() == 300_000 * size


def custom(rank: int, size: int, meet: str) -> None:
    """Operators of a person's own go through the network; complex numbers and factors are sums in memory."""
    with default_group(rank, size, meet, local="on"):
        farthest = Operator.expression("a if abs(a) > abs(b) else b", dtype="f32")
        tributary.torch.all_reduce(tensor := torch.tensor([-5.0 * (rank == 0), 1.0]), op=farthest)
        assert tensor.tolist() == [-5.0, 1.0]
        dist.all_reduce(number := torch.ones(3, dtype=torch.complex64))
        assert number.tolist() == [size] * 3
        dist.all_reduce(scaled := torch.ones(3), op=dist._make_nccl_premul_sum(2.0))
        assert scaled.tolist() == [2.0 * size] * 3
        stats = tributary.torch.stats()
        assert stats.network["all_reduce"].collectives == 1
        assert stats.memory["all_reduce"].collectives == 2
        assert str(stats) == "in this host's memory 81.8%, in network 18.2% of 44 B"


def strict(rank: int, size: int, meet: str) -> None:
    """What memory cannot do is an error, if no other way is allowed."""
    with default_group(rank, size, meet, fallback="error"):
        with pytest.raises(tributary.UnsupportedError, match=r"cannot do a band of f32: .*; TRIBUTARY_FALLBACK=gloo"):
            dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND)
        dist.all_reduce(torch.ones(3))


def one_off(rank: int, size: int, meet: str, off: int) -> str | None:
    """One rank has switched it off; why the network sums."""
    with default_group(rank, size, meet, local="off" if rank == off else "on"):
        dist.all_reduce(tensor := torch.ones(10))
        assert tensor.tolist() == [size] * 10
        return tributary.torch.stats().why_network


def why(rank: int, size: int, meet: str, choices: dict[str, Any]) -> str | None:
    """Why the network sums; a sum is right."""
    with default_group(rank, size, meet, local="on", **choices):
        dist.all_reduce(tensor := torch.ones(10))
        assert tensor.tolist() == [size] * 10
        return tributary.torch.stats().why_network


def many_groups(rank: int, size: int, meet: str, count: int) -> tuple[int, int]:
    """More descriptors and more mappings after many groups than after a few."""

    def open_now() -> tuple[int, int]:
        # Groups of other tests may have left garbage that has descriptors.
        gc.collect()
        maps = Path("/proc/self/maps").read_text().count("memfd:tributary")
        return len(os.listdir("/proc/self/fd")), maps

    with default_group(rank, size, meet, local="on"):
        before = (0, 0)
        for index in range(count):
            group = dist.new_group()
            dist.all_reduce(tensor := torch.ones(100), group=group)
            assert tensor.sum().item() == 100 * size
            dist.destroy_process_group(group)
            if index == 5:
                before = open_now()
        after = open_now()
    return after[0] - before[0], after[1] - before[1]


def bereaved(
    rank: int, size: int, meet: str, elements: int, timeout: float = 500.0, **options: Any
) -> tuple[str, str, float]:
    """Sum until a rank is missed; every sum before is right. The error, and how long its wait took."""
    begun = time.monotonic()
    try:
        with default_group(rank, size, meet, timeout=500.0, local="on", **options):
            backend_of().set_timeout(timedelta(seconds=timeout))
            # Ranks join jobs for large sums at the first one: who dies there is missed in a join, and not in a sum.
            dist.all_reduce(torch.ones(elements))
            print("summing", flush=True)
            for step in range(10_000_000):
                tensor = torch.full((elements,), float(rank + step % 7))
                begun = time.monotonic()
                dist.all_reduce(tensor)
                want = float(sum(range(size)) + size * (step % 7))
                assert tensor.min().item() == tensor.max().item() == want
    except RuntimeError as error:
        return type(error).__name__, str(error), time.monotonic() - begun
    return "nothing", "went wrong", 0.0


def _in_fork(function: Callable[[], list[str]]) -> list[str]:
    """What a function returns in a fork of this process, which ends after it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child was killed"
    sentences: list[str] = json.loads(said)
    return sentences


def forking(rank: int, size: int, meet: str) -> list[str]:
    """Fork while sums are under way; what each use of the group ends in there. Here the group goes on."""
    with default_group(rank, size, meet, local="on"):
        dist.all_reduce(tensor := torch.ones(4))
        sums = [torch.full((300_000,), float(rank)) for _ in range(20)]
        works = [dist.all_reduce(sum_, async_op=True) for sum_ in sums]
        uses = (
            lambda: dist.all_reduce(tensor),
            lambda: dist.broadcast(tensor, 0),
            lambda: dist.barrier(),
            works[0].wait,
            works[-1].wait,
            lambda: dist.destroy_process_group(),
        )

        def refusals() -> list[str]:
            sentences = []
            for use in uses:
                try:
                    use()
                except RuntimeError as error:
                    sentences.append(f"{type(error).__name__}: {error}")
                else:
                    sentences.append("")
            return sentences

        said = _in_fork(refusals)
        for work, sum_ in zip(works, sums, strict=True):
            work.wait()
            assert sum_.min() == sum_.max() == sum(range(size))
        dist.all_reduce(tensor)
        assert tensor.tolist() == [float(size * size)] * 4
        assert _in_fork(list) == []
        dist.barrier()
    return said
