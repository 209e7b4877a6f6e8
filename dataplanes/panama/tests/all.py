"""All of `make rtl`: lint, the adder, its proof, the tests, the numbers, inserted faults, synthesis. `--long` for more."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time

from run import HERE, ROOT, TARGET, tools

EXPERIMENT = ROOT / "crates" / "papers" / "src" / "panama" / "experiments" / "panama-rtl.toml"

#: What the simulator takes for the time of a sum.
LATENCY = HERE.parent / "latency.csv"

#: Ports, bits of the bus and trees for which the design must be without a warning.
SIZES = [(2, 64, 2), (4, 64, 4), (5, 128, 2), (8, 256, 4), (16, 512, 8)]
RUN = ["run.py"]
MEASURE = [*RUN, "--module", "test_numbers"]
FIVE = ["--set", "PORTS=5", "--set", "W=128"]
#: What `tributary reproduce` prints beside the paper's numbers, by its key: entry, field, factor.
ROWS = {
    **{f"passing-{n}": (f"latency_4x64_{n}", "passing_last", 5) for n in (512, 1024, 1500)},
    **{f"sum-{n}": (f"latency_4x64_{n}", "sum_first", 5) for n in (512, 1024, 1500)},
    "gbps": ("throughput_4x64_10g", "gbps", 1),
}
MODULES = {"parser": "header_parser", "buffering": "packet_buffer", "adder": "fp_add", "control": "agg_control"}
#: How many of each the prototype has.
INSTANCES = {"parser": 4, "buffering": 4, "adder": 6, "control": 1}


#: Ports and bits of the bus for which the latency is measured besides.
OTHERS = [(2, 64), (8, 64), (16, 64), (4, 128), (5, 128), (4, 256), (4, 512), (16, 512)]


def measure(ports: int, bits: int) -> list[str]:
    """The command that measures the latency of a design."""
    return [*MEASURE, "--name", f"p{ports}w{bits}n", "--set", f"PORTS={ports}", "--set", f"W={bits}", "latency"]


def rows() -> int:
    """Compares what was measured with the numbers that the program prints; 0 if they are the same."""
    numbers, cells = (json.loads((TARGET / f"{name}.json").read_text()) for name in ("numbers", "synth"))
    measured = {key: factor * numbers[entry][field] for key, (entry, field, factor) in ROWS.items()}
    for kind, fields in (("luts", ("luts", "luts_as_memory")), ("ffs", ("ffs",))):
        for name, module in MODULES.items():
            measured[f"{name}-{kind}"] = sum(cells[module][field] for field in fields)
        measured[kind] = sum(count * measured[f"{name}-{kind}"] for name, count in INSTANCES.items())
    lines = re.findall(r'^"([\w-]+)" = ([\d.]+)$', EXPERIMENT.read_text(), re.M)
    printed = {key: float(value) for key, value in lines}
    differs = {key: (measured.get(key), printed.get(key)) for key in measured | printed}
    differs = {key: both for key, both in differs.items() if both[0] != both[1]}
    for key, (mine, theirs) in differs.items():
        print(f"{key} is {mine}, and in {EXPERIMENT.name} {theirs}")
    return len(differs)


def latencies() -> int:
    """Compares the latencies by ports and width with those that the simulator has; 0 if they are the same."""
    measured = {}
    for name, cycles in json.loads((TARGET / "numbers.json").read_text()).items():
        if size := re.fullmatch(r"latency_(\d+)x(\d+)_(\d+)", name):
            measured[",".join(size.groups())] = f"{cycles['sum_first']},{cycles['late_first']}"
    lines = [line for line in LATENCY.read_text().splitlines() if line[0].isdigit()]
    known = {",".join(line.split(",")[:3]): ",".join(line.split(",")[3:]) for line in lines}
    differs = [key for key in measured | known if measured.get(key) != known.get(key)]
    for key in differs:
        print(f"{key}: {measured.get(key)} cycles, and in {LATENCY.name} {known.get(key)}")
    return len(differs)


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
        "proof": ["proof.py"],
        "tests": [*RUN, "--length", "4" if options.long else "1"],
        "another size": [*RUN, "--name", "p5w128", *FIVE, "random_traffic_of_several_jobs"],
        "numbers": MEASURE,
        **{f"numbers, {n} ports, {w} bits": measure(n, w) for n, w in OTHERS},
        "mutants": ["mutants.py"],
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
        (TARGET / f"{name.replace(', ', '-').replace(' ', '-')}.log").write_text(done.stdout + done.stderr)
        print(f"{name}: {'holds' if done.returncode == 0 else 'FAILS'}, {time.monotonic() - begun:.0f} s", flush=True)
        kept = ("latency_", "throughput_") if name.startswith("numbers") else ("",)
        if name not in ("tests", "another size"):
            print("".join(f"  {line}\n" for line in done.stdout.splitlines() if line.startswith(kept)), end="")
        if done.returncode:
            failed.append(name)
    if not {"numbers", "synthesis"} & set(failed) and rows():
        failed.append("rows of the program")
    if not any(name.startswith("numbers") for name in failed) and latencies():
        failed.append("latencies of the simulator")
    print(f"failed: {', '.join(failed)}; {TARGET} has the logs" if failed else "all holds")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
