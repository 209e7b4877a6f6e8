"""Sums come out right: every size, type, operator, world size and protocol, with the same bits on every rank."""

from concurrent.futures import ProcessPoolExecutor

import pytest

import rank
from conftest import Ranks
from program import Daemon
from tributary import _core

#: Where servers sum, each rank is one besides: nobody has offered another.
PROTOCOLS = [protocol for protocol in _core.protocols() if not _core.processed_at_every_hop(protocol)]
#: Those whose jobs share the switch's memory.
SHARING = [protocol for protocol in _core.protocols() if _core.processed_at_every_hop(protocol)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_every_rank_gets_the_same_right_bits(
    ranks: Ranks, daemon: Daemon, job: str, world_size: int, protocol: str
) -> None:
    digests = ranks(rank.sums, world_size, daemon.address, job, protocol)
    assert len(digests[0]) == len(rank.SIZES) * len(rank.DTYPES) * 2
    assert all(other == digests[0] for other in digests)


@pytest.mark.parametrize("protocol", SHARING)
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_jobs_that_share_the_switchs_memory_get_the_same_right_bits(
    ranks: Ranks, daemon: Daemon, job: str, world_size: int, protocol: str
) -> None:
    digests = ranks(rank.shared_sums, world_size, daemon.address, job, protocol)
    assert all(other == digests[0] for other in digests)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("world_size", [1, 3])
def test_one_rank_gets_the_sum_and_all_get_one_ranks_array(
    ranks: Ranks, daemon: Daemon, job: str, world_size: int, protocol: str
) -> None:
    ranks(rank.rooted, world_size, daemon.address, job, protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("world_size", [1, 3])
def test_each_rank_gets_its_shard_and_brings_its_shard(
    ranks: Ranks, daemon: Daemon, job: str, world_size: int, protocol: str
) -> None:
    ranks(rank.shards, world_size, daemon.address, job, protocol)


def test_64_mib_in_place(ranks: Ranks, daemon: Daemon, job: str) -> None:
    digests = ranks(rank.large, 2, daemon.address, job)
    assert digests[0] == digests[1]


def test_two_hundred_collectives_in_flight(ranks: Ranks, daemon: Daemon, job: str) -> None:
    digests = ranks(rank.burst, 3, daemon.address, job)
    assert digests[0] == digests[1] == digests[2]


def test_two_jobs_at_once_do_not_meet(workers: ProcessPoolExecutor, daemon: Daemon, job: str) -> None:
    futures = [
        workers.submit(rank.burst, number, 2, daemon.address, f"{job}-{name}") for name in "ab" for number in range(2)
    ]
    digests = [future.result(timeout=60) for future in futures]
    assert all(other == digests[0] for other in digests)
