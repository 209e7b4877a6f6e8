"""The flight record: what a rank started last, and PyTorch's own tool that finds out who did something else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torch_program import torchrun

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

#: Older ones record their own backends alone.
RECORDS = tuple(int(number) for number in torch.__version__.split(".")[:2]) >= (2, 15)
records = pytest.mark.skipif(not RECORDS, reason="this PyTorch records its own backends alone; 2.15 records all")

BEGIN = """
import os, time
from datetime import timedelta
import torch, torch.distributed as dist
import tributary.torch

rank = int(os.environ["RANK"])
# On a busy machine ranks import PyTorch for longer than their group waits: they meet in torchrun's own store before.
met = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
met.set(f"here/{rank}", "")
met.wait([f"here/{other}" for other in range(int(os.environ["WORLD_SIZE"]))], timedelta(seconds=100))
dist.init_process_group("tributary", timeout=timedelta(seconds=3))
for size in (10, 20, 30):
    dist.all_reduce(torch.ones(size))
"""

#: Rank 2 does something else, and all hear it. A rank whose packet is lost asks the switch again, in rank 0's process.
ANOTHER_OPERATION = """
try:
    dist.broadcast(torch.ones(40), 0) if rank == 2 else dist.all_reduce(torch.ones(40))
except RuntimeError as failed:
    print(f"rank {rank}: {type(failed).__name__}")
met.set(f"heard/{rank}", "")
met.wait([f"heard/{other}" for other in range(int(os.environ["WORLD_SIZE"]))], timedelta(seconds=100))
"""

#: Rank 2 is late; what it has started, a thread of it can still write.
NOTHING = """
if rank == 2:
    time.sleep(5)
    tributary.torch.write_flight_record(rank)
else:
    try:
        dist.all_reduce(torch.ones(40))
    except RuntimeError as failed:
        print(f"rank {rank}: {type(failed).__name__}")
        time.sleep(3)
"""

RECORD = """
record = tributary.torch.flight_record()
names = [entry["profiling_name"] for entry in record["entries"]]
sizes = [entry["input_sizes"] for entry in record["entries"]]
assert names == ["tributary:all_reduce"] * 3, names
assert sizes == [[[10]], [[20]], [[30]]], sizes
print("recorded")
"""


def judge(script: Path, folder: Path) -> tuple[str, str]:
    """Run a script on three ranks; what they said, and what PyTorch's tool finds in their files."""
    prefix = folder / "record_"
    ran = torchrun(str(script), processes=3, TORCH_FR_DUMP_ON_TIMEOUT="1", TORCH_FR_DUMP_TEMP_FILE=str(prefix))
    assert sorted(os.listdir(folder)) == ["record_0", "record_1", "record_2"], ran.stderr
    tool = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    judged = subprocess.run(
        [*tool, str(folder), "--prefix", "record_"], capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stdout, judged.stdout + judged.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the ranks write."""
    made = tmp_path / "records"
    made.mkdir()
    return made


@records
def test_pytorchs_tool_names_the_rank_that_did_something_else(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + ANOTHER_OPERATION)
    said, found = judge(script, folder)
    assert said.count("MismatchError") == 3
    assert "Collective sequence number: 4 has errors" in found, found
    assert "Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH" in found, found


@records
def test_pytorchs_tool_names_the_rank_that_did_not_come(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + NOTHING)
    said, found = judge(script, folder)
    assert said.count("CollectiveTimeoutError") == 2
    assert "missing ranks: {2}" in found, found


@records
def test_people_read_the_record(tmp_path: Path, folder: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEGIN + RECORD)
    # Nothing fails, and nothing is written.
    ran = torchrun(str(script), TORCH_FR_DUMP_ON_TIMEOUT="1", TORCH_FR_DUMP_TEMP_FILE=str(folder / "record_"))
    assert ran.stdout.count("recorded") == 2, ran.stderr
    assert os.listdir(folder) == []


@pytest.mark.skipif(RECORDS, reason="this PyTorch records every backend")
def test_an_older_pytorch_is_refused_with_what_it_lacks() -> None:
    import tributary.torch

    with pytest.raises(tributary.UnsupportedError, match="flight records need PyTorch"):
        tributary.torch.flight_record()
    with pytest.raises(tributary.UnsupportedError, match="flight records need PyTorch"):
        tributary.torch.write_flight_record(0)
