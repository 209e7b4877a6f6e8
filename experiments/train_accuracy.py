"""Does training through the network end at the accuracy that it has over Gloo? `make train` asks this.

    python experiments/train_accuracy.py                         # examples/ddp.py, five seeds on each backend
    python experiments/train_accuracy.py --seeds 3 --epochs 2

A seed draws the parameters and the order of the images. Two backends add up gradients in another order, so that single
runs differ in their last bits and then in a few images. The verdict holds the difference of the two means against the
noise of the seeds: it is within chance up to three standard errors of that difference (Welch).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "ddp.py"
OURS, PEER = "tributary", "gloo"
STANDARD_ERRORS = 3.0


def main() -> int:
    """Train with every seed on both backends in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each backend, two at least")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("one seed shows no noise: --seeds takes 2 or more")
    accuracies: dict[str, list[float]] = {OURS: [], PEER: []}
    for seed in range(1, args.seeds + 1):
        for backend, reached in accuracies.items():
            out = trained(backend, seed, args)
            if seed == 1:
                print(out, end="", flush=True)
            reached.append(last_accuracy(out))
            print(f"{backend:9}  seed {seed} of {args.seeds}: accuracy {reached[-1]:.2f}%", flush=True)
    text, same = verdict(accuracies[OURS], accuracies[PEER])
    print(text)
    return 0 if same else 1


def trained(backend: str, seed: int, args: argparse.Namespace) -> str:
    """What the example prints when it trains with a seed."""
    words = ["--nproc-per-node", str(args.processes), str(EXAMPLE)]
    words += ["--backend", backend, "--seed", str(seed), "--epochs", str(args.epochs)]
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
    )
    if ran.returncode != 0:
        raise SystemExit(f"training over {backend} with seed {seed} failed: see above")
    return ran.stdout


def last_accuracy(out: str) -> float:
    """In percent, after the last epoch."""
    return float(re.findall(r"accuracy ([\d.]+)%", out)[-1])


def verdict(ours: list[float], peers: list[float]) -> tuple[str, bool]:
    """A sentence about both backends' accuracies in percent, and whether they are the same but for chance."""
    error = (statistics.variance(ours) / len(ours) + statistics.variance(peers) / len(peers)) ** 0.5
    difference = statistics.mean(ours) - statistics.mean(peers)
    same = abs(difference) <= STANDARD_ERRORS * error
    said = f"{OURS} {summary(ours)}; {PEER} {summary(peers)}"
    judged = "the same accuracy, but for chance" if same else "NOT the same accuracy"
    chance = f"seeds alone explain up to {STANDARD_ERRORS * error:.2f}"
    return f"over {len(ours)} seeds: {said}. The means differ by {difference:+.2f} points, {chance}: {judged}", same


def summary(accuracies: list[float]) -> str:
    """Mean and range."""
    return f"{statistics.mean(accuracies):.2f}% ({min(accuracies):.2f} to {max(accuracies):.2f})"


if __name__ == "__main__":
    sys.exit(main())
