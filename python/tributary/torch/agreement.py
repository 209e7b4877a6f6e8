"""Whether all ranks bring the same operation to the host path: a small sum through the network that goes beside it.

Gloo waits for its whole timeout where one rank's operation takes the host path and another's the network, and does not
say for whom. The sum tells at once who brings something else, and at a timeout who did not come.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from tributary.errors import Mismatch
from tributary.torch.operators import op_name
from tributary.torch.transit import Transit

#: Operations that end on no rank before all have begun, so that the sum holds nobody up; and those that only move, of
#: which ranks may bring parts of different sizes.
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


def said(name: str, tensors: Sequence[torch.Tensor], opts: Any) -> str | None:
    """What a rank says that it brings; None for operations that some ranks may end before others have begun."""
    types = ", ".join(sorted({str(tensor.dtype) for tensor in tensors}))
    if name in REDUCTIONS:
        return f"{name}: {op_name(opts.reduceOp)} of {sum(tensor.numel() for tensor in tensors)} {types}"
    return f"{name} of {types}" if name in MOVEMENTS else None


def words(what: str, rank: int, size: int) -> torch.Tensor:
    """What a rank adds to the sum: a checksum of what it says at its own place, zeros at the others'."""
    mine = torch.zeros(size, dtype=torch.int32)
    mine[rank] = zlib.crc32(what.encode()) & 0x7FFF_FFFF
    return mine


class Agreement:
    """The sum that goes beside an operation of the host path."""

    def __init__(self, transit: Transit, words: torch.Tensor, rank: int, what: str) -> None:
        self._transit, self._words, self._rank, self._what = transit, words, rank, what

    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._transit.is_done()

    def wait(self, patience: timedelta) -> None:
        """Wait until all ranks have said what they bring; raise who did not come, or who brings something else."""
        self._transit.wait(patience)
        others = (self._words != self._words[self._rank]).nonzero().flatten().tolist()
        if others:
            ranks = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
            brings = "brings" if len(others) == 1 else "bring"
            raise Mismatch(
                f"ranks disagree: rank {self._rank} brings {self._what} to the host path, {ranks} {brings} another "
                "operation, type or size"
            )
