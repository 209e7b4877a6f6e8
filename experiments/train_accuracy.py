"""Does training through the network end at the accuracy that it has otherwise? `make train` asks this.

    python experiments/train_accuracy.py                         # examples/ddp.py, five seeds, beside Gloo
    python experiments/train_accuracy.py --seeds 3 --epochs 2
    python experiments/train_accuracy.py --bits 8 --epochs 20    # codes, bfloat16 and top-k, each against float32
    python experiments/train_accuracy.py --topk 0.01 --epochs 20 # the largest hundredth of the gradients against all

With --bits a language model is trained, too (examples/language_model.py). The exit code is 1 if we and Gloo end
differently; codes and top-k lose by design, so what they lose is only printed.

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

EXAMPLES = Path(__file__).parent.parent / "examples"

#: Student's t below which 99.5 % lie, by degrees of freedom: with both sides, a test at 1 %.
T = [63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17, 3.11, 3.05, 3.01, 2.98, 2.95, 2.92, 2.90, 2.88, 2.86]


@dataclass(frozen=True)
class Task:
    """What is trained, and the last figure that it prints: how well it ends."""

    example: str
    pattern: str
    unit: str
    #: A difference of two figures.
    points: str
    decimals: int
    is_better_larger: bool

    def shown(self, figure: float) -> str:
        """With its unit."""
        return f"{figure:.{self.decimals}f}{self.unit}"


DIGITS = Task("ddp.py", r"accuracy ([\d.]+)%", "%", " points", 2, is_better_larger=True)
TEXT = Task(
    "language_model.py", r"([\d.]+) bits per byte", " bits per byte", " bits per byte", 4, is_better_larger=False
)


@dataclass(frozen=True)
class Way:
    """A way to train: the words that the examples take, and the protocol if it needs one."""

    words: Sequence[str]
    protocol: str | None = None
    figures: list[float] = field(default_factory=list)


def main() -> int:
    """Train with every seed in each way in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help=f"runs of each way, 2 to {len(T) + 1}")
    parser.add_argument("--epochs", type=int, default=5, help="of the digits")
    parser.add_argument("--processes", type=int, default=4)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--bits", help="compare codes of these bits, bfloat16 and top-k with float32")
    which.add_argument("--topk", metavar="RATIO", help="compare this share of the gradients with all, both through us")
    text = parser.add_argument_group("the language model, with --bits")
    text.add_argument("--only-text", action="store_true", help="and no digits")
    for name, default in (("steps", 150), ("width", 192), ("layers", 4), ("context", 64)):
        text.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if not 2 <= args.seeds <= len(T) + 1:
        parser.error(f"one seed shows no noise: --seeds takes 2 to {len(T) + 1}")
    if args.only_text and args.bits is None:
        parser.error("--only-text needs --bits")
    are_same = True
    if not args.only_text:
        are_same &= compared(DIGITS, ["--epochs", str(args.epochs)], args)
    if args.bits is not None:
        sizes = [("steps", args.steps), ("width", args.width), ("layers", args.layers), ("context", args.context)]
        are_same &= compared(TEXT, [word for name, size in sizes for word in (f"--{name}", str(size))], args)
    return 0 if are_same or args.bits or args.topk else 1


def compared(task: Task, words: Sequence[str], args: argparse.Namespace) -> bool:
    """Train a task in each way, and print what is different; True if nothing is."""
    ways = ways_of(args.bits, args.topk)
    for seed in range(1, args.seeds + 1):
        for name, way in ways.items():
            out = trained(task, words, way, seed, args.processes)
            if seed == 1:
                print(out, end="", flush=True)
            way.figures.append(float(re.findall(task.pattern, out)[-1]))
            print(f"{name:9}  seed {seed} of {args.seeds}: {task.shown(way.figures[-1])}", flush=True)
    (peer, against), *others = reversed(ways.items())
    are_same = True
    for name, way in reversed(others):
        text, same = verdict(name, way.figures, peer, against.figures, task)
        print(text)
        are_same &= same
    return are_same


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


def trained(task: Task, words: Sequence[str], way: Way, seed: int, processes: int) -> str:
    """What the example prints when it trains with a seed."""
    words = [str(EXAMPLES / task.example), *way.words, "--seed", str(seed), *words]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), *words]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    if way.protocol is not None:
        env.setdefault("TRIBUTARY_PROTOCOL", way.protocol)
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(words)} failed: see above")
    return ran.stdout


def verdict(
    name: str, ours: Sequence[float], peer: str, against: Sequence[float], task: Task = DIGITS
) -> tuple[str, bool]:
    """A sentence about two ways' figures, by seed, and whether they are the same except for chance."""
    differences = [one - other for one, other in zip(ours, against, strict=True)]
    mean = statistics.mean(differences)
    chance = T[len(differences) - 2] * statistics.stdev(differences) / len(differences) ** 0.5
    same = abs(mean) <= chance
    said = f"{name} {summary(ours, task)}; {peer} {summary(against, task)}"
    bound = f"{chance:.{task.decimals}f}"
    if same:
        judged = f"no difference that these seeds show, and one above {bound} would show"
    else:
        is_worse = (mean < 0) == task.is_better_larger
        judged = f"{name} is {'LESS' if is_worse else 'more'} accurate, since chance explains up to {bound}"
    by_seed = f"Seed by seed the difference is {mean:+.{task.decimals}f}{task.points}"
    return f"over {len(ours)} seeds: {said}. {by_seed}: {judged}", same


def summary(figures: Sequence[float], task: Task) -> str:
    """Mean and range."""
    least, most = (f"{figure:.{task.decimals}f}" for figure in (min(figures), max(figures)))
    return f"{task.shown(statistics.mean(figures))} ({least} to {most})"


if __name__ == "__main__":
    sys.exit(main())
