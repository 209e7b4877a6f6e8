"""Tensors on a GPU travel through pinned host memory, which is what the network reads and writes.

The order of streams, tested with streams that are made up, **untested on hardware**:

- A copy to the host runs on a stream of its own, after all that the caller's stream was given before the operation. The
  caller waits for it, since its elements must be there when packets are made, and all ranks must submit in one order.
- A copy back runs on the same stream, after all that the caller's stream was given before the operation (a tensor that
  is only written may still be read by earlier kernels). The operation ends when the copy has: kernels that are launched
  after its `wait`, or from its future's callbacks, see the result whatever their stream.

Neither copy needs `record_stream`: the tensors are kept alive until the host has seen the copy's end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch


class Streams(Protocol):
    """What staging needs of a device: its streams and events, and memory that it can copy to and from at full speed."""

    def current(self, device: torch.device) -> Any:
        """The caller's stream."""

    def side(self, device: torch.device) -> Any:
        """A stream for copies, the same for all operations."""

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Host memory for the tensor's elements, in C order."""

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: Any) -> None:
        """Copy on the stream, in turn."""


class CudaStreams:
    """CUDA's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sides: dict[torch.device, Any] = {}

    def current(self, device: torch.device) -> Any:
        """The caller's stream."""
        return torch.cuda.current_stream(device)

    def side(self, device: torch.device) -> Any:
        """A stream for copies, the same for all operations."""
        with self._lock:
            if device not in self._sides:
                self._sides[device] = torch.cuda.Stream(device)
            return self._sides[device]

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        """Host memory for the tensor's elements, in C order."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: Any) -> None:
        """Copy on the stream, in turn."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)


#: The streams in use; tests replace them.
streams: Streams = CudaStreams()


def is_staged(tensor: torch.Tensor) -> bool:
    """Whether the tensor is in memory that the network cannot reach."""
    return tensor.device.type == "cuda"


def fetch(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in host memory, in C order, after everything that its stream was given so far."""
    host = streams.pinned(tensor)
    side = streams.side(tensor.device)
    side.wait_stream(streams.current(tensor.device))
    streams.copy(host, tensor, side)
    side.record_event().synchronize()
    return host


class Landing:
    """A tensor that gets a result. Make it when the operation begins, in the caller's thread."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._ready = streams.current(tensor.device).record_event()

    def bring(self, host: torch.Tensor) -> None:
        """Copy the result to the tensor; return when it is there."""
        side = streams.side(self._tensor.device)
        side.wait_event(self._ready)
        # Layouts other than C order need a detour over the device, which PyTorch makes by itself.
        streams.copy(self._tensor, host, side)
        side.record_event().synchronize()


@dataclass(frozen=True)
class Staged:
    """The arguments of an operation on the host path, with host memory in place of tensors on a GPU."""

    arguments: list[Any]
    averaged: list[torch.Tensor]
    back: list[Callable[[], None]]

    @staticmethod
    def of(arguments: list[Any], averaged: Sequence[torch.Tensor], brings_back: bool) -> Staged:
        """Fetch the tensors from the GPU. The first argument is what Gloo writes, if it writes anything."""
        hosts: dict[int, torch.Tensor] = {}
        back: list[Callable[[], None]] = []

        def stage(value: Any, written: bool) -> Any:
            if isinstance(value, list):
                return [stage(item, written) for item in value]
            if not isinstance(value, torch.Tensor) or not is_staged(value):
                return value
            if id(value) not in hosts:
                hosts[id(value)] = fetch(value.detach())
                if written:
                    back.append(partial(Landing(value.detach()).bring, hosts[id(value)]))
            return hosts[id(value)]

        staged = [stage(argument, brings_back and index == 0) for index, argument in enumerate(arguments)]
        return Staged(staged, [hosts.get(id(tensor), tensor) for tensor in averaged], back)

    def after(self, finish: Callable[[], None] | None) -> Callable[[], None] | None:
        """What remains to do when Gloo is done: Gloo's own last step, then the copies back."""
        if not self.back:
            return finish

        def finish_all() -> None:
            with torch.no_grad():
                for step in [finish, *self.back]:
                    if step is not None:
                        step()

        return finish_all
