"""PyTorch's suite with our backend in Gloo's place, and one test of it, in fresh processes, one a rank.

The suite reads ``BACKEND`` and ``WORLD_SIZE`` as it is imported; ``CONFORMANCE_BACKEND`` says which backend it tests.
"""

from __future__ import annotations

import os
import time
import unittest

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test

from record import AUTO, Case, Outcome

# The suite knows by name what a backend has, and tests accordingly. What Gloo has we have: in these processes ours is
# what the name Gloo stands for, so that not one of Gloo's tests is left out.
if os.environ["CONFORMANCE_BACKEND"] == "tributary":
    dist.Backend._ensure_backend_registered("tributary")
    create = dist.Backend._plugins["TRIBUTARY"].creator_fn
    dist.Backend.register_backend("gloo", create, extended_api=True, devices=["cpu", "cuda"])
    # Ours leaves no events of its own in a profile: what the tests of the sums check besides.
    distributed_test.PROFILING_SUPPORTED_BACKENDS = []


class Conformance(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The suite, with processes for ranks."""

    def setUp(self) -> None:
        """Start the ranks: as forks of this process, which has PyTorch imported already and no threads."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class _Result(unittest.TestResult):
    """What became of one test."""

    outcome, detail = "passed", ""

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.outcome, self.detail = "skipped", reason

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addFailure(test, err)  # type: ignore[arg-type]
        self.outcome, self.detail = "FAILED", self.failures[-1][1]

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addError(test, err)  # type: ignore[arg-type]
        self.outcome, self.detail = "FAILED", self.errors[-1][1]


def names() -> list[str]:
    """All tests of the suite."""
    return list(unittest.TestLoader().getTestCaseNames(Conformance))


def run(case: Case) -> Outcome:
    """Run one test under its protocol."""
    os.environ["TRIBUTARY_PROTOCOL"] = case.protocol
    # A protocol is tested in the network; the default is what people get, whose ranks share this host's memory.
    os.environ["TRIBUTARY_LOCAL"] = "on" if case.protocol == AUTO else "off"
    result = _Result()
    began = time.monotonic()
    unittest.TestSuite([Conformance(case.test)]).run(result)
    return Outcome(case, result.outcome, time.monotonic() - began, result.detail)
