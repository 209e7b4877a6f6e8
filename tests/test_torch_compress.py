"""Gradients as codes: DDP's hook, FSDP2's sum, error feedback, and checkpoints of what the codes have lost."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_compress
from conftest import Ranks
from torch_rank_hosts import on_hosts
from tributary import _core
from tributary.torch import Options
from tributary.torch.compress import with_codes


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


BITS = [(8, "int8"), (4, "thc4")]


def _sums_codes(protocol: str) -> bool:
    try:
        _core.check_options(protocol, {"numbers": "int8"})
    except ValueError:
        return False
    return True


PROTOCOLS = [protocol for protocol in _core.protocols() if _sums_codes(protocol)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("bits", "codes"), BITS)
def test_all_ranks_have_the_same_parameters_after_every_step(
    ranks: Ranks, meet: str, protocol: str, bits: int, codes: str
) -> None:
    seen = ranks(torch_rank_compress.trains, 3, meet, protocol, bits, codes)
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 6


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(ranks: Ranks, meet: str, tmp_path: Path) -> None:
    ends = ranks(torch_rank_compress.resumes, 2, meet, str(tmp_path))
    assert ends[0] == ends[1]
    whole, resumed, without = ends[0]
    assert resumed == whole
    assert without != whole


@pytest.mark.parametrize(
    ("bits", "options", "times"),
    # Codes of 8 bits round to the nearest, so that the same is lost at each step; those of 4 bits at random.
    [(8, "numbers=int8,down=16", 20), (4, "numbers=thc4", 2)],
)
def test_what_codes_lose_arrives_later(ranks: Ranks, meet: str, bits: int, options: str, times: float) -> None:
    for with_feedback, without in ranks(torch_rank_compress.feeds_back, 3, meet, bits, options):
        # What is left over after all steps is less than a code, and is divided by 200.
        assert with_feedback < without / times


@pytest.mark.parametrize(
    ("bits", "options", "times"), [(8, "numbers=int8,down=16", 10), (4, "numbers=thc4", 1.5)], ids=["8 bits", "4 bits"]
)
def test_ranks_of_a_host_sum_before_their_sum_is_compressed(
    ranks: Ranks, meet: str, bits: int, options: str, times: float
) -> None:
    hosts = [0, 0, 1, 1]
    answers = ranks(on_hosts, 4, hosts, torch_rank_compress.spans_hosts, meet, bits, options)
    # One rank a host has packets, and all have the same bits.
    assert [has_packets for *_, has_packets in answers] == [True, False, True, False]
    for with_feedback, without, seen, _ in answers:
        assert with_feedback < without / times
        assert seen == answers[0][2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("bits", "codes"), BITS)
def test_fsdp2_sums_gradients_as_codes(ranks: Ranks, meet: str, protocol: str, bits: int, codes: str) -> None:
    for exact, coded in ranks(torch_rank_compress.shards, 3, meet, protocol, bits, codes):
        assert coded < 1.5 * exact


def test_two_protocols_of_switches_and_one_of_servers_have_codes() -> None:
    assert sorted(_core.summed_by_servers(protocol) for protocol in PROTOCOLS) == [False, False, True]


def test_what_does_not_fit_is_refused_with_a_sentence(ranks: Ranks, meet: str) -> None:
    for bits, group, shape, name in ranks(torch_rank_compress.refuses, 2, meet):
        assert bits == "gradients have codes of 8 or 4 bits, not 7"
        assert group.startswith("the group 0 does not sum codes of 8 bits: make it with pg_options=")
        assert (
            shape == "the parameter weight has the shape [2, 3], and its state [3]: this is the state of another model"
        )
        assert name == "the model has no trained parameter other: this is the state of another model"


@pytest.mark.parametrize(
    ("options", "world_size", "chosen"),
    [
        ("", 8, {"numbers": "int8"}),
        ("", 9, {"numbers": "int8", "down": "16"}),
        ("numbers=int8,down=8", 9, {"numbers": "int8", "down": "8"}),
        ("numbers=fixed,congestion_control=fixed", 2, {"numbers": "int8", "congestion_control": "fixed"}),
    ],
)
def test_many_ranks_get_wider_sums_unless_options_say_otherwise(
    options: str, world_size: int, chosen: dict[str, str]
) -> None:
    assert with_codes(Options(options=options), "int8", world_size).protocol_options == chosen
    # Of 4 bits the number of ranks decides.
    assert with_codes(Options(), "thc4", world_size).protocol_options == {"numbers": "thc4"}


def test_in_a_hosts_memory_nothing_is_lost(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_compress.shares_memory, 2, meet)
