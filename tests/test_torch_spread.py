"""Large sums of PyTorch groups, spread over switches and the ranks' own hosts as their links allow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_spread
from conftest import Ranks
from program import Daemon, finish
from test_servers import offer, ready
from torch_program import ROOT
from tributary import sim
from tributary._core import cuts
from tributary.torch import Options, protocol_choice, spread
from tributary.torch.options import AROUND, AT_HOSTS, AT_SWITCH
from tributary.torch.protocol_choice import choose
from tributary.torch.spread import plan


def close(values: list[float], expected: list[float]) -> bool:
    """Whether the values are the expected ones, except for rounding."""
    return all(abs(value - other) < 1e-6 for value, other in zip(values, expected, strict=True))


def test_a_spare_host_with_an_equal_link_sums_what_byteps_gives_it() -> None:
    for workers, spares in [(4, 1), (4, 2), (4, 4), (8, 1), (8, 4)]:
        # A link of 1: all workers' tensors to one switch, and 2(n-1)/n of a tensor if all hosts sum.
        planned = plan(range(workers), [1 / workers] * spares, workers / (2 * (workers - 1)))
        divisor = workers**2 + spares * workers - 2 * spares
        assert close(planned.shares[:spares], [2 * (workers - 1) / divisor] * spares), (workers, spares)
        assert close([1 / planned.expected], [2 * workers * (workers - 1) / divisor]), (workers, spares)


def test_a_switch_whose_link_carries_all_sums_all() -> None:
    assert plan(range(4), [0.93], 0.60).shares == [1.0, 0.0]


def test_a_switch_that_is_too_slow_to_help_sums_nothing() -> None:
    assert plan(range(4), [0.001], 0.60).shares == [0.0, 1.0]


def turned_out(monkeypatch: pytest.MonkeyPatch, planned: spread.Shares, speeds: Sequence[float]) -> spread.Shares:
    """The shares after sums in which each way has one of these speeds beside the others, in bits in a second."""

    def seconds(_groups: object, shares: Sequence[float], elements: int, _timeout: float) -> list[float]:
        return [32 * elements * share / speed for share, speed in zip(shares, speeds, strict=True)]

    monkeypatch.setattr(spread, "_seconds_of_ways", seconds)
    return spread.balance([], range(4), planned, 1.0)


def test_shares_become_what_each_way_sums_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(range(4), [0.25e9], 0.66e9)
    balanced = turned_out(monkeypatch, planned, [0.2e9, 0.55e9])
    assert close(balanced.shares, [0.2 / 0.75, 0.55 / 0.75])
    assert close([balanced.expected / 1e9, balanced.busy[-1]], [0.75, 1.0])
    # A gain of one part in a hundred is noise.
    even = [share * planned.expected for share in planned.shares]
    assert turned_out(monkeypatch, planned, [0.99 * even[0], 1.01 * even[1]]).shares == planned.shares


def test_ways_that_hinder_each_other_give_way_to_the_best_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    balanced = turned_out(monkeypatch, plan(range(4), [0.25e9], 0.66e9), [0.1e9, 0.4e9])
    assert (balanced.shares, balanced.expected) == ([0.0, 1.0], 0.66e9)


def test_a_way_alone_is_not_measured_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(range(4), [0.93e9], 0.60e9)
    assert turned_out(monkeypatch, planned, []) is planned


def test_a_way_with_a_twentieth_of_a_sum_is_left_out() -> None:
    # Four switches that carry nearly everything: the hosts would make 0.02 of it.
    planned = plan(range(4), [0.24] * 4, 0.62)
    assert planned.shares[-1] == 0.0
    assert close([sum(planned.shares)], [1.0])


@pytest.mark.parametrize(
    ("size", "rate", "at_hosts"),
    [
        (8, 0.9, False),
        (8, 0.7, True),
        (4, 0.9, True),
        (16, 0.75, False),
        (16, 0.7, True),
        # On a link that carries everything, too: two hosts exchange halves.
        (2, 1.0, True),
        (3, 1.0, True),
        (5, 1.0, False),
    ],
)
def test_shards_go_through_switches_that_bring_them_as_fast_as_the_ranks_hosts(
    size: int, rate: float, at_hosts: bool
) -> None:
    planned = plan(range(size), [rate], size / (2 * (size - 1)))
    assert planned.has_shards_at_hosts(1, size) == at_hosts


def test_a_plan_says_which_links_limit_it() -> None:
    # A switch on a worker's link beside four workers: all links are busy. One on a slow link: the hosts' alone.
    for rate, limits in [(0.25, ["at s:1", "at the ranks' own hosts"]), (0.001, ["at the ranks' own hosts"])]:
        planned = plan(range(4), [rate], 4 / 6)
        assert [way.where for way in planned.of_ways(["s:1"]) if way.is_limit] == limits
        assert planned.sentence(["s:1"]).endswith(f"limited by the links {' and '.join(limits)}")
    wide = plan(range(4), [0.93], 0.60).of_ways(["s:1"])
    assert (wide[0].share, wide[0].is_limit, wide[1].share) == (1.0, True, 0.0)


@pytest.mark.parametrize(
    ("hosts", "options", "protocol"),
    [
        ([0, 0, 0], Options(), AT_SWITCH),
        ([0, 1], Options(), AT_HOSTS),
        ([0, 0], Options(), AT_SWITCH),
        ([0, 1], Options(options="numbers=fixed"), AT_HOSTS),
        ([0, 1, 2, 3], Options(), AT_HOSTS),
        ([0, 1, 2, 3], Options(options="numbers=fixed"), AT_HOSTS),
        ([0, 0, 1, 1], Options(), AROUND),
        ([0, 1, 0, 1, 0, 1], Options(), AT_HOSTS),
        ([0, 0, 1], Options(), AROUND),
        ([0, 1, 2, 3], Options(switch="a:1"), AT_SWITCH),
        ([0, 1], Options(switch="a:1"), AT_SWITCH),
        ([0, 1, 2, 3], Options(protocol=AT_SWITCH), AT_SWITCH),
        ([0, 1], Options(protocol=AT_SWITCH), AT_SWITCH),
    ],
)
def test_the_protocol_is_the_one_that_the_ranks_hosts_suit(hosts: list[int], options: Options, protocol: str) -> None:
    assert choose(options, hosts)[0].protocol == protocol


def test_a_group_says_what_its_protocol_spares_the_links() -> None:
    why = choose(Options(), [0, 1, 2, 3])[1]
    assert "1.50 tensors over each host's link" in why
    assert "would take 3.00 over rank 0's" in why


def test_an_option_that_the_choice_adds_and_its_protocol_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_choice, "of_shared_links", lambda options: {"no_such_option": "1", **options})
    with pytest.raises(ValueError, match="no_such_option"):
        choose(Options(), [0, 1, 2, 3])


@pytest.mark.parametrize("delay", ["2 us", "250 us", "1 ms"])
def test_two_hosts_fill_their_links_though_they_answer_late(delay: str) -> None:
    """As hosts do whose cores are busy. A ring's window follows acknowledgements, and is too short then."""
    chosen = choose(Options(), [0, 1])[0]

    def goodput(protocol: str, options: dict[str, str]) -> float:
        job = {"protocol": protocol, "tensor": "25 MB", "options": options}
        network = {"star": {"hosts": 2}, "rate": "1 Gbit/s", "delay": delay, "queue": "4 MB"}
        result = sim.run({"network": network, "job": [job]})
        assert result.failure is None
        return float(result.jobs["goodput_gbps"][0])

    assert goodput(chosen.protocol, chosen.protocol_options) > goodput(AROUND, {"congestion_control": "dctcp"})


