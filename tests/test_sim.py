"""The simulator from Python: what goes in, what comes out, what stops it."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import program
import tributary
from tributary import sim
from tributary.sim._run import TableName

STAR: dict[str, Any] = {
    "network": {"star": {"hosts": 4}, "rate": "10 Gbit/s"},
    "job": [{"protocol": "switchml", "hosts": 3, "tensor": "100 kB", "iterations": 2, "name": "train"}],
    "traffic": [{"pattern": "permutation", "hosts": "all", "message": "10 kB"}],
}

#: Links and switches are looked at, too.
SAMPLED = {**STAR, "report": {"sample": "2 us"}}

TABLES: tuple[TableName, ...] = get_args(TableName)

TOML = """
[network]
star = { hosts = 4 }
rate = "10 Gbit/s"
[[job]]
protocol = "switchml"
hosts = 3
tensor = "100 kB"
iterations = 2
name = "train"
[[traffic]]
pattern = "permutation"
hosts = "all"
message = "10 kB"
"""

#: So long that a test can stop it.
ENDLESS: dict[str, Any] = {
    "end": "1000 s",
    "network": {"star": {"hosts": 8}},
    "job": [{"protocol": "ring", "tensor": "1 MiB", "iterations": 100_000}],
}


def test_a_path_a_text_and_a_dict_are_the_same_experiment(tmp_path: Path) -> None:
    file = tmp_path / "star.toml"
    file.write_text(TOML)
    hashes = {sim.run(config).trace_hash for config in (STAR, TOML, file, str(file))}
    assert hashes == {program.last_json(program.run("sim", "run", str(file), "--json"))["trace_hash"]}


def test_results_are_arrays_with_the_columns_of_the_files(tmp_path: Path) -> None:
    result = sim.run(STAR).check()
    result.save(tmp_path, "csv")
    tables = {name: getattr(result, name) for name in TABLES}
    assert {name: len(table) for name, table in tables.items()} == {
        "jobs": 1,
        "collectives": 2,
        "flows": 4,
        "links": 8,
        "queues": 8,
        "samples": 0,
        "switch_samples": 0,
        "job_samples": 0,
        "switch_metrics": 2,
        "cores": 0,
        "spans": 0,
        "pauses": 0,
        "bottlenecks": 0,
    }
    for name, table in tables.items():
        heading, *lines = (tmp_path / f"{name}.csv").read_text().splitlines()
        assert (*table.dtype.names, "made_by") == tuple(heading.split(","))
        assert len(lines) == len(table)
    assert result.jobs["job"].tolist() == ["train"]
    assert 0 < result.links["utilisation"].max() <= 1
    assert result.collectives["end_s"][0] <= result.collectives["start_s"][1]
    assert set(result.flows["bytes"]) == {10_000}
    assert result.jobs["goodput_gbps"][0] == result.report["jobs"][0]["goodput_gbps"]
    assert json.loads((tmp_path / "report.json").read_text())["trace_hash"] == result.trace_hash


def test_frames_are_the_same_tables() -> None:
    pytest.importorskip("pandas")
    result = sim.run(STAR)
    links = result.frame("links")
    assert list(links.columns) == list(result.links.dtype.names or ())
    np.testing.assert_array_equal(links["utilisation"], result.links["utilisation"])
    assert links.groupby("from_level")["packets"].sum().sum() == result.links["packets"].sum()


def test_queues_links_and_switches_are_seen_over_time() -> None:
    pytest.importorskip("pandas")
    result = sim.run(SAMPLED).check()
    assert result.trace_hash == sim.run(STAR).trace_hash
    steps = result.report["sampled"]["steps"]
    assert len(result.samples) == 8 * steps
    assert len(result.switch_samples) == steps
    np.testing.assert_allclose(np.unique(result.samples["time_s"]), 2e-6 * np.arange(1, steps + 1))
    assert 0 < result.samples["queue_bytes"].max() <= result.queues["max_bytes"].max()
    # What each link sent in each step is all that it sent.
    sent = result.frame("samples").groupby("link")["utilisation"].sum() * 2e-6
    np.testing.assert_allclose(sent, result.links["utilisation"] * result.seconds, atol=2e-6)
    titles = [axis.get_title() for axis in result.plot().axes]
    assert "Fullest queue of each group of links over time" in titles


def test_parquet_is_what_pandas_reads(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    result = sim.run(SAMPLED)
    result.save(tmp_path)
    for name in TABLES:
        pandas.testing.assert_frame_equal(
            pandas.read_parquet(tmp_path / f"{name}.parquet"), result.frame(name), check_dtype=False
        )


def test_without_pandas_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tributary-ina\[pandas\]'"):
        sim.run(STAR).frame("jobs")


def test_a_seed_replaces_the_files() -> None:
    own, other = sim.run(STAR), sim.run(STAR, seed=2)
    assert (own.seed, other.seed) == (1, 2)
    assert own.trace_hash != other.trace_hash
    assert sim.run({**STAR, "seed": np.int64(2)}).trace_hash == other.trace_hash


def test_none_leaves_a_key_out() -> None:
    network = {**STAR["network"], "mark_above": None}
    assert sim.run({**STAR, "network": network}).trace_hash == sim.run(STAR).trace_hash


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("[network]\nstar = { hosts = 4 }\nrat = 1\n", "line 3: unknown field `rat`, expected one of"),
        ({"network": {"star": {"hosts": 4}, "rat": 1}}, "unknown field `rat`, expected one of"),
        ({"network": {"star": {"hosts": 0}}}, "no hosts"),
        ({"network": {"star": {"hosts": float("nan")}}}, "holds what no file can"),
        ({"network": {1, 2}}, "holds what no file can"),
        (7, "a path, the text of a file or a dict, not int"),
        ("no/such/file.toml", r"cannot read no/such/file.toml: No such file or directory \(os error 2\)"),
    ],
)
def test_what_is_not_an_experiment_is_a_sentence(config: Any, sentence: str) -> None:
    with pytest.raises(tributary.ConfigError, match=sentence) as caught:
        sim.run(config)
    assert "\n" not in str(caught.value)


def test_a_wrong_files_sentence_is_that_of_the_program(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("[network]\nstar = { hosts = 4 }\nrate = 100\n")
    with pytest.raises(tributary.ConfigError) as caught:
        sim.run(file)
    assert str(caught.value) == program.sentence(program.run("sim", "run", str(file)))


def test_a_run_that_does_not_finish_is_a_result_that_says_so() -> None:
    result = sim.run({**STAR, "end": "1 us"})
    assert result.failure is not None
    assert "train did not complete" in result.failure
    assert np.isnan(result.jobs["seconds"][0])
    with pytest.raises(tributary.SimulationError, match="did not complete"):
        result.check()


def test_progress_is_reported_and_can_stop_a_run() -> None:
    seen: list[sim.Progress] = []

    def watch(progress: sim.Progress) -> None:
        seen.append(progress)
        if len(seen) == 3:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        sim.run(ENDLESS, progress=watch)
    assert [state.total for state in seen] == [8, 8, 8]
    assert 0 < seen[0].seconds < seen[1].seconds
    assert 0 < seen[0].events < seen[1].events


def test_other_threads_go_on_while_a_run_lasts() -> None:
    turns, over = 0, threading.Event()

    def turn() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0.001)

    def watch(progress: sim.Progress) -> None:
        if turns > 100:
            over.set()
            raise LookupError

    other = threading.Thread(target=turn)
    other.start()
    try:
        with pytest.raises(LookupError):
            sim.run(ENDLESS, progress=watch)
    finally:
        over.set()
        other.join()


SWEEP: dict[str, Any] = {
    **STAR,
    "sweep": {"seeds": 2, "over": {"job.0.protocol": ["switchml", "ring"], "job.0.slots": [16, 32]}},
}

ENDLESS_SWEEP: dict[str, Any] = {**ENDLESS, "sweep": {"seeds": 50}}

#: Runs until it is interrupted, and says that it was.
INTERRUPTED = """
import signal
from tributary import sim
# A shell starts what runs in its background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
print("running", flush=True)
try:
    sim.{call}({config})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("call", "config"), [("run", ENDLESS), ("sweep", ENDLESS_SWEEP)])
