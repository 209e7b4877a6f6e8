"""Workload W on Tributary and on ns-3, in one run: packet-hops per CPU second of both, and the ratio.

>>> python benches/ns3/compare.py [--tiny] [--runs N]

Needs g++ and Debian's libns3-dev. Set-up counts for neither. Runs take turns, and each one's fastest counts: whatever
else the machine does only slows them down.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tributary import sim

SOURCE = Path(__file__).with_name("workload_w.cc")
LIBRARIES = ["point-to-point", "internet", "network", "core"]


class Shape(NamedTuple):
    """A workload like W."""

    leaves: int
    spines: int
    hosts_per_leaf: int
    packets: int


W = Shape(32, 32, 32, 1024)
TINY = Shape(4, 4, 8, 64)
#: Of a packet on a link.
BYTES = 1024


class Run(NamedTuple):
    """What one run took."""

    hops: int
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Millions of packet-hops in a CPU second."""
        return self.hops / self.cpu_seconds / 1e6


def ours(shape: Shape) -> Run:
    """Run it here."""
    experiment: dict[str, Any] = {
        "network": {
            "leaf_spine": {
                "leaves": shape.leaves,
                "spines": shape.spines,
                "hosts_per_leaf": shape.hosts_per_leaf,
            },
            "rate": "100 Gbit/s",
            "delay": "1 us",
            "queue": "1 MiB",
            "mark_above": "100 kB",
            "routing": "random",
        },
        "traffic": [{"pattern": "permutation", "hosts": "all", "message": BYTES * shape.packets, "packet": BYTES}],
    }
    begun = time.process_time()
    result = sim.run(experiment).check()
    return Run(result.hops, time.process_time() - begun - result.report["speed"]["set_up_seconds"])


def build(source: Path, libraries: Sequence[str], folder: Path) -> Path:
    """Compile a program for ns-3."""
    program, script = folder / source.stem, Path(sys.argv[0]).name
    command = ["g++", "-std=c++17", "-O3", "-o", str(program), str(source), *(f"-lns3-{name}" for name in libraries)]
    try:
        built = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"{script}: error: g++ is missing; as root: apt-get install g++ libns3-dev")
    if built.returncode != 0:
        first = next((line for line in built.stderr.splitlines() if "error" in line), "it did not say why")
        sys.exit(f"{script}: error: ns-3's program was not built ({first}); as root: apt-get install g++ libns3-dev")
    return program


def ns3(program: Path, shape: Shape, *, ipv4: bool) -> Run:
    """Run it on ns-3."""
    sizes = zip(("leaves", "spines", "hosts", "packets"), shape, strict=True)
    flags = [f"--{name}={size}" for name, size in sizes]
    command = [str(program), *flags, f"--bytes={BYTES}", f"--ipv4={int(ipv4)}"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    sent = shape.leaves * shape.hosts_per_leaf * shape.packets
    if report["arrived"] != sent:
        sys.exit(f"compare.py: error: {report['arrived']} of {sent} packets arrived on ns-3")
    return Run(report["hops"], report["run_cpu_seconds"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small inputs: shows that it works, not how fast it is")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (ns-3 with IPv4 takes half a minute)")
    arguments = parser.parse_args()
    shape = TINY if arguments.tiny else W
    hosts = shape.leaves * shape.hosts_per_leaf
    print(
        f"{shape.leaves} leaves, {shape.spines} spines, {hosts} hosts; {shape.packets} packets of {BYTES} B from each"
        + ("; too small to say how fast" if arguments.tiny else "")
    )
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as folder:
        program = build(SOURCE, LIBRARIES, Path(folder))
        contenders: dict[str, Callable[[], Run]] = {
            "tributary": lambda: ours(shape),
            "ns-3 without its IP stack": lambda: ns3(program, shape, ipv4=False),
            "ns-3 with IPv4 and UDP": lambda: ns3(program, shape, ipv4=True),
        }
        runs: dict[str, list[Run]] = {name: [] for name in contenders}
        for _ in range(max(arguments.runs, 1)):
            for name, contender in contenders.items():
                runs[name].append(contender())
    best = {name: max(each, key=lambda run: run.rate) for name, each in runs.items()}
    own = best["tributary"].rate
    print(f"{'':<27}{'M packet-hops/CPU s':>21}{'hops':>10}{'CPU s':>9}{'ours is':>10}")
    for name, run in best.items():
        ratio = "" if name == "tributary" else f"{own / run.rate:>9.1f}x"
        print(f"{name:<27}{run.rate:>21.3f}{run.hops:>10}{run.cpu_seconds:>9.3f}{ratio}")


if __name__ == "__main__":
    main()
