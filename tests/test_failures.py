"""Trouble speaks: every error is a sentence that names who, and it reaches every rank."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import program
import rank
import tributary
from conftest import Ranks
from program import Daemon


def test_a_rank_that_never_comes_is_named(daemon: Daemon, job: str) -> None:
    with pytest.raises(tributary.ConnectError, match=r"ranks? 1, 2\b"):
        tributary.connect(daemon.address, job=job, rank=0, world_size=3, timeout=0.5)


@pytest.mark.parametrize(
    ("brings", "who"),
    [
        ([{}, {"size": 1001}], ["1000 f32", "1001 f32"]),
        ([{}, {"dtype": np.int32}], ["f32", "i32"]),
        ([{}, {"op": "avg"}], ["sum of", "avg of"]),
        ([{}, {}, {"size": 5}], ["1000 f32", "5 f32"]),
    ],
    ids=["size", "type", "operator", "size of a third"],
)
def test_ranks_that_bring_different_things_all_learn_who_and_how(
    ranks: Ranks, daemon: Daemon, job: str, brings: list[dict[str, Any]], who: list[str]
) -> None:
    for kind, sentence in ranks(rank.failing, len(brings), daemon.address, job, brings):
        assert kind == "MismatchError", sentence
        assert f"rank {len(brings) - 1} brings" in sentence
        for words in who:
            assert words in sentence


def test_ranks_with_different_sizes_of_the_job_all_learn_who(ranks: Ranks, daemon: Daemon, job: str) -> None:
    for kind, sentence in ranks(rank.failing, 2, daemon.address, job, [{"world_size": 2}, {"world_size": 3}]):
        assert kind == "ConnectError", sentence
        for words in (job, "world size", "rank 0", "rank 1", "2", "3"):
            assert words in sentence


def test_a_second_process_with_the_same_rank_is_turned_away(daemon: Daemon, job: str) -> None:
    with tributary.connect(daemon.address, job=job, rank=0, world_size=1) as group:
        with pytest.raises(tributary.ConnectError, match="rank 0") as caught:
            tributary.connect(daemon.address, job=job, rank=0, world_size=1, timeout=1.0)
        assert job in str(caught.value)
        assert group.all_reduce(np.ones(3, np.float32)).tolist() == [1, 1, 1]


def test_an_unreachable_switch_is_named() -> None:
    with pytest.raises(tributary.ConnectError, match=r"127\.0\.0\.1:9"):
        tributary.connect("127.0.0.1:9", job="a", rank=0, world_size=1, timeout=1.0)
    with pytest.raises(tributary.ConnectError, match=r"no-such-host\.invalid"):
        tributary.connect("no-such-host.invalid:17777", job="a", rank=0, world_size=1, timeout=1.0)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ValueError, match="rank 3"):
        tributary.connect("127.0.0.1", job="a", rank=3, world_size=2)
    with pytest.raises(ValueError, match="use switchml or ring"):
        tributary.connect("127.0.0.1", job="a", rank=0, world_size=2, protocol="smoke")
    with pytest.raises(ValueError, match="port"):
        tributary.connect("127.0.0.1:http", job="a", rank=0, world_size=2)


def worker(daemon: Daemon, job: str, number: int, world_size: int, *flags: str) -> subprocess.Popen[str]:
    """A worker from a shell that sums until it is stopped."""
    rank_flags = ["--switch", daemon.address, "--job", job, "--rank", str(number), "--world-size", str(world_size)]
    return program.start("allreduce", *rank_flags, "--elements", "200000", "--iters", "1000000", *flags)


@pytest.mark.parametrize("protocol", ["switchml", "ring"])
@pytest.mark.parametrize(
    ("blow", "timeout", "error", "lament"),
    [
        (signal.SIGKILL, 50.0, "RankLostError", "rank 1 is gone: its process ended"),
        (signal.SIGSTOP, 3.0, "CollectiveTimeoutError", "rank 1 "),
    ],
    ids=["killed", "stopped"],
)
def test_a_worker_that_is_hit_in_the_middle_is_named_on_every_other_rank(
    workers: ProcessPoolExecutor,
    daemon: Daemon,
    job: str,
    protocol: str,
    blow: signal.Signals,
    timeout: float,
    error: str,
    lament: str,
) -> None:
    membership = (4, daemon.address, job, 200_000, protocol, timeout)
    others = [workers.submit(rank.bereaved, number, *membership) for number in (0, 2)]
    flags = ("--protocol", protocol, "--timeout", f"{timeout}s")
    victim, shell = (worker(daemon, job, number, 4, *flags) for number in (1, 3))
    # The ring does not pass through the switch: it sees only that the job runs.
    program.await_job(daemon, job, lambda entry: entry["state"] == "running")
    if protocol == "switchml":
        program.await_job(daemon, job, lambda entry: bool(entry["packets"] > 1000))
    victim.send_signal(blow)
    for other in others:
        # Far sooner than the timeout of those whose neighbour is killed.
        kind, sentence, missing = other.result(timeout=30)
        assert (kind, missing) == (error, (1,)), sentence
        assert lament in sentence
    assert lament in program.sentence(program.finish(shell))
    victim.kill()
    program.finish(victim)


def test_a_worker_that_leaves_too_early_is_named(workers: ProcessPoolExecutor, daemon: Daemon, job: str) -> None:
    other = workers.submit(rank.bereaved, 0, 2, daemon.address, job, 1000, "switchml", 50.0)
    with rank.connect(1, 2, daemon.address, job) as group:
        group.all_reduce(np.ones(1000, np.float32))
    kind, sentence, missing = other.result(timeout=30)
    assert (kind, missing) == ("RankLostError", (1,)), sentence
    assert "rank 1 has left the job" in sentence


def test_a_switch_whose_share_a_client_has_used_says_so_and_has_memory_again_later(job: str) -> None:
    daemon = Daemon("--memory", "1MiB")

    def join(number: int) -> tributary.Group:
        return tributary.connect(daemon.address, job=f"{job}-{number}", rank=0, world_size=1, timeout=5.0)

    groups: list[tributary.Group] = []

    def fill() -> None:
        while True:
            groups.append(join(len(groups)))

    with pytest.raises(
        tributary.ConnectError, match=r"this switch allows 127\.0\.0\.1 .* more, and job .* needs at least"
    ):
        fill()
    for group in groups:
        assert group.all_reduce(np.ones(10_000, np.float32)).sum() == 10_000
        group.close()
    join(len(groups)).close()
    daemon.stop()


def test_a_switch_killed_in_the_middle_is_named_and_its_successor_serves(
    workers: ProcessPoolExecutor, ranks: Ranks, job: str
) -> None:
    daemon = Daemon()
    membership = (2, daemon.address, job, 200_000, "switchml", 50.0)
    others = [workers.submit(rank.bereaved, number, *membership) for number in range(2)]
    program.await_job(daemon, job, lambda entry: bool(entry["packets"] > 1000))
    daemon.kill()
    for other in others:
        kind, sentence, _ = other.result(timeout=30)
        assert kind == "SwitchLostError", sentence
        assert daemon.address in sentence
    successor = Daemon(listen=daemon.address)
    assert successor.address == daemon.address
    digests = ranks(rank.burst, 2, successor.address, job)
    assert digests[0] == digests[1]
    successor.stop()


def test_a_restarted_switch_that_does_not_know_the_job_is_reported(workers: ProcessPoolExecutor, job: str) -> None:
    daemon = Daemon()
    membership = (2, daemon.address, job, 200_000, "switchml", 50.0)
    others = [workers.submit(rank.bereaved, number, *membership) for number in range(2)]
    program.await_job(daemon, job, lambda entry: bool(entry["packets"] > 1000))
    # They stand still meanwhile: on a busy machine a switch starts more slowly than ranks wait for theirs.
    stopped = [process.pid for process in multiprocessing.active_children() if process.pid is not None]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        daemon.kill()
        successor = Daemon(listen=daemon.address)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    for other in others:
        kind, sentence, _ = other.result(timeout=30)
        assert kind == "SwitchLostError", sentence
        assert "no longer knows job" in sentence
    successor.stop()


# A shell starts what runs in its background with this signal ignored.
SCRIPT = """
import numpy, signal, sys, tributary
signal.signal(signal.SIGINT, signal.default_int_handler)
with tributary.Switch() as switch:
    {action}
"""


@pytest.mark.parametrize(
    "action",
    [
        "print('ready', flush=True); tributary.connect(switch.address, job='a', rank=0, world_size=2)",
        "import threading, time\n"
        "    t = threading.Thread(target=lambda: time.sleep(60), daemon=True); t.start()\n"
        "    other = threading.Thread(target=lambda: globals().update(g=tributary.connect("
        "switch.address, job='a', rank=1, world_size=2)), daemon=True); other.start()\n"
        "    group = tributary.connect(switch.address, job='a', rank=0, world_size=2); other.join()\n"
        "    print('ready', flush=True); group.all_reduce(numpy.ones(3, numpy.float32))",
    ],
    ids=["connect", "allreduce"],
)
def test_ctrl_c_ends_a_wait(action: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(action=action)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0