def test_ctrl_c_is_a_keyboard_interrupt(call: str, config: dict[str, Any]) -> None:
    code = INTERRUPTED.replace("{call}", call).replace("{config}", repr(config))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (out, process.returncode) == ("interrupted\n", 0)


def test_a_sweep_runs_every_combination_with_every_seed(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    result = sim.sweep(SWEEP, out=tmp_path, progress=lambda done, total: reported.append((done, total)))
    assert result.keys == ["job.0.protocol", "job.0.slots"]
    assert (len(result), len(result.summary), len(result.reports)) == (8, 4, 8)
    assert sorted(reported) == [(done, 8) for done in range(1, 9)]
    assert result.runs["job.0.slots"].dtype == np.int64
    assert set(result.runs["failure"]) == {""}
    for run, report in zip(result.runs, result.reports, strict=True):
        assert (run["seed"], run["trace_hash"]) == (report["seed"], report["trace_hash"])
    means = {(line["job.0.protocol"], line["job.0.slots"]): line["goodput_gbps_mean"] for line in result.summary}
    assert means["switchml", 32] > means["ring", 32]


def test_a_run_in_a_sweep_is_the_run_alone() -> None:
    runs = sim.sweep(SWEEP).runs
    job = {**STAR["job"][0], "protocol": "ring", "slots": 32}
    alone = sim.run({**STAR, "job": [job], "seed": 2})
    (row,) = np.flatnonzero((runs["job.0.protocol"] == "ring") & (runs["job.0.slots"] == 32) & (runs["seed"] == 2))
    assert runs["trace_hash"][row] == alone.trace_hash


def test_a_sweep_writes_the_same_tables_as_the_program(tmp_path: Path) -> None:
    file, ours, theirs = tmp_path / "sweep.toml", tmp_path / "python", tmp_path / "program"
    file.write_text(
        TOML + '[sweep]\nseeds = 2\n[[sweep.together]]\n"job.0.slots" = [16, 32]\n"job.0.iterations" = [1, 2]\n'
    )
    result = sim.sweep(file, out=ours).check()
    assert program.run("sim", "sweep", str(file), "--out", str(theirs)).returncode == 0
    for name in ("summary", "runs", "job_runs"):
        text = (ours / f"{name}.csv").read_text()
        assert text == (theirs / f"{name}.csv").read_text()
        heading, *lines = text.splitlines()
        table = getattr(result, name)
        assert ((*table.dtype.names, "made_by"), len(table)) == (tuple(heading.split(",")), len(lines))
        assert all(line.endswith(f" file {hashlib.sha256(file.read_bytes()).hexdigest()}") for line in lines)
    assert result.summary["job.0.iterations"].tolist() == [1, 2]


def test_failures_in_a_sweep_have_their_reasons(tmp_path: Path) -> None:
    over = {"job.0.tensor": [4, "10 MB"]}
    config = {**STAR, "end": "200 us", "traffic": [], "sweep": {"seeds": 2, "over": over}}
    result = sim.sweep(config, out=tmp_path)
    assert [(failure.values, failure.seed) for failure in result.failures] == [
        ({"job.0.tensor": "10 MB"}, 1),
        ({"job.0.tensor": "10 MB"}, 2),
    ]
    reason = result.failures[0].reason
    assert "train did not complete" in reason
    assert f"seeds 1, 2: {reason}" == result.summary["failure"][1]
    assert result.summary["failure"][0] == ""
    with pytest.raises(
        tributary.SimulationError,
        match=r"2 of 4 runs failed; the first one, with job\.0\.tensor = 10 MB, seed = 1: train",
    ):
        result.check()
    assert "2 failed, the first one with job.0.tensor = 10 MB" in repr(result)


def test_no_point_runs_where_one_of_them_cannot(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    config = {**STAR, "sweep": {"over": {"job.0.hosts": [2, 9]}}}
    with pytest.raises(
        tributary.ConfigError, match=r"with job\.0\.hosts = 9, seed = 1: train wants 9 hosts, and 4 are free"
    ):
        sim.sweep(config, out=tmp_path, progress=lambda done, total: reported.append((done, total)))
    assert reported == []
    assert list((tmp_path / "points").iterdir()) == []


def test_a_sweep_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        sim.sweep(SWEEP, out=tmp_path, progress=stop)
    kept = len(list((tmp_path / "points").glob("*.json")))
    assert kept >= 1
    reported: list[int] = []
    assert len(sim.sweep(SWEEP, out=tmp_path, progress=lambda done, _: reported.append(done))) == 8
    assert reported == list(range(kept + 1, 9))


def test_a_file_without_a_sweep_is_refused_with_a_sentence() -> None:
    with pytest.raises(tributary.ConfigError, match=r"has no \[sweep\]"):
        sim.sweep(STAR)


def test_a_folder_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tributary.SimulationError, match="cannot make"):
        sim.sweep(SWEEP, out=tmp_path / "file" / "folder")


def test_the_program_draws_and_keeps_what_it_found(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, out = tmp_path / "star.toml", tmp_path / "out"
    file.write_text(TOML)
    assert program.run("sim", "run", str(file), "--out", str(out), "--plot").returncode == 0
    assert (out / "figures.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "links.parquet").read_bytes().startswith(b"PAR1")
    titles = [figure["title"] for figure in json.loads((out / "figures.json").read_text())["figures"]]
    assert titles[:2] == ["Goodput of each collective", "Completion times of messages and flows"]
