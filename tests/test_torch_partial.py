"""DDP over averages that may lack the latest ranks: the same gradients on every rank, and told of."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_partial
from conftest import Ranks
from rank_panama import PROTOCOL


@pytest.mark.parametrize(("options", "lacks"), [("partial=14/16", 1), ("", 0)])
def test_ddp_averages_over_the_ranks_that_are_in_time_and_says_how_many(
    ranks: Ranks, tmp_path: Path, options: str, lacks: int
) -> None:
    size = 6
    whole = 2**size - 1
    told = ranks(torch_rank_partial.lacking, size, str(tmp_path / "meet"), PROTOCOL, options)
    assert all(seen == told[0][0] for seen, _, _ in told), "the same gradients on every rank"
    allowed = {whole / size}
    if lacks:
        allowed |= {(whole - 2**left_out) / (size - lacks) for left_out in range(size)}
    for _, contributed, values in told:
        assert all(min(abs(value - one) for one in allowed) < 1e-5 for value in values), values
        if lacks:
            assert contributed is not None
            assert (size - lacks) / size <= contributed < 1.0
        else:
            assert contributed is None
