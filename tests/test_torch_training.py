"""Training under torchrun: the examples, failures in the middle, and PyTorch's own debugging."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

import torch_rank_training
from conftest import Ranks
from program import SERVED, Daemon
from torch_program import ROOT, finish, start, torchrun
from tributary.torch.options import AROUND, AT_SWITCH

needs_networks = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None,
    reason="network namespaces need root, iproute2 and nftables",
)


def test_ddp_learns_digits_and_all_ranks_agree() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; `make test-torch` installs it")
    ran = torchrun("examples/ddp.py", "--epochs", "2", processes=4)
    assert ran.returncode == 0, ran.stderr
    assert "all 4 ranks hold the same parameters" in ran.stdout
    accuracy = float(ran.stdout.split("accuracy ")[-1].split("%")[0])
    assert accuracy > 75
    assert "tributary: group 0, rank 0 of 4: in network 100.0%" in ran.stderr


#: A language model that is trained in no time.
TINY = ["--width", "32", "--layers", "1", "--context", "16"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("examples/fsdp2.py", "--steps", "6", "--width", "32"),
        ("examples/language_model.py", "--steps", "2", *TINY),
    ],
    ids=["fsdp2", "language model"],
)
def test_examples_run(arguments: tuple[str, ...]) -> None:
    ran = torchrun(*arguments)
    assert ran.returncode == 0, ran.stderr
    assert "step" in ran.stdout


def test_a_language_model_is_trained_in_each_way_with_each_seed_and_each_is_compared_with_float32() -> None:
    words = ["--bits", "4", "--only-text", "--seeds", "2", "--processes", "1", "--steps", "1", *TINY]
    script = [sys.executable, "experiments/train_accuracy.py", *words]
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=1500)
    assert ran.returncode == 0, ran.stderr
    for way in ("4 bits", "bfloat16", "top-k", "float32"):
        assert len(re.findall(rf"^{way} +seed [12] of 2: \d\.\d{{4}} bits per byte$", ran.stdout, re.M)) == 2
    verdicts = re.findall(r"^over 2 seeds: (.+?) \d.*float32 .*Seed by seed .*bits per byte: ", ran.stdout, re.M)
    assert verdicts == ["4 bits", "bfloat16", "top-k"]


def test_the_costs_of_steps_go_to_tensorboard(tmp_path: Path) -> None:
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
    )
    ran = torchrun("examples/step_costs.py", "--folder", str(tmp_path), "--steps", "5")
    assert ran.returncode == 0, ran.stderr
    written = reading.EventAccumulator(str(tmp_path))
    written.Reload()
    for name in ("loss", "tributary/under way, seconds", "tributary/bytes a second", "tributary/straggler's share"):
        assert [event.step for event in written.Scalars(name)] == [0, 1, 2, 3, 4]


MORE = r"""
import torch, torch.distributed as dist
from datetime import timedelta
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("tributary", timeout=timedelta(seconds=30))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
whole = torch.arange(8.0).reshape(4, 2)
sharded = distribute_tensor(whole, mesh, [Shard(0)])
assert torch.equal(sharded.full_tensor(), whole)
assert torch.equal((sharded * 2).redistribute(mesh, [Replicate()]).to_local(), whole * 2)
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print("fine\n", end="")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_dtensor_and_zero_with_and_without_pytorchs_checks(tmp_path: Path, debug: str) -> None:
    script = tmp_path / "more.py"
    script.write_text(MORE)
    ran = torchrun(str(script), TORCH_DISTRIBUTED_DEBUG=debug)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("fine") == 2


@needs_networks
def test_parameters_agree_to_the_bit_for_200_steps_on_links_that_lose_packets() -> None:
    """Under the default protocol, and under those whose jobs share a switch's memory with servers behind it."""
    words = ["--backend", "tributary", "--repetitions", "1", "--hosts", "3", "--loss", "1%"]
    script = ["experiments/ddp_step.py", *words, "--steps", "200", "--layers", "2", "--width", "128"]
    protocols = ["auto", *SERVED]
    script += ["--protocol", *protocols]
    ran = subprocess.run([sys.executable, *script], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert ran.returncode == 0, ran.stderr
    reports = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    # The script fails where ranks differ; every step changes the parameters.
    steps = {run["protocol"]: run["steps_with_equal_parameters"] for run in reports}
    assert steps == dict.fromkeys(protocols, 200)


@needs_networks
def test_a_step_is_timed_under_the_protocol_that_was_chosen() -> None:
    """A ring of three sends 4/3 of a tensor from each host, and a switch needs one. The default group has a switch."""
    words = ["--backend", "tributary", "--repetitions", "1", "--hosts", "3", "--steps", "1", "--layers", "4"]
    script = [sys.executable, "experiments/ddp_step.py", *words, "--protocol", AT_SWITCH, AROUND]
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=200)
    assert ran.returncode == 0, ran.stderr
    reports = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    sent = {run["protocol"]: run["packets_sent"] for run in reports}
    assert sent[AROUND] > 1.2 * sent[AT_SWITCH]


