"""DCTCP beside ns-3's, where ns-3 is installed: the same flows take about as long in both."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benches/ns3/dctcp.py"


def has_ns3() -> bool:
    return shutil.which("g++") is not None and any(Path("/usr/include").glob("ns3*/ns3/core-module.h"))


@pytest.mark.skipif(not has_ns3(), reason="needs Debian's g++ and libns3-dev")
def test_flows_under_dctcp_take_about_as_long_as_on_ns3() -> None:
    command = [sys.executable, str(SCRIPT), "--tiny"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    rows = [line.split() for line in printed.splitlines() if line.startswith("all ")]
    assert len(rows) == 1, printed
    # The count, then three columns each for median, p95, p99 and mean; at last the ratios of flows.
    count, median_ratio, mean_ratio = int(rows[0][1]), float(rows[0][4]), float(rows[0][13])
    assert count == 20
    assert 0.8 < median_ratio < 1.25, printed
    assert 0.8 < mean_ratio < 1.25, printed
    queues = [float(queue) for queue in re.findall(r"queue +[\d.]+, +([\d.]+), ", printed)]
    assert len(queues) == 2, printed
    assert abs(queues[0] - queues[1]) < 20, printed
