"""What communication costs each step of a training: :class:`Steps` and :class:`Step`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from tributary.torch.plugin import backend_of


@dataclass(frozen=True)
class Step:
    """One step, as this rank saw it."""

    #: From the end of the step before.
    seconds: float
    #: Seconds that this rank's threads spent in waits for operations. DDP waits in C++, which is not counted here.
    waited_s: float
    #: Seconds in which at least one operation of this rank was under way.
    under_way_s: float
    #: Bytes of this rank's tensors.
    bytes: int
    #: The rank that came last, as its operations were under way for the shortest time: all end together.
    straggler: int
    #: The share of the step in which the others' operations, on average, waited for that rank.
    straggler_share: float

    @property
    def rate(self) -> float:
        """Bytes of this rank's tensors for each second of the step."""
        return self.bytes / self.seconds


class Steps:
    """Measures the steps of a training: make one at its beginning, and call :meth:`end` after each step.

    Args:
        group: a group of the tributary backend; the default group if None.

    """

    def __init__(self, group: Any = None) -> None:
        """Begin the first step."""
        self._group = group
        self._begin()

    def _begin(self) -> None:
        self._before, self._begun = backend_of(self._group).stats(), time.monotonic()

    def end(self) -> Step:
        """The numbers of the step that ends here, after a sum of one number for each rank; all ranks call this."""
        backend = backend_of(self._group)
        now, before = backend.stats(), self._before
        seconds = time.monotonic() - self._begun
        under_way = torch.zeros(backend.size(), dtype=torch.float64)
        under_way[backend.rank()] = now.under_way_s - before.under_way_s
        dist.all_reduce(under_way, group=self._group)
        step = Step(
            seconds=seconds,
            waited_s=now.waited_s - before.waited_s,
            under_way_s=now.under_way_s - before.under_way_s,
            bytes=now.all_bytes - before.all_bytes,
            straggler=int(under_way.argmin()),
            straggler_share=float(_lost(under_way) / seconds),
        )
        self._begin()
        return step


def _lost(under_way: torch.Tensor) -> torch.Tensor:
    """The seconds that the ranks but the last one waited for that, on average."""
    others = max(1, under_way.numel() - 1)
    return (under_way - under_way.min()).sum() / others
