"""Sweeps of the simulator: what is kept, what is made again, and what the results say of themselves."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

import program
import tributary
from test_sim import STAR, TOML
from tributary import sim


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_of_the_program_keeps_what_it_has(ends: signal.Signals, tmp_path: Path) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    over = '[sweep]\n[sweep.over]\n"job.0.iterations" = [1, 10000000]\n'
    file.write_text('end = "1000 s"\n' + TOML + over)
    words = [program.PROGRAM, "sim", "sweep", str(file), "--out", str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=program.ENVIRONMENT) as sweep:
        waits = 0
        while not list(out.glob("points/*.json")) and waits < 600:
            time.sleep(0.1)
            waits += 1
        sweep.send_signal(ends)
        _, said = sweep.communicate(timeout=60)
    assert (sweep.returncode, "interrupted with 1 runs left; the same command goes on" in said) == (1, True), said
    assert len((out / "runs.csv").read_text().splitlines()) == 2


def test_a_sweep_of_lines_has_a_row_for_each_job() -> None:
    lines = [{"name": "two", "job.0.count": 2, "job.0.hosts": 2}, {"name": "one", "job.0.hosts": 4}]
    config = {**STAR, "traffic": [], "sweep": {"line": lines}}
    result = sim.sweep(config).check()
    assert result.runs["line"].tolist() == ["two", "one"]
    assert result.job_runs["job"].tolist() == ["train 0", "train 1", "train"]
    assert (result.summary["makespan_seconds_median"] > 0).all()


def test_points_of_another_build_are_made_again_and_the_program_says_so(tmp_path: Path) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(TOML + "[sweep]\nseeds = 3\n")
    sweep = ("sim", "sweep", str(file), "--out", str(out))
    assert program.run(*sweep).returncode == 0
    point = next((out / "points").glob("*.json"))
    kept = json.loads(point.read_text())
    kept["program"]["sources"], kept["goodput_gbps"] = "0" * 16, 1e9
    point.write_text(json.dumps(kept))
    again = program.run(*sweep)
    assert "3 of 3 runs are in" in again.stdout
    assert "2 of them from before; 1 were there of another build" in again.stdout
    assert json.loads(point.read_text())["goodput_gbps"] < 10


def test_a_report_says_which_program_and_which_file_it_is_of(tmp_path: Path) -> None:
    file, out = tmp_path / "star.toml", tmp_path / "out"
    file.write_text(TOML)
    result = sim.run(file)
    assert result.origin["file"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (result.origin["version"], len(result.origin["sources"])) == (tributary.__version__, 16)
    result.save(out, "csv")
    assert json.loads((out / "report.json").read_text())["origin"] == result.origin
    for table in out.glob("*.csv"):
        heading, *lines = table.read_text().splitlines()
        assert heading.endswith(",made_by")
        assert all(line.endswith(result.origin["file"]) for line in lines)


def test_a_value_that_no_key_can_have_is_a_sentence() -> None:
    over = {**STAR, "sweep": {"over": {"job.0.trees": [1, None]}}}
    with pytest.raises(tributary.ConfigError, match="None in a list; in a sweep, a line that does not name"):
        sim.sweep(over)
    empty = {**STAR, "sweep": {"over": {"job.0.trees": [""]}}}
    with pytest.raises(tributary.ConfigError, match=r"with job\.0\.trees = : invalid type"):
        sim.sweep(empty)
