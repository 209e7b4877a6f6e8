"""What one rank does with PyTorch, in a process of its own: functions for the ``ranks`` fixture."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import tributary
import tributary.torch
from tributary.torch import Options


@contextmanager
def world(rank: int, size: int, meet: str, timeout: float = 20.0, **options: Any) -> Iterator[None]:
    """A default group that meets in a file."""
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group(
        "tributary",
        init_method=f"file://{meet}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
        pg_options=Options(**options) if options else None,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def digest(*tensors: torch.Tensor) -> str:
    """The bits of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def data(rank: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A rank's tensor: small integers, whose sums every type holds exactly."""
    draw = torch.Generator().manual_seed(100 + rank)
    return torch.randint(1, 5, shape, generator=draw).to(dtype)


def datas(size: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """All ranks' tensors, stacked."""
    return torch.stack([data(rank, dtype, *shape) for rank in range(size)])


IN_NETWORK = [torch.float32, torch.float16, torch.bfloat16, torch.int32]
ON_HOST = [torch.float64, torch.int64, torch.uint8]


def reductions(rank: int, size: int, meet: str) -> list[str]:
    """All types and operators; the bits of the results."""
    seen = []
    with world(rank, size, meet):
        for dtype in IN_NETWORK + ON_HOST:
            exact = datas(size, dtype, 1001).double()
            wants = {
                "SUM": exact.sum(0),
                "AVG": exact.sum(0) / size,
                "MIN": exact.amin(0),
                "MAX": exact.amax(0),
                "PRODUCT": exact.prod(0),
            }
            for name, want in wants.items():
                if name == "AVG" and not dtype.is_floating_point:
                    want = want.trunc()
                tensor = data(rank, dtype, 1001)
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
                torch.testing.assert_close(tensor, want.to(dtype))
                seen.append(digest(tensor))
        stats = tributary.torch.stats()
        assert stats.network["all_reduce"].collectives == 2 * len(IN_NETWORK)
        reasons = {reason for _, reason in stats.host}
        assert "the network does not know the operator min" in reasons
        assert "the network cannot sum torch.float64" in reasons
    return seen


def layouts(rank: int, size: int, meet: str) -> None:
    """Tensors of every shape and memory layout."""
    with world(rank, size, meet):
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
    with world(rank, size, meet):
        for dtype in [*IN_NETWORK, *ON_HOST, torch.bool, torch.complex64]:
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


def reduces_and_scatters(rank: int, size: int, meet: str, protocol: str) -> None:
    """Reduce, and reduce-scatter in all its forms."""
    with world(rank, size, meet, protocol=protocol):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            total = datas(size, dtype, size * 3).sum(0)
            mine = total[3 * rank : 3 * rank + 3]
            tensor = data(rank, dtype, size * 3)
            dist.reduce(tensor, 1)
            # Gloo leaves partial sums on the other ranks.
            if rank == 1 or dtype != torch.float64:
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
        for part in (rank, (rank + 1) % size):
            # FSDP2 keeps its part where it was; another rank's place is read until the end.
            source = data(rank, torch.float32, size * 3)
            out = source[3 * part : 3 * part + 3]
            dist.reduce_scatter_single(out, source)
            assert torch.equal(out, datas(size, torch.float32, size * 3).sum(0)[3 * rank : 3 * rank + 3])
        out = torch.empty(6)[::2]
        dist.reduce_scatter_single(out, data(rank, torch.float32, size * 3))
        assert torch.equal(out, datas(size, torch.float32, size * 3).sum(0)[3 * rank : 3 * rank + 3])
        uneven = list(data(rank, torch.float32, 6).split([1, 2, 3]))
        out = torch.empty(rank + 1)
        dist.reduce_scatter(out, uneven)
        assert torch.equal(out, datas(size, torch.float32, 6).sum(0).split([1, 2, 3])[rank])


def spread(rank: int, size: int, meet: str, switch: str) -> list[str]:
    """Tensors that are cut and tensors that are not, over several switches."""
    seen = []
    with world(rank, size, meet, switch=switch):
        for elements in (1, 1000, 131_071, 131_072, 300_001):
            tensor = data(rank, torch.float32, elements)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, datas(size, torch.float32, elements).sum(0))
            seen.append(digest(tensor))
            tensor = data(rank, torch.float64, elements)
            dist.broadcast(tensor, 1)
            assert torch.equal(tensor, data(1, torch.float64, elements))
        for part in (10, 100_000):
            out = torch.empty(part)
            dist.reduce_scatter_single(out, data(rank, torch.float32, size * part))
            total = datas(size, torch.float32, size * part).sum(0)
            assert torch.equal(out, total[part * rank : part * (rank + 1)])
        for _ in range(3):
            dist.barrier()
        stats = tributary.torch.stats()
        assert stats.packets is not None
        assert stats.packets.in_network == 1.0
    return seen


def profiled(rank: int, size: int, meet: str) -> list[str]:
    """The names of the events in a profile."""
    with world(rank, size, meet):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            dist.all_reduce(torch.ones(1000))
            work = dist.broadcast(torch.ones(1000), 0, async_op=True)
            assert work is not None
            work.wait()
            dist.all_gather([torch.empty(2) for _ in range(size)], torch.ones(2))
        return sorted({str(event.name) for event in profile.events()})


def moves(rank: int, size: int, meet: str) -> None:
    """What moves data: all of it over the host path."""
    with world(rank, size, meet):
        gathered = [torch.empty(2) for _ in range(size)]
        dist.all_gather(gathered, torch.full((2,), float(rank)))
        assert [int(tensor[0]) for tensor in gathered] == list(range(size))
        whole = torch.empty(2 * size)
        dist.all_gather_single(whole, torch.full((2,), float(rank)))
        assert whole.tolist() == [float(r) for r in range(size) for _ in range(2)]
        part = torch.empty(2)
        dist.scatter(part, [torch.full((2,), float(r)) for r in range(size)] if rank == 1 else None, src=1)
        assert part.tolist() == [rank, rank]
        lists = [torch.empty(2) for _ in range(size)] if rank == 2 else None
        dist.gather(part, lists, dst=2)
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
            heard = torch.zeros(3)
            assert dist.recv(heard) == 0
            assert heard.sum() == 3
        dist.barrier()
        assert "all_gather" in {name for name, _ in tributary.torch.stats().host}


def works(rank: int, size: int, meet: str) -> list[str]:
    """Operations under way: many at once, futures, questions."""
    with world(rank, size, meet):
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
    with world(rank, size, meet):
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


def missing(rank: int, size: int, meet: str) -> tuple[str, str]:
    """The last rank does not come to the third collective: what the others hear."""
    with world(rank, size, meet, timeout=2.0):
        dist.all_reduce(torch.ones(4))
        dist.barrier()
        if rank == size - 1:
            time.sleep(3.5)
            return "", ""
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def impatient(rank: int, size: int, meet: str) -> None:
    """A wait that is shorter than the collective."""
    with world(rank, size, meet):
        dist.barrier()
        if rank == 1:
            time.sleep(0.6)
        tensor = torch.ones(4)
        handle = dist.all_reduce(tensor, async_op=True)
        if rank == 0:
            try:
                handle.wait(timedelta(milliseconds=50))
            except RuntimeError as error:
                assert "all_reduce 2 of group 0 is still under way" in str(error)
            else:
                raise AssertionError("rank 1 was still asleep")
        handle.wait()
        assert tensor.tolist() == [size] * 4


def strict(rank: int, size: int, meet: str) -> None:
    """TRIBUTARY_FALLBACK=error."""
    with world(rank, size, meet, fallback="error"):
        dist.all_reduce(torch.ones(3))
        for tensor, op, word in [
            (torch.ones(3), dist.ReduceOp.MAX, "operator max"),
            (torch.ones(3, dtype=torch.float64), dist.ReduceOp.SUM, "float64"),
        ]:
            try:
                dist.all_reduce(tensor, op=op)
            except tributary.Unsupported as error:
                assert word in str(error)
                assert "TRIBUTARY_FALLBACK=gloo" in str(error)
            else:
                raise AssertionError("it was summed")
        dist.all_gather_object([None] * size, "moves, sums nothing")


def refusals(rank: int, size: int, meet: str) -> None:
    """What goes neither way."""
    with world(rank, size, meet):
        try:
            dist.all_reduce(torch.eye(3).to_sparse())
        except tributary.Unsupported as error:
            assert "to_dense" in str(error)
        else:
            raise AssertionError("it was summed")
        dist.barrier()


def nonfinite(rank: int, size: int, meet: str) -> list[list[bool]]:
    """One rank's NaN and infinity reach all."""
    with world(rank, size, meet):
        gradient = torch.ones(1000)
        if rank == 1:
            gradient[3], gradient[500] = float("nan"), float("inf")
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    return [gradient.isfinite().tolist()]


def hooked(rank: int, size: int, meet: str) -> str:
    """DDP over Gloo with our hook: the gradients go through the network."""
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=size)
    group = dist.new_group(backend="tributary", timeout=timedelta(seconds=20))
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 5))
    model.register_comm_hook(group, tributary.torch.allreduce_hook)
    for _ in range(3):
        model(torch.randn(4, 20)).square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert tributary.torch.stats(group).network["all_reduce"].bytes >= 3 * 4 * 105
    dist.destroy_process_group()
    return digest(*gradients)


