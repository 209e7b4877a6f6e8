"""How groups end: with operations under way, with ranks that are gone, and without anybody who holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_leaving
from conftest import Ranks


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("options", ["", "numbers=fixed"])
def test_what_all_ranks_have_started_ends_before_the_group(ranks: Ranks, meet: str, options: str) -> None:
    for sums in ranks(torch_rank_leaving.destroys_with_work_pending, 3, meet, options):
        assert sums == [6.0] * 50


def test_what_a_rank_has_not_started_when_it_destroys_the_group_fails_with_that_sentence(
    ranks: Ranks, meet: str
) -> None:
    errors = ranks(torch_rank_leaving.destroys_with_work_of_its_own, 2, meet)[0]
    assert errors[0].startswith("RankLostError: all_reduce 2 of group 0")
    assert errors[0].endswith("rank 1 has destroyed the group")


def test_a_switch_waits_for_no_rank_that_is_known_to_be_dead(ranks: Ranks, meet: str) -> None:
    # The rank would be waited for until its turn comes: this is longer than a test may take.
    assert ranks(torch_rank_leaving.leaves_a_dead_rank, 3, meet) == ["left", "left", "dead"]
