"""Sums come out right: every size, type, operator, world size and protocol, with the same bits on every rank."""

from concurrent.futures import ProcessPoolExecutor

import pytest

import rank
import tributary
from conftest import Ranks
from program import Daemon
from tributary import _core
from tributary.group import _AUTO, _choose

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


@pytest.mark.parametrize(
    "options", [{}, {"numbers": "int8", "down": "16"}, {"reproducible": "ranks"}, {"partial": "14/16"}]
)
def test_a_job_takes_the_first_protocol_that_has_its_options(options: dict[str, str]) -> None:
    chosen, why = _choose(options, has_operators=False)
    _core.check_options(chosen, options)
    assert all(name in why for name in options)
    for earlier in _AUTO[: _AUTO.index(chosen)]:
        with pytest.raises(ValueError, match="option"):
            _core.check_options(earlier, options)


def test_a_job_with_operators_takes_a_protocol_that_takes_them() -> None:
    assert not _core.takes_operators(_choose({}, has_operators=False)[0])
    assert _core.takes_operators(_choose({}, has_operators=True)[0])


def test_options_that_no_protocol_has_are_refused() -> None:
    with pytest.raises(ValueError, match="partial"):
        _choose({"partial": "14/16"}, has_operators=True)


def test_rank_0_logs_which_protocol_a_job_takes_and_why(
    daemon: Daemon, job: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"reproducible": "ranks"}
    with (
        caplog.at_level("INFO", logger="tributary"),
        tributary.connect(daemon.address, job=job, rank=0, world_size=1, options=options) as group,
    ):
        protocol = group.info.protocol
    assert protocol == _choose(options, has_operators=False)[0]
    assert f"job {job} sums at {daemon.address} by {protocol}: the first choice for reproducible" in caplog.messages