def agreeing_through(rank: int, size: int, meet: str, switch: str) -> list[str]:
    """As :func:`agreeing`, through a switch that runs already."""
    return agreeing(rank, size, meet, 5, switch=switch)


def agreeing(rank: int, size: int, meet: str, steps: int, **options: Any) -> list[str]:
    """Train with DDP; the parameters' bits after every step."""
    seen = []
    with world(rank, size, meet, **options):
        torch.manual_seed(1)
        layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.005)
        optimizer = torch.optim.Adam(model.parameters())
        draw = torch.Generator().manual_seed(rank)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 32, generator=draw)).square().mean().backward()
            optimizer.step()
            seen.append(digest(*model.parameters()))
    return seen


def bereaved(rank: int, size: int, meet: str, switch: str | None) -> tuple[str, str]:
    """Train with DDP until somebody is missed; the error's type and sentence."""
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    # Nobody waits for this timeout in a test that passes.
    dist.init_process_group(
        "tributary",
        init_method=f"file://{meet}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=500),
        pg_options=Options(switch=switch),
    )
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 8))
        print("training", flush=True)
        while True:
            model(torch.randn(8, 32)).square().mean().backward()
    except RuntimeError as error:
        return type(error).__name__, str(error)
    finally:
        dist.destroy_process_group()


