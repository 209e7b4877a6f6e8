"""Nine protocols beside flows under seven transports: goodput of the job, and slowdown of its neighbours.

    python experiments/transports --out transports     # a fat tree of 8-port switches: 128 hosts
    python experiments/transports --quick --protocols switchml ring --transports dctcp --loads 0 80

Half of the hosts, at random, sum tensors; the others send each other flows of web search under one transport. Links
between switches carry a quarter of what hosts can send, and one has a quarter of its rate. A load is the share of these
links that the flows ask for on average. A run that is stopped continues with the same command. The folder gets
`page.png`, a page of pictures, `results.csv`, what it shows, and the tables of the sweep. README.md has the results.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tributary import sim

#: How many collectives last at least as long as flows arrive, where no flow does.
COLLECTIVES = {
    "switchml": 6, "flare": 6, "panama": 6, "canary": 4, "atp": 3, "pa-atp": 3, "ring": 1, "ps": 2, "sparcml": 1,
}  # fmt: skip
#: The neighbours without the job: its hosts wait for each other once.
ALONE = "no job"
#: What flows do: their congestion control, and what they do about a loss.
TRANSPORTS = {
    "cubic": ("cubic", "selective"),
    "dctcp": ("dctcp", "selective"),
    "swift": ("swift", "selective"),
    "dcqcn": ("dcqcn", "selective"),
    "dcqcn, go-back-N": ("dcqcn", "go_back_n"),
    "timely": ("timely", "selective"),
    "hpcc": ("hpcc", "selective"),
}
LOADS = [0, 20, 40, 80]
#: The transport under which all loads are run; the others run at the greatest one.
USUAL = "dctcp"
TENSOR_BYTES = 1 << 20
#: Flows arrive until then: what is summed later is not beside them.
UNTIL_S = 0.02
#: The networks. Below each lowest switch, hosts can send 4 times what its links upwards carry.
WHOLE = {"clos": {"ports": 8}, "core": {"rate": "2.5 Gbit/s", "mark_above": "30 kB"}}
QUICK = {
    "leaf_spine": {"leaves": 4, "spines": 2, "hosts_per_leaf": 8},
    "core": {"rate": "10 Gbit/s", "mark_above": "100 kB"},
}
CONTROL = "traffic.0.transport_settings.congestion_control"
RECOVERY = "traffic.0.transport_settings.recovery"
#: A protocol, a transport and a load in percent.
Point = tuple[str, str, int]
FIGURES = ["goodput_gbps", "p50_slowdown", "p99_slowdown", "short_p99_slowdown"]


def points(args: argparse.Namespace) -> list[Point]:
    """Each protocol at each load under one transport, and at the greatest load under the others."""
    usual = USUAL if USUAL in args.transports else args.transports[0]
    beside = [(usual, load) for load in args.loads]
    beside += [(transport, max(args.loads)) for transport in args.transports if transport != usual]
    return [(protocol, *each) for protocol in (ALONE, *args.protocols) for each in beside]


def line(protocol: str, transport: str, load: int) -> dict[str, Any]:
    """The keys of a point of the sweep."""
    of_job: dict[str, Any] = {"job.0.protocol": protocol, "job.0.iterations": COLLECTIVES.get(protocol)}
    if protocol == ALONE:
        of_job = {"job.0.protocol": "switchml", "job.0.collective": "barrier", "job.0.tensor": 0}
    control, recovery = TRANSPORTS[transport]
    # Half of the hosts below links that carry a quarter: a share of these links is half of it of a host's.
    of_flows = {CONTROL: control, RECOVERY: recovery, "traffic.0.load": f"{load / 2:g} %"}
    return {"name": f"{protocol}; {transport}; {load}", **of_job, **of_flows}


def experiment(args: argparse.Namespace) -> dict[str, Any]:
    """Describe the sweep."""
    degraded = {"links": [["leaf 0", "spine 0"]], "rate": "2.5 Gbit/s"}
    if not args.quick:
        degraded = {"links": [["edge 0", "aggregation 0"]], "rate": "625 Mbit/s"}
    return {
        "end": "4 s",
        "network": {
            **(QUICK if args.quick else WHOLE),
            "rate": "10 Gbit/s",
            "queue": "500 kB",
            "mark_above": "100 kB",
            # Flows keep their paths; jobs' packets take the shortest queue, by which those of Canary meet.
            "routing": "least_queued",
            "background_routing": "ecmp",
        },
        "job": [{"protocol": "switchml", "hosts": "50 %", "tensor": TENSOR_BYTES}],
        "traffic": [
            {
                "pattern": "poisson",
                "sizes": "web_search",
                "scale": 10,
                "load": "0 %",
                "until": f"{1e3 * UNTIL_S:g} ms",
                "transport_settings": {"congestion_control": "dctcp"},
            }
        ],
        "fault": [degraded],
        "sweep": {
            "seeds": args.seeds,
            "line": [line(*point) for point in points(args)],
        },
    }


def goodput_gbps(collectives: Sequence[dict[str, Any]]) -> float:
    """The bits of the collectives that began while flows arrived, over their time; not a number if none has ended."""
    times = [each["end"] - each["start"] for each in collectives if each["start"] < UNTIL_S and each["end"] is not None]
    return 8e-9 * TENSOR_BYTES * len(times) / sum(times) if times else math.nan


def rows(sweep: sim.SweepResult) -> list[dict[str, Any]]:
    """What the pictures show of each run."""
    found = []
    for run, report in zip(sweep.runs, sweep.reports, strict=True):
        classes = {each["name"]: each for each in (report.get("transport") or {}).get("classes") or []}
        every, short = classes.get("all", {}), classes.get("up to 100 kB", {})
        jobs = report.get("jobs") or [{"iterations": []}]
        protocol, transport, load = str(run["line"]).split("; ")
        found.append(
            {
                "protocol": protocol,
                "transport": transport,
                "load_percent": int(load),
                "seed": int(run["seed"]),
                "goodput_gbps": math.nan if protocol == ALONE else goodput_gbps(jobs[0]["iterations"]),
                "p50_slowdown": every.get("p50_slowdown", math.nan),
                "p99_slowdown": every.get("p99_slowdown", math.nan),
                "short_p99_slowdown": short.get("p99_slowdown", math.nan),
                "flows": every.get("flows", 0),
                "failure": str(run["failure"]),
            }
        )
    return found


def mean(found: list[dict[str, Any]], figure: str, **wanted: object) -> float:
    """The mean of a figure over the runs with these values; not a number if there is none."""
    of = [row[figure] for row in found if all(row[key] == value for key, value in wanted.items())]
    of = [value for value in of if not math.isnan(value)]
    return statistics.fmean(of) if of else math.nan


def draw(found: list[dict[str, Any]], args: argparse.Namespace, path: Path) -> None:
    """Draw bars at the greatest load, in a group for each protocol, and lines over loads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    load = max(args.loads)
    grid = [
        ["goodput_gbps"] * 2,
        ["p50_slowdown"] * 2,
        ["short_p99_slowdown"] * 2,
        ["goodput over load", "slowdown over load"],
    ]
    figure, axes = pyplot.subplot_mosaic(grid, figsize=(11, 14), layout="constrained")
    titles = {
        "goodput_gbps": f"goodput of the job at {load} % load, Gbit/s (lines: without flows)",
        "p50_slowdown": f"slowdown of the neighbours' flows at {load} % load, median",
        "short_p99_slowdown": f"slowdown of the neighbours' flows up to 100 kB at {load} % load, p99",
    }
    for key, title in titles.items():
        groups = args.protocols if key == "goodput_gbps" else [ALONE, *args.protocols]
        width = 0.8 / len(args.transports)
        for number, transport in enumerate(args.transports):
            heights = [mean(found, key, protocol=name, transport=transport, load_percent=load) for name in groups]
            offset = (number - len(args.transports) / 2 + 0.5) * width
            axes[key].bar([position + offset for position in range(len(groups))], heights, width, label=transport)
        if key == "goodput_gbps" and 0 in args.loads:
            idle = [mean(found, key, protocol=name, load_percent=0) for name in groups]
            axes[key].hlines(idle, [n - 0.45 for n in range(len(groups))], [n + 0.45 for n in range(len(groups))], "k")
        axes[key].set_xticks(range(len(groups)), groups)
        axes[key].set_title(title)
        axes[key].set_yscale("log")
    axes["goodput_gbps"].legend(ncols=4, title="transport of the neighbours", fontsize="small")
    usual = USUAL if USUAL in args.transports else args.transports[0]
    for axis, key in (("goodput over load", "goodput_gbps"), ("slowdown over load", "short_p99_slowdown")):
        for name in args.protocols if key == "goodput_gbps" else [ALONE, *args.protocols]:
            values = [mean(found, key, protocol=name, transport=usual, load_percent=at) for at in args.loads]
            color = "k" if name == ALONE else f"C{args.protocols.index(name)}"
            axes[axis].plot(args.loads, values, "o-", label=name, color=color)
        axes[axis].set(xlabel="load, %", yscale="log")
        axes[axis].legend(ncols=2, fontsize="small")
    axes["goodput over load"].set_title(f"goodput beside {usual}, Gbit/s")
    axes["slowdown over load"].set_title(f"slowdown of flows up to 100 kB under {usual}, p99")
    figure.savefig(path, dpi=80)


