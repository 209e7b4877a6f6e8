#!/usr/bin/env python3
"""Two jobs share the switches of a real fabric, and one of them has a rank behind a slow link.

    sudo python3 examples/fabric_tenants.py                # all ways to share, about a minute; Python 3.11 or newer
    sudo python3 examples/fabric_tenants.py --way StrawAsyn --json

`tributary bench --tenants` measures the same on one switch. Here job A has two hosts behind each of two leaves, the
first of them with a link of a quarter of the rate, and so has job B, which begins later. Both cross the same two
spines, and every switch has room for --aggregators blocks. The ways to share it are those of
experiments/live/tenants.toml; where jobs have slots of their own, nobody counts them here.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
WAYS = ROOT / "experiments/live/tenants.toml"
PROGRAM = os.environ.get("TRIBUTARY", "tributary")
# What `tributary fabric --run` tells of nodes: "NS_host0" and so on.
NAMESPACES = {name: value for name, value in os.environ.items() if name.startswith("NS_")}
# Hosts by job: two behind each leaf.
HOSTS = {"A": [0, 1, 4, 5], "B": [2, 3, 6, 7]}
# Two leaves and two spines, whose control addresses are numbered from 1.
SWITCHES = 4
FABRIC = """
secret = "two tenants of one fabric"
rate_mbps = {rate}
queue_kib = 256
mark_above_kib = 64
leaf_spine = {{ leaves = 2, spines = 2, hosts_per_leaf = 4 }}
{memory}
[[link]]
between = ["host0", "leaf0"]
rate_mbps = {slow}
"""


def shares(way: dict) -> bool:
    """Whether jobs share the memory of a switch, or have slots of their own."""
    return "blocks_per_slot" not in way


def fabric_file(way: dict, args: argparse.Namespace) -> str:
    """The fabric's file: every switch holds so many blocks for the jobs of this way's protocol."""
    memory = f"[switches.{way['protocol']}]\naggregators = {args.aggregators}\n" if shares(way) else ""
    return FABRIC.format(rate=args.rate_mbps, slow=args.rate_mbps // 4, memory=memory)


def start(job: str, way: dict, iters: int, args: argparse.Namespace) -> list[subprocess.Popen]:
    """Starts a job's four workers, each in its host's namespace."""
    options = dict(way.get("options", {}))
    if "half_of_memory" in way:
        options[way["half_of_memory"]] = args.aggregators // 2
    flags = [f"--option={name}={value}" for name, value in options.items()]
    workers = []
    for rank, host in enumerate(HOSTS[job]):
        leaf = 1 if host < 4 else 2
        command = ["ip", "netns", "exec", NAMESPACES[f"NS_host{host}"], PROGRAM, "allreduce", "--json"]
        command += ["--switch", f"10.77.128.{leaf}", "--job", job, "--rank", str(rank), "--world", "4"]
        command += ["--elements", str(args.elements), "--iters", str(iters), "--timeout", "60"]
        command += ["--protocol", way["protocol"], *flags]
        workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return workers


def held() -> dict[str, float]:
    """The most blocks that one switch holds now, by job; without the jobs of which no switch tells it."""
    most: dict[str, float] = {}
    for number in range(1, SWITCHES + 1):
        command = ["ip", "netns", "exec", NAMESPACES["NS_control"], PROGRAM, "status", "--json"]
        said = subprocess.run([*command, "--switch", f"10.77.192.{number}"], capture_output=True, text=True)
        for job in json.loads(said.stdout).get("jobs", []) if said.returncode == 0 else []:
            for metric in job.get("metrics", []):
                if metric["name"] == "held":
                    most[job["name"]] = max(metric["value"], most.get(job["name"], 0.0))
    return most


def inside(way: dict, args: argparse.Namespace) -> None:
    """Runs both jobs while the fabric is up, and prints what they got as one line of JSON."""
    slow_s = args.elements * 32 / (args.rate_mbps / 4 * 1e6)
    a = start("A", way, 3 + args.iters // 2, args)
    time.sleep(3 * slow_s)
    b = start("B", way, args.iters, args)
    seen: dict[str, list[float]] = {"A": [], "B": []}
    while any(worker.poll() is None for worker in b):
        for job, blocks in held().items():
            seen[job].append(blocks)
        time.sleep(0.05)
    lines = []
    for job, workers in (("A", a), ("B", b)):
        said = [worker.communicate()[0] for worker in workers]
        if any(worker.returncode for worker in workers):
            sys.exit(f"job {job} failed: {said}")
        reports = [json.loads(text.splitlines()[-1]) for text in said]
        seconds = max(report["seconds"] for report in reports)
        lines.append(
            {
                "way": way["name"],
                "job": job,
                "goodput_gbps": args.elements * 32 / seconds / 1e9,
                "iteration_ms": seconds * 1e3,
                "in_network": sum(report["in_network"] for report in reports) / len(reports),
                "held_mean": sum(seen[job]) / len(seen[job]) if seen[job] else None,
                "held_most": max(seen[job], default=None),
                "retransmissions": sum(report["retransmissions"] for report in reports),
            }
        )
    print(json.dumps(lines))


def measure(way: dict, args: argparse.Namespace) -> list[dict]:
    """Builds the fabric, runs this script inside it, and takes it down."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(fabric_file(way, args))
        file.flush()
        words = [sys.executable, __file__, "--inside", "--way", way["name"], "--elements", args.elements]
        words += ["--iters", args.iters, "--rate-mbps", args.rate_mbps, "--aggregators", args.aggregators]
        command = shlex.join(map(str, words))
        done = subprocess.run([PROGRAM, "fabric", file.name, "--run", command], stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[{")]
    if done.returncode or not lines:
        sys.exit(f"{way['name']}: the fabric or a job failed (exit code {done.returncode})")
    return json.loads(lines[-1])


def table(lines: list[dict]) -> str:
    """Return the lines for people."""

    def cell(value: float | None, digits: int) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    head = ["way", "job", "Gbit/s", "ms", "in network", "held, mean", "most", "sent again"]
    rows = [
        [
            line["way"],
            line["job"],
            cell(line["goodput_gbps"], 3),
            cell(line["iteration_ms"], 1),
            f"{100 * line['in_network']:.1f}%",
            cell(line["held_mean"], 1),
            cell(line["held_most"], 0),
            str(line["retransmissions"]),
        ]
        for line in lines
    ]
    return "\n".join(f"{row[0]:<10} {row[1]:<4}" + "".join(f"{text:>11}" for text in row[2:]) for row in [head, *rows])


def main() -> None:
    """Measure all ways, or be the part that runs inside the fabric."""
    ways = tomllib.loads(WAYS.read_text())["way"]
    names = [way["name"] for way in ways]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=names, help="this way alone")
    parser.add_argument("--elements", type=int, default=250_000, help="of each float32 tensor (default: %(default)s)")
    parser.add_argument("--iters", type=int, default=20, help="collectives of job B (default: %(default)s)")
    parser.add_argument("--rate-mbps", type=int, default=200, help="rate of every link but one (default: %(default)s)")
    parser.add_argument("--aggregators", type=int, default=64, help="blocks in each switch (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = [way for way in ways if args.way in (None, way["name"])]
    if args.inside:
        inside(chosen[0], args)
        return
    lines = [line for way in chosen for line in measure(way, args)]
    print(json.dumps(lines) if args.json else table(lines))


if __name__ == "__main__":
    main()
