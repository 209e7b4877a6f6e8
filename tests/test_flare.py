"""Flare from Python: every type and operator in every design, and bits that follow from the inputs and the tree."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import rank
import rank_runs
import tributary
from conftest import Ranks
from program import ENVIRONMENT, PROGRAM, Daemon

Array = npt.NDArray[Any]

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8]
OPERATORS = ["sum", "avg", "min", "max", "prod"]
BITWISE = ["band", "bor", "bxor"]
DESIGNS = ["auto", "single", "multi:3", "tree"]
#: Around what a packet holds of the shortest types, and more than one has.
SIZES = [0, 1, 63, 64, 65, 10_007]
#: Hosts on links that lose packets, and the trees over them: as for `tributary.flare.reference`.
RUNNERS = 4
TREES: dict[str, Any] = {"flat": None, "levels": [list(range(rank_runs.RACK)), list(range(rank_runs.RACK, RUNNERS))]}
NEEDS_HOSTS = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None,
    reason="network namespaces need root, iproute2 and nftables",
)


def small(own: int, size: int, dtype: Any) -> Array:
    """Numbers whose sums and products of a few ranks every type holds exactly."""
    least = 0 if dtype == np.uint8 else -4
    return np.random.default_rng([own, size]).integers(least, 5, size).astype(dtype)


def right(world_size: int, size: int, dtype: Any, op: str) -> Array:
    """What all ranks' small numbers give."""
    arrays = [small(own, size, dtype).astype(np.int64) for own in range(world_size)]
    combine = {
        "sum": np.add,
        "avg": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "prod": np.multiply,
        "band": np.bitwise_and,
        "bor": np.bitwise_or,
        "bxor": np.bitwise_xor,
    }[op]
    total: Array = arrays[0]
    for array in arrays[1:]:
        total = combine(total, array)
    if op != "avg":
        return total.astype(dtype)
    if dtype in INTEGERS:
        # The average is that of the wrapped sum.
        return np.asarray(np.trunc(total.astype(dtype).astype(np.float64) / world_size)).astype(dtype)
    wide: Any = np.float64 if dtype == np.float64 else np.float32
    quotient: Array = np.divide(total.astype(wide), wide(world_size))
    return quotient.astype(dtype)


def every_type_and_operator(own: int, world_size: int, switch: str, job: str, design: str) -> list[str]:
    """Compare each result with what it must be; give the wrong ones."""
    wrong = []
    with rank.connect(own, world_size, switch, job, protocol="flare", options={"design": design}) as group:
        for dtype in FLOATS + INTEGERS:
            for op in OPERATORS + (BITWISE if dtype in INTEGERS else []):
                for size in SIZES:
                    total = group.all_reduce(small(own, size, dtype), op=op)
                    expected = right(world_size, size, dtype, op)
                    # -0 counts as 0: a sum of integers does not know it.
                    if not np.array_equal(total.astype(np.float64), expected.astype(np.float64)):
                        wrong.append(f"{op} of {size} {np.dtype(dtype)}")
    return wrong


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("world_size", [1, 3])
def test_every_type_and_operator(ranks: Ranks, daemon: Daemon, job: str, world_size: int, design: str) -> None:
    assert ranks(every_type_and_operator, world_size, daemon.address, job, design) == [[]] * world_size


KINDS = [("f32", "sum"), ("f16", "avg"), ("bf16", "sum"), ("f32", "prod")]
SIZE = 200_003


def summed(own: int, world_size: int, switch: str, job: str, options: dict[str, Any]) -> tuple[list[str], str | None]:
    """Sum, and come when it comes."""
    with rank.connect(own, world_size, switch, job, protocol="flare", options=options) as group:
        digests = []
        for dtype, op in KINDS:
            time.sleep(random.random() / 50)
            digests.append(rank.digest(group.all_reduce(rank.data(own, SIZE, dtype), op=op)))
        return digests, group.stats().order


@pytest.mark.parametrize("options", [{}, {"stagger": True}], ids=["together", "staggered"])
def test_reproducible_sums_have_the_bits_of_the_reference_in_every_run(
    ranks: Ranks, daemon: Daemon, job: str, options: dict[str, Any]
) -> None:
    world_size = 5
    orders = set()
    for run in range(5):
        reports = ranks(summed, world_size, daemon.address, f"{job}-{run}", options | {"reproducible": "tree"})
        for number, (dtype, op) in enumerate(KINDS):
            arrays = [rank.data(own, SIZE, dtype) for own in range(world_size)]
            expected = rank.digest(tributary.flare.reference(arrays, op=op))
            assert [digests[number] for digests, _ in reports] == [expected] * world_size, (dtype, op)
        orders |= {order for _, order in reports}
    assert len(orders) == 1, orders
    assert None not in orders


def test_large_tensors_have_no_order_unless_requested(ranks: Ranks, daemon: Daemon, job: str) -> None:
    reports = ranks(summed, 2, daemon.address, job, {})
    assert [order for _, order in reports] == [None, None]


def test_a_design_that_depends_on_arrival_is_refused_beside_reproducible(daemon: Daemon, job: str) -> None:
    options = {"design": "single", "reproducible": "tree"}
    with pytest.raises(ValueError, match="depend on arrival"):
        rank.connect(0, 1, daemon.address, job, protocol="flare", options=options)