def table(found: list[dict[str, Any]]) -> str:
    """A row for each point, with the mean of its seeds."""
    lines = [f"{'':<10}{'':<17}{'load':>6}{'Gbit/s':>9}{'slowdown p50':>14}{'p99':>9}{'p99 to 100 kB':>15}"]
    for point in dict.fromkeys((row["protocol"], row["transport"], row["load_percent"]) for row in found):
        wanted = dict(zip(("protocol", "transport", "load_percent"), point, strict=True))
        values = [mean(found, figure, **wanted) for figure in FIGURES]
        words = ["-" if math.isnan(value) else f"{value:.2f}" for value in values]
        cells = "".join(f"{word:>{width}}" for word, width in zip(words, (9, 14, 9, 15), strict=True))
        lines.append(f"{point[0]:<10}{point[1]:<17}{point[2]:>4} %{cells}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the sweep and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two levels and 32 hosts")
    parser.add_argument("--protocols", nargs="+", choices=list(COLLECTIVES), default=list(COLLECTIVES))
    parser.add_argument("--transports", nargs="+", choices=list(TRANSPORTS), default=list(TRANSPORTS))
    parser.add_argument("--loads", nargs="+", type=int, default=LOADS, help="in percent of the links between switches")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("transports"), help="the folder for results and the page")
    args = parser.parse_args(words)
    begun = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    found = rows(sim.sweep(experiment(args), out=args.out))
    with (args.out / "results.csv").open("w", newline="") as file:
        written = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        written.writeheader()
        written.writerows(
            {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()} for row in found
        )
    draw(found, args, args.out / "page.png")
    print(table(found))
    failures = [row for row in found if row["failure"]]
    for row in failures:
        print(f"{row['protocol']} beside {row['transport']} at {row['load_percent']} %: {row['failure']}")
    print(f"{len(found)} runs in {time.monotonic() - begun:.0f} s; {args.out / 'page.png'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
