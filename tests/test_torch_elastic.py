"""Groups that change their members while the job goes on (``enable_reconfigure``)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conftest import Ranks
from program import Daemon, last_json, run
from torch_program import kill_in_the_middle
from tributary import _core

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch

import torch_rank_elastic

ROOT = Path(__file__).parent.parent


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file that the processes find each other through."""
    return str(tmp_path / "store")


@pytest.mark.parametrize("protocol", _core.protocols())
def test_members_leave_come_split_and_merge(ranks: Ranks, daemon: Daemon, meet: str, protocol: str) -> None:
    ranks(torch_rank_elastic.changing, 3, meet, daemon.address, protocol)


def test_members_change_whoever_runs_the_switch(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_elastic.changing, 3, meet, None, "auto")


def test_a_group_goes_on_after_an_abort_a_timeout_and_members_that_never_came(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_elastic.after_failures, 3, meet)


def test_handles_and_numbers_that_cannot_be_are_sentences(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_elastic.bad_use, 3, meet)


def test_a_group_that_was_made_without_the_flag_keeps_its_members(ranks: Ranks, meet: str) -> None:
    for sentence in ranks(torch_rank_elastic.keeping, 2, meet):
        assert "enable_reconfigure=True" in sentence


@pytest.mark.parametrize("where", ["the switch of rank 0", "a switch that runs"])
def test_survivors_learn_who_was_killed_and_sum_again_on_the_same_switch(
    workers: ProcessPoolExecutor, daemon: Daemon, meet: str, where: str
) -> None:
    switch = daemon.address if where == "a switch that runs" else None
    others = [workers.submit(torch_rank_elastic.bereaved, number, 3, meet, switch) for number in range(2)]
    kill_in_the_middle(f"import torch_rank_elastic; torch_rank_elastic.bereaved(2, 3, {meet!r}, {switch!r})", "summing")
    for other in others:
        failed_s, again_s, sentence = other.result(timeout=60)
        print(f"told after {failed_s:.2f} s, summed again after {again_s:.2f} s")
        assert "rank 2 is gone" in sentence
        assert "all_reduce " in sentence


def wait_until(store: torch.distributed.Store, key: str, count: int, ranks: list[Future[Any]]) -> None:
    """Wait until this many ranks have come to a point, or one has failed."""
    for _ in range(600):
        if store.add(key, 0) == count or any(rank.done() for rank in ranks):
            return
        time.sleep(0.1)
    pytest.fail(f"not all of {count} ranks have come to '{key}'")


def test_a_switch_that_is_killed_is_named_and_its_successor_serves(workers: ProcessPoolExecutor, meet: str) -> None:
    daemon = Daemon("--cores", "1")
    ranks = [workers.submit(torch_rank_elastic.orphaned, number, 3, meet, daemon.address) for number in range(3)]
    store = torch.distributed.FileStore(meet, -1)
    wait_until(store, "summing", 3, ranks)
    daemon.kill()
    store.set("killed", "now")
    wait_until(store, "failed", 3, ranks)
    successor = Daemon("--cores", "1", listen=daemon.address)
    store.set("started", "now")
    try:
        for rank in ranks:
            of_sum, of_change = rank.result(timeout=90)
            assert daemon.address in of_sum
            assert "SwitchLostError" in of_sum
            assert daemon.address in of_change
            assert "reconfiguration 2 of group 0" in of_change
    finally:
        successor.stop()


def test_a_switch_that_is_not_there_is_named_whichever_rank_finds_out_first(ranks: Ranks, meet: str) -> None:
    # Nobody listens at the discard port. One rank gives up first, and the others must not hear of that alone.
    nowhere = "127.0.0.1:9"
    for sentences in ranks(torch_rank_elastic.refused, 3, meet, nowhere, 60):
        assert all(nowhere in sentence for sentence in sentences), sentences


def test_a_switch_that_is_killed_in_the_middle_of_a_reconfiguration_is_named(
    workers: ProcessPoolExecutor, meet: str
) -> None:
    daemon = Daemon("--cores", "1")
    ranks = [workers.submit(torch_rank_elastic.interrupted, number, 3, meet, daemon.address) for number in range(3)]
    store = torch.distributed.FileStore(meet, -1)
    wait_until(store, "summed", 3, ranks)
    os.kill(daemon.process.pid, signal.SIGSTOP)
    store.set("stopped", "now")
    wait_until(store, "on the way", 3, ranks)
    # Time to leave the old job, and to ask for places in the new one.
    time.sleep(3.0)
    assert store.add("failed", 0) == 0
    daemon.kill()
    wait_until(store, "failed", 3, ranks)
    successor = Daemon("--cores", "1", listen=daemon.address)
    store.set("started", "now")
    try:
        for rank in ranks:
            sentence = rank.result(timeout=90)
            assert daemon.address in sentence
            assert "reconfiguration 2 of group 0" in sentence
    finally:
        successor.stop()


def test_members_change_on_links_that_lose_packets(meet: str) -> None:
    if os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, iproute2 and nftables")
    star = [sys.executable, "-m", "tributary", "lab", "star", "--hosts", "3", "--loss", "1%"]
    star += ["--timeout", "120s", "--"]
    ran = subprocess.run(
        [*star, sys.executable, "tests/programs/torch_rank_elastic.py", meet, "24"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=400,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["again"] > 0, "nothing was lost: the faults are not in force"


def test_nothing_is_left_over_of_former_members(ranks: Ranks, daemon: Daemon, meet: str) -> None:
    times = int(os.environ.get("RECONFIGURATIONS", "60"))
    for threads, descriptors in ranks(torch_rank_elastic.often, 3, meet, daemon.address, times):
        assert threads <= 0
        assert descriptors == []
    jobs = last_json(run("status", "--switch", daemon.address, "--json"))["jobs"]
    assert not [job for job in jobs if job["name"].startswith("changes-often-")], jobs


def test_the_example_trains_on_when_a_worker_is_killed_and_takes_in_a_spare_one() -> None:
    words = ["--steps", "30", "--kill-at", "10", "--join-at", "20"]
    ran = subprocess.run(
        [sys.executable, "examples/elastic.py", *words], capture_output=True, text=True, cwd=ROOT, timeout=400
    )
    assert ran.returncode == 0, ran.stderr
    assert "worker 2 was killed" in ran.stdout
    assert "rank 2 is gone" in ran.stdout
    assert "2 members" in ran.stdout
    assert "all 3 members hold the same parameters" in ran.stdout
