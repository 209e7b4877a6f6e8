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
