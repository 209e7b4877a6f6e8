"""scripts/gpu-check: what it finds without a GPU, and that it says what it could not run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

from torch_program import ROOT

SCRIPT = ROOT / "scripts/gpu-check"


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What the script, or a file that it has made, prints."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=400, cwd=cwd)


def test_one_file_has_all_that_the_check_needs_and_says_what_it_could_not_run(tmp_path: Path) -> None:
    packed = run(str(SCRIPT), "--pack", "check.pyz", cwd=tmp_path)
    assert packed.returncode == 0, packed.stderr
    ran = run("check.pyz", "--without-bench", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for check in ("copies", "threads", "sum of staged tensors", "backend"):
        assert f"gpu-check: {check} passed: " in ran.stdout
    has_gpu = torch.cuda.is_available()
    for check in ("order of streams", "rates"):
        assert f"gpu-check: {check} {'passed' if has_gpu else 'left out: there is no GPU'}" in ran.stdout


def test_what_a_wheel_is_needed_for_is_left_out_without_one(tmp_path: Path) -> None:
    (tmp_path / "not-a.whl").write_text("nothing")
    assert run(str(SCRIPT), "--pack", "check.pyz", "--wheel", "not-a.whl", cwd=tmp_path).returncode == 0
    ran = run("check.pyz", "--without-bench", cwd=tmp_path)
    for check in ("sum of staged tensors", "backend"):
        assert f"gpu-check: {check} left out: the wheel cannot be installed: " in ran.stdout


def loaded(path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_loader(path.stem, SourceFileLoader(path.stem, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["copies", "threads"])
def test_staging_that_loses_elements_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    check, staging = loaded(SCRIPT), loaded(ROOT / "python/tributary/torch/staging.py")
    good = staging.fetch
    monkeypatch.setattr(staging, "fetch", lambda tensor: good(tensor) * 0)
    assert check.report(name, lambda: getattr(check, name)(staging)) == "failed"
    assert f"gpu-check: {name} failed: AssertionError: " in capsys.readouterr().out
