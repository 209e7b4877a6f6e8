#!/usr/bin/env python3
"""Two jobs share the switches of a real fabric, and one of them has a rank behind a slow link.

    sudo python3 examples/fabric_tenants.py                # all ways to share, about a minute; Python 3.11 or newer
    sudo python3 examples/fabric_tenants.py --way StrawAsyn --json
    sudo python3 examples/fabric_tenants.py --equal        # no slow link, and both begin together
    sudo python3 examples/fabric_tenants.py --equal --traffic 150    # beside other packets over one of the spines

`tributary lab bench --tenants` measures the same on one switch. Here job A has two hosts behind each of two leaves, the
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
# What `tributary lab fabric --run` tells of nodes: "NS_host0" and so on.
NAMESPACES = {name: value for name, value in os.environ.items() if name.startswith("NS_")}
# Hosts by job: two behind each leaf.
HOSTS_PER_LEAF = 5
HOSTS = {"A": [0, 1, 5, 6], "B": [2, 3, 7, 8]}
# Whose packets cross the same spines.
TRAFFIC = ("host4", "host9")
# Two leaves and two spines, whose control addresses are numbered from 1.
SWITCHES = 4
FABRIC = """
secret = "two tenants of one fabric"
rate = "{rate} Mbit/s"
queue = "256 KiB"
mark_above = "64 KiB"
leaf_spine = {{ leaves = 2, spines = 2, hosts_per_leaf = {hosts_per_leaf} }}
{memory}
[[link]]
between = ["host0", "leaf0"]
rate = "{slow} Mbit/s"
"""


def shares(way: dict) -> bool:
    """Whether jobs share the memory of a switch, or have slots of their own."""
    return "blocks_per_slot" not in way


def fabric_file(way: dict, args: argparse.Namespace) -> str:
    """The fabric's file: how many blocks every switch holds for the jobs of this way's protocol."""
    memory = f"[switches.{way['protocol']}]\naggregators = {args.aggregators}\n" if shares(way) else ""
    slow = args.rate_mbps if args.equal else args.rate_mbps // 4
    return FABRIC.format(rate=args.rate_mbps, slow=slow, memory=memory, hosts_per_leaf=HOSTS_PER_LEAF)


def start(job: str, way: dict, iters: int, args: argparse.Namespace) -> list[subprocess.Popen]:
    """Starts a job's four workers, each in its host's namespace."""
    options = dict(way.get("options", {}))
    if "half_of_memory" in way:
        options[way["half_of_memory"]] = args.aggregators // 2
    flags = [f"--option={name}={value}" for name, value in options.items()]
    workers = []
    for rank, host in enumerate(HOSTS[job]):
        leaf = 1 + host // HOSTS_PER_LEAF
        command = ["ip", "netns", "exec", NAMESPACES[f"NS_host{host}"], PROGRAM, "allreduce", "--json"]
        command += ["--switch", f"10.77.128.{leaf}", "--job", job, "--rank", str(rank), "--world-size", "4"]
        command += ["--elements", str(args.elements), "--iters", str(iters), "--timeout", "60s"]
        command += ["--protocol", way["protocol"], *flags]
        workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return workers


def start_traffic(args: argparse.Namespace) -> list[subprocess.Popen]:
    """Starts the packets of others over one spine, if there are to be any."""
    if not args.traffic:
        return []
    start, end = TRAFFIC
    command = ["ip", "netns", "exec", NAMESPACES[f"NS_{start}"], PROGRAM, "lab", "traffic", "--fabric", args.inside]
    command += ["--from", start, "--to", end, "--rate", f"{args.traffic}Mbit/s", "--via", "spine0"]
    return [subprocess.Popen(command, stdout=subprocess.DEVNULL)]


def sample() -> tuple[dict[str, float], dict[str, float], int]:
    """The most blocks that one switch holds now, and the results that all have marked because memory is short, by job,
    without the jobs of which no switch tells it; and the packets that were marked in queues.
    """
    most: dict[str, float] = {}
    marks: dict[str, float] = {}
    in_queues = 0
    for number in range(1, SWITCHES + 1):
        command = ["ip", "netns", "exec", NAMESPACES["NS_control"], PROGRAM, "status", "--json"]
        said = subprocess.run([*command, "--switch", f"10.77.192.{number}"], capture_output=True, text=True)
        status = json.loads(said.stdout) if said.returncode == 0 else {}
        ports = status["switch"]["fabric"]["ports"] if status else []
        in_queues += sum(port["tx_marks"] for port in ports)
        for job in status.get("jobs", []):
            for metric in job.get("metrics", []):
                if metric["name"] == "aggregators_in_use":
                    most[job["name"]] = max(metric["value"], most.get(job["name"], 0.0))
                if metric["name"] == "aecn_marks":
                    marks[job["name"]] = marks.get(job["name"], 0.0) + metric["value"]
    return most, marks, in_queues


def inside(way: dict, args: argparse.Namespace) -> None:
    """Runs both jobs while the fabric is up, and prints what they got as one line of JSON."""
    slow_s = args.elements * 32 / (args.rate_mbps / 4 * 1e6)
    traffic = start_traffic(args)
    a = start("A", way, args.iters if args.equal else 3 + args.iters // 2, args)
    time.sleep(0 if args.equal else 3 * slow_s)
    b = start("B", way, args.iters, args)
    seen: dict[str, list[float]] = {"A": [], "B": []}
    marked = {"A": 0.0, "B": 0.0}
    in_queues = 0
    while any(worker.poll() is None for worker in b):
        blocks_in_use, marks, in_queues = sample()
        for job, blocks in blocks_in_use.items():
            seen[job].append(blocks)
        marked.update(marks)
        time.sleep(0.05)
    for stream in traffic:
        stream.terminate()
        stream.wait()
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
                "blocks_mean": sum(seen[job]) / len(seen[job]) if seen[job] else None,
                "blocks_most": max(seen[job], default=None),
                "aecn_marks": marked[job] if seen[job] else None,
                "queue_marks_of_both": in_queues,
                "retransmissions": sum(report["retransmissions"] for report in reports),
            }
        )
    print(json.dumps(lines))


def measure(way: dict, args: argparse.Namespace) -> list[dict]:
    """Builds the fabric, runs this script inside it, and takes it down."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(fabric_file(way, args))
        file.flush()
        words = [sys.executable, __file__, "--inside", file.name, "--way", way["name"], "--elements", args.elements]
        words += ["--iters", args.iters, "--rate-mbps", args.rate_mbps, "--aggregators", args.aggregators]
        words += ["--traffic", args.traffic, *(["--equal"] if args.equal else [])]
        command = shlex.join(map(str, words))
        done = subprocess.run(
            [PROGRAM, "lab", "fabric", file.name, "--run", command], stdout=subprocess.PIPE, text=True
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[{")]
    if done.returncode or not lines:
        sys.exit(f"{way['name']}: the fabric or a job failed (exit code {done.returncode})")
    return json.loads(lines[-1])


def jain(rates: list[float]) -> float:
    """Jain's index of fairness: 1 if all rates are the same."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


def table(lines: list[dict]) -> str:
    """Return the lines for people."""

    def cell(value: float | None, digits: int) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    head = ["way", "job", "Gbit/s", "ms", "in network", "blocks, mean", "most", "marks", "sent again"]
    rows = [
        [
            line["way"],
            line["job"],
            cell(line["goodput_gbps"], 3),
            cell(line["iteration_ms"], 1),
            f"{100 * line['in_network']:.1f}%",
            cell(line["blocks_mean"], 1),
            cell(line["blocks_most"], 0),
            cell(line["aecn_marks"], 0),
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
    parser.add_argument("--equal", action="store_true", help="two equal jobs, which begin together")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    parser.add_argument("--traffic", type=int, default=0, metavar="MBPS", help="rate of others' packets over one spine")
    parser.add_argument("--inside", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = [way for way in ways if args.way in (None, way["name"])]
    if args.inside:
        inside(chosen[0], args)
        return
    pairs = [measure(way, args) for way in chosen]
    lines = [line for pair in pairs for line in pair]
    print(json.dumps(lines) if args.json else table(lines))
    if args.equal and not args.json:
        even = ", ".join(f"{pair[0]['way']} {jain([line['goodput_gbps'] for line in pair]):.3f}" for pair in pairs)
        marks = ", ".join(f"{pair[0]['way']} {pair[0]['queue_marks_of_both']}" for pair in pairs)
        print(f"how even the two jobs' rates are (Jain, 1 is equal): {even}\npackets marked in queues: {marks}")


if __name__ == "__main__":
    main()
