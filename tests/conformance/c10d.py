"""PyTorch's own conformance suite for c10d backends, which ships in its wheel, run against ours.

    python tests/conformance/c10d.py                             # all of it at world size 3
    python tests/conformance/c10d.py --protocol all              # under every protocol
    python tests/conformance/c10d.py --world-size 4 -k broadcast -k barrier
    python tests/conformance/c10d.py --backend gloo              # the peer, for comparison
    python tests/conformance/c10d.py --record runs --resume      # go on with a run that was stopped
    python tests/conformance/c10d.py --fast --protocol all       # what CI runs

Prints failures as they come and a table in the end, and fails if a test fails that ``exceptions.txt`` does not list, or
one passes that it does. Every test runs in fresh processes, one a rank.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from record import AUTO, OUTCOMES, Case, Outcome, Record, exceptions

#: Each kind of operation once; no test among them takes longer than about a second, and none is skipped.
FAST = (
    "test_DistributedDataParallelCPU",
    "test_all_gather",
    "test_all_reduce_full_group_max",
    "test_all_reduce_min",
    "test_all_reduce_product",
    "test_all_reduce_sum",
    "test_all_reduce_sum_async",
    "test_broadcast",
    "test_destroy_group",
    "test_reduce_full_group_product",
    "test_reduce_sum",
    "test_scatter",
)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    chosen = os.environ.get("TRIBUTARY_PROTOCOL", AUTO)
    parser.add_argument(
        "--protocol", dest="protocols", action="append", metavar="NAME", help=f"or all of them: all [{chosen}]"
    )
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("-k", dest="patterns", action="append", metavar="PATTERN", help="tests whose names have it")
    parser.add_argument("--fast", action="store_true", help="those of every kind that take a second or less")
    parser.add_argument("--lanes", type=int, default=2 * (os.cpu_count() or 1), help="tests at a time [%(default)s]")
    parser.add_argument("--record", type=Path, default=Path("target/conformance.jsonl"), help="outcomes as they come")
    parser.add_argument("--resume", action="store_true", help="leave out what has passed or was skipped in the record")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write counts and outcomes to this file")
    parser.add_argument("-v", dest="verbose", action="store_true", help="one line a test")
    args = parser.parse_args()
    args.protocols = args.protocols or [chosen]
    return args


def cases(args: argparse.Namespace, known: list[str], names: list[str]) -> list[Case]:
    """The tests that were asked for, under the protocols that were."""
    protocols = known if "all" in args.protocols else args.protocols
    unknown = [protocol for protocol in protocols if protocol not in known]
    if unknown:
        raise ValueError(f"there is no protocol {unknown[0]}; there are {', '.join(known)}")
    patterns = [f"*{pattern}*" for pattern in args.patterns or ()] + list(FAST if args.fast else ())
    chosen = [name for name in names if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    return [Case(protocol, name) for protocol in protocols for name in chosen]


def show(outcome: Outcome, done: int, count: int, verbose: bool) -> None:
    """A line for what people must see, and how far the run is where they look at it."""
    if sys.stderr.isatty():
        print(end="\r\033[K", file=sys.stderr, flush=True)
    if verbose or outcome.outcome == "FAILED":
        print(outcome.line(), flush=True)
    if sys.stderr.isatty():
        bar = ("#" * (30 * done // count)).ljust(30, ".")
        print(f"[{bar}] {done}/{count}  {outcome.case.protocol}", end="", file=sys.stderr, flush=True)
        if done == count:
            print(file=sys.stderr)


def main() -> int:
    """Run the tests that were asked for."""
    args = arguments()
    # The suite reads its variables as it is imported, in the processes of the ranks too, which inherit them.
    os.environ |= {
        "BACKEND": "gloo",
        "CONFORMANCE_BACKEND": args.backend,
        "WORLD_SIZE": str(args.world_size),
        "OMP_NUM_THREADS": "1",
        "TEMP_DIR": os.environ.get("TEMP_DIR", "/tmp"),
    }
    import suite
    from lanes import run_all
    from tributary import _core

    known = [AUTO, *_core.protocols()]
    is_ours = args.backend == "tributary"
    reasons = exceptions((Path(__file__).parent / "exceptions.txt").read_text(), known) if is_ours else {}
    subject = {"backend": args.backend, "world_size": args.world_size, "torch": version("torch")}
    try:
        chosen = cases(args, known, suite.names())
        record = Record.open(args.record, subject, args.resume)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    done = {outcome.case for outcome in record.outcomes}
    left = [case for case in chosen if case not in done]
    for number, raw in enumerate(run_all(left, suite.run, args.lanes), 1):
        outcome = raw.excepted(reasons)
        record.add(outcome)
        show(outcome, number, len(left), args.verbose)
    for case, reason in reasons.items():
        if case in set(chosen):
            print(f"excepted under {case.protocol}: {case.test}: {reason}")
    print(record.table())
    if args.json:
        args.json.write_text(json.dumps(record.summary(), indent=1) + "\n")
    counts = [counts["FAILED"] for counts in record.counts().values()]
    totals = [f"{sum(c[outcome] for c in record.counts().values())} {outcome}" for outcome in OUTCOMES]
    print(", ".join(totals))
    return 1 if sum(counts) else 0


if __name__ == "__main__":
    sys.exit(main())
