"""PyTorch's own conformance suite for c10d backends, which ships in its wheel, run against ours.

    python tests/conformance/c10d.py                       # all of it: some 40 minutes at world size 3
    python tests/conformance/c10d.py --world-size 4 -k broadcast -k barrier
    python tests/conformance/c10d.py --backend gloo        # the peer, for comparison
    python tests/conformance/c10d.py --fast                # what CI runs: half a minute

Prints one line a test and a summary, and fails if a test fails that ``exceptions.txt`` does not list. Every test runs
in fresh processes, one a rank.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import time
import unittest
from pathlib import Path

# The suite reads its variables as it is imported, in the processes of the ranks too, which inherit them.
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tributary")
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("-k", dest="patterns", action="append", metavar="PATTERN", help="tests whose names have it")
    parser.add_argument("--fast", action="store_true", help="those of every kind that take a second or less")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every Nth test, from the Ith")
    args = parser.parse_args()
    os.environ |= {
        "BACKEND": "gloo",
        "CONFORMANCE_BACKEND": args.backend,
        "WORLD_SIZE": str(args.world_size),
        "OMP_NUM_THREADS": "1",
    }
    os.environ.setdefault("TEMP_DIR", "/tmp")

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test

# The suite knows by name what a backend has, and tests accordingly. What Gloo has we have: in these processes ours is
# what the name Gloo stands for, so that not one of Gloo's tests is left out.
chosen = os.environ["CONFORMANCE_BACKEND"]
if chosen == "tributary":
    dist.Backend._ensure_backend_registered("tributary")
    create = dist.Backend._plugins["TRIBUTARY"].creator_fn
    dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu", "cuda"])
    # Ours leaves no events of its own in a profile: what the tests of the sums check besides.
    distributed_test.PROFILING_SUPPORTED_BACKENDS = []


#: Each operation at least once; no test among them takes longer than about a second.
FAST = (
    "test_all_gather",
    "test_all_reduce_sum",
    "test_all_reduce_min",
    "test_all_to_all_single_equal",
    "test_barrier",
    "test_broadcast",
    "test_gather",
    "test_reduce_sum",
    "test_reduce_product",
    "test_reduce_scatter",
    "test_scatter",
    "test_send_recv_any_source",
    "test_isend",
    "test_stateless_api_with_ddp",
)


class Conformance(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The suite, with processes for ranks."""

    def setUp(self) -> None:
        """Start the ranks: as forks of this process, which has PyTorch imported already and no threads."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Report(unittest.TestResult):
    """One line a test."""

    def __init__(self, expected: dict[str, str]) -> None:
        super().__init__()
        self.expected = expected
        self.outcomes: dict[str, str] = {}
        self._began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self._began = time.monotonic()

    def _note(self, test: unittest.TestCase, outcome: str, detail: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        if outcome == "FAILED" and name in self.expected:
            outcome, detail = "excepted", self.expected[name]
        self.outcomes[name] = outcome
        print(f"{outcome:8} {time.monotonic() - self._began:5.1f} s  {name}  {detail}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self._note(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addFailure(test, err)  # type: ignore[arg-type]
        self._note(test, "FAILED", "\n" + self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addError(test, err)  # type: ignore[arg-type]
        self._note(test, "FAILED", "\n" + self.errors[-1][1])


def exceptions() -> dict[str, str]:
    """Tests that fail for a reason that is written down."""
    lines = (Path(__file__).parent / "exceptions.txt").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, reason in pairs}


def main() -> int:
    """Run the tests that were asked for."""
    names = unittest.TestLoader().getTestCaseNames(Conformance)
    patterns = [*(args.patterns or ()), *(FAST if args.fast else ())]
    if patterns:
        names = [name for name in names if any(fnmatch.fnmatch(name, f"*{pattern}*") for pattern in patterns)]
    first, step = (int(number) for number in args.part.split("/"))
    report = Report(exceptions() if args.backend == "tributary" else {})
    unittest.TestSuite(Conformance(name) for name in names[first::step]).run(report)
    counts = {
        outcome: list(report.outcomes.values()).count(outcome)
        for outcome in ("passed", "skipped", "excepted", "FAILED")
    }
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
