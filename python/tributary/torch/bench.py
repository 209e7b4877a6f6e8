"""Is it faster on your machines? ``all_reduce`` through Tributary and through Gloo, in turns, in one run.

    torchrun --nnodes 4 --rdzv-backend c10d --rdzv-endpoint node1:29400 -m tributary.torch.bench
    python -m tributary.torch.bench --ranks 2 4

Start the first line once on each host, with the variables that a training would have (TRIBUTARY_SWITCH, ...). The
second starts ranks of this machine alone, which sum in its memory. Printed is the median time of all calls, as the
slowest rank saw them, and its ratio to Gloo's. The groups of all ways are there at once, and take turns at each size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

from tributary import ConfigError
from tributary._core import read_bytes

SIZES = [1 << 10, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000]
WAYS = ["tributary", "memory", "network", "gloo"]


def main() -> int:
    """Be one rank, or start all ranks of this machine."""
    parser = _parser()
    args = parser.parse_args()
    if "RANK" not in os.environ:
        if not args.ranks:
            parser.error("no ranks: start it with torchrun on each host, or give --ranks for ranks of this machine")
        return max(_start(ranks, args) for ranks in args.ranks)
    if args.ranks:
        parser.error("torchrun has started the ranks already: leave out --ranks")
    _measure(args)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tributary.torch.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", type=_count, nargs="+", help="start this many ranks on this machine, without torchrun")
    add("--size", type=_size, nargs="+", default=SIZES, help='of float32, as "1 KiB" or 25MB (default: 1 KiB to 25 MB)')
    add("--ways", nargs="+", choices=WAYS, default=["tributary", "gloo"], help=_WAYS_HELP)
    add("--turns", type=_count, default=4, help="turns of each way at each size (default: %(default)s)")
    add("--calls", type=_count, default=15, help="calls in a turn (default: %(default)s)")
    add("--json", action="store_true", help="print a JSON object for each size")
    return parser


_WAYS_HELP = (
    "tributary: as a training would; memory: only in this host's memory; network: without it (default: tributary gloo)"
)


def _count(text: str) -> int:
    try:
        return _positive(int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _size(text: str) -> int:
    try:
        return _positive(read_bytes(text))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(number: int) -> int:
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _start(ranks: int, args: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "tributary.torch.bench", "--turns", str(args.turns), "--calls", str(args.calls)]
    command += ["--size", *map(str, args.size), "--ways", *args.ways, *(["--json"] if args.json else [])]
    return subprocess.run(command, env={"OMP_NUM_THREADS": "1"} | os.environ).returncode


def _measure(args: argparse.Namespace) -> None:
    """Be one rank."""
    import torch
    import torch.distributed as dist

    from tributary.torch import Options, stats

    options = {"tributary": Options(), "memory": Options(local="on"), "network": Options(local="off"), "gloo": None}
    patience = timedelta(seconds=120)
    dist.init_process_group("gloo", timeout=patience)
    groups: dict[str, Any] = {
        way: dist.new_group(backend="gloo" if way == "gloo" else "tributary", pg_options=options[way], timeout=patience)
        for way in args.ways
    }
    first = dist.get_rank() == 0
    if first and not args.json:
        print(_cells(f"{dist.get_world_size()} ranks", args.ways, [f"{way} / gloo" for way in _against_gloo(args)]))
    for size in args.size:
        seconds: dict[str, list[float]] = {way: [] for way in args.ways}
        tensor = torch.zeros(max(1, size // 4))
        for _ in range(args.turns):
            for way, group in groups.items():
                # The first call of a turn fills caches, and waits for ranks that are late.
                dist.all_reduce(tensor, group=group)
                for _ in range(args.calls):
                    called = time.monotonic()
                    dist.all_reduce(tensor, group=group)
                    seconds[way].append(time.monotonic() - called)
        medians = torch.tensor([statistics.median(seconds[way]) for way in args.ways], dtype=torch.float64)
        dist.all_reduce(medians, op=dist.ReduceOp.MAX)
        if first:
            _print_row(args, size, dict(zip(args.ways, medians.tolist(), strict=True)))
    if first and not args.json:
        for way in args.ways:
            if way != "gloo":
                print(f"{way}: {_where(stats(groups[way]))}")
    dist.destroy_process_group()


def _against_gloo(args: argparse.Namespace) -> list[str]:
    return [way for way in args.ways if way != "gloo"] if "gloo" in args.ways else []


def _print_row(args: argparse.Namespace, size: int, seconds: dict[str, float]) -> None:
    ratios = {way: seconds[way] / seconds["gloo"] for way in _against_gloo(args)}
    if args.json:
        row = {"ranks": int(os.environ["WORLD_SIZE"]), "bytes": size, "seconds": seconds, "ratio_to_gloo": ratios}
        print(json.dumps(row), flush=True)
        return
    times = [f"{value * 1e3:.3f} ms" for value in seconds.values()]
    print(_cells(f"{size} bytes", times, [f"{ratio:.2f}" for ratio in ratios.values()]), flush=True)


def _cells(name: str, times: list[str], ratios: list[str]) -> str:
    return f"{name:>16}" + "".join(f"{cell:>14}" for cell in times) + "".join(f"{cell:>18}" for cell in ratios)


def _where(stats: Any) -> str:
    """Where a group's sums were made."""
    ways = {
        "in the network": stats.network_bytes,
        "in this host's memory": stats.memory_bytes,
        "over the host path": stats.host_bytes,
    }
    shares = [f"{count / stats.all_bytes:.0%} {way}" for way, count in ways.items() if count]
    why = f" (not in memory: {stats.why_network})" if stats.why_network else ""
    return f"summed {', '.join(shares)}{why}"


if __name__ == "__main__":
    sys.exit(main())
