"""Predict training steps from the recording of one rank, then measure them: how near is the simulator?

    python experiments/step_prediction.py            # 2 and 4 hosts, 0.2 and 1 Gbit/s; needs root, and some minutes
    python experiments/step_prediction.py --hosts 2 --rate '50 Mbit/s' --kinds ddp --models mlp --json
    python experiments/step_prediction.py --hosts 8 --rate '2.5 Gbit/s' --calibrate   # processors are the limit

One rank records its step alone, without a network (`tributary.torch.record_step`). `tributary.sim` runs that step with
all ranks on a star of links, and then real ranks run it on hosts of such a star, which are network namespaces of this
machine. A step's time is that of its slowest rank, the median of some; of several runs the fastest counts, since what
else the machine does can only make a run longer. All hosts and the switch share this machine's processors: a line says
`cores` where they were busy for nine tenths of the time, else `links`. The prediction knows links alone. With
`--calibrate` it knows what packets cost a processor (`tributary plan --calibrate`), and calls of `dist.all_reduce`, and
that hosts share the processors: a step takes at least as long as these need for the work of all hosts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

KINDS = ["ddp", "fsdp"]
MODELS = ["mlp", "transformer"]
PROTOCOLS = ["switchml", "flare", "ring"]
#: Elements that fill a packet of 1,500 bytes behind any protocol's header.
ELEMENTS = 356
#: The real driver's timers: the simulator's are for links of 100 Gbit/s.
RTO = {"initial": "20 ms", "min": "1 ms", "max": "200 ms"}
#: Steps before: DDP makes its buckets after the first.
WARMUP = 2
#: Calls whose cost is measured.
CALLS = 300
#: Above this share of its time, a machine's processors limit a step.
BUSY = 0.9


def main() -> int:
    """Be one rank, record one, or start the stars and print the table."""
    args = _parser().parse_args()
    if args.record:
        record(*args.record)
    elif args.calls:
        count_calls(args)
    elif "RANK" in os.environ:
        measure(args)
    else:
        compare(args)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rate", nargs="+", default=["0.2 Gbit/s", "1 Gbit/s"], help="of each link")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--protocol", nargs="+", default=PROTOCOLS)
    parser.add_argument("--steps", type=int, default=5, help="of a run")
    parser.add_argument("--runs", type=int, default=2, help="of each row; the fastest counts")
    parser.add_argument("--calibrate", action="store_true", help="predict what processors take, too")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each row")
    parser.add_argument("--calls", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", nargs=3, metavar=("KIND", "MODEL", "FILE"), help=argparse.SUPPRESS)
    return parser


def compare(args: argparse.Namespace) -> None:
    """Record each step once; predict and measure each row."""
    costs = packet_costs() if args.calibrate else None
    calls = call_costs(args) if args.calibrate else {}
    with tempfile.TemporaryDirectory() as folder:
        traces = {}
        for kind, model in itertools.product(args.kinds, args.models):
            traces[kind, model] = Path(folder) / f"{kind}-{model}.json"
            command = [sys.executable, __file__, "--record", kind, model, str(traces[kind, model])]
            subprocess.run(command, check=True, capture_output=True)
        if not args.json:
            print("| step | hosts, links | " + " | ".join(args.protocol) + " | limit |")
            print("|---|---|" + "---:|" * len(args.protocol) + "---|", flush=True)
        for hosts, rate in itertools.product(args.hosts, args.rate):
            rows = on_a_star(args, hosts, rate)
            for row in rows:
                protocol = row["protocol"]
                own = costs and costs | {"call_seconds": calls[protocol]}
                row |= predict(traces[row["kind"], row["model"]], hosts, rate, protocol, own)
                row["ratio"] = row["measured_s"] / row["predicted_s"]
            for step in traces:
                of_step = [row for row in rows if (row["kind"], row["model"]) == step]
                print("\n".join(map(json.dumps, of_step)) if args.json else line(of_step), flush=True)


def line(rows: list[dict[str, Any]]) -> str:
    """A line of the table: predicted and measured milliseconds of a step under each protocol, and their ratio."""
    cells = [f"{1e3 * row['predicted_s']:.0f}, {1e3 * row['measured_s']:.0f}: {row['ratio']:.2f}" for row in rows]
    limit = "cores" if max(row["busy"] for row in rows) > BUSY else "links"
    step = [f"{rows[0]['kind']}, {rows[0]['model']}", f"{rows[0]['hosts']}, {rows[0]['rate']}"]
    return "| " + " | ".join([*step, *cells, limit]) + " |"


def packet_costs() -> dict[str, float]:
    """Seconds that this machine's processors take for a packet, and for each of its bytes."""
    plan = [sys.executable, "-m", "tributary", "plan", "--hosts", "2", "--rate", "1 Gbit/s", "--parameters", "1000"]
    plan += ["--compute", "1 ms", "--calibrate", "--json"]
    return json.loads(subprocess.run(plan, stdout=subprocess.PIPE, text=True, check=True).stdout)["host_costs"]


