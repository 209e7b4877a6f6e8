"""Check that all ranks bring the same operation to the host path, by a small sum through the network beside it.

If one rank's operation takes the host path and another's the network, Gloo waits for its whole timeout and does not say
for which rank. The sum names at once the ranks that bring something else, and at a timeout those that did not come.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from tributary.errors import MismatchError
from tributary.torch.operators import op_name
from tributary.torch.transit import Transit

#: Reductions end on no rank before all ranks have begun, so that the sum delays no rank. Ranks may bring tensors
#: of different sizes to operations that only move data.
REDUCTIONS = {
    "all_reduce",
    "all_reduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
}
MOVEMENTS = {
    "all_gather",
    "all_gather_single",
    "all_gather_coalesced",
    "all_gather_single_coalesced",
    "all_to_all",
    "all_to_all_single",
}


def describe(name: str, tensors: Sequence[torch.Tensor], opts: Any) -> str | None:
    """A rank's description of its operation; None for operations that may end on some ranks before others begin."""
    types = ", ".join(sorted({str(tensor.dtype) for tensor in tensors}))
    if name in REDUCTIONS:
        return f"{name}: {op_name(opts.reduceOp)} of {sum(tensor.numel() for tensor in tensors)} {types}"
    return f"{name} of {types}" if name in MOVEMENTS else None


def checksum(what: str, rank: int, size: int) -> torch.Tensor:
    """A rank's contribution to the sum: a checksum of its description at the rank's index, zeros elsewhere."""
    mine = torch.zeros(size, dtype=torch.int32)
    mine[rank] = zlib.crc32(what.encode()) & 0x7FFF_FFFF
    return mine


class Agreement:
    """The sum that goes beside an operation of the host path."""

    def __init__(self, transit: Transit, sums: torch.Tensor, rank: int, what: str) -> None:
        self._transit, self._sums, self._rank, self._what = transit, sums, rank, what

    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._transit.is_done()

    def wait(self, patience: timedelta) -> None:
        """Wait for all ranks' descriptions; raise an error that names ranks that did not come or disagree."""
        self._transit.wait(patience)
        others = (self._sums != self._sums[self._rank]).nonzero().flatten().tolist()
        if others:
            ranks = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
            brings = "brings" if len(others) == 1 else "bring"
            raise MismatchError(
                f"ranks disagree: rank {self._rank} brings {self._what} to the host path, {ranks} {brings} another "
                "operation, type or size"
            )