@needs_networks
def test_the_link_of_a_host_carries_a_step_once_however_many_ranks_it_has() -> None:
    words = ["--backend", "tributary", "--repetitions", "1", "--hosts", "2", "--ranks-per-host", "2", "--steps", "3"]
    script = [sys.executable, "experiments/ddp_step.py", *words]
    local = os.environ | {"TRIBUTARY_LOCAL": "on"}
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=200, env=local)
    assert ran.returncode == 0, ran.stderr
    [report] = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert report["megabytes"] < report["link_megabytes"] < 1.25 * report["megabytes"]


@needs_networks
@pytest.mark.parametrize("hosts", [["--hosts", "3"], ["--hosts", "2", "--one-word"]], ids=["a switch", "no switch"])
def test_a_step_with_fsdp2_is_timed_on_shaped_links(hosts: list[str]) -> None:
    words = ["--sharded", "--repetitions", "1", *hosts, "--steps", "2", "--layers", "3", "--width", "64"]
    script = [sys.executable, "experiments/ddp_step.py", *words]
    ran = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=200)
    assert ran.returncode == 0, ran.stderr
    *reports, _, _, ratio = ran.stdout.splitlines()
    assert "ratio" in ratio
    # Each way brings the shards of two of three layers at least.
    assert all(json.loads(report)["link_megabytes"] > 2 * 64 * 64 * 4 / 3 / 1e6 for report in reports)


@pytest.mark.parametrize(("options", "is_same"), [("", True), ("numbers=fixed", False)], ids=["floats", "fixed point"])
def test_training_ends_with_the_same_parameters_whatever_the_bucket_unless_sums_are_fixed_point(
    ranks: Ranks, tmp_path: Path, options: str, is_same: bool
) -> None:
    ends = [
        ranks(torch_rank_training.ending, 3, str(tmp_path / f"store{cap}"), cap, options)[0]
        for cap in (0.001, 0.005, 25.0)
    ]
    assert (len(set(ends)) == 1) is is_same


DIES = r"""
import os, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("tributary", timeout=timedelta(seconds=100))
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), dist.get_rank()
for step in range(5):
    if attempt == 0 and rank == 1 and step == 3:
        os._exit(9)
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
print(f"finished {attempt} {tensor.sum().item()}\n", end="")
dist.destroy_process_group()
"""


def test_a_rank_that_dies_is_replaced_and_the_job_finishes(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    ran = torchrun("--max-restarts", "1", str(script), processes=3)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("finished 1 300000.0") == 3


FORKS = r"""
import os, pathlib, sys, time, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("tributary", timeout=timedelta(seconds=30))
def refused(call):
    try:
        call()
    except RuntimeError as error:
        assert "made before a fork" in str(error), error
    else:
        raise AssertionError("it went through")
forked = pathlib.Path(sys.argv[1])
while dist.get_rank() == 1 and not forked.exists():
    time.sleep(0.01)
ones = torch.ones(100_000)
work = dist.all_reduce(ones, async_op=True)
moved = dist.all_gather([torch.empty(1), torch.empty(1)], torch.ones(1), async_op=True)
child = os.fork() if dist.get_rank() == 0 else None
if child == 0:
    if sys.argv[2] == "asks":
        for call in (work.wait, moved.wait, dist.barrier, lambda: dist.all_reduce(ones), dist.monitored_barrier,
                     lambda: dist.send(ones, 1)):
            refused(call)
        dist.destroy_process_group()
    sys.exit(7)
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    forked.touch()
work.wait()
moved.wait()
dist.all_reduce(ones)
print(f"the parent has {ones[0].item()}\n", end="")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("child", ["ends", "asks"])
def test_a_forked_child_does_its_parents_groups_no_harm(tmp_path: Path, child: str) -> None:
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    ran = torchrun(str(script), str(tmp_path / "forked"), child)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("the parent has 4.0") == 2


OUTLIVES = r"""
import os, pathlib, sys, torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("tributary", timeout=timedelta(seconds=100))
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
step = 0
while attempt == 0 or step < 5:
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    step += 1
    if step == 3:
        pathlib.Path(sys.argv[1], f"{attempt}-{dist.get_rank()}").touch()
print(f"finished {attempt} {tensor.sum().item()}\n", end="")
dist.destroy_process_group()
"""


def test_a_switch_that_dies_is_named_and_the_job_finishes_at_its_successor(tmp_path: Path) -> None:
    script = tmp_path / "outlives.py"
    script.write_text(OUTLIVES)
    daemon = Daemon()
    process = start("--max-restarts", "1", str(script), str(tmp_path), TRIBUTARY_SWITCH=daemon.address)
    deadline = time.monotonic() + 60
    while not (tmp_path / "0-0").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    daemon.kill()
    successor = Daemon(listen=daemon.address)
    ran = finish(process)
    successor.stop()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("finished 1 200000.0") == 2
    assert "SwitchLostError" in ran.stderr
    assert daemon.address in ran.stderr
