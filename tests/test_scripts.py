"""The scripts that the Makefile calls: what cannot be installed is named in one sentence; noise is not a difference."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"


def install_torch(folder: Path, interpreter: str, requirement: str, **stubs: str) -> subprocess.CompletedProcess[str]:
    """Run `install-torch` with commands that are made up before the system's own."""
    for name, body in stubs.items():
        stub = folder / name
        stub.write_text(f"#!/bin/sh\n{body}\n")
        stub.chmod(0o755)
    command = [str(SCRIPTS / "install-torch"), interpreter, requirement]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_pytorch_without_disk_space_for_it_is_one_sentence(tmp_path: Path) -> None:
    ran = install_torch(tmp_path, sys.executable, "there-is-no-such-package", df="echo Avail; echo 3")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("PyTorch is not installed: pip needs 10 GiB for it, and /")
    assert line.endswith(" has 3 GiB free")


def test_pytorch_that_pip_cannot_fetch_is_one_sentence(tmp_path: Path) -> None:
    python = (
        'case "$*" in *sysconfig*) echo /;; *--no-index*) exit 1;; '
        "*) echo trying; echo 'ERROR: no matching distribution' >&2; exit 1;; esac"
    )
    ran = install_torch(tmp_path, str(tmp_path / "python"), "torch", python=python, df="echo Avail; echo 99")
    assert ran.returncode == 1
    assert ran.stderr == "PyTorch is not installed: pip says: ERROR: no matching distribution\n"


def test_pytorch_that_is_there_needs_no_disk_space(tmp_path: Path) -> None:
    # pytest stands for it: what is installed already is not fetched, and nobody looks for room.
    ran = install_torch(tmp_path, sys.executable, "pytest", df="echo Avail; echo 0")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_verdict_on_accuracy_knows_noise_from_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    train_accuracy = importlib.import_module("train_accuracy")
    verdict = train_accuracy.verdict
    gloo = [96.3, 97.0, 96.4]
    text, same = verdict("tributary", [96.1, 96.9, 96.5], "gloo", gloo)
    assert same
    assert "over 3 seeds: tributary 96.50% (96.10 to 96.90); gloo 96.57%" in text
    assert text.endswith("-0.07 points: no difference that these seeds show, and one above 0.87 would show")
    # Less than the seeds differ, and the same with every seed.
    text, same = verdict("codes", [95.9, 96.6, 96.0], "gloo", gloo)
    assert not same
    assert text.endswith("the difference is -0.40 points: codes is LESS accurate, since chance explains up to 0.00")
    text, same = verdict("codes", [98.0, 98.8, 98.2], "gloo", gloo)
    assert not same
    assert "+1.77 points: codes is more accurate" in text
    # Of text, fewer bits are better.
    for more, judged in ((0.01, "is LESS accurate"), (-0.01, "is more accurate")):
        text, same = verdict("codes", [2.5 + more, 2.6 + more], "all", [2.5, 2.6], train_accuracy.TEXT)
        assert not same
        assert f"the difference is {more:+.4f} bits per byte: codes {judged}" in text


def test_every_mutant_applies_to_the_code_as_it_is() -> None:
    ran = subprocess.run([str(SCRIPTS / "mutants"), "--check"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
