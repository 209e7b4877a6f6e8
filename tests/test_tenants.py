"""Two jobs that share the switches of a real fabric: `examples/fabric_tenants.py`, shorter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from program import ENVIRONMENT, PROGRAM

EXAMPLE = Path(__file__).parent.parent / "examples/fabric_tenants.py"
AGGREGATORS = 64


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the example reads TOML with Python 3.11's own library")
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None,
    reason="a fabric of namespaces needs root and iproute2",
)
def test_two_jobs_with_a_slow_rank_sum_right_in_every_way_to_share_memory() -> None:
    command = [sys.executable, str(EXAMPLE), "--elements", "50000", "--iters", "4", "--json"]
    command += ["--aggregators", str(AGGREGATORS)]
    environment = ENVIRONMENT | {"TRIBUTARY": PROGRAM}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    # Each worker has checked each of its sums.
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads(done.stdout.splitlines()[-1])
    ways = [line["way"] for line in lines if line["job"] == "A"]
    assert ways == [line["way"] for line in lines if line["job"] == "B"]
    assert len(set(ways)) >= 4
    for line in lines:
        assert line["in_network"] > 0.05, line
        assert (line["blocks_most"] or 0) <= AGGREGATORS, line