def call_costs(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of a processor that a call of a collective takes a rank under each protocol, with its two packets."""
    rank = [__file__, "--calls", "--protocol", *args.protocol]
    return {row["protocol"]: row["call_s"] for row in of_star(2, args.rate[0], rank)}


def predict(trace: Path, hosts: int, rate: str, protocol: str, costs: dict[str, float] | None) -> dict[str, Any]:
    """The step of a trace, with all ranks, on links that count frames as a token bucket does.

    With costs each host has its share of this machine's processors. Where a switch sums, its program takes as long for
    a packet as the host that sends or receives it.
    """
    from tributary import sim
    from tributary.torch.options import AROUND

    keys = {"iterations": 3, "elements_per_packet": ELEMENTS, "rto": RTO}
    traced = sim.step_of_trace(trace, ranks=hosts, protocol=protocol, **keys)
    network = {
        "star": {"hosts": hosts}, "rate": rate, "delay": "20 us", "queue": "4 MiB", "overhead": 42, "shortest": 42,
    }  # fmt: skip
    experiment: dict[str, Any] = {"end": "1000 s", "network": network, "step": [traced.step]}
    crowd = max(1.0, hosts / (os.cpu_count() or 1))
    ends = 1 if protocol == AROUND else 2
    if costs is not None:
        for node in traced.step["node"]:
            if "compute" in node:
                amount, unit = node["compute"].split()
                node["compute"] = f"{crowd * float(amount)} {unit}"
        keys = {"per_packet": "packet_seconds", "per_byte": "byte_seconds"}
        experiment["hosts"] = {key: f"{1e12 * ends * crowd * costs[cost]:.0f} ps" for key, cost in keys.items()}
    report = sim.run(experiment).check().report
    step, worked = report["steps"][0], 0.0
    if costs is not None:
        # What the work of all hosts takes on all processors, whatever waits for what.
        carried = [(link["packets"], link["bytes"]) for link in report["links"] if link["name"].startswith("host ")]
        packets, sent = (ends * sum(of_links) / step["iterations"] for of_links in zip(*carried, strict=True))
        of_packets = packets * costs["packet_seconds"] + sent * costs["byte_seconds"]
        calls = sum("collective" in node for node in traced.step["node"])
        worked = step["computed_seconds"] + crowd * (of_packets / hosts + calls * costs["call_seconds"])
    return {"predicted_s": max(step["seconds"], worked), "computed_s": step["computed_seconds"]}


def on_a_star(args: argparse.Namespace, hosts: int, rate: str) -> list[dict[str, Any]]:
    """Run this file on every host; the fastest run of each row."""
    rank = [__file__, "--steps", str(args.steps), "--kinds", *args.kinds, "--models", *args.models]
    rank += ["--protocol", *args.protocol]
    fastest: dict[tuple[str, str, str], dict[str, Any]] = {}
    for _ in range(args.runs):
        for run in of_star(hosts, rate, rank):
            row = run["kind"], run["model"], run["protocol"]
            if row not in fastest or run["measured_s"] < fastest[row]["measured_s"]:
                fastest[row] = run | {"hosts": hosts, "rate": rate}
    return list(fastest.values())


def of_star(hosts: int, rate: str, rank: list[str]) -> list[dict[str, Any]]:
    """What the ranks of a star print."""
    star = ["lab", "star", "--hosts", str(hosts), "--rate", rate, "--", sys.executable, *rank]
    ran = subprocess.run([sys.executable, "-m", "tributary", *star], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def record(kind: str, model: str, file: str) -> None:
    """Be the only rank. FSDP2 has no collectives without others, so they are made up."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from tributary.torch import record_step

    if kind == "ddp":
        dist.init_process_group("gloo", init_method=f"file://{file}.store", rank=0, world_size=1)
    else:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    record_step(training_step(kind, model, dist.group.WORLD), file, warmup=WARMUP)
    dist.destroy_process_group()


def groups_of(protocols: list[str]) -> Iterator[tuple[str, Any]]:
    """A group under each protocol, one after the other."""
    import torch.distributed as dist

    from tributary.torch import Options

    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    for protocol in protocols:
        options = Options.from_environment(os.environ | {"TRIBUTARY_PROTOCOL": protocol})
        group = dist.new_group(backend="tributary", timeout=timedelta(seconds=300), pg_options=options)
        yield protocol, group
        dist.destroy_process_group(group)
    dist.destroy_process_group()


def count_calls(args: argparse.Namespace) -> None:
    """Sum single elements; rank 0 prints what a call takes a processor."""
    import torch
    import torch.distributed as dist

    one = torch.ones(1)
    for protocol, group in groups_of(args.protocol):
        dist.all_reduce(one, group=group)
        start = time.process_time()
        for _ in range(CALLS):
            dist.all_reduce(one, group=group)
        took = time.process_time() - start
        if dist.get_rank() == 0:
            print(json.dumps({"protocol": protocol, "call_s": took / CALLS}), flush=True)


def measure(args: argparse.Namespace) -> None:
    """Train on this rank; rank 0 prints the median of the slowest rank's times for each row."""
    import torch
    import torch.distributed as dist

    for protocol, group in groups_of(args.protocol):
        for kind, model in itertools.product(args.kinds, args.models):
            step = training_step(kind, model, group)
            for _ in range(WARMUP):
                step()
            times, before = [], processors()
            for _ in range(args.steps):
                dist.barrier()
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            idle, whole = (now - then for now, then in zip(processors(), before, strict=True))
            slowest = torch.tensor(times, dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            row = {"kind": kind, "model": model, "protocol": protocol, "measured_s": float(slowest.median())}
            if dist.get_rank() == 0:
                print(json.dumps(row | {"busy": 1 - idle / max(whole, 1)}), flush=True)


def processors() -> tuple[int, int]:
    """The ticks that this machine's processors have idled, and all ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def training_step(kind: str, model: str, group: Any) -> Callable[[], None]:
    """A step of a model whose gradients this group reduces: forward, backward and the optimizer."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(1)
    if model == "mlp":
        layers = [nn.Linear(512, 512) for _ in range(8)]
        shape = (8, 512)
    else:
        layers = [nn.TransformerEncoderLayer(192, 4, 768, batch_first=True, dropout=0.0) for _ in range(4)]
        shape = (2, 32, 192)
    net: Any = nn.Sequential(*layers)
    if kind == "ddp":
        net = DistributedDataParallel(net, process_group=group, bucket_cap_mb=2)
    else:
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in [*layers, net]:
            fully_shard(layer, mesh=mesh)
        # Without a GPU's streams nothing else lets a gather go on while its rank computes.
        net._set_unshard_async_op(True)
        for layer, following in itertools.pairwise(layers):
            layer.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([layer])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(*shape)

    def step() -> None:
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    sys.exit(main())
