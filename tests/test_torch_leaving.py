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


@pytest.mark.parametrize(("local", "size"), [("off", 2), ("on", 6)])
def test_a_group_that_only_sums_holds_four_descriptors_at_most_and_no_thread(
    ranks: Ranks, meet: str, local: str, size: int
) -> None:
    for rank, (descriptors, threads) in enumerate(ranks(torch_rank_leaving.idle_groups, size, meet, 20, local)):
        # Rank 0 also runs the switch, which has a connection of each member.
        assert descriptors <= 20 * (4 if rank > 0 else 4 + size)
        assert threads == []


@pytest.mark.parametrize("way", ["at once", "wait", "future"])
def test_a_group_that_failed_leaves_no_descriptor_no_thread_and_no_tensor(ranks: Ranks, meet: str, way: str) -> None:
    for descriptors, threads, tensors in ranks(torch_rank_leaving.fails, 2, meet, way, 3):
        assert descriptors <= 0
        assert threads == []
        assert tensors == 0


def test_a_send_of_a_group_without_a_host_path_waits_for_no_rank_but_its_own(ranks: Ranks, meet: str) -> None:
    assert ranks(torch_rank_leaving.sends_before_others_receive, 3, meet) == [[], [7.0, 8.0], [9.0]]


def test_a_receive_from_any_rank_of_all_waits_for_none_that_only_sums(ranks: Ranks, meet: str) -> None:
    assert ranks(torch_rank_leaving.receives_from_any_while_others_only_sum, 3, meet) == [[1, 7.0], [], []]


def test_a_receive_from_a_rank_that_never_comes_says_so(ranks: Ranks, meet: str) -> None:
    sentence = ranks(torch_rank_leaving.receives_from_a_rank_that_never_comes, 2, meet)[0]
    assert sentence.startswith("recv 1 of group ")
    assert sentence.endswith(
        "timed out after 0.2 s: rank 1 has not begun a send, a receive or another operation of this group's host path"
    )


def test_a_switch_waits_for_no_rank_that_is_known_to_be_dead(ranks: Ranks, meet: str) -> None:
    # The rank would be waited for until its turn comes: this is longer than a test may take.
    assert ranks(torch_rank_leaving.leaves_a_dead_rank, 3, meet) == ["left", "left", "dead"]
