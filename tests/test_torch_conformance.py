"""A fast part of PyTorch's own conformance suite; `make conformance` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rank_sparse import PROTOCOL

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")
pytest.importorskip("expecttest", reason="expecttest is not installed; `make test-torch` installs it")


def summary(*flags: str, **variables: str) -> str:
    """The last line of a run in which nothing fails that may not."""
    suite = Path(__file__).parent / "conformance" / "c10d.py"
    command = [sys.executable, str(suite), *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **variables})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()[-1]


def test_what_gloo_passes_we_pass() -> None:
    said = summary("--fast")
    assert int(said.split(" passed")[0]) >= 25, said


def test_every_reduction_goes_in_the_network_where_the_protocol_has_all_types_and_sparse_tensors() -> None:
    names = ["all_reduce_min", "all_reduce_product", "all_reduce_sum", "reduce_max", "reduce_sum"]
    flags = [word for name in names for word in ("-k", name)]
    # An error is what a reduction is that would take the host path.
    said = summary(*flags, TRIBUTARY_PROTOCOL=PROTOCOL, TRIBUTARY_FALLBACK="error")
    assert int(said.split(" passed")[0]) >= 10, said
    assert " 0 excepted" in said, said