class LazyStreams:
    """Streams of a device that does not exist: what they are given is done when somebody waits for it, not before."""

    def __init__(self) -> None:
        self._caller, self._copies = LazyStream(), LazyStream()
        self._tensors: list[torch.Tensor] = []

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Let the tensor count as the device's."""
        self._tensors.append(tensor)
        return tensor

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's memory is the device's."""
        memory = tensor.untyped_storage().data_ptr()
        return any(memory == mine.untyped_storage().data_ptr() for mine in self._tensors)

    def launch(self, kernel: Callable[[], Any]) -> None:
        """Give the caller's stream a kernel."""
        self._caller.queue.append(kernel)

    def current(self, device: torch.device) -> LazyStream:
        """The caller's stream."""
        return self._caller

    def side(self, device: torch.device) -> LazyStream:
        """The stream for copies."""
        return self._copies

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Memory of the host."""
        return torch.full(like.shape, -1, dtype=like.dtype)

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: LazyStream) -> None:
        """Copy in turn."""
        stream.queue.append(lambda: target.copy_(source))


class LazyStream:
    """One of them, and its own event: the point up to which it must be done."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], Any]] = []

    def record_event(self) -> LazyEvent:
        """The point that the stream has been told up to."""
        return LazyEvent(self, list(self.queue))

    def wait_event(self, event: LazyEvent) -> None:
        """Go on after that point only."""
        self.queue.append(event.synchronize)

    def wait_stream(self, other: LazyStream) -> None:
        """Go on after all that the other was given so far."""
        self.wait_event(other.record_event())


class LazyEvent:
    """A point in a stream."""

    def __init__(self, stream: LazyStream, before: list[Callable[[], Any]]) -> None:
        self._stream, self._before = stream, before

    def synchronize(self) -> None:
        """Do what was before it and is not done yet."""
        for kernel in self._before:
            if kernel in self._stream.queue:
                self._stream.queue.remove(kernel)
                kernel()


def staged(rank: int, size: int, meet: str) -> None:
    """Operations on tensors that count as a GPU's."""
    from tributary.torch import staging

    device = LazyStreams()
    staging.streams = device
    before = staging.is_staged
    staging.is_staged = device.has
    try:
        with world(rank, size, meet):
            for dtype in (torch.float32, torch.float64):
                tensor = device.tensor(torch.zeros(1000, dtype=dtype))
                device.launch(partial(tensor.fill_, rank + 1))
                work = dist.all_reduce(tensor, async_op=True)
                assert work is not None
                work.wait()
                assert tensor.unique().tolist() == [3.0]
                work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True)
                assert work is not None
                assert work.get_future().wait()[0] is not None
                assert tensor.unique().tolist() == [3.0]
                tensor = device.tensor(torch.full((7,), float(rank), dtype=dtype))
                dist.broadcast(tensor, 1)
                assert tensor.unique().tolist() == [1.0]
                out = device.tensor(torch.zeros(2, dtype=dtype))
                source = device.tensor(torch.arange(4, dtype=dtype))
                dist.reduce_scatter_single(out, source)
                assert out.tolist() == [4.0 * rank, 4.0 * rank + 2.0]
                gathered = [device.tensor(torch.zeros(2, dtype=dtype)) for _ in range(size)]
                dist.all_gather(gathered, out)
                assert torch.cat(gathered).tolist() == [0.0, 2.0, 4.0, 6.0]
    finally:
        staging.streams = staging.CudaStreams()
        staging.is_staged = before
