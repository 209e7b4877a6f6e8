"""What PANAMA promises of its sums: the same bits in every run, which a user can compute at home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rank
import tributary
from conftest import Ranks
from program import ENVIRONMENT, PROGRAM, Daemon

HERE = Path(__file__).parent


def watched(own: int, world_size: int, switch: str, job: str) -> tuple[list[str], Any]:
    """Sum, and keep the job until the switch has reported its trees."""
    with rank.connect(own, world_size, switch, job, protocol="panama") as group:
        digests = [rank.digest(group.all_reduce(rank.data(own, 60_007, dtype), op=op)) for dtype, op in KINDS]
        status = subprocess.run(
            [PROGRAM, "status", "--switch", switch, "--json"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        group.barrier()
        jobs = json.loads(status.stdout)["jobs"]
    return digests, next(entry for entry in jobs if entry["name"] == job)["trees"]


KINDS = [("f32", "sum"), ("f16", "sum"), ("bf16", "avg"), ("f32", "avg"), ("i32", "sum")]


@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_the_reference_along_the_tree_of_status_has_the_bits_of_every_rank(
    ranks: Ranks, daemon: Daemon, job: str, world_size: int
) -> None:
    reports = ranks(watched, world_size, daemon.address, job)
    for number, (dtype, op) in enumerate(KINDS):
        arrays = [rank.data(own, 60_007, dtype) for own in range(world_size)]
        right = rank.digest(tributary.panama.reference(arrays, reports[0][1], op))
        assert right == rank.digest(tributary.panama.reference(arrays, op=op)), (
            "one switch over all ranks in their order"
        )
        assert [digests[number] for digests, _ in reports] == [right] * world_size, (dtype, op)


def test_the_bits_follow_from_the_tree() -> None:
    arrays = [np.array([value], np.float32) for value in (1e9, 3.0, -1e9, 5.0)]
    left = tributary.panama.reference(arrays, [[0, 1], [2, 3]])
    right = tributary.panama.reference(arrays, [[0, 2], [1, 3]])
    assert right == 8.0
    assert left != right
    zeros = [np.array([-0.0], np.float32)] * 3
    assert np.signbit(tributary.panama.reference(zeros)).all(), "nothing is added to them"


def test_every_type_and_layout_comes_back_as_it_was() -> None:
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8):
        arrays = [np.asfortranarray(np.arange(6).reshape(2, 3)).astype(dtype)] * 2
        total = tributary.panama.reference(arrays)
        assert total.dtype == dtype
        assert total.shape == (2, 3)
        np.testing.assert_array_equal(total.astype(float), 2.0 * np.arange(6).reshape(2, 3))


def status_tree(root: str, **switches: list[tuple[str, list[int]]]) -> dict[str, Any]:
    """A tree as `tributary status --json` prints it."""
    children = {node: [{"node": child, "ranks": ranks} for child, ranks in below] for node, below in switches.items()}
    return {"root": root, "switches": [{"node": node, "children": below} for node, below in children.items()]}


def test_a_tree_of_status_is_read_in_the_order_of_its_children() -> None:
    tree = status_tree("top", left=[("a", [0]), ("b", [2])], top=[("left", [0, 2]), ("c", [1])])
    arrays = [np.array([value], np.float32) for value in (1e8, 1.0, 3.0)]
    nested = tributary.panama.reference(arrays, [[0, 2], 1])
    assert tributary.panama.reference(arrays, tree) == nested
    assert tributary.panama.reference(arrays, [tree, tree]) == nested


def test_what_has_no_bits_is_refused_in_a_sentence() -> None:
    two = [np.array([1.0], np.float32), np.array([2.0], np.float32)]
    deep = status_tree("top", top=[("below", [0, 1])])
    other = status_tree("top", top=[("b", [1]), ("a", [0])])
    refused: list[tuple[list[Any], Any, str, str]] = [
        ([], None, "sum", "no ranks"),
        ([two[0], np.array([2.0], np.float64)], None, "sum", "rank 1 brings float64"),
        ([two[0], np.array([2.0, 3.0], np.float32)], None, "sum", r"shape \(2,\)"),
        (two, [0], "sum", "the tree adds the ranks"),
        (two, [0, 0], "sum", "the tree adds the ranks"),
        (two, "star", "sum", "is not a tree"),
        (two, deep, "sum", "an order that only its own status shows"),
        (two, [status_tree("top", top=[("a", [0]), ("b", [1])]), other], "sum", "different orders"),
        (two, None, "bxor", "no meaning"),
    ]
    for arrays, tree, op, sentence in refused:
        with pytest.raises(tributary.ConfigError, match=sentence):
            tributary.panama.reference(arrays, tree, op)
    with pytest.raises(tributary.UnsupportedError):
        tributary.panama.reference(two, op="median")


def averaged(own: int, world_size: int, switch: str, job: str, partial: str) -> tuple[str, set[float], float | None]:
    """Average what each rank has one number of; the last rank comes late."""
    with rank.connect(own, world_size, switch, job, protocol="panama", options={"partial": partial}) as group:
        if own == world_size - 1:
            time.sleep(1.0)
        result = group.all_reduce(np.full(20_011, 2.0**own, np.float32), op="avg")
        contributed = group.stats().contributed
        group.barrier()
    return rank.digest(result), set(result.tolist()), contributed


@pytest.mark.parametrize(("partial", "lacks"), [("14/16", 1), ("15/16", 0), ("off", 0)])
def test_an_average_lacks_a_late_rank_is_of_those_that_are_in_it_and_the_same_everywhere(
    ranks: Ranks, daemon: Daemon, job: str, partial: str, lacks: int
) -> None:
    world_size = 6
    whole = 2**world_size - 1
    reports = ranks(averaged, world_size, daemon.address, job, partial)
    assert len({digest for digest, _, _ in reports}) == 1
    allowed = {float(np.float32(whole / world_size))}
    if lacks:
        allowed |= {float(np.float32((whole - 2**left_out) / (world_size - lacks))) for left_out in range(world_size)}
    for _, values, contributed in reports:
        assert values <= allowed, "an average of a set of ranks that may be"
        if partial == "off":
            assert contributed is None
        else:
            assert contributed is not None
            assert (world_size - lacks) / world_size <= contributed <= 1.0
            assert (contributed < 1.0) == bool(lacks), "the late rank is left out"


def refused(own: int, world_size: int, switch: str, job: str) -> float:
    """Ask for what may not lack ranks: each is refused before anything is sent, and the group goes on."""
    with rank.connect(own, world_size, switch, job, protocol="panama", options={"partial": "1/2"}) as group:
        for dtype, op in [(np.float32, "sum"), (np.float32, "max"), (np.int32, "sum"), (np.int32, "avg")]:
            with pytest.raises(tributary.UnsupportedError, match="use op=avg, or leave the option partial out"):
                group.all_reduce(np.ones(4, dtype), op=op)
        average = group.all_reduce(np.ones(4, np.float32), op="avg")
        group.barrier()
    return float(average[0])


def test_what_may_not_lack_ranks_is_refused_in_a_sentence_and_an_average_still_works(
    ranks: Ranks, daemon: Daemon, job: str
) -> None:
    assert ranks(refused, 2, daemon.address, job) == [1.0, 1.0]
    with pytest.raises(ValueError, match="partial is 13/16"):
        rank.connect(0, 1, daemon.address, job, protocol="panama", options={"partial": "13/16"})


@pytest.mark.parametrize(("options", "lacks"), [("partial=14/16", 1), ("", 0)])
def test_ddp_averages_over_the_ranks_that_are_in_time_and_says_how_many(
    ranks: Ranks, tmp_path: Path, options: str, lacks: int
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")
    import torch_rank_partial

    size = 6
    whole = 2**size - 1
    reports = ranks(torch_rank_partial.lacking, size, str(tmp_path / "meet"), "panama", options)
    assert all(seen == reports[0][0] for seen, _, _ in reports), "the same gradients on every rank"
    allowed = {whole / size}
    if lacks:
        allowed |= {(whole - 2**left_out) / (size - lacks) for left_out in range(size)}
    for _, contributed, values in reports:
        assert all(min(abs(value - one) for one in allowed) < 1e-5 for value in values), values
        if lacks:
            assert contributed is not None
            assert (size - lacks) / size <= contributed < 1.0
        else:
            assert contributed is None


#: Loses one train of packets in a hundred, and lets one in twenty wait behind the others: on the loopback interface of
#: a network namespace.
FAULTS = """
set -e
ip -n $NS link set lo up
ip netns exec $NS tc qdisc add dev lo root handle 1: htb default 1
ip netns exec $NS tc class add dev lo parent 1: classid 1:1 htb rate 10gbit quantum 60000
ip netns exec $NS tc class add dev lo parent 1: classid 1:2 htb rate 50mbit burst 1600 cburst 1600 quantum 1600
ip netns exec $NS nft -f - <<END
table ip faults {
    chain out {
        type filter hook output priority 0
        meta l4proto udp udp length > 200 numgen random mod 100 0 drop
        meta l4proto udp numgen random mod 20 0 meta priority set 1:2
    }
}
END
"""


@pytest.fixture
def faulty() -> Iterator[str]:
    """A network namespace whose loopback interface loses and reorders packets."""
    name = f"pnm-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["sh", "-c", FAULTS], check=True, env=os.environ | {"NS": name}, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("ip", "tc", "nft")),
    reason="network namespaces with faults need root, iproute2 and nftables",
)
def test_twenty_runs_over_lossy_reordering_links_have_the_bits_of_the_reference(faulty: str) -> None:
    inside = ["ip", "netns", "exec", faulty]
    command = [*inside, sys.executable, str(HERE / "programs" / "rank_panama.py"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["digests"]) == 20 * 3
    assert set(report["digests"]) == {report["reference"]}
    assert report["sent_again"] > 0, "nothing was lost: the faults are not in force"
