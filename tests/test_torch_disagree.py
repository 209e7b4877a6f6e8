"""Ranks that bring other sizes than each other learn so at once, on every rank, whichever way the operation takes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_disagree
from conftest import Ranks
from torch_rank_disagree import ODD, OPERATIONS
from tributary.errors import MismatchError
from tributary.torch import agreement

#: What only the odd rank's own tensors are wrong in: its error says how, and the others' that it has one.
OWN = {
    "all_gather": "the input has 6 elements of torch.float32, and the tensor for it, number 0, has 5 elements",
    "all_gather of a short list": "there are 2 output tensors for 3 ranks",
    "a short scatter list": "there are 2 input tensors for 3 ranks",
    "all_to_all_single of split sizes that are too many": "the input's split sizes are [3, 3, 3]",
    "all_gather_single of a wrong output": "the output has 15001 elements of torch.float32, which is not 3 times",
    "reduce_scatter_single": "the input has 15 elements of torch.float32, which is not 3 times the output's 6",
    "all_reduce of elements that share memory": "cannot write to a tensor whose elements share memory",
    "all_reduce of a sparse tensor": "is not supported; use tensor.to_dense()",
}


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_rank_learns_at_once_that_one_brings_another_size(ranks: Ranks, meet: str, name: str) -> None:
    for rank, (kind, sentence) in enumerate(ranks(torch_rank_disagree.odd, 3, meet, name)):
        assert " 2 of group 0" in sentence, (kind, sentence)
        if rank == ODD and name in OWN:
            assert OWN[name] in sentence
            assert kind in ("MismatchError", "UnsupportedError")
            continue
        assert kind == "MismatchError", sentence
        assert f"rank {ODD}" in sentence or "ranks" in sentence, sentence


def test_a_traceback_shows_the_callers_lines_and_one_of_this_package(ranks: Ranks, meet: str) -> None:
    assert ranks(torch_rank_disagree.frames, 2, meet) == [[["untraced.py"]] * 2] * 2


@pytest.mark.parametrize("name", [name for name in OWN if name != "a short scatter list"])
def test_a_mistake_that_all_ranks_make_leaves_the_group_in_order(ranks: Ranks, meet: str, name: str) -> None:
    for sentence in ranks(torch_rank_disagree.alike, 3, meet, name):
        assert OWN[name] in sentence


@pytest.mark.parametrize(
    ("brought", "stands_for"),
    [
        ((1, 3, "i32"), "an operation that takes the host path"),
        ((1, 13, "i32"), None),
        ((1, 6, "f32"), None),
        ((1, 3, "f32"), None),
        ((1, 0, "i32"), "an operation of at least 1 MiB"),
        ((1, 0, "f32"), None),
    ],
)
def test_only_a_sum_that_may_stand_for_another_operation_is_explained_as_one(
    brought: tuple[int, int, str], stands_for: str | None
) -> None:
    hint = agreement.hint(3, is_spread=True)
    assert callable(hint)
    sentence = "ranks disagree"
    said = hint(MismatchError(sentence, [(0, 5, "f32"), brought]), sentence)
    assert (said == sentence) if stands_for is None else said.endswith(f"may stand for {stands_for})")


def test_three_sizes_name_three_ranks_and_what_each_brings(ranks: Ranks, meet: str) -> None:
    sides = [f"rank {rank} brings all_reduce of {3 + rank} elements of torch.float32 by SUM" for rank in range(3)]
    for kind, sentence in ranks(torch_rank_disagree.of_three_sizes, 3, meet):
        assert kind == "MismatchError"
        assert sentence == f"all_reduce 2 of group 0: ranks disagree: {'; '.join(sides)}"
