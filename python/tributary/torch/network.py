"""A group's way through the network: its worker at the switch, and tensors submitted by their memory."""

from __future__ import annotations

import contextlib

import torch

import tributary
from tributary import _core
from tributary.torch.rendezvous import Meeting
from tributary.torch.tensors import DTYPES


class Network:
    """One rank's worker in a job of the group's own."""

    def __init__(self, meeting: Meeting, rank: int, size: int, timeout: float, protocol: str) -> None:
        self.group = tributary.connect(
            meeting.switch, job=meeting.job, rank=rank, world_size=size, timeout=timeout, protocol=protocol
        )
        self._core = self.group._core
        self._last: tributary.GroupStats | None = None

    def submit(self, source: torch.Tensor, target: torch.Tensor, op: str, timeout: float) -> _core.Pending:
        """Start `target <- op over all ranks of source`, both flat; the tensors live on until it has ended."""
        return self._core.submit_raw(
            source.data_ptr(),
            target.data_ptr(),
            source.numel(),
            DTYPES[source.dtype],
            op,
            timeout,
            (source, target),
        )

    def submit_nothing(self, timeout: float) -> _core.Pending:
        """Start a sum of no elements, which ends when every rank has started it: a barrier (Canary, section 6)."""
        return self._core.submit_raw(0, 0, 0, "i32", "sum", timeout, (None, None))

    def stats(self) -> tributary.GroupStats | None:
        """What the worker counted, at the latest when it was closed."""
        with contextlib.suppress(tributary.TributaryError):  # Once it is closed the last numbers stand.
            self._last = self.group.stats()
        return self._last

    def close(self) -> None:
        """Leave the job; what is under way fails."""
        self.stats()
        self.group.close()
