"""Ranks that share a host sum in its memory: right, with the bits of a switch, and with the errors of a network."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank
import torch_rank_callbacks
import torch_rank_disagree
import torch_rank_elastic
import torch_rank_failures
import torch_rank_layouts
import torch_rank_leaving
import torch_rank_local
import torch_rank_training
import torch_rank_wider
from conftest import Ranks
from test_torch_disagree import OWN
from torch_program import ROOT, torchrun
from torch_rank_disagree import ODD, OPERATIONS
from torch_rank_local import called
from tributary import _core
from tributary.torch import Options
from tributary.torch.ledger import Ledger
from tributary.torch.options import AROUND


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


@pytest.mark.parametrize("size", [2, 3, 5])
def test_sums_have_the_bits_that_a_switch_gives_them(ranks: Ranks, meet: str, size: int) -> None:
    here = ranks(torch_rank_local.roundings, size, f"{meet}-on", "on")
    there = ranks(torch_rank_local.roundings, size, f"{meet}-off", "off")
    assert all(digests == here[0] for digests in here + there)


@pytest.mark.parametrize("size", [2, 4])
def test_every_operation_of_every_type_stays_in_memory(ranks: Ranks, meet: str, size: int) -> None:
    for line in ranks(torch_rank_local.every_operation, size, meet):
        assert line.startswith("in this host's memory 100.0% of ")


@pytest.mark.parametrize("local", ["on", "off"])
def test_a_sum_for_which_its_caller_waits_has_ended_when_the_call_returns(ranks: Ranks, meet: str, local: str) -> None:
    ranks(torch_rank_local.at_once, 3, meet, local)


def test_several_operations_are_in_flight_and_callbacks_start_others(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_local.several_in_flight, 3, meet)


def test_custom_operators_go_through_the_network(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_local.custom, 3, meet)


def test_one_rank_that_switches_it_off_takes_all_to_the_network_and_they_say_why(ranks: Ranks, meet: str) -> None:
    for reason in ranks(torch_rank_local.one_off, 3, meet, 1):
        assert reason is not None
        assert reason.endswith("TRIBUTARY_LOCAL is off")


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"options": "numbers=fixed"}, "TRIBUTARY_OPTIONS=numbers=fixed are about sums in the network"),
        ({"protocol": AROUND}, f"TRIBUTARY_PROTOCOL={AROUND} is about sums in the network"),
    ],
)
def test_what_was_chosen_is_kept_in_the_network(ranks: Ranks, meet: str, choices: dict[str, str], why: str) -> None:
    assert ranks(torch_rank_local.why, 2, meet, choices) == [why, why]


@pytest.mark.parametrize(
    ("function", "size", "arguments"),
    [
        (torch_rank.layouts, 3, ()),
        (torch_rank.broadcasts, 3, ()),
        (torch_rank.works, 2, ()),
        (torch_rank.threads_in_turn, 3, ()),
        (torch_rank_callbacks.among_groups, 3, ()),
        (torch_rank_layouts.moved, 3, (1,)),
        (torch_rank_layouts.reduced, 3, (2,)),
        (torch_rank_failures.impatient, 2, ()),
        (torch_rank_local.strict, 2, ()),
        (torch_rank_elastic.changing, 3, (None, "auto")),
        (torch_rank_wider.hybrid_sharded, 4, (("outer", "inner"),)),
        (torch_rank_wider.loading, 2, ()),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_holds_in_the_network_holds_in_memory(
    ranks: Ranks, meet: str, function: object, size: int, arguments: tuple[object, ...]
) -> None:
    ranks(called, size, function, meet, *arguments)


def test_training_gives_the_same_parameters_on_all_ranks_and_on_both_ways(ranks: Ranks, meet: str) -> None:
    here = ranks(called, 4, torch_rank_training.agreeing, f"{meet}-on", 30)
    there = ranks(torch_rank_training.agreeing, 4, f"{meet}-off", 30)
    assert all(digests == here[0] for digests in here + there)


def test_what_all_ranks_have_started_ends_before_the_group(ranks: Ranks, meet: str) -> None:
    for sums in ranks(called, 3, torch_rank_leaving.destroys_with_work_pending, meet, ""):
        assert sums == [6.0] * 50


def test_a_rank_that_leaves_says_why(ranks: Ranks, meet: str) -> None:
    errors = ranks(called, 2, torch_rank_leaving.destroys_with_work_of_its_own, meet)[0]
    assert errors[0].startswith("RankLostError: all_reduce 2 of group 0")
    assert errors[0].endswith("rank 1 has destroyed the group")


def test_a_rank_that_does_not_come_is_named(ranks: Ranks, meet: str) -> None:
    for kind, sentence in ranks(called, 3, torch_rank_failures.missing, meet, 2)[:2]:
        assert kind == "CollectiveTimeoutError", sentence
        assert sentence.startswith("all_reduce 3 of group 0 timed out, after a timeout of 2 s: rank 2 has not come")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_rank_learns_at_once_that_one_brings_another_size(ranks: Ranks, meet: str, name: str) -> None:
    for rank, (kind, sentence) in enumerate(ranks(called, 3, torch_rank_disagree.odd, meet, name)):
        assert " 2 of group 0" in sentence, (kind, sentence)
        if rank == ODD and name in OWN:
            assert kind in ("MismatchError", "UnsupportedError")
            continue
        assert kind == "MismatchError", sentence
        assert f"rank {ODD}" in sentence or "ranks" in sentence, sentence


def test_descriptors_and_mappings_are_flat_over_300_groups(ranks: Ranks, meet: str) -> None:
    for more in ranks(torch_rank_local.many_groups, 2, meet, 300):
        assert more == (0, 0)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [(signal.SIGKILL, "RankLostError", "rank 1 is gone: its process ended")],
    ids=["killed"],
)
@pytest.mark.parametrize(("seed", "elements"), [(1, 10), (2, 50_000), (3, 3_000_000), (4, 3_000_000), (5, 800_000)])
def test_a_rank_killed_at_any_time_is_named_and_no_sum_is_wrong(
    workers: ProcessPoolExecutor, meet: str, how: signal.Signals, kind: str, words: str, seed: int, elements: int
) -> None:
    others = [workers.submit(torch_rank_local.bereaved, rank, 3, meet, elements) for rank in (0, 2)]
    call = f"import torch_rank_local; torch_rank_local.bereaved(1, 3, {meet!r}, {elements})"
    command = [sys.executable, "-c", call]
    with subprocess.Popen(command, cwd=ROOT / "tests/programs", stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "summing\n"
        time.sleep(random.Random(seed).uniform(0.1, 0.4))
        doomed.send_signal(how)
    for other in others:
        found, sentence, _ = other.result(timeout=60)
        assert (found, words in sentence) == (kind, True), sentence


def test_a_rank_that_stands_still_is_named_after_the_timeout(workers: ProcessPoolExecutor, meet: str) -> None:
    others = [workers.submit(torch_rank_local.bereaved, rank, 3, meet, 1000, 3.0) for rank in (0, 2)]
    call = f"import torch_rank_local; torch_rank_local.bereaved(1, 3, {meet!r}, 1000, 3.0)"
    command = [sys.executable, "-c", call]
    with subprocess.Popen(command, cwd=ROOT / "tests/programs", stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "summing\n"
        time.sleep(0.2)
        doomed.send_signal(signal.SIGSTOP)
        try:
            for other in others:
                found, sentence, _ = other.result(timeout=60)
                assert found == "CollectiveTimeoutError", sentence
                assert "timed out, after a timeout of 3 s: rank 1 has " in sentence
        finally:
            doomed.kill()


def test_a_fork_of_a_rank_is_refused_in_a_sentence_and_disturbs_nobody(ranks: Ranks, meet: str) -> None:
    for *refused, destroyed in ranks(called, 3, torch_rank_local.forking, meet):
        for sentence in refused:
            assert sentence.startswith("TributaryError: "), sentence
            assert sentence.endswith(" was made before a fork; make a new process group in the new process"), sentence
        assert destroyed == ""


def test_a_script_under_torchrun_says_that_it_summed_in_memory(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('tributary')\n"
        "dist.all_reduce(total := torch.ones(1024))\n"
        "assert total.sum() == 1024 * dist.get_world_size()\n"
        "dist.destroy_process_group()\n"
    )
    ran = torchrun(str(script), processes=4, TRIBUTARY_LOCAL="on")
    assert ran.returncode == 0, ran.stderr
    assert "group 0, rank 0 of 4: in this host's memory 100.0% of 4.0 KiB" in ran.stderr


def test_the_ledger_counts_memory_beside_the_network() -> None:
    ledger = Ledger()
    ledger.network("all_reduce", 3 << 20, is_local=True)
    assert str(ledger.stats(None)) == "in this host's memory 100.0% of 3.0 MiB"
    ledger.network("all_reduce", 1 << 20)
    assert str(ledger.stats(None)) == "in this host's memory 75.0%, in network 25.0% of 4.0 MiB"


def test_only_on_and_off_can_be_chosen() -> None:
    with pytest.raises(ValueError, match="TRIBUTARY_LOCAL is on or off, not 'yes'"):
        Options.from_environment({"TRIBUTARY_LOCAL": "yes"})
    assert Options().local == "on"


def test_cores_are_a_number_and_only_for_protocols_whose_slots_they_can_divide() -> None:
    assert Options().cores is None
    assert Options.from_environment({"TRIBUTARY_CORES": "4"}).cores == 4
    for wrong, why in (("two", "is a number, not 'two'"), ("17", "is 1 to 16, not 17"), ("0", "is 1 to 16, not 0")):
        with pytest.raises(ValueError, match=f"TRIBUTARY_CORES {why}"):
            Options.from_environment({"TRIBUTARY_CORES": wrong})
    other = next(protocol for protocol in _core.protocols() if not _core.divides_slots(protocol, {}))
    with pytest.raises(ValueError, match=f"TRIBUTARY_CORES is 1 under such a job of {other}"):
        Options(protocol=other, cores=2)
