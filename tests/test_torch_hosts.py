"""Groups that span hosts with several ranks each: those of a host sum in its memory, and one meets other hosts."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank
import torch_rank_callbacks
import torch_rank_disagree
import torch_rank_elastic
import torch_rank_failures
import torch_rank_hosts
import torch_rank_layouts
import torch_rank_leaving
import torch_rank_local
import torch_rank_training
import torch_rank_wider
from conftest import Ranks
from program import Daemon
from test_torch_disagree import OWN
from torch_program import ROOT
from torch_rank_disagree import ODD, OPERATIONS
from torch_rank_hosts import on_hosts
from tributary import sim
from tributary.torch.members import OF_HOSTS
from tributary.torch.options import AROUND

#: Two hosts with two ranks each, three whose ranks come in turns, and hosts of two ranks, one and three.
PAIRS, MIXED, UNEQUAL = [0, 0, 1, 1], [0, 1, 2, 0, 2, 1], [0, 1, 2, 0, 2, 2]


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("hosts", [PAIRS, MIXED, UNEQUAL], ids=["2 x 2", "3 x 2", "2 + 1 + 3"])
@pytest.mark.parametrize("is_named", [True, False], ids=["a switch", "no switch"])
def test_every_operation_of_every_type_is_right_and_one_rank_a_host_has_packets(
    ranks: Ranks, daemon: Daemon, meet: str, hosts: list[int], is_named: bool
) -> None:
    switch = daemon.address if is_named else None
    answers = ranks(on_hosts, len(hosts), hosts, torch_rank_hosts.every_operation, meet, switch)
    for rank, (why, names, has_packets) in enumerate(answers):
        assert why == OF_HOSTS
        assert {"all_reduce", "reduce", "broadcast", "reduce_scatter", "reduce_scatter_single"} <= set(names)
        assert has_packets == (rank == hosts.index(hosts[rank]))


def test_all_ranks_have_the_same_bits_in_every_run(ranks: Ranks, daemon: Daemon, meet: str) -> None:
    runs = [ranks(on_hosts, 4, PAIRS, torch_rank_hosts.rounded, f"{meet}-{run}", daemon.address) for run in range(2)]
    assert all(digests == runs[0][0] for digests in runs[0] + runs[1])


@pytest.mark.parametrize(
    ("hosts", "choices", "why"),
    [
        ([0, 1, 2], {}, "the ranks run on several hosts, or in several network namespaces"),
        (PAIRS, {"protocol": AROUND}, f"TRIBUTARY_PROTOCOL={AROUND} is about sums in the network"),
        (PAIRS, {"options": "numbers=fixed"}, "TRIBUTARY_OPTIONS=numbers=fixed are about sums in the network"),
    ],
)
def test_otherwise_each_rank_is_a_member_and_says_why(
    ranks: Ranks, meet: str, hosts: list[int], choices: dict[str, str], why: str
) -> None:
    assert ranks(on_hosts, len(hosts), hosts, torch_rank_local.why, meet, choices) == [why] * len(hosts)


def test_groups_of_a_mesh_across_hosts_and_within_one_are_each_known_for_what_they_are(ranks: Ranks, meet: str) -> None:
    across = "the ranks run on several hosts, or in several network namespaces"
    assert ranks(on_hosts, 4, PAIRS, torch_rank_hosts.meshes, meet) == [[across, None]] * 4


@pytest.mark.parametrize(
    ("function", "size", "arguments"),
    [
        (torch_rank.layouts, 4, ()),
        (torch_rank.broadcasts, 4, ()),
        (torch_rank.threads_in_turn, 4, ()),
        (torch_rank_callbacks.among_groups, 4, ()),
        (torch_rank_layouts.moved, 4, (1,)),
        (torch_rank_layouts.reduced, 4, (2,)),
        (torch_rank_elastic.changing, 4, (None, "auto")),
        (torch_rank_wider.hybrid_sharded, 4, (("hosts", "ranks"),)),
        (torch_rank_wider.loading, 4, ()),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_holds_for_a_rank_a_host_holds_for_several(
    ranks: Ranks, meet: str, function: object, size: int, arguments: tuple[object, ...]
) -> None:
    ranks(on_hosts, size, PAIRS, function, meet, *arguments)


def test_training_gives_the_same_parameters_on_all_ranks(ranks: Ranks, meet: str) -> None:
    digests = ranks(on_hosts, 4, PAIRS, torch_rank_training.agreeing, meet, 30)
    assert all(digest == digests[0] for digest in digests)


def test_what_all_ranks_have_started_ends_before_the_group(ranks: Ranks, meet: str) -> None:
    for sums in ranks(on_hosts, 4, PAIRS, torch_rank_leaving.destroys_with_work_pending, meet, ""):
        assert sums == [10.0] * 50


def test_hosts_with_different_numbers_of_ranks_train_alike(ranks: Ranks, meet: str) -> None:
    digests = ranks(on_hosts, 4, [0, 1, 1, 1], torch_rank_training.agreeing, meet, 30)
    assert all(digest == digests[0] for digest in digests)


@pytest.mark.parametrize("absent", range(4))
def test_a_rank_that_does_not_come_is_named_on_all_hosts(ranks: Ranks, meet: str, absent: int) -> None:
    answers = ranks(on_hosts, 4, PAIRS, torch_rank_failures.missing, meet, absent)
    for kind, sentence in [answer for rank, answer in enumerate(answers) if rank != absent]:
        assert kind == "CollectiveTimeoutError", sentence
        assert sentence.startswith("all_reduce 3 of group 0 timed out, after a timeout of 2 s"), sentence
        # Its host says that it has not come, unless the others' patience with that host ends before.
        assert f"rank {absent} has not " in sentence or f"rank {absent} did not " in sentence


@pytest.mark.parametrize("leaver", range(4))
def test_a_rank_that_leaves_is_named_on_all_hosts(ranks: Ranks, meet: str, leaver: int) -> None:
    sentences = ranks(on_hosts, 4, PAIRS, torch_rank_hosts.leaves, meet, leaver)
    for sentence in [sentence for rank, sentence in enumerate(sentences) if rank != leaver]:
        assert sentence.startswith("RankLostError: all_reduce 2 of group 0"), sentence
        assert f"rank {leaver} has destroyed the group" in sentence


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_rank_learns_at_once_that_one_brings_another_size(ranks: Ranks, meet: str, name: str) -> None:
    for rank, (kind, sentence) in enumerate(ranks(on_hosts, 4, PAIRS, torch_rank_disagree.odd, meet, name)):
        assert " 2 of group 0" in sentence, (kind, sentence)
        if rank == ODD and name in OWN:
            assert kind in ("MismatchError", "UnsupportedError")
            continue
        assert kind == "MismatchError", sentence
        assert f"rank {ODD}" in sentence or "ranks" in sentence, sentence


@pytest.mark.parametrize("doomed", range(4))
@pytest.mark.parametrize(("seed", "elements"), [(1, 10), (2, 3_000_000)])
def test_a_rank_killed_at_any_time_is_named_on_all_hosts_and_no_sum_is_wrong(
    workers: ProcessPoolExecutor, daemon: Daemon, meet: str, doomed: int, seed: int, elements: int
) -> None:
    rest = (4, PAIRS, meet, elements, daemon.address)
    others = [workers.submit(torch_rank_hosts.bereaved, rank, *rest) for rank in range(4) if rank != doomed]
    call = f"import torch_rank_hosts; torch_rank_hosts.bereaved({doomed}, *{rest!r})"
    command = [sys.executable, "-c", call]
    with subprocess.Popen(command, cwd=ROOT / "tests/programs", stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "summing\n"
        time.sleep(random.Random(seed).uniform(0.1, 0.4))
        process.kill()
    for other in others:
        found, sentence, _ = other.result(timeout=60)
        assert found == "RankLostError", sentence
        assert f"rank {doomed} " in sentence, sentence


def test_a_fork_of_a_rank_of_several_hosts_is_refused_and_disturbs_nobody(ranks: Ranks, meet: str) -> None:
    for *refused, destroyed in ranks(on_hosts, 4, PAIRS, torch_rank_local.forking, meet):
        for sentence in refused:
            assert sentence.startswith("TributaryError: "), sentence
            assert sentence.endswith(" was made before a fork; make a new process group in the new process"), sentence
        assert destroyed == ""


def star(
    per_host: int,
    elements: int,
    times: int,
    *flags: str,
    hosts: int = 2,
    local: str = "on",
    share: float | None = None,
) -> dict[str, Any]:
    """Sums of hosts with this many ranks each, in namespaces; what the first host said."""
    if os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, iproute2 and nftables")
    flags = ("--hosts", str(hosts), "--timeout", "120s", *flags)
    command = [sys.executable, "-m", "tributary", "lab", "star", *flags, "--"]
    words = [per_host, *([] if share is None else [share]), elements, times]
    command += [sys.executable, "tests/programs/torch_rank_hosts.py", *map(str, words)]
    variables = os.environ | {"TRIBUTARY_LOCAL": local}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, env=variables)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


def test_hosts_sum_over_links_that_lose_packets() -> None:
    said = star(2, 500_000, 10, "--loss", "1%")
    assert said["why"] == OF_HOSTS
    assert said["again"] > 0, "nothing was lost: the faults are not in force"


@pytest.mark.parametrize(("hosts", "per_host"), [(2, 2), (2, 4), (4, 2)])
def test_each_link_carries_a_tensor_once_each_way_whatever_the_number_of_ranks(hosts: int, per_host: int) -> None:
    # All at the switch: on a busy machine the plan may give hosts a share, whose sums take more than one tensor a link.
    alone, several = (star(ranks, 1_000_000, 5, hosts=hosts, share=1.0) for ranks in (1, per_host))
    # Packets are sent again before their time there, too.
    again = 1514 * several["again"]
    for way in ("sent", "received"):
        assert alone[way] >= 5 * 4_000_000
        assert several[way] <= 1.02 * alone[way] + again


def test_a_member_for_each_rank_brings_each_rank_s_tensor_to_its_host_s_link() -> None:
    assert star(2, 1_000_000, 5, local="off")["sent"] >= 1.9 * 5 * 4_000_000


def test_the_bench_measures_hosts_with_several_ranks_with_a_switch_and_without() -> None:
    if os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, iproute2 and nftables")
    words = ["--hosts", "2", "--ranks-per-host", "2", "--one-word", "--one-word-and-switch", "--elements", "400000"]
    command = [sys.executable, "-m", "tributary", "lab", "bench", *words, "--quick", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400)
    assert ran.returncode == 0, ran.stderr
    [row] = json.loads(ran.stdout)["rows"]
    assert [line["name"] for line in row["lines"]] == ["one word", "one word +switch", "Gloo"]
    # A tensor crosses each link once each way, whoever sums it; the first bytes of a burst come at once.
    assert all(0.8 * line["planned_seconds"] < line["seconds"] for line in row["lines"][:2])


def simulated(per_host: int, elements: int, granted: dict[str, Any], rate: str) -> dict[str, Any]:
    """A sum as `star` makes it, simulated, with what the switch granted; the memory is so fast that it hardly shows."""
    job = granted | {"hosts": "all", "tensor": 4 * elements, "ranks_per_host": per_host}
    network = {"star": {"hosts": 2}, "rate": rate, "delay": "20 us", "queue": "4 MiB", "overhead": 42, "shortest": 42}
    report = sim.run({"network": network, "hosts": {"memory": "20 Gbit/s"}, "job": [job]})
    found: dict[str, Any] = report.report["jobs"][0]
    return found


@pytest.mark.parametrize("per_host", [1, 2])
def test_real_hosts_with_several_ranks_agree_with_simulated_ones(per_host: int) -> None:
    # A slow link: what the machine is busy with besides hardly shows, and the fastest of several sums counts.
    rate, elements, times = "200 Mbit/s", 1_000_003, 12
    real = star(per_host, elements, times, "--rate", rate)
    there = simulated(per_host, elements, real["job"], rate)
    assert there["ranks"] == 2 * per_host
    # Barriers and the words by which hosts agree on an operation are packets, too: a few for each sum.
    each = real["packets"] / times
    assert each == pytest.approx(there["packets_sent"] / 2, rel=0.02)
    assert 0.9 * there["seconds"] <= real["fastest"] <= 1.5 * there["seconds"]


def test_large_sums_of_hosts_with_several_ranks_are_made_where_the_plan_says() -> None:
    elements, times = 1_200_000, 4
    tensors, digests = 4 * elements * times, set()
    for share in (1.0, 0.75, 0.25):
        said = star(2, elements, times, share=share)
        assert said["shares"] == [share, 1 - share]
        # A packet has 1,432 bytes of 1,514, and may be sent again; barriers and members' lives take little.
        frames, slack, at_switch = 1514 / 1432, 0.02 * tensors + 1514 * said["again"], 2 * share * tensors
        # What any host has sent again arrives there, too.
        most = at_switch * frames + 0.04 * tensors + 1514 * said["again_of_all"]
        assert 0.99 * at_switch <= said["at_switch"] <= most, share
        # Two hosts that sum send each other a half of their tensors, and a half of the results.
        for way in ("sent", "received"):
            assert tensors <= said[way] <= tensors * frames + slack, (share, way)
        digests.add(said["digest"])
    assert len(digests) == 1, "the same bits wherever sums are made"
