"""All of `make rtl`: lint, the adder, the tests, the numbers, inserted faults, synthesis. `--long` for more of it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from run import HERE, TARGET, tools

#: Ports, bits of the bus and trees for which the design must be without a warning.
SIZES = [(2, 64, 2), (4, 64, 4), (5, 128, 2), (8, 256, 4), (16, 512, 8)]


def lint() -> int:
    """Reads the whole design with all of Verilator's warnings."""
    rtl = HERE.parent / "rtl"
    sources = [rtl / "panama.sv", *sorted(path for path in rtl.glob("*.sv") if path.name != "panama.sv")]
    failed = 0
    for ports, width, trees in SIZES:
        command = ["verilator", "--lint-only", "-Wall", f"-GPORTS={ports}", f"-GW={width}", f"-GTREES={trees}"]
        command += ["--top-module", "panama_accelerator", *map(str, sources)]
        failed |= subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    return failed


def main() -> int:
    """Runs everything; 0 if all of it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="longer random tests, and the adder's large formats")
    options = parser.parse_args()
    tools()
    TARGET.mkdir(parents=True, exist_ok=True)
    numbers = TARGET / "numbers.json"
    numbers.unlink(missing_ok=True)
    os.environ["PANAMA_NUMBERS"] = str(numbers)
    os.environ["PYTHONWARNINGS"] = "ignore"
    steps = {
        "adder": ["adder.py", *(["--full"] if options.long else [])],
        "tests": ["run.py", "--length", "4" if options.long else "1"],
        "other widths": [
            "run.py",
            "--name",
            "p5w128",
            "--set",
            "PORTS=5",
            "--set",
            "W=128",
            "random_traffic_of_several_jobs",
        ],
        "numbers": ["run.py", "--module", "test_numbers"],
        "inserted faults": ["mutants.py"],
        "synthesis": ["synth.py", "--json", str(TARGET / "synth.json")],
    }
    failed = []
    if lint():
        failed.append("lint")
    for name, command in steps.items():
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(HERE / command[0]), *command[1:]], capture_output=True, text=True, check=False
        )
        (TARGET / f"{name.replace(' ', '-')}.log").write_text(done.stdout + done.stderr)
        print(f"{name}: {'holds' if done.returncode == 0 else 'FAILS'}, {time.monotonic() - begun:.0f} s", flush=True)
        kept = ("latency_", "throughput_") if name == "numbers" else ("",)
        if name not in ("tests", "other widths"):
            print("".join(f"  {line}\n" for line in done.stdout.splitlines() if line.startswith(kept)), end="")
        if done.returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}; {TARGET} has the logs" if failed else "all holds")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
