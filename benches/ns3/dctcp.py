"""DCTCP on Tributary and on ns-3: the same hosts, link, queue and flows, and the flows' completion times side by side.

>>> python benches/ns3/dctcp.py [--tiny] [--seeds N]

Needs g++ and Debian's libns3-dev. Senders share one switch with one receiver, whose link is the bottleneck. First some
long flows: how they share it, and its queue. Then flows of mixed sizes that arrive at random, the same in both.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from compare import build

from tributary import sim

SOURCE = Path(__file__).with_suffix(".cc")
LIBRARIES = ["traffic-control", "point-to-point", "internet", "network", "core"]

SENDERS = 8
GBPS = 10
DELAY_US = 10
#: Packets above which a queue marks, and that ns-3's disc takes at most.
MARK, QUEUE = 65, 1000
#: Bytes of a full packet on a link: 1,460 of data, 20 of TCP, 20 of IPv4, and 2 of PPP, ns-3's link.
PACKET = 1502
#: The mean share of the bottleneck that arriving flows need, and their least and largest size.
LOAD = 0.6
SIZES = (1_500, 3_000_000)
GROUPS = {"up to 100 kB": (0, 100_000), "up to 1 MB": (100_000, 1_000_000), "larger": (1_000_000, 1 << 60)}

Floats = npt.NDArray[np.float64]


class Flow(NamedTuple):
    """One line of a flow list."""

    sender: int
    bytes: int
    start_us: int


class Run(NamedTuple):
    """What one simulator says."""

    #: Of each flow, seconds from its start to the arrival of its last byte.
    seconds: Floats
    #: Bytes, or anything proportional to them, that each flow brought in the window.
    brought: Floats
    #: The bottleneck's queue in packets, each 10 us of the window.
    queue: Floats
    drops: int


def arrivals(seed: int, count: int) -> list[Flow]:
    """Draw flows: random senders, sizes whose logarithm is uniform, gaps as a Poisson process has them."""
    draw = random.Random(seed)
    least, most = SIZES
    mean = (most - least) / math.log(most / least)
    rate = LOAD * GBPS * 1e9 / 8 / mean
    now, flows = 0.0, list[Flow]()
    for _ in range(count):
        # No two begin in the same microsecond, by which results are matched.
        now = max(now + draw.expovariate(rate), 1e-6 * (flows[-1].start_us + 1) if flows else 0.0)
        size = int(math.exp(draw.uniform(math.log(least), math.log(most))))
        flows.append(Flow(draw.randrange(SENDERS), size, round(now * 1e6)))
    return flows


def long_flows(count: int, end_ms: float) -> list[Flow]:
    """Flows that together fill the bottleneck until then, each 500 us after the one before it."""
    share = int(GBPS * 1e9 / 8 * end_ms * 1e-3 / count)
    return [Flow(sender, share, 500 * sender) for sender in range(count)]


def write(flows: Sequence[Flow], path: Path) -> Path:
    """Write a flow list that both read."""
    lines = [f"{flow.sender},{SENDERS},{flow.bytes},{flow.start_us * 1e-6:.6f}\n" for flow in flows]
    path.write_text("src,dst,bytes,start_s\n" + "".join(lines), encoding="utf-8")
    return path


def ours(flows: Sequence[Flow], path: Path, window_ms: tuple[float, float]) -> Run:
    """Run them here."""
    experiment: dict[str, Any] = {
        "network": {
            "star": {"hosts": SENDERS + 1},
            "rate": f"{GBPS} Gbit/s",
            "delay": f"{DELAY_US} us",
            # ns-3's device holds two packets beside the disc's.
            "queue": (QUEUE + 2) * PACKET,
            "mark_above": MARK * PACKET,
            # UDP and IPv4, which the simulator's header makes as long as TCP's, and PPP.
            "overhead": 30,
            "shortest": 42,
        },
        "traffic": [{"pattern": "list", "flows": str(path)}],
        "report": {"sample": "10 us"},
    }
    result = sim.run(experiment).check()
    took = {(int(row["src"]), round(row["start_s"] * 1e6)): float(row["seconds"]) for row in result.flows}
    seconds = np.array([took[flow.sender, flow.start_us] for flow in flows])
    links = {(str(row["from"]), str(row["to"])): int(row["link"]) for row in result.links}
    begin, end = (1e-3 * edge for edge in window_ms)
    samples = result.samples
    samples = samples[(samples["time_s"] > begin) & (samples["time_s"] <= end)]
    into = samples[samples["link"] == links["switch 0", f"host {SENDERS}"]]
    ups = [samples[samples["link"] == links[f"host {flow.sender}", "switch 0"]] for flow in flows[:SENDERS]]
    brought = np.array([up["utilisation"].sum() for up in ups])
    return Run(seconds, brought, into["queue_bytes"] / PACKET, int(result.queues["lost_queue_full"].sum()))


def ns3(program: Path, flows: Sequence[Flow], path: Path, window_ms: tuple[float, float]) -> Run:
    """Run them on ns-3."""
    settings = {
        "flows": path,
        "senders": SENDERS,
        "gbps": GBPS,
        "delay_us": DELAY_US,
        "mark": MARK,
        "queue": QUEUE,
        "from_ms": window_ms[0],
        "to_ms": window_ms[1],
    }
    command = [str(program), *(f"--{name}={value}" for name, value in settings.items())]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ends = np.array(report["end_s"])
    if (ends < 0).any():
        sys.exit(f"dctcp.py: error: {int((ends < 0).sum())} of {len(flows)} flows did not end on ns-3")
    starts = np.array([flow.start_us * 1e-6 for flow in flows])
    return Run(ends - starts, np.array(report["in_window"]), np.array(report["queue"]), report["dropped"])


def compare_long(program: Path, folder: Path, count: int, end_ms: float) -> None:
    """Print shares and the queue of long flows, in the time in which all of them run."""
    flows = long_flows(count, end_ms)
    path = write(flows, folder / f"long-{count}.csv")
    window_ms = (0.5 * count + 0.2 * end_ms, 0.9 * end_ms)
    for name, run in (("ours", ours(flows, path, window_ms)), ("ns-3", ns3(program, flows, path, window_ms))):
        shares = 100 * run.brought / run.brought.sum()
        low, mean, high = np.percentile(run.queue, 1), run.queue.mean(), np.percentile(run.queue, 99)
        print(
            f"{count} long flows, {name}: shares {shares.min():5.1f} to {shares.max():5.1f} %; "
            f"queue {low:5.1f}, {mean:5.1f}, {high:5.1f} packets (1 %, mean, 99 %); {run.drops} lost"
        )


def row(name: str, mine: Floats, theirs: Floats) -> str:
    """Compare completion times of a group of flows."""
    each = [(np.percentile(mine, at), np.percentile(theirs, at)) for at in (50, 95, 99)]
    each.append((mine.mean(), theirs.mean()))
    columns = "".join(f"{1e6 * a:>10.0f}{1e6 * b:>9.0f}{a / b:>7.3f}" for a, b in each)
    between = " to ".join(f"{ratio:.3f}" for ratio in np.percentile(mine / theirs, (5, 50, 95)))
    return f"{name:<14}{len(mine):>6}{columns}   {between}"


def compare_arrivals(program: Path, folder: Path, seeds: int, count: int) -> None:
    """Print completion times of flows that arrive at random, over all seeds."""
    sizes, mine, theirs, lost = list[int](), list[Floats](), list[Floats](), [0, 0]
    for seed in range(1, seeds + 1):
        flows = arrivals(seed, count)
        path = write(flows, folder / f"arrivals-{seed}.csv")
        pair = ours(flows, path, (0, 0)), ns3(program, flows, path, (0, 0))
        sizes += [flow.bytes for flow in flows]
        mine.append(pair[0].seconds)
        theirs.append(pair[1].seconds)
        lost = [before + run.drops for before, run in zip(lost, pair, strict=True)]
    print(f"{seeds} x {count} flows at {LOAD:.0%} of the link; lost {lost[0]} and {lost[1]} packets; in microseconds")
    names = "".join(f"{name + ': ours':>10}{'ns-3':>9}{'ratio':>7}" for name in ("med.", "p95", "p99", "mean"))
    print(f"{'flows':<14}{'':>6}{names}   ratio of each flow (5 %, median, 95 %)")
    of, a, b = np.array(sizes), np.concatenate(mine), np.concatenate(theirs)
    for name, (least, most) in {**GROUPS, "all": (0, 1 << 60)}.items():
        chosen = (of >= least) & (of < most)
        if chosen.any():
            print(row(name, a[chosen], b[chosen]))


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="few flows: shows that it works")
    parser.add_argument("--seeds", type=int, default=3, help="flow lists, of seeds from 1 on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tributary-bench-") as name:
        folder = Path(name)
        program = build(SOURCE, LIBRARIES, folder)
        print(f"{SENDERS} senders, {GBPS} Gbit/s and {DELAY_US} us a link, marks above {MARK} packets of {PACKET} B")
        compare_long(program, folder, 2, 20 if arguments.tiny else 60)
        if not arguments.tiny:
            compare_long(program, folder, SENDERS, 120)
        compare_arrivals(program, folder, 1 if arguments.tiny else arguments.seeds, 20 if arguments.tiny else 100)


if __name__ == "__main__":
    main()
