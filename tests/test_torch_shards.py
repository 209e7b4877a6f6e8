"""Reduce-scatter and all-gather through the network: what each rank does not want does not travel to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Ranks
from program import Daemon, last_json, run
from tributary import _core

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_shards

SPARING = [protocol for protocol in _core.protocols() if _core.rooted_is_unicast(protocol)]


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file that the ranks find each other through."""
    return str(tmp_path / "store")


@pytest.mark.parametrize("protocol", _core.protocols())
@pytest.mark.parametrize("size", [2, 3])
def test_all_gathers_of_every_type_are_exact(ranks: Ranks, meet: str, size: int, protocol: str) -> None:
    ways = ranks(torch_rank_shards.gathers, size, meet, protocol, "")[0]
    assert ("all_gather_single" in ways) is (protocol in SPARING)


@pytest.mark.parametrize("protocol", _core.protocols())
def test_gathers_go_beside_sums(ranks: Ranks, daemon: Daemon, meet: str, protocol: str) -> None:
    ranks(torch_rank_shards.overlapping, 3, meet, daemon.address, protocol)


def test_a_switch_without_memory_for_a_second_job_has_gathers_behind_sums(ranks: Ranks, meet: str) -> None:
    small = Daemon("--memory", "2MiB")
    try:
        for lines in ranks(torch_rank_shards.crowded, 3, meet, small.address, SPARING[0]):
            assert len(lines) == 1, "the switch is asked once"
            assert "wait for the sums before them" in lines[0]
    finally:
        small.stop()


@pytest.mark.parametrize(
    ("what", "up", "down"), [("all-reduce", 1, 1), ("reduce-scatter", 1, 1 / 4), ("all-gather", 1 / 4, 1)]
)
def test_bytes_at_the_switch_are_those_that_somebody_brings_or_wants(
    ranks: Ranks, meet: str, what: str, up: float, down: float
) -> None:
    size, elements = 4, 1 << 20
    own = Daemon("--cores", "1")
    try:
        again = sum(ranks(torch_rank_shards.moving, size, meet, own.address, what, elements))
        shard = last_json(run("status", "--switch", own.address, "--json"))["switch"]["shards"][0]
    finally:
        own.stop()
    everything = 4 * elements * size
    # What impatient ranks send again on a busy machine, and at most one answer to each: packets of loopback.
    repeated = again * 9_000 / everything
    # Headers, and what ranks say of their lives.
    assert up <= shard["rx_bytes"] / everything <= 1.1 * up + 0.05 + repeated
    assert down <= shard["tx_bytes"] / everything <= 1.1 * down + 0.05 + repeated
