"""The hardware design of PANAMA's accelerator (dataplanes/panama), in short: `make rtl` runs all of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / ".venv-rtl" / "bin" / "python"
SWITCH = ROOT / "target" / "debug" / "examples" / "panama_switch"
BENCH = ROOT / "dataplanes" / "panama" / "tests"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one of the bench's programs."""
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed: make rtl installs it")
    if not PYTHON.exists():
        pytest.skip("a .venv-rtl with cocotb is missing: make rtl makes it")
    if not SWITCH.exists():
        pytest.skip("the software switch is not built: make rtl builds it")
    return subprocess.run([PYTHON, *arguments], cwd=BENCH, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize(
    "name", ["figure_6a", "a_port_that_is_not_in_the_bitmap_is_bypassed", "marks_and_capacities_are_joined"]
)
def test_the_design_does_what_the_software_switch_does(name: str) -> None:
    """To the bit, in order, and for the same reasons."""
    done = run("run.py", name)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_an_inserted_fault_is_noticed() -> None:
    """The comparison can fail: positions that are ports give other sums."""
    done = run("mutants.py", "--only", "8")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "killed by sums_are_in_the_order_of_positions" in done.stdout


@pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed: make rtl installs it")
def test_each_stage_of_the_adder_is_proven_and_a_fault_in_each_refuted() -> None:
    """By a solver, for all values."""
    program = [sys.executable, "proof.py"]
    done = subprocess.run(program, cwd=BENCH, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": proven\n") == done.stdout.count(": refuted\n") == 4
