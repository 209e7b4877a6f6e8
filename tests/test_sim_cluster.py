"""Sweeps on a cluster: the same results as here, kept as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
import tributary
from tributary import sim

distributed = pytest.importorskip("distributed", reason="Dask is not installed: `pip install 'tributary-ina[dask]'`")

SWEEP = """
[network]
star = { hosts = 4 }
[[job]]
protocol = "switchml"
tensor = "100 kB"
[sweep]
seeds = 3
[sweep.over]
"job.0.protocol" = ["switchml", "ring"]
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The scheduler of two worker processes on the loopback interface."""
    options: dict[str, Any] = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": "127.0.0.1:0",
    }
    with distributed.LocalCluster(host="127.0.0.1", **options) as local:
        yield local.scheduler_address.removeprefix("tcp://")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sweep of six runs."""
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP)
    return file


def test_a_cluster_comes_to_the_same_results(address: str) -> None:
    reported: list[tuple[int, int]] = []
    there = sim.sweep(SWEEP, on=address, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(done, 6) for done in range(1, 7)]
    here = sim.sweep(SWEEP)
    for column in ("job.0.protocol", "seed", "goodput_gbps", "seconds", "trace_hash"):
        assert there.runs[column].tolist() == here.runs[column].tolist()


def test_the_program_runs_a_sweep_on_a_cluster_and_goes_on_here(address: str, file: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "there", tmp_path / "here"
    there = program.last_json(program.run("sim", "sweep", str(file), "--on", address, "--out", str(first), "--json"))
    here = program.last_json(program.run("sim", "sweep", str(file), "--out", str(second), "--json"))
    assert there == here
    assert there["finished"] == 6
    assert (first / "runs.csv").read_text() == (second / "runs.csv").read_text()
    next((first / "points").glob("*.json")).unlink()
    again = program.run("sim", "sweep", str(file), "--on", address, "--out", str(first))
    assert "6 of 6 runs are in" in again.stdout
    assert "5 of them from before" in again.stdout


def test_a_point_that_cannot_be_run_is_refused_before_anything_is_sent_to_the_cluster(address: str) -> None:
    reported: list[tuple[int, int]] = []
    wrong = SWEEP + '"network.star.hosts" = [4, 0]\n'
    with pytest.raises(
        tributary.ConfigError, match=r"with job.0.protocol = .*, network.star.hosts = 0, seed = 1: .*no hosts"
    ):
        sim.sweep(wrong, on=address, progress=lambda done, total: reported.append((done, total)))
    assert reported == []


def test_a_worker_with_another_build_refuses_its_points(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tributary.sim import cluster

    submit = distributed.Client.submit

    def of_another_build(client: Any, _: Any, order: str, **options: Any) -> Any:
        planned = json.loads(order)
        planned["program"]["sources"] = "0123456789abcdef"
        return submit(client, cluster._run_point, json.dumps(planned), **options)

    monkeypatch.setattr(distributed.Client, "submit", of_another_build)
    with pytest.raises(tributary.SimulationError, match=r"sources 0123456789abcdef, and this machine has tributary"):
        sim.sweep(SWEEP, on=address)


def test_a_scheduler_that_is_not_there_is_a_sentence(file: Path) -> None:
    with pytest.raises(tributary.SimulationError, match=r"no Dask scheduler answers at 127\.0\.0\.1:9;"):
        sim.sweep(SWEEP, on="127.0.0.1:9")
    failed = program.run("sim", "sweep", str(file), "--on", "nowhere.invalid:1")
    assert "no Dask scheduler answers at nowhere.invalid:1;" in program.sentence(failed)


def test_a_cluster_without_workers_is_a_sentence() -> None:
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(tributary.SimulationError, match="has no workers"),
    ):
        sim.sweep(SWEEP, on=empty.scheduler_address)


def test_without_dask_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(tributary.SimulationError, match=r"pip install 'tributary-ina\[dask\]'"):
        sim.sweep(SWEEP, on="127.0.0.1:9")
