"""Callbacks on the futures of collectives, and the collectives that callbacks start."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_callbacks
from conftest import Ranks
from torch_rank_callbacks import summed


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("size", [1, 3])
def test_collectives_of_callbacks_come_in_one_order_on_all_ranks(ranks: Ranks, meet: str, size: int) -> None:
    want = [[summed(size, label + i) for i in range(3)] for label in range(100, 200, 10)]
    assert ranks(torch_rank_callbacks.nested, size, meet) == [want] * size


def test_callbacks_of_one_group_start_collectives_of_another(ranks: Ranks, meet: str) -> None:
    want = [summed(2, label + i) for label in range(100, 200, 10) for i in (1, 3)]
    assert ranks(torch_rank_callbacks.among_groups, 2, meet) == [want] * 2


def test_a_collective_of_a_callback_that_a_rank_does_not_come_to_hits_its_timeout(ranks: Ranks, meet: str) -> None:
    for kind, sentence in ranks(torch_rank_callbacks.abandoned, 3, meet)[:2]:
        assert kind == "CollectiveTimeoutError", sentence
        assert sentence.startswith("all_reduce 2 in callbacks of group 0 timed out, after a timeout of 2 s")
        assert "rank 2" in sentence


def test_collectives_are_refused_where_ranks_would_differ_in_their_order(ranks: Ranks, meet: str) -> None:
    sentence, _ = ranks(torch_rank_callbacks.refused, 2, meet)
    assert "attach the callback with then() to the future of one operation" in sentence


def test_a_callback_that_raises_is_reported_and_holds_up_nobody(ranks: Ranks, meet: str) -> None:
    assert ranks(torch_rank_callbacks.failing, 2, meet) == [["no such luck"] * 2] * 2


@pytest.mark.parametrize("hook", ["powerSGD", "batched_powerSGD", "post_local_sgd"])
def test_ddps_hooks_that_start_collectives_train(ranks: Ranks, meet: str, hook: str) -> None:
    outcomes = ranks(torch_rank_callbacks.hooked, 3, meet, hook)
    digests = [digests for digests, _ in outcomes]
    assert digests[0] == digests[1] == digests[2]
    assert len(set(digests[0])) == 12, "every step changes the parameters"
