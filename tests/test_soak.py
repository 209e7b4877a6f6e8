"""A soak of seconds, and what its verdict knows of leaks."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import program

SOAK = Path(__file__).parent.parent / "experiments/soak"

Points = list[tuple[float, float]]


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SOAK))
    return importlib.import_module("verdict")


def hour(seed: int, leak_per_hour: float, warm: float = 0.0) -> Points:
    """What is measured in an hour of something that wobbles, leaks, and has warmed up after a quarter."""
    draw = random.Random(seed)
    return [
        (at, 40.0 + warm * min(at / 900, 1.0) + draw.uniform(-0.5, 0.5) + leak_per_hour * at / 3600)
        for at in range(0, 3600, 5)
    ]


def test_a_leak_is_seen_under_noise_and_noise_and_a_warm_up_are_none(verdict: ModuleType) -> None:
    (rule,) = [rule for rule in verdict.RULES if rule.name == "memory of the switch"]
    for seed in range(10):
        assert not verdict.judge_one(rule, hour(seed, leak_per_hour=4.0), 3600)["flat"]
        assert verdict.judge_one(rule, hour(seed, leak_per_hour=0.0), 3600)["flat"]
        assert verdict.judge_one(rule, hour(seed, leak_per_hour=0.0, warm=20.0), 3600)["flat"]


def test_one_descriptor_an_hour_is_seen_however_many_come_and_go(verdict: ModuleType) -> None:
    (rule,) = [rule for rule in verdict.RULES if rule.name == "descriptors of the switch"]
    draw = random.Random(3)
    busy = [(at, 10.0 + draw.choice((0, 0, 4, 9))) for at in range(0, 3600, 5)]
    leaking = [(at, descriptors + at // 900) for at, descriptors in busy]
    assert verdict.judge_one(rule, busy, 3600)["flat"]
    assert not verdict.judge_one(rule, leaking, 3600)["flat"]


def test_nothing_measured_is_not_flat(verdict: ModuleType) -> None:
    assert not verdict.judge_one(verdict.RULES[0], [], 3600)["flat"]


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_soak_of_seconds_ends_every_job_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "soak"
    command = [sys.executable, str(SOAK), "--hours", str(25 / 3600), "--pause", "0.2", "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, env=program.ENVIRONMENT, timeout=400, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = json.loads(out.with_suffix(".json").read_text())
    assert seen["faults"] == []
    assert all(seen["protocols"].values()), seen["protocols"]
    for what in (
        "ranks killed",
        "restarts",
        "reloads",
        "hand-overs",
        "connected again",
        "forged packets",
        "forged requests",
        "joins that vanished",
        "beats",
        "sparse jobs",
        "jobs with operators of their own",
    ):
        assert seen["counts"].get(what, 0) > 0, (what, seen["counts"])
    assert out.with_suffix(".png").stat().st_size > 10_000
