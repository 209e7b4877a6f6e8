"""When does a sum in the network help a job of 8 x 8 ranks, and when does it help the neighbours more?

    python experiments/neighbours/study.py              # the table, and neighbours.svg here
    python experiments/neighbours/study.py --tiny       # two rows, to see whether it runs

README.md says what came out; the picture needs the package's [plots]. 64 ranks are 8
data-parallel groups of 8, and 8 tensor-parallel groups of 8. A step has layers, each with a computation and a sum of
the tensor-parallel group, forward and backward, and the gradients of a layer are summed in the data-parallel groups
while the layers below it are still computed. All these sums go by one protocol, as they do in a PyTorch job that names
one backend. Beside the job, other hosts send flows to each other through the same two switches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: Who sums: the switches; hosts in a ring over UDP; and over TCP, as Gloo does, with DCTCP for TCP.
WAYS = ["switchml", "ring", "gloo"]
#: What a rank computes in a step, in milliseconds.
COMPUTES = [0.5, 2.0, 6.0, 18.0]
PLACEMENTS = ["packed", "spread"]
#: The gradients of a layer, on each rank, and what a tensor-parallel group sums for it, forward and backward.
LAYERS, GRADIENTS, ACTIVATIONS = 6, 256_000, 16_000
#: Ranks of a group of either kind.
SIDE = 8
#: Hosts at each of the two switches that the job has; the others are neighbours.
AT_SWITCH, HOSTS_OF_SWITCH = 32, 40
#: Links between the switches carry what ten hosts of 40 send. Marks are DCTCP's 65 packets at 10 Gbit/s.
NETWORK = {
    "leaf_spine": {"leaves": 2, "spines": 1, "hosts_per_leaf": HOSTS_OF_SWITCH},
    "rate": "10 Gbit/s", "delay": "1 us", "queue": "512 KiB", "mark_above": "100 kB",
    "core": {"rate": "100 Gbit/s", "queue": "2 MiB", "mark_above": "400 kB"},
}  # fmt: skip
#: Milliseconds in which flows of neighbours arrive.
UNTIL = 40
#: The neighbours, under DCTCP: from those at one switch to those at the other. Their flows are shorter than in the
#: distribution, so that a short run has many.
FLOWS = {
    "pattern": "poisson", "sizes": "web_search", "scale": 20, "rate": "80 Gbit/s", "load": "25 %",
    "from": list(range(AT_SWITCH, HOSTS_OF_SWITCH)),
    "to": list(range(HOSTS_OF_SWITCH + AT_SWITCH, 2 * HOSTS_OF_SWITCH)),
    "until": f"{UNTIL} ms",
}  # fmt: skip
ALONE: dict[str, Any] = {"seed": 1, "end": "2 s", "network": NETWORK}
WITH_NEIGHBOURS: dict[str, Any] = ALONE | {"traffic": [FLOWS]}


def main() -> int:
    """Run everything; print the table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="one placement, one computation, two ways to sum")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each row")
    parser.add_argument("--out", type=Path, default=HERE / "neighbours.svg", help="the picture")
    args = parser.parse_args()
    alone = slowdown(run(WITH_NEIGHBOURS))
    rows = []
    placements, computes = (["packed"], [0.5]) if args.tiny else (PLACEMENTS, COMPUTES)
    ways = WAYS[:2] if args.tiny else WAYS
    if not args.json:
        print(f"flows of neighbours without the job: {alone:.2f} times as long as each alone\n")
        print("| placement | computes | sums | step | without neighbours | exposed | neighbours' flows | core |")
        print("|---|---:|---|---:|---:|---:|---:|---:|", flush=True)
    for placement, compute, way in itertools.product(placements, computes, ways):
        row = measure(placement, compute, way)
        rows.append(row)
        print(json.dumps(row) if args.json else line(row), flush=True)
    if not args.tiny:
        draw(rows, alone, args.out)
    return 0


def measure(placement: str, compute: float, way: str) -> dict[str, Any]:
    """The job alone, and then as often as it fits into the time in which flows of neighbours arrive."""
    alone = run(ALONE | {"step": [step(placement, compute, way, iterations=3)]})
    alone_s = alone["report"]["steps"][0]["seconds"]
    often = math.ceil(1e-3 * UNTIL / alone_s)
    result = run(WITH_NEIGHBOURS | {"step": [step(placement, compute, way, iterations=often)]})
    of_step = result["report"]["steps"][0]
    return {
        "placement": placement, "compute_ms": compute, "way": way,
        "step_ms": 1e3 * of_step["seconds"], "alone_ms": 1e3 * alone_s, "exposed_ms": 1e3 * of_step["exposed_seconds"],
        "slowdown": slowdown(result), "core": core(result),
    }  # fmt: skip


