"""Sparse allreduces from Python: indices and values over real packets, lost ones too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import program
import rank
import rank_sparse
import tributary
from conftest import Ranks
from program import Daemon
from rank_sparse import OPTIONS, PROTOCOL

TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64, np.uint8]


@pytest.mark.parametrize("options", [{}, {"sparse": "hash", "hash_slots": 16, "spill": 1}], ids=["array", "hash"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_every_type_and_operator_of_the_elements_that_ranks_bring(
    ranks: Ranks, daemon: Daemon, job: str, world_size: int, options: dict[str, Any]
) -> None:
    reports = ranks(rank_sparse.every_type, world_size, daemon.address, job, TYPES, options)
    assert [wrong for wrong, _ in reports] == [[]] * world_size
    assert [digests for _, digests in reports] == [reports[0][1]] * world_size, "all ranks have the same bits"


def test_a_sum_that_cancels_stays_an_element_and_averages_are_over_all_ranks(
    ranks: Ranks, daemon: Daemon, job: str
) -> None:
    expected = [3, 5, 6], [0.0, 4.0, 4.0, 0.0, 2.0, 2.0]
    assert ranks(rank_sparse.cancels, 2, daemon.address, job) == [expected] * 2


BAD: list[tuple[Any, Any, Any, str]] = [
    ([3, 2], [1.0, 1.0], 10, "ValueError: index 2, number 1, is less than the one before it: sort the indices"),
    ([2, 2], [1.0, 1.0], 10, "ValueError: index 2 is there twice, the second time as number 1: combine the values of "),
    ([-1], [1.0], 10, "ValueError: index -1, number 0, is negative: indices count from 0"),
    ([10], [1.0], 10, "ValueError: index 10, number 0, is beyond the tensor's 10 elements"),
    (np.array([2**64 - 1], np.uint64), [1.0], 10, "ValueError: index 9223372036854775807, number 0, is beyond"),
    ([1, 2], [1.0], 10, "ValueError: there are 2 indices and 1 values: give one value for each index"),
    ([0.5], [1.0], 10, "TypeError: indices are integers, not float64"),
    ([[1]], [1.0], 10, "ValueError: indices are a list of numbers, not an array of shape [1, 1]"),
    ([1], [[1.0]], 10, "ValueError: values are a list of one for each index, not an array of shape [1, 1]"),
    ([1], [1.0], -1, "ValueError: the size of a sparse array is a number of elements from 0 on, not -1"),
    ([1], [1.0], 2**32, "ValueError: a tensor of 4294967296 elements is too long: a sparse allreduce has at most "),
]


def test_wrong_indices_are_an_error_on_that_rank_before_anything_is_sent(
    ranks: Ranks, daemon: Daemon, job: str
) -> None:
    bad = [case[:3] for case in BAD]
    (sentences, sent, total), others = ranks(rank_sparse.refused_first, 2, daemon.address, job, bad)
    assert len(sentences) == len(BAD)
    for sentence, (*_, expected) in zip(sentences, BAD, strict=True):
        assert sentence.startswith(expected)
    assert sent == 0
    # The group goes on, and the others have noticed nothing.
    assert (total, others[2]) == (3.0, 3.0)


def test_a_job_is_dense_or_sparse(daemon: Daemon, job: str) -> None:
    with rank.connect(0, 1, daemon.address, job, protocol=PROTOCOL, options=OPTIONS) as group:
        assert group.info.sparse
        with pytest.raises(tributary.UnsupportedError, match="of a dense tensor in a job of sparse ones"):
            group.all_reduce(np.ones(3, np.float32))
        handle = group.all_reduce_sparse_async([1], np.array([2], ">i4"), 3)
        assert handle.result()[1].tolist() == [2]
        assert handle.done()
        assert handle.result()[0].tolist() == [1]
        group.barrier()
    with rank.connect(0, 1, daemon.address, f"{job}-dense", protocol=PROTOCOL) as group:
        assert not group.info.sparse
        with pytest.raises(
            tributary.UnsupportedError, match="sparse tensor in a job of dense ones: choose sparse=auto"
        ):
            group.all_reduce_sparse([1], [2.0], 3)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nft") is None,
    reason="network namespaces need root, iproute2 and nftables",
)
def test_sums_are_exact_over_links_that_lose_packets() -> None:
    host = [sys.executable, rank_sparse.__file__]
    star = ["lab", "star", "--hosts", "3", "--loss", "5%", "--shards", "2", "--timeout", "240s", "--", *host]
    done = subprocess.run(
        [program.PROGRAM, *star], capture_output=True, text=True, check=False, env=program.ENVIRONMENT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    resent = json.loads(done.stdout.splitlines()[-1])
    assert min(resent.values()) > 0, "nothing was lost: the faults are not in force"


def program_ranks(daemon: Daemon, job: str, *more: str) -> list[dict[str, Any]]:
    """What two ranks of the program say."""
    command = [
        "allreduce",
        "--switch",
        daemon.address,
        "--job",
        job,
        "--world-size",
        "2",
        "--elements",
        "200000",
        "--json",
    ]
    command += ["--protocol", PROTOCOL, "--sparse", "0.02", "--iters", "3", *more]
    return [program.last_json(done) for done in program.run_all(*([*command, "--rank", own] for own in "01"))]


@pytest.mark.parametrize("kind", [("f32", "sum"), ("bf16", "avg"), ("i64", "max"), ("u8", "bxor")])
def test_the_program_draws_elements_checks_their_sums_and_says_the_extra_traffic(
    daemon: Daemon, job: str, kind: tuple[str, str]
) -> None:
    reports = program_ranks(daemon, job, "--dtype", kind[0], "--op", kind[1])
    assert all(rank["checked"] for rank in reports)
    assert reports[0]["elements_of_result"] == reports[1]["elements_of_result"]
    brought = [rank["elements_brought"] for rank in reports]
    # Of 4,000 that are drawn, and that both draw 80 of.
    assert all(3_600 < count < 4_400 for count in brought), brought
    assert max(brought) < reports[0]["elements_of_result"] < sum(brought)
    # In an array nothing collides; a result that was lost on this machine goes out once more.
    assert 0.0 <= reports[0]["extra_traffic"] < 1.0


def test_the_program_draws_others_with_another_seed_and_collisions_are_extra_traffic(daemon: Daemon, job: str) -> None:
    table = ["--option", "sparse=hash", "--option", "hash_slots=16"]
    first = program_ranks(daemon, job, *table)
    second = program_ranks(daemon, f"{job}-again", *table)
    other = program_ranks(daemon, f"{job}-other", *table, "--seed", "1")
    drawn = [[rank["elements_brought"] for rank in reports] for reports in (first, second, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert first[0]["extra_traffic"] > 0.0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--elements", "9", "--sparse", "0.1"], " sums no sparse tensors; take --protocol "),
        (["--elements", "9", "--protocol", PROTOCOL, "--sparse", "1.5"], "a share of the elements above 0 and up to 1"),
        (["--input", "x.npy", "--protocol", PROTOCOL, "--sparse", "0.1"], "cannot be used with"),
        (["--elements", "9", "--protocol", PROTOCOL, "--seed", "1"], "--sparse <DENSITY>"),
    ],
)
def test_wrong_flags_are_refused_before_anybody_joins(flags: list[str], words: str) -> None:
    done = program.run("allreduce", "--switch", "127.0.0.1:1", "--job", "x", "--rank", "0", "--world-size", "1", *flags)
    assert words in program.sentence(done, 2)
