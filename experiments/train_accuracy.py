"""Does training through the network end at the accuracy that it has otherwise? `make train` asks this.

    python experiments/train_accuracy.py                         # examples/ddp.py, five seeds, beside Gloo
    python experiments/train_accuracy.py --seeds 3 --epochs 2
    python experiments/train_accuracy.py --bits 8 --epochs 20    # codes, bfloat16 and top-k, each against float32
    python experiments/train_accuracy.py --topk 0.01 --epochs 20 # the largest hundredth of the gradients against all

A seed draws the parameters and the order of the images, the same for each way to train, so the ways are compared seed
by seed: two ways add up gradients in another order or with other errors, and end with other predictions for a few
images. The verdict is a paired t-test at 1 %. A difference that it does not see may still be there; the printed bound
says how large one would have been seen.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "ddp.py"

#: Student's t below which 99.5 % lie, by degrees of freedom: with both sides, a test at 1 %.
T = [63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17, 3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86]


@dataclass(frozen=True)
class Way:
    """A way to train: the words that the example takes, and the protocol if it needs one."""

    words: Sequence[str]
    protocol: str | None = None
    accuracies: list[float] = field(default_factory=list)


def main() -> int:
    """Train with every seed in each way in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help=f"runs of each way, 2 to {len(T) + 1}")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--bits", help="compare codes of these bits, bfloat16 and top-k with float32")
    which.add_argument("--topk", metavar="RATIO", help="compare this share of the gradients with all, both through us")
    args = parser.parse_args()
    if not 2 <= args.seeds <= len(T) + 1:
        parser.error(f"one seed shows no noise: --seeds takes 2 to {len(T) + 1}")
    ways = ways_of(args.bits, args.topk)
    for seed in range(1, args.seeds + 1):
        for name, way in ways.items():
            out = trained(way, seed, args)
            if seed == 1:
                print(out, end="", flush=True)
            way.accuracies.append(last_accuracy(out))
            print(f"{name:9}  seed {seed} of {args.seeds}: accuracy {way.accuracies[-1]:.2f}%", flush=True)
    (peer, against), *others = reversed(ways.items())
    is_same = True
    for name, way in reversed(others):
        text, same = verdict(name, way.accuracies, peer, against.accuracies)
        print(text)
        is_same &= same
    return 0 if is_same else 1


def ways_of(bits: str | None, topk: str | None) -> dict[str, Way]:
    """The ways to train, by name; the last is what the others are held against."""
    if bits is not None:
        return {
            f"{bits} bits": Way(["--bits", bits]),
            "bfloat16": Way(["--bf16"]),
            "top-k": Way(["--topk", "0.01"], "flare"),
            "float32": Way([]),
        }
    if topk is not None:
        return {"top-k": Way(["--topk", topk], "flare"), "all": Way([], "flare")}
    return {"tributary": Way(["--backend", "tributary"]), "gloo": Way(["--backend", "gloo"])}


def trained(way: Way, seed: int, args: argparse.Namespace) -> str:
    """What the example prints when it trains with a seed."""
    words = ["--nproc-per-node", str(args.processes), str(EXAMPLE)]
    words += [*way.words, "--seed", str(seed), "--epochs", str(args.epochs)]
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if way.protocol is not None:
        env.setdefault("TRIBUTARY_PROTOCOL", way.protocol)
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(words[2:])} failed: see above")
    return ran.stdout


def last_accuracy(out: str) -> float:
    """In percent, after the last epoch."""
    return float(re.findall(r"accuracy ([\d.]+)%", out)[-1])


def verdict(name: str, ours: Sequence[float], peer: str, against: Sequence[float]) -> tuple[str, bool]:
    """A sentence about two ways' accuracies in percent, by seed, and whether they are the same except for chance."""
    differences = [one - other for one, other in zip(ours, against, strict=True)]
    mean = statistics.mean(differences)
    chance = T[len(differences) - 2] * statistics.stdev(differences) / len(differences) ** 0.5
    same = abs(mean) <= chance
    said = f"{name} {summary(ours)}; {peer} {summary(against)}"
    if same:
        judged = f"no difference that these seeds show, and one above {chance:.2f} would show"
    else:
        judged = f"{name} is {'LESS' if mean < 0 else 'more'} accurate, since chance explains up to {chance:.2f}"
    return f"over {len(ours)} seeds: {said}. Seed by seed the difference is {mean:+.2f} points: {judged}", same


def summary(accuracies: Sequence[float]) -> str:
    """Mean and range."""
    return f"{statistics.mean(accuracies):.2f}% ({min(accuracies):.2f} to {max(accuracies):.2f})"


if __name__ == "__main__":
    sys.exit(main())
