"""A fast part of PyTorch's own conformance suite, under every protocol; `make conformance` runs all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rank_sparse import PROTOCOL
from tributary import _core

pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")
pytest.importorskip("expecttest", reason="expecttest is not installed; `make test-torch` installs it")


def counts(folder: Path, *flags: str, **variables: str) -> dict[str, Any]:
    """What the tests came to by protocol, of a run in which nothing fails that may not."""
    suite = Path(__file__).parent / "conformance" / "c10d.py"
    results = folder / "results.json"
    command = [sys.executable, str(suite), "--record", str(folder / "record"), "--json", str(results), *flags]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **variables})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(results.read_text())["counts"]
    return found


def test_what_gloo_passes_we_pass_under_every_protocol(tmp_path: Path) -> None:
    came_to = counts(tmp_path, "--fast", "--protocol", "all")
    assert came_to.keys() == {"auto", *_core.protocols()}
    for protocol, of in came_to.items():
        assert of == {"passed": 12}, f"{protocol}: {of}"


def test_every_reduction_goes_in_the_network_where_the_protocol_has_all_types_and_sparse_tensors(
    tmp_path: Path,
) -> None:
    names = ["reduce_max", "reduce_min", "reduce_product", "reduce_sum"]
    flags = [word for name in names for word in ("-k", name)]
    # An error is what a reduction is that would take the host path.
    of = counts(tmp_path, *flags, TRIBUTARY_PROTOCOL=PROTOCOL, TRIBUTARY_FALLBACK="error")[PROTOCOL]
    assert of["passed"] >= 12, of
    assert of.keys() == {"passed", "skipped"}, of
