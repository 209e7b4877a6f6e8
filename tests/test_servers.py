"""Servers on hosts of their own: a person sees in Python where a job's blocks are summed, and by which servers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

import rank
import tributary
from conftest import Ranks
from program import SERVED, Daemon, finish, start
from tributary import _core

#: One whose jobs have slots of their own in the switch.
IN_NETWORK = next(name for name in _core.protocols() if _core.summed_by_switches(name) and name not in SERVED)
#: Blocks of one sum on the loopback interface at least: packets have at most 9,000 bytes.
ELEMENTS = 300_000


@pytest.fixture
def small_switch() -> Iterator[Daemon]:
    """A switch that has room for nothing: servers sum all."""
    daemon = Daemon("--aggregators", "0")
    yield daemon
    daemon.stop()


@pytest.fixture
def servers(small_switch: Daemon) -> Iterator[list[str]]:
    """Two servers on offer to its jobs; the addresses at which they receive, in their order."""
    offered = [offer(small_switch) for _ in range(2)]
    addresses = [ready(process) for process in offered]
    yield sorted(addresses, key=lambda address: int(address.rpartition(":")[2]))
    for process in offered:
        process.send_signal(signal.SIGTERM)
        assert finish(process).returncode == 0


def offer(switch: Daemon) -> subprocess.Popen[str]:
    """A server that offers itself to the switch's jobs."""
    return start("ps", "--switch", switch.address, "--json")


def ready(process: subprocess.Popen[str]) -> str:
    """The address of a server, once the switch knows it."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("{"):
        raise AssertionError(finish(process).stderr)
    return str(json.loads(line)["udp"])


def sums(
    own: int, world_size: int, switch: str, job: str, protocol: str
) -> tuple[tributary.GroupInfo, tributary.GroupStats]:
    """One exact sum; what the group says of itself after it."""
    with rank.connect(own, world_size, switch, job, protocol=protocol) as group:
        total = group.all_reduce(np.full(ELEMENTS, own + 1, dtype=np.int32))
        assert (total == world_size * (world_size + 1) // 2).all()
        return group.info, group.stats()


@pytest.mark.parametrize("protocol", SERVED)
def test_a_group_names_its_servers_and_says_what_they_have_summed(
    ranks: Ranks, small_switch: Daemon, servers: list[str], job: str, protocol: str
) -> None:
    for info, stats in ranks(sums, 3, small_switch.address, job, protocol):
        assert info.servers == tuple(servers)
        assert stats.in_network == 0.0
        assert stats.blocks_at_hosts >= ELEMENTS * 4 // 9_000
        share = f"0.0 % of the blocks, 100.0 % ({stats.blocks_at_hosts} blocks)"
        assert stats.where_summed.startswith(f"{share} at 2 parameter servers on hosts of their own: "), (
            stats.where_summed
        )


@pytest.mark.parametrize("protocol", SERVED)
def test_without_servers_on_offer_a_groups_ranks_serve(
    ranks: Ranks, small_switch: Daemon, job: str, protocol: str
) -> None:
    for info, stats in ranks(sums, 3, small_switch.address, job, protocol):
        assert info.servers == ()
        assert f"100.0 % ({stats.blocks_at_hosts} blocks) at 3 parameter servers: " in stats.where_summed


def test_a_protocol_that_sums_in_the_network_alone_says_so(ranks: Ranks, daemon: Daemon, job: str) -> None:
    for info, stats in ranks(sums, 2, daemon.address, job, IN_NETWORK):
        assert info.servers == ()
        assert (stats.blocks_at_hosts, stats.where_summed) == (0, "100.0 % of the blocks")


def test_some_protocol_has_servers_and_its_jobs_share_the_switchs_memory() -> None:
    assert SERVED
    assert all(_core.processed_at_every_hop(protocol) for protocol in SERVED)
