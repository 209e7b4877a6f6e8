"""Operators of a person's own in PyTorch: all_reduce with one, and DDP whose gradients the network combines with it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_operators
from conftest import Ranks
from rank_sparse import PROTOCOL
from tributary import _core


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("size", [1, 3])
def test_tensors_of_every_kind_are_combined_as_at_home(ranks: Ranks, meet: str, size: int) -> None:
    digests = ranks(torch_rank_operators.tensors, size, meet, PROTOCOL)
    assert digests == [digests[0]] * size


@pytest.mark.parametrize("protocol", ["auto", PROTOCOL])
def test_the_protocol_is_found_where_nobody_has_chosen_it(ranks: Ranks, meet: str, protocol: str) -> None:
    ranks(torch_rank_operators.expression, 2, meet, protocol)


def test_a_chosen_protocol_without_own_operators_is_an_error(ranks: Ranks, meet: str) -> None:
    other = next(name for name in _core.protocols() if not _core.takes_operators(name))
    sentence = f"{other} takes no custom operators: set TRIBUTARY_PROTOCOL"
    ranks(torch_rank_operators.refused, 2, meet, other, sentence)


def test_ranks_with_different_operators_all_fail(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_operators.different, 2, meet, PROTOCOL)


def test_tensors_of_other_elements_are_refused_before_anything_is_sent(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_operators.unfit, 2, meet, PROTOCOL)


def test_ddp_trains_with_gradients_that_an_operator_combines(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank_operators.training, 2, meet, PROTOCOL)
    assert digests[0] == digests[1]


def test_ddp_hook_sends_another_type_than_the_gradients(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank_operators.eight_bits, 3, meet, PROTOCOL)
    assert digests == [digests[0]] * 3
