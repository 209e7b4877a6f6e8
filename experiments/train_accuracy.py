"""Does training through the network end at the accuracy that it has over Gloo? `make train` asks this.

    python experiments/train_accuracy.py                         # examples/ddp.py, five seeds on each backend
    python experiments/train_accuracy.py --seeds 3 --epochs 2
    python experiments/train_accuracy.py --topk 0.01 --epochs 20 # the largest hundredth of the gradients against all

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
STANDARD_ERRORS = 3.0


def main() -> int:
    """Train with every seed on both backends in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each backend, two at least")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--topk", metavar="RATIO", help="compare this share of the gradients with all, both through us")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("one seed shows no noise: --seeds takes 2 or more")
    accuracies: dict[str, list[float]] = {who: [] for who in contenders(args)}
    for seed in range(1, args.seeds + 1):
        for who, reached in accuracies.items():
            out = trained(contenders(args)[who], seed, args)
            if seed == 1:
                print(out, end="", flush=True)
            reached.append(last_accuracy(out))
            print(f"{who:9}  seed {seed} of {args.seeds}: accuracy {reached[-1]:.2f}%", flush=True)
    text, same = verdict(accuracies)
    print(text)
    return 0 if same else 1


def contenders(args: argparse.Namespace) -> dict[str, list[str]]:
    """Two ways to train, and the words that ask the example for each; the second is what the first is held against."""
    if args.topk is None:
        return {"tributary": ["--backend", "tributary"], "gloo": ["--backend", "gloo"]}
    return {"top-k": ["--topk", args.topk], "all": []}


def trained(how: list[str], seed: int, args: argparse.Namespace) -> str:
    """What the example prints when it trains with a seed."""
    words = ["--nproc-per-node", str(args.processes), str(EXAMPLE)]
    words += [*how, "--seed", str(seed), "--epochs", str(args.epochs)]
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if args.topk is not None:
        # The one that sums sparse tensors.
        env.setdefault("TRIBUTARY_PROTOCOL", "flare")
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(words[2:])} failed: see above")
    return ran.stdout


def last_accuracy(out: str) -> float:
    """In percent, after the last epoch."""
    return float(re.findall(r"accuracy ([\d.]+)%", out)[-1])


def verdict(accuracies: dict[str, list[float]]) -> tuple[str, bool]:
    """A sentence about two contenders' accuracies in percent, and whether they are the same except for chance."""
    (first, ours), (second, peers) = accuracies.items()
    error = (statistics.variance(ours) / len(ours) + statistics.variance(peers) / len(peers)) ** 0.5
    difference = statistics.mean(ours) - statistics.mean(peers)
    same = abs(difference) <= STANDARD_ERRORS * error
    said = f"{first} {summary(ours)}; {second} {summary(peers)}"
    judged = "the same accuracy, except for chance" if same else "NOT the same accuracy"
    chance = f"seeds alone explain up to {STANDARD_ERRORS * error:.2f}"
    return f"over {len(ours)} seeds: {said}. The means differ by {difference:+.2f} points, {chance}: {judged}", same


def summary(accuracies: list[float]) -> str:
    """Mean and range."""
    return f"{statistics.mean(accuracies):.2f}% ({min(accuracies):.2f} to {max(accuracies):.2f})"


if __name__ == "__main__":
    sys.exit(main())