def step(placement: str, compute: float, way: str, iterations: int) -> dict[str, Any]:
    """The training step, node by node, from the last layer down after the loss."""
    in_group = range(SIDE)
    # Rank t of data-parallel replica d is number 8 d + t; a replica is a tensor-parallel group.
    groups = {
        "tensor": [[SIDE * replica + rank for rank in in_group] for replica in in_group],
        "data": [[SIDE * replica + rank for replica in in_group] for rank in in_group],
    }
    # Packed: the first four replicas are at one switch. Spread: replicas take turns, as a scheduler places late jobs.
    half = SIDE // 2
    switch = [replica // half if placement == "packed" else replica % 2 for replica in in_group]
    index = [replica % half if placement == "packed" else replica // 2 for replica in in_group]
    hosts = [
        HOSTS_OF_SWITCH * switch[replica] + SIDE * index[replica] + rank
        for replica, rank in itertools.product(in_group, in_group)
    ]
    micros = 1e3 * compute / 3 / LAYERS
    nodes: list[dict[str, Any]] = []
    before: list[str] = []

    def add(name: str, **keys: Any) -> list[str]:
        nodes.append({"name": name, **keys})
        return [name]

    for layer in range(LAYERS):
        before = add(f"forward {layer}", compute=f"{micros * 1e6:.0f} ps", after=before)
        before = sums(add, f"activations {layer}", "tensor", ACTIVATIONS, before)
    for layer in reversed(range(LAYERS)):
        before = add(f"backward {layer}", compute=f"{2 * micros * 1e6:.0f} ps", after=before)
        sums(add, f"gradients {layer}", "data", GRADIENTS, before)
        if layer > 0:
            before = sums(add, f"errors {layer}", "tensor", ACTIVATIONS, before)
    protocol = {"protocol": "ring", "host_path": True} if way == "gloo" else {"protocol": way}
    return {
        "kind": "graph", "hosts": hosts, "groups": groups, "node": nodes, "iterations": iterations,
        "elements_per_packet": 350, **protocol,
    }  # fmt: skip


def sums(add: Any, name: str, group: str, size: int, after: list[str]) -> list[str]:
    """A sum of each group."""
    return add(name, collective="all_reduce", group=group, bytes=size, after=after)


def run(experiment: dict[str, Any]) -> dict[str, Any]:
    """Run an experiment that must succeed."""
    from tributary import sim

    result = sim.run(experiment).check()
    return {"report": result.report, "flows": result.flows, "links": result.links}


def slowdown(result: dict[str, Any]) -> float:
    """How long the neighbours' flows take, over the time of each alone; the mean."""
    flows = result["flows"]
    # Hosts of the job send flows, too, where they sum over TCP.
    return float(flows["slowdown"][flows["src"] % HOSTS_OF_SWITCH >= AT_SWITCH].mean())


def core(result: dict[str, Any]) -> float:
    """How busy the links between the switches were."""
    links = result["links"]
    return float(links[(links["from_level"] > 0) & (links["to_level"] > 0)]["utilisation"].mean())


def line(row: dict[str, Any]) -> str:
    """A line of the table."""
    return (
        f"| {row['placement']} | {row['compute_ms']} ms | {row['way']} | {row['step_ms']:.2f} ms "
        f"| {row['alone_ms']:.2f} ms | {row['exposed_ms']:.2f} ms | {row['slowdown']:.2f} | {row['core']:.0%} |"
    )


def draw(rows: list[dict[str, Any]], alone: float, out: Path) -> None:
    """A step beyond its computation and the neighbours' flows, for each way to sum, by what a step computes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "neighbours", "font.size": 9})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(7, 5), sharex=True, sharey="row", layout="constrained")
    for column, placement in enumerate(PLACEMENTS):
        for way in WAYS:
            of_way = [row for row in rows if (row["placement"], row["way"]) == (placement, way)]
            computes = [row["compute_ms"] for row in of_way]
            style = {"marker": "o", "markersize": 3, "label": way}
            axes[0][column].plot(computes, [row["step_ms"] - row["compute_ms"] for row in of_way], **style)
            axes[1][column].plot(computes, [row["slowdown"] for row in of_way], **style)
        axes[1][column].axhline(alone, color="grey", linewidth=0.8)
        axes[0][column].set_title(placement)
        axes[1][column].set_xlabel("a rank computes in a step, ms")
    axes[0][0].set_ylabel("the rest of a step, ms")
    axes[1][0].set_ylabel("neighbours' flows, times alone")
    axes[0][0].legend()
    figure.savefig(out, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
