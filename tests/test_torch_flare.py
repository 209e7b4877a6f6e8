"""PyTorch under Flare: every type and operator goes through the network, and nothing takes the host path for it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank
from conftest import Ranks
from rank_sparse import PROTOCOL


def test_every_type_with_every_operator_is_summed_in_the_network(ranks: Ranks, tmp_path: Path) -> None:
    # Nine types with five operators, five of them with three more.
    digests = ranks(torch_rank.reductions, 3, str(tmp_path / "meet"), "", 9 * 5 + 5 * 3, PROTOCOL)
    assert digests[0] == digests[1] == digests[2]