@pytest.mark.parametrize(
    "options", [{"numbers": "int8"}, {"numbers": "int8", "down": "16"}, {"numbers": "thc4"}], ids=["8", "8 and 16", "4"]
)
def test_codes_have_the_bits_of_the_default_protocol(daemon: Daemon, job: str, options: dict[str, str]) -> None:
    def total(own: int, name: str, **protocol: Any) -> Array:
        kind: dict[str, Any] = {"options": options, "elements_per_packet": 256, **protocol}
        with rank.connect(own, 3, daemon.address, f"{job}-{name}", **kind) as group:
            return group.all_reduce(rank.data(own, 40_003, "f32"))

    with ThreadPoolExecutor(3) as threads:
        ours = list(threads.map(lambda own: total(own, "ours", protocol="flare"), range(3)))
        default = list(threads.map(lambda own: total(own, "default"), range(3)))
    assert len({rank.digest(sums) for sums in ours + default}) == 1
    exact = np.sum([rank.data(own, 40_003, "f32").astype(np.float64) for own in range(3)], axis=0)
    assert 0 < np.sum((ours[0] - exact) ** 2) < 0.03 * np.sum(exact**2)


def test_the_program_says_the_order(daemon: Daemon, job: str) -> None:
    command = [PROGRAM, "allreduce", "--switch", daemon.address, "--job", job, "--rank", "0", "--world-size", "1"]
    command += ["--elements", "300000", "--dtype", "f64", "--op", "min", "--protocol", "flare"]

    def report(*more: str) -> dict[str, Any]:
        done = subprocess.run([*command, "--json", *more], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    reproducible = ("--option", "reproducible=tree")
    said = report(*reproducible)
    assert said["checked"]
    assert len(said["order"]) == 8
    assert report(*reproducible)["order"] == said["order"]
    assert "order" not in report()


#: What runs at once on one star, by the number of threads of its switches: the tree, and an option.
PLANS = {
    "1": [
        *("flat:reproducible=tree", "levels:reproducible=tree", "flat:reproducible=off", "flat:reproducible=ranks"),
        *("flat:numbers=int8", "levels:numbers=thc4"),
    ],
    "4": [
        *("flat:reproducible=tree", "levels:reproducible=tree", "levels:reproducible=ranks"),
        *("flat:numbers=thc4", "levels:numbers=int8"),
    ],
}
Runs = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What rank 0 says of all runs of a plan on switches with this many threads."""

    @functools.cache
    def star(cores: str) -> dict[str, dict[str, Any]]:
        star = [sys.executable, "-m", "tributary", "lab", "star", "--hosts", str(RUNNERS)]
        star += ["--loss", "5%", "--shards", cores]
        program = [sys.executable, rank_runs.__file__, "flare", str(tmp_path_factory.mktemp("meet")), *PLANS[cores]]
        variables = {**os.environ, "RUNS_CORES": cores}
        ran = subprocess.run([*star, "--", *program], capture_output=True, text=True, timeout=600, env=variables)
        assert ran.returncode == 0, ran.stderr
        found = re.search(r"\{.*\}", ran.stdout)
        assert found is not None, ran.stdout
        said: dict[str, dict[str, Any]] = json.loads(found[0])
        return said

    def of_plan(cores: str, plan: str) -> dict[str, Any]:
        said = star(cores)[plan]
        assert said["runs"] == rank_runs.RUNS
        return said

    return of_plan


@NEEDS_HOSTS
@pytest.mark.parametrize("levels", TREES)
@pytest.mark.parametrize("cores", PLANS)
def test_twenty_runs_under_loss_have_the_bits_and_the_order_of_their_tree(runs: Runs, levels: str, cores: str) -> None:
    said = runs(cores, f"{levels}:reproducible=tree")
    arrays = [rank.data(own, rank_runs.SIZE, "f32") for own in range(RUNNERS)]
    assert said["digests"] == [rank.digest(tributary.flare.reference(arrays, TREES[levels]))]
    assert len(said["orders"]) == 1
    assert said["orders"][0] is not None


@NEEDS_HOSTS
def test_without_the_option_twenty_runs_have_several_sums(runs: Runs) -> None:
    """If this fails, the test above proves nothing."""
    said = runs("1", "flat:reproducible=off")
    assert len(said["digests"]) >= 2
    assert said["orders"] == [None]


@NEEDS_HOSTS
def test_over_ranks_any_placement_has_the_bits_of_one_switch(runs: Runs) -> None:
    flat, levels = runs("1", "flat:reproducible=ranks"), runs("4", "levels:reproducible=ranks")
    assert flat["digests"] == levels["digests"]
    assert len(flat["digests"]) == 1
    assert flat["orders"] == levels["orders"]


@NEEDS_HOSTS
@pytest.mark.parametrize(
    "plan", [(cores, plan) for cores, plans in PLANS.items() for plan in plans if "numbers" in plan]
)
def test_sums_of_codes_have_the_same_bits_whatever_is_lost(runs: Runs, plan: tuple[str, str]) -> None:
    said = runs(*plan)
    # Codes of 4 bits are rounded at random, by the number of the block in its job: alike in the same run of each job.
    assert len(said["digests"]) == (rank_runs.RUNS // rank_runs.JOBS if "thc4" in plan[1] else 1)
    # Integers have no order.
    assert said["orders"] == [None]
