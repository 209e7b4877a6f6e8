"""Nine protocols beside flows under several transports: goodput of the job, and slowdown of its neighbours.

    python experiments/transports.py --quick             # 32 hosts, some minutes on two cores
    python experiments/transports.py --out transports    # a fat tree of 8-port switches: 128 hosts, some hours

Half of the hosts, at random, sum a tensor; the others send each other flows of web search, at some share of their
links, under one transport. Links between switches have a quarter of what hosts could send, and one is degraded to a
quarter of its rate. A run that is stopped goes on with the same command. OUT gets `transports.png`, a page of pictures,
and the tables of the sweep.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tributary import sim

PROTOCOLS = ["switchml", "flare", "panama", "canary", "atp", "pa-atp", "ring", "ps", "sparcml"]
TRANSPORTS = ["cubic", "dctcp", "swift", "dcqcn", "timely", "hpcc"]
#: The networks: two levels, and a fat tree of three.
QUICK = {"leaf_spine": {"leaves": 4, "spines": 2, "hosts_per_leaf": 8}}
WHOLE = {"clos": {"pods": 8, "edges": 4, "aggregations": 4, "cores": 4, "hosts_per_edge": 4}}


def experiment(quick: bool) -> dict[str, Any]:
    """Describe the sweep."""
    # 8 hosts of 10 Gbit/s below 2 links, or 4 below 4: a quarter of what they send.
    core = "10 Gbit/s" if quick else "2.5 Gbit/s"
    degraded = ["leaf 0", "spine 0"] if quick else ["edge 0", "aggregation 0"]
    return {
        "end": "400 ms",
        "network": {
            **(QUICK if quick else WHOLE),
            "rate": "10 Gbit/s",
            "queue": "500 kB",
            "mark_above": "100 kB",
            "core": {"rate": core},
        },
        "job": [{"protocol": "switchml", "hosts": "50 %", "tensor": "1 MiB", "iterations": 3 if quick else 5}],
        "traffic": [
            {
                "pattern": "poisson",
                "sizes": "web_search",
                "scale": 10,
                "load": "20 %",
                "until": "10 ms",
                "transport_settings": {"congestion_control": "dctcp"},
            }
        ],
        "fault": [{"links": [degraded], "rate": "2.5 Gbit/s" if quick else "625 Mbit/s"}],
        "sweep": {
            "seeds": 1 if quick else 5,
            "over": {
                "traffic.0.transport_settings.congestion_control": TRANSPORTS,
                "traffic.0.load": ["1 %", "20 %"] if quick else ["1 %", "10 %", "20 %"],
            },
            "line": [{"name": name, "job.0.protocol": name} for name in PROTOCOLS],
        },
    }


def rows(sweep: sim.SweepResult) -> list[dict[str, Any]]:
    """Bring what the pictures show of each run."""
    found = []
    for run, report in zip(sweep.runs, sweep.reports, strict=True):
        classes = (report.get("transport") or {}).get("classes") or [{}]
        found.append(
            {
                "protocol": str(run["line"]),
                "transport": str(run["traffic.0.transport_settings.congestion_control"]),
                "load": str(run["traffic.0.load"]),
                "goodput": float(run["goodput_gbps"]),
                "p50": classes[0].get("p50_slowdown"),
                "p99": classes[0].get("p99_slowdown"),
                "failure": str(run["failure"]),
            }
        )
    return found


def mean(values: list[float | None]) -> float:
    """Average what is there: a run that failed has nothing."""
    there = [value for value in values if value is not None and value == value]
    return sum(there) / len(there) if there else float("nan")


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw goodput and slowdown at the greatest load: a group of bars for each protocol, a bar for each transport."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    load = found[-1]["load"]
    figure, axes = pyplot.subplots(3, 1, figsize=(12, 13), layout="constrained")
    pictures = [
        ("goodput", "goodput of the job, Gbit/s", False),
        ("p50", "slowdown of the neighbours' flows, median", True),
        ("p99", "slowdown of the neighbours' flows, p99", True),
    ]
    for axis, (key, label, log) in zip(axes, pictures, strict=True):
        width = 0.8 / len(TRANSPORTS)
        for number, transport in enumerate(TRANSPORTS):
            of = [row for row in found if row["transport"] == transport and row["load"] == load]
            heights = [mean([row[key] for row in of if row["protocol"] == name]) for name in PROTOCOLS]
            positions = [position + (number - len(TRANSPORTS) / 2 + 0.5) * width for position in range(len(PROTOCOLS))]
            axis.bar(positions, heights, width, label=transport)
        axis.set_xticks(range(len(PROTOCOLS)), PROTOCOLS)
        axis.set_ylabel(label)
        if log:
            axis.set_yscale("log")
    axes[0].legend(ncols=len(TRANSPORTS), title=f"transport of the neighbours, load {load}")
    figure.savefig(path, dpi=110)


def main() -> int:
    """Run the sweep and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small network, one seed, two loads")
    parser.add_argument("--out", type=Path, default=Path("transports"), help="the folder for results and the page")
    args = parser.parse_args()
    begun = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    sweep = sim.sweep(experiment(args.quick), out=args.out)
    found = rows(sweep)
    draw(found, args.out / "transports.png")
    print(f"{'protocol':<10}{'transport':<10}{'load':>6}{'Gbit/s':>9}{'slowdown p50':>14}{'p99':>9}")
    for row in found:
        figures = "".join(
            f"{row[key]:>{width}.2f}" if row[key] is not None else f"{'-':>{width}}"
            for key, width in (("goodput", 9), ("p50", 14), ("p99", 9))
        )
        print(f"{row['protocol']:<10}{row['transport']:<10}{row['load']:>6}{figures}  {row['failure'][:60]}".rstrip())
    print(f"{len(found)} runs in {time.monotonic() - begun:.0f} s; {args.out / 'transports.png'}")
    return 1 if any(row["failure"] for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