def test_a_tensor_is_cut_between_blocks_and_whole() -> None:
    ranges = cuts(1_000_003, [0.34, 0.0, 0.66], 358)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == 1_000_003
    assert all(start % 358 == 0 for start, _ in ranges)
    assert ranges[1][0] == ranges[1][1]


def test_the_bits_are_the_same_whatever_the_shares(ranks: Ranks, daemon: Daemon, tmp_path: Path) -> None:
    other = Daemon()
    switches = f"{daemon.address},{other.address}"
    try:
        several = [None, [1.0, 0.0, 0.0], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]]
        outcomes = [
            ranks(torch_rank_spread.summed, 3, str(tmp_path / str(at)), switches, shares)
            for at, shares in enumerate(several)
        ]
    finally:
        other.stop()
    assert len({bits for of_ranks in outcomes for bits, _, _ in of_ranks}) == 1
    assert all("all_gather_single" in path for of_ranks in outcomes for _, path, _ in of_ranks)
    ways = [f"at {daemon.address}", f"at {other.address}", "at the ranks' own hosts"]
    assert outcomes[2][0][2] == list(zip(ways, [0.3, 0.3, 0.4], strict=True))


def test_each_switch_shows_the_shares_the_rates_and_the_link_that_is_the_limit(
    ranks: Ranks, daemon: Daemon, tmp_path: Path
) -> None:
    other = Daemon()
    switches = [daemon.address, other.address]
    try:
        seen = ranks(torch_rank_spread.shown, 3, str(tmp_path / "meet"), ",".join(switches), [0.3, 0.3, 0.4])[0]
    finally:
        other.stop()
    ways = zip([*switches, None], [0.3, 0.3, 0.4], [1.0, 0.3, 0.4], strict=True)
    of_ways = [{"at": way, "share": share, "alone_gbps": 1.0, "busy": busy} for way, share, busy in ways]
    assert len(seen) == 2
    for text, table, top in seen:
        assert json.loads(text) == [{"expected_gbps": 1.5, "host_link_gbps": 2.0, "ways": of_ways}]
        for screen in (table, top):
            assert f"30 % at {other.address} (alone 1.00 Gbit/s), 40 % at the ranks' own hosts" in screen
            assert f"expected 1.50 Gbit/s, limited by the links at {daemon.address}\n" in screen


