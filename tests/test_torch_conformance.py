"""A fast part of PyTorch's own conformance suite; `make conformance` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")
pytest.importorskip("expecttest", reason="expecttest is not installed; `make test-torch` installs it")


def test_what_gloo_passes_we_pass() -> None:
    suite = Path(__file__).parent / "conformance" / "c10d.py"
    ran = subprocess.run([sys.executable, str(suite), "--fast"], capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = ran.stdout.splitlines()[-1]
    assert int(summary.split(" passed")[0]) >= 25, summary
