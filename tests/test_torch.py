"""The PyTorch backend: every operation right, on its way, and told."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import program
import torch_rank
import torch_rank_failures
import torch_rank_training
from conftest import Ranks
from program import Daemon
from torch_groups import data
from torch_program import kill_in_the_middle
from tributary._core import cuts
from tributary.errors import CollectiveTimeoutError
from tributary.torch import Options
from tributary.torch.agreement import Agreement
from tributary.torch.claims import Claim
from tributary.torch.ledger import Ledger
from tributary.torch.network import Network
from tributary.torch.options import TORCH_DEFAULT, effective_timeout
from tributary.torch.tensors import landing, source_of


@pytest.fixture
def meet(tmp_path: Path) -> str:
    """A file in which the ranks meet."""
    return str(tmp_path / "meet")


# Nine types with five operators, five of them with three more; in fixed point two operators for three types of floats.
@pytest.mark.parametrize(("options", "in_network"), [("", 9 * 5 + 5 * 3), ("numbers=fixed", 3 * 2 + 5 * 8)])
def test_reductions_are_right_and_take_the_way_that_knows_them(
    ranks: Ranks, meet: str, options: str, in_network: int
) -> None:
    digests = ranks(torch_rank.reductions, 3, meet, options, in_network)
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize("options", ["", "numbers=fixed"])
def test_flags_have_the_reductions_that_pytorch_defines(ranks: Ranks, meet: str, options: str) -> None:
    ranks(torch_rank.flags, 3, meet, options)


def test_two_ranks_that_name_no_protocol_get_the_default_ones_bits(ranks: Ranks, meet: str) -> None:
    own, switchs = (ranks(torch_rank.roundings, 2, meet + name, name) for name in ("auto", "switchml"))
    assert own[0] == own[1] == switchs[0] == switchs[1]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tensors_of_every_layout(ranks: Ranks, meet: str, size: int) -> None:
    ranks(torch_rank.layouts, size, meet)


def test_broadcast_brings_every_type_through_the_network(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank.broadcasts, 3, meet)
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize(("protocol", "options"), [("switchml", ""), ("switchml", "numbers=fixed"), ("ring", "")])
def test_reduce_and_reduce_scatter(ranks: Ranks, meet: str, protocol: str, options: str) -> None:
    ranks(torch_rank.reduces_and_scatters, 3, meet, protocol, options)


def test_tensors_are_spread_over_several_switches(ranks: Ranks, meet: str) -> None:
    switches = [Daemon() for _ in range(2)]
    try:
        reports = ranks(torch_rank.spread, 3, meet, ",".join(switch.address for switch in switches))
        states = [program.last_json(program.run("status", "--switch", switch.address, "--json")) for switch in switches]
    finally:
        for switch in switches:
            switch.stop()
    digests, again = zip(*reports, strict=True)
    assert digests[0] == digests[1] == digests[2]
    received = [state["switch"]["shards"][0]["rx_packets"] for state in states]
    # What impatient ranks send again on a busy machine may all go to one of them.
    assert abs(received[0] - received[1]) < 0.1 * sum(received) + sum(again), "about equal shares"


@pytest.mark.parametrize(("elements", "switches"), [(0, 3), (1, 1), (196_607, 3), (196_608, 3), (1_000_003, 4)])
def test_slices_of_a_tensor_follow_each_other_and_are_about_equal(elements: int, switches: int) -> None:
    slices = cuts(elements, [1.0] * switches)
    assert len(slices) == (switches if elements >= switches << 16 else 1)
    assert [start for start, _ in slices] == [0, *(end for _, end in slices[:-1])]
    assert slices[-1][1] == elements
    sizes = [end - start for start, end in slices]
    assert max(sizes) - min(sizes) <= 1


def test_operations_have_events_in_a_profile(ranks: Ranks, meet: str) -> None:
    for names in ranks(torch_rank.profiled, 2, meet, f"{meet}-trace"):
        assert {"tributary:all_reduce", "tributary:broadcast", "gloo:all_gather"} <= set(names)
    for rank in range(2):
        events = json.loads(Path(f"{meet}-trace-{rank}.json").read_text())["traceEvents"]
        given = [event["args"] for event in events if event.get("name") == "tributary:record_param_comms"]
        found = [
            (args["Collective name"], args["dtype"], args["In msg nelems"], args["Out msg nelems"], args["Bytes"])
            for args in given
        ]
        assert found == [
            ("allreduce", "Float", 1000, 1000, 4000),
            ("broadcast", "Float", 1000, 1000, 4000),
            ("allgather", "Float", 2, 4, 8),
            ("_allgather_base", "Float", 2000, 4000, 8000),
        ]
        for args in given:
            assert (args["Group size"], args["Process Group Ranks"], args["Rank"]) == (2, "[0, 1]", rank)
            assert args["Process Group Name"] == "0"
        assert [args["Path"] for args in given] == ["network", "network", "host path", "network"]


def test_steps_name_the_rank_that_the_others_waited_for(ranks: Ranks, meet: str) -> None:
    for _, late, _ in ranks(torch_rank.stepped, 3, meet):
        assert late.straggler == 1
        assert late.straggler_share > 0
        assert late.bytes == 4000
        assert late.rate == late.bytes / late.seconds
        assert late.waited_s > 0


def test_what_only_moves_takes_the_host_path(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank.moves, 3, meet)


def test_operations_under_way_answer_questions(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank.works, 2, meet)
    assert digests[0] == digests[1]


def test_subgroups_from_several_threads(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank.subgroups, 3, meet)


def test_threads_that_take_turns_may_share_a_group(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank.threads_in_turn, 3, meet)


def test_a_rank_that_does_not_come_is_named(ranks: Ranks, meet: str) -> None:
    failures = ranks(torch_rank_failures.missing, 3, meet, 2)
    for kind, sentence in failures[:2]:
        assert kind == "CollectiveTimeoutError", sentence
        assert sentence.startswith("all_reduce 3 of group 0")
        assert "rank 2" in sentence


def test_a_rank_that_does_not_come_to_the_host_path_is_named(ranks: Ranks, meet: str) -> None:
    failures = ranks(torch_rank_failures.missing_on_the_host_path, 3, meet)
    for kind, sentence in failures[:2]:
        assert kind == "CollectiveTimeoutError", sentence
        assert sentence.startswith("all_reduce 2 of group 0 timed out, after a timeout of 2 s")
        assert "rank 2" in sentence
        assert "sum of" not in sentence, "the caller knows the operation, and not the sum of its words"


def test_people_learn_of_no_sum_that_they_have_not_started() -> None:
    class Silent:
        def all_reduce(self, *_: object) -> list[object]:
            return [self]

        def go_on(self) -> None:
            pass

        def wait(self, _: float | None) -> bool:
            raise CollectiveTimeoutError("job x: sum of 3 i32 elements: rank 2 did not contribute in time", [2])

    agreement = Agreement(Claim("all_gather"), 0, 3)
    agreement.start(cast(Network, Silent()), None, "all_gather 1 of group 0", 2.0, {}, lambda: None)
    with pytest.raises(CollectiveTimeoutError) as failed:
        agreement.wait(timedelta(0))
    after = "all_gather 1 of group 0 timed out, after a timeout of 2 s"
    assert failed.value.args[0] == f"{after}: job x: rank 2 did not contribute in time"


F32, F64 = ("all_reduce", "float32", "SUM"), ("all_reduce", "float64", "SUM")


@pytest.mark.parametrize("how", ["wait", "future"])
@pytest.mark.parametrize(
    ("brings", "words"),
    [
        ([F32, F64], ["rank 0 brings sum of 1000 f32 elements", "rank 1 brings sum of 2 i32 elements"]),
        ([F64, F32], ["rank 0 brings sum of 2 i32 elements", "rank 1 brings sum of 1000 f32 elements"]),
        ([F32, ("all_reduce", "float32", "MAX")], ["rank 1 brings sum of 2 i32 elements"]),
        ([F64, F64, ("all_reduce", "float64", "MAX")], ["ranks disagree: rank ", "to the host path, rank"]),
        ([("all_gather", "float32", ""), F32], ["rank 1 brings sum of 1000 f32 elements"]),
        ([("all_gather", "float32", ""), F64], ["to the host path, rank "]),
    ],
    ids=["type", "other type", "operator", "operator of a third", "operation", "operation of the host path"],
)
def test_ranks_whose_operations_differ_or_take_different_ways_fail_at_once(
    ranks: Ranks, meet: str, brings: list[tuple[str, str, str]], words: list[str], how: str
) -> None:
    for kind, sentence in ranks(torch_rank_failures.differing, len(brings), meet, brings, how):
        assert kind == "MismatchError", sentence
        assert all(word in sentence for word in words), sentence


def test_a_wait_that_is_too_short_says_so_and_can_be_repeated(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_failures.impatient, 2, meet)


def test_fallback_can_be_an_error(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_failures.strict, 2, meet)


def test_sparse_tensors_are_refused(ranks: Ranks, meet: str) -> None:
    ranks(torch_rank_failures.refusals, 2, meet)


def test_nan_and_infinity_reach_every_rank(ranks: Ranks, meet: str) -> None:
    finite = ranks(torch_rank_failures.nonfinite, 3, meet)
    assert finite[0] == finite[1] == finite[2]
    assert [i for i, is_finite in enumerate(finite[0][0]) if not is_finite] == [3, 500]


def test_the_hook_takes_gradients_of_a_gloo_group_through_the_network(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank_training.hooked, 2, meet)
    assert digests[0] == digests[1]


def test_options_come_from_variables_and_typing_mistakes_are_refused() -> None:
    options = Options.from_environment({"TRIBUTARY_SWITCH": "a:1", "TRIBUTARY_TIMEOUT": "7", "TRIBUTARY_LISTEN": ""})
    assert options == Options(switch="a:1", timeout=7.0)
    assert Options(switch="a:1, b:1").switches == ["a:1", "b:1"]
    for name, value, word in [
        ("TRIBUTARY_SWICH", "a", "TRIBUTARY_SWITCH"),
        ("TRIBUTARY_FALLBACK", "nccl", "gloo or error"),
        ("TRIBUTARY_TIMEOUT", "soon", "seconds"),
        ("TRIBUTARY_TIMEOUT", "-1", "above 0"),
        ("TRIBUTARY_SWITCH", "a:1,,b:1", "HOST:PORT"),
        ("TRIBUTARY_SWITCH", "a:1,b:1,a:1", "twice"),
    ]:
        with pytest.raises(ValueError, match=word):
            Options.from_environment({name: value})


def test_a_pytorch_that_is_too_old_is_refused_with_a_sentence() -> None:
    words = "from torch._C._distributed_c10d import Backend; del Backend.all_gather_single; import tributary.torch"
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60)
    assert "ImportError: tributary.torch needs PyTorch 2.14 or newer, and this is" in ran.stderr


def test_a_program_that_imports_the_package_has_no_entry_points_read() -> None:
    words = (
        "import importlib.metadata, tributary.torch, torch.distributed as dist; importlib.metadata.entry_points = None"
    )
    check = "dist.Backend._ensure_backend_registered('tributary'); print(dist.Backend.TRIBUTARY)"
    ran = subprocess.run([sys.executable, "-c", f"{words}; {check}"], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "tributary\n", ran.stderr


def test_a_subgroup_takes_its_parents_timeout() -> None:
    seven, options = timedelta(seconds=7), Options(timeout=5)
    assert effective_timeout(seven, options, None) == seven
    assert effective_timeout(TORCH_DEFAULT, Options(), seven) == seven
    assert effective_timeout(TORCH_DEFAULT, options, seven) == timedelta(seconds=5)
    assert effective_timeout(TORCH_DEFAULT, Options(), None) == TORCH_DEFAULT


def test_the_ledger_says_how_much_and_why() -> None:
    ledger = Ledger()
    ledger.network("all_reduce", 3 << 20)
    ledger.host("all_gather", "moves data, sums nothing", 1 << 20)
    line = str(ledger.stats(None))
    assert line == (
        "in network 75.0% of 4.0 MiB, host path 25.0%, because all_gather: moves data, sums nothing (1.0 MiB)"
    )


def test_the_last_line_adds_up_all_groups(ranks: Ranks, meet: str) -> None:
    lines, nothing = ranks(torch_rank_failures.adding_up, 2, meet)
    assert nothing == []
    assert lines == ["3 groups, rank 0 of 2: in network 100.0% of 12.0 KiB"]


@pytest.mark.parametrize("shape", [(7,), (8,), (), (0,), (3, 5)])
@pytest.mark.parametrize("name", ["bool", "uint8", "float16", "float32", "int64", "complex64"])
def test_a_broadcast_of_any_layout_makes_the_others_tensors_the_roots(name: str, shape: tuple[int, ...]) -> None:
    dtype = getattr(torch, name)
    root, other = data(0, dtype, *shape), data(1, dtype, *shape)
    sent = source_of(root)
    received, finish = landing(other)
    received.copy_(sent)
    if finish is not None:
        finish()
    assert torch.equal(other, root)


def test_a_running_switch_is_used(ranks: Ranks, daemon: Daemon, meet: str) -> None:
    digests = ranks(torch_rank_training.agreeing_through, 2, meet, daemon.address)
    assert digests[0] == digests[1]


@pytest.mark.parametrize("victim", [1, 0], ids=["a rank", "the rank that runs the switch"])
def test_a_rank_killed_in_the_middle_of_training_is_named_long_before_the_timeout(
    workers: ProcessPoolExecutor, daemon: Daemon, meet: str, victim: int
) -> None:
    switch = daemon.address if victim else None
    others = [
        workers.submit(torch_rank_failures.bereaved, rank, 3, meet, switch) for rank in range(3) if rank != victim
    ]
    call = f"import torch_rank_failures; torch_rank_failures.bereaved({victim}, 3, {meet!r}, {switch!r})"
    kill_in_the_middle(call, "training")
    for other in others:
        _, sentence = other.result(timeout=60)
        named = "rank 1 is gone" if victim else "the switch ran in the process of rank 0 of this group"
        assert named in sentence
        assert "all_reduce " in sentence


def test_parameters_agree_to_the_bit_after_each_of_200_steps(ranks: Ranks, meet: str) -> None:
    digests = ranks(torch_rank_training.agreeing, 4, meet, 200)
    assert len(set(digests[0])) == 200
    assert all(other == digests[0] for other in digests)
