"""Every operation of the PyTorch backend, of every type and memory layout, is the model's to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_layouts
from conftest import Ranks


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_moves_arrives_whatever_its_type_and_layout(ranks: Ranks, meet: str, size: int) -> None:
    ranks(torch_rank_layouts.moved, size, meet, size)


@pytest.mark.parametrize("size", [1, 3])
def test_reductions_in_the_network_of_every_layout(ranks: Ranks, meet: str, size: int) -> None:
    ranks(torch_rank_layouts.reduced, size, meet, size)


def test_reductions_on_the_host_path_of_every_layout(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_layouts.reduced_on_the_host_path, 3, meet, 7)
