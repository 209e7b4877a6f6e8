"""A GPU that does not exist, and what one rank does with tensors that count as its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from torch_groups import default_group


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
        # In fixed point float64 takes the host path.
        with default_group(rank, size, meet, options="numbers=fixed"):
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
