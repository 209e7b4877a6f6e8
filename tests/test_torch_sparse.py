"""Sparse tensors in PyTorch: through the network where the group's protocol sums such, and told where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_sparse
from conftest import Ranks
from rank_sparse import PROTOCOL


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums_of_every_type_and_shape(ranks: Ranks, meet: str, size: int) -> None:
    digests = ranks(torch_rank_sparse.sums, size, meet, PROTOCOL)
    assert digests == [digests[0]] * size


@pytest.mark.parametrize(
    ("options", "op", "words"),
    [
        ("", "MAX", "all_reduce of a sparse tensor is SUM or AVG; for MAX use tensor.to_dense()"),
        ("reproducible=tree", "SUM", "has no sum with TRIBUTARY_OPTIONS=reproducible=tree"),
    ],
)
def test_what_is_not_a_sum_of_sparse_tensors_is_refused(
    ranks: Ranks, meet: str, options: str, op: str, words: str
) -> None:
    ranks(torch_rank_sparse.refusals, 2, meet, PROTOCOL, options, op, words)


@pytest.mark.parametrize("size", [1, 2])
def test_ddp_trains_an_embedding_with_sparse_gradients(ranks: Ranks, meet: str, size: int) -> None:
    digests = ranks(torch_rank_sparse.embeddings, size, meet, PROTOCOL)
    assert digests == [digests[0]] * size


def test_ddp_sends_the_largest_gradients_and_the_others_later(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank_sparse.topk, 2, meet, PROTOCOL)
    assert digests[0] == digests[1]


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.5])
def test_a_ratio_that_is_not_a_share_is_refused(ratio: float) -> None:
    import tributary.torch

    with pytest.raises(ValueError, match="above 0 and up to 1"):
        tributary.torch.TopK(ratio=ratio)
