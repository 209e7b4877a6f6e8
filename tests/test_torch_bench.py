"""The comparison with Gloo that readers run on their own machines."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

TINY = ["--turns", "1", "--calls", "2"]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tributary.torch.bench", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=400)


def test_ranks_of_this_machine_are_measured_beside_gloo_and_it_says_where_they_sum() -> None:
    ran = bench("--ranks", "2", "--size", "1 KiB", "4098", "--ways", "memory", "network", "gloo", *TINY)
    assert ran.returncode == 0, ran.stderr
    head, *rows, memory, network = ran.stdout.splitlines()
    assert head.split() == ["2", "ranks", "memory", "network", "gloo", "memory", "/", "gloo", "network", "/", "gloo"]
    assert [row.split()[:2] for row in rows] == [["1024", "bytes"], ["4098", "bytes"]]
    assert memory == "memory: summed 100% in this host's memory"
    assert network.startswith("network: summed 100% in the network (not in memory: ")


def test_programs_get_seconds_and_ratios() -> None:
    ran = bench("--ranks", "2", "--size", "1024", "--json", *TINY)
    assert ran.returncode == 0, ran.stderr
    row = json.loads(ran.stdout)
    assert (row["ranks"], row["bytes"]) == (2, 1024)
    seconds = row["seconds"]
    assert row["ratio_to_gloo"] == {"tributary": seconds["tributary"] / seconds["gloo"]}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no ranks: start it with torchrun on each host, or give --ranks"),
        (["--ranks", "0"], "0 is less than 1"),
        (["--ranks", "two"], "'two' is not a whole number"),
        (["--ranks", "2", "--size", "1 KB"], '"1 KB" is not a quantity: write a number and one of B, kB, MB'),
        (["--ranks", "2", "--ways", "nccl"], "invalid choice: 'nccl'"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], why: str) -> None:
    ran = bench(*words)
    assert ran.returncode == 2
    assert why in ran.stderr