def test_servers_on_offer_at_the_switch_take_a_share_beside_it_and_the_ranks_hosts(
    ranks: Ranks, tmp_path: Path
) -> None:
    daemon = Daemon()
    alone = ranks(torch_rank_spread.summed, 3, str(tmp_path / "alone"), daemon.address, [0.5, 0.5])
    servers = [offer(daemon) for _ in range(2)]
    try:
        addresses = sorted((ready(server) for server in servers), key=lambda address: int(address.rpartition(":")[2]))
        shares = [0.3, 0.3, 0.4]
        several = [shares, [0.0, 1.0, 0.0], None]
        outcomes = [
            ranks(torch_rank_spread.summed, 3, str(tmp_path / str(at)), daemon.address, given)
            for at, given in enumerate(several)
        ]
    finally:
        for server in servers:
            server.kill()
            finish(server)
        daemon.kill()
    assert len({bits for of_ranks in [alone, *outcomes] for bits, _, _ in of_ranks}) == 1
    ways = [f"at {daemon.address}", f"at {','.join(addresses)}", "at the ranks' own hosts"]
    assert outcomes[0][0][2] == list(zip(ways, shares, strict=True))
    assert [where for where, _ in outcomes[2][0][2]] == ways


def test_links_are_measured_again_after_some_gigabytes(ranks: Ranks, daemon: Daemon, tmp_path: Path) -> None:
    # Six sums of 1.2 MB; the first is measured before it, and others as soon as 4 MB have passed.
    assert ranks(torch_rank_spread.measured_again, 3, str(tmp_path / "meet"), daemon.address) == [2] * 3


def test_a_fast_link_is_measured_again_after_twenty_seconds_of_sums_and_not_every_two() -> None:
    again = [plan(range(4), [gbits * 1e9], 0.1e9).again_bytes for gbits in (0.2, 1, 10, 100)]
    assert again == [2 << 30, 2_500_000_000, 25_000_000_000, 250_000_000_000]


def test_a_switch_without_memory_for_a_wider_job_goes_on_with_the_one_that_it_has(
    ranks: Ranks, daemon: Daemon, tmp_path: Path
) -> None:
    small = Daemon("--memory", "2MiB")
    try:
        outcomes = ranks(torch_rank_spread.summed, 3, str(tmp_path / "small"), small.address, [0.5, 0.5])
    finally:
        small.stop()
    enough = ranks(torch_rank_spread.summed, 3, str(tmp_path / "enough"), daemon.address, [0.5, 0.5])
    assert len({bits for bits, _, _ in outcomes + enough}) == 1


def test_every_rank_learns_at_once_that_one_brings_a_small_tensor_to_a_large_operation(
    ranks: Ranks, daemon: Daemon, tmp_path: Path
) -> None:
    for kind, sentence in ranks(torch_rank_spread.disagreeing, 3, str(tmp_path / "meet"), daemon.address):
        assert kind == "MismatchError", sentence
        assert sentence.startswith("all_reduce 1 of group 0: "), sentence


@pytest.mark.parametrize("scatters", [True, False], ids=["reduce-scatter", "all-gather"])
def test_every_rank_learns_at_once_that_one_brings_a_small_tensor_while_shards_go_from_host_to_host(
    ranks: Ranks, daemon: Daemon, tmp_path: Path, scatters: bool
) -> None:
    learned = ranks(torch_rank_spread.shards_and_a_small_tensor, 3, str(tmp_path / "meet"), daemon.address, scatters)
    for kind, sentence in learned:
        assert kind == "MismatchError", sentence


@pytest.mark.parametrize("hosts", [2, 4])
def test_shards_that_go_from_host_to_host_carry_what_a_rank_lacks_over_its_link(hosts: int) -> None:
    if os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, iproute2 and nftables")
    elements, times = 1_200_000, 4
    command = [sys.executable, "-m", "tributary", "lab", "star", "--hosts", str(hosts), "--timeout", "120s", "--"]
    command += [sys.executable, "tests/programs/torch_rank_spread.py", str(elements), str(times)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert {"reduce_scatter_single", "all_gather_single"} <= set(said["network"])
    assert said["host"] == []
    lacks = times * 2 * (hosts - 1) / hosts * 4 * elements
    # A packet has 1,432 bytes of 1,514, and its slot's other packet none.
    with_headers = lacks * (1514 + 82) / 1432 + 1514 * said["again"]
    for way in ("sent", "received"):
        assert lacks <= said[way] <= 1.03 * with_headers, way
