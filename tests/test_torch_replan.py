"""PyTorch groups that go on without a switch or a parameter server that was lost (TRIBUTARY_ON_LOSS=replan)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_replan
from conftest import Ranks
from program import Daemon, finish
from test_servers import offer, ready
from tributary.torch import Options
from tributary.torch.options import AT_HOSTS
from tributary.torch.replan import is_there


@pytest.fixture
def other() -> Iterator[Daemon]:
    """Another switch, which the test may kill."""
    daemon = Daemon()
    yield daemon
    daemon.kill()


def test_a_group_goes_on_at_the_switches_that_are_left_and_then_without_any(
    ranks: Ranks, other: Daemon, tmp_path: Path
) -> None:
    first = Daemon()
    try:
        switches = f"{first.address},{other.address}"
        victims = [first.process.pid, other.process.pid]
        outcomes = ranks(torch_rank_replan.loses, 3, str(tmp_path / "meet"), switches, victims, {})
    finally:
        first.kill()
    for after_first, after_both in outcomes:
        for error, right, _ in (after_first, after_both):
            assert error.startswith("SwitchLostError: all_reduce "), error
            assert "the next operation does without it; bring this one again" in error
            assert right == [True] * 4
        assert (after_first[2], after_both[2]) == ([other.address], [])


def test_a_group_goes_on_without_a_parameter_server_that_died(ranks: Ranks, other: Daemon, tmp_path: Path) -> None:
    servers = [offer(other) for _ in range(2)]
    try:
        for server in servers:
            ready(server)
        victims = [servers[0].pid]
        options = {"protocol": AT_HOSTS}
        outcomes = ranks(torch_rank_replan.loses, 3, str(tmp_path / "meet"), other.address, victims, options)
    finally:
        for server in servers:
            server.kill()
            finish(server)
    for [(error, right, switches)] in outcomes:
        assert error.startswith("ServerLostError: all_reduce "), error
        assert right == [True] * 4
        assert switches == [other.address]


def test_ranks_that_have_come_differently_far_all_give_up(ranks: Ranks, other: Daemon, tmp_path: Path) -> None:
    outcomes = ranks(torch_rank_replan.has_come_further, 3, str(tmp_path / "meet"), other.address, other.process.pid)
    for first, later in outcomes:
        assert "rank 1 in all_reduce 3 of group 0 after starting" in first
        assert "could not plan around the loss" in later
        assert later.endswith("destroy it, and make a new one")


def test_without_the_option_a_group_that_has_lost_its_switch_is_lost() -> None:
    assert Options().on_loss == "fail"
    assert Options.from_environment({"TRIBUTARY_ON_LOSS": "replan"}).on_loss == "replan"
    with pytest.raises(ValueError, match="TRIBUTARY_ON_LOSS is fail or replan, not 'maybe'"):
        Options(on_loss="maybe")


def test_an_address_at_which_nothing_listens_is_not_a_switch(daemon: Daemon) -> None:
    assert is_there(daemon.address)
    assert not is_there("127.0.0.1:9")
    assert not is_there("no address")
