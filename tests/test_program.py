"""The program: arrays in files, figures, help, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import program
import rank
from program import Daemon

Array = npt.NDArray[Any]

#: A worker that finds out what is wrong before it looks for its switch.
ONE_RANK = ["allreduce", "--switch", "127.0.0.1:9", "--job", "a", "--rank", "0", "--world-size", "1"]


def rank_of(daemon: Daemon, job: str, number: int, world_size: int, *flags: str) -> list[str]:
    """The command line of one worker."""
    rank_flags = ["--switch", daemon.address, "--job", job, "--rank", str(number), "--world-size", str(world_size)]
    return ["allreduce", *rank_flags, "--timeout", "20s", *flags]


def sum_files(daemon: Daemon, job: str, folder: Path, arrays: list[Array], *flags: str) -> list[Array]:
    """Write arrays to files, sum them, read the results."""
    commands = []
    for number, array in enumerate(arrays):
        np.save(folder / f"in{number}.npy", array)
        files = ["--input", str(folder / f"in{number}.npy"), "--output", str(folder / f"out{number}.npy")]
        commands.append(rank_of(daemon, job, number, len(arrays), *files, *flags))
    for result in program.run_all(*commands):
        assert result.returncode == 0, result.stderr
    return [np.load(folder / f"out{number}.npy") for number in range(len(arrays))]


ARRAYS: dict[str, list[Array]] = {
    "vectors": [np.arange(1000, dtype=np.float32) * n for n in (1, 2, 3)],
    "C and Fortran order": [
        np.asarray(np.arange(60, dtype=np.int32).reshape(3, 4, 5), order=order) for order in ("C", "F")
    ],
    "one number": [np.array(n, np.float16) for n in (1, 2)],
    "nothing": [np.empty((0, 7), np.float32) for _ in range(2)],
    "big-endian": [np.arange(9, dtype=">i4").reshape(3, 3) for _ in range(2)],
}


@pytest.mark.parametrize("arrays", ARRAYS.values(), ids=ARRAYS)
def test_an_output_has_its_inputs_form(daemon: Daemon, job: str, tmp_path: Path, arrays: list[Array]) -> None:
    results = sum_files(daemon, job, tmp_path, arrays)
    for array, result in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(result, sum(arrays))
        assert (result.shape, result.dtype) == (array.shape, array.dtype)
        assert result.flags.f_contiguous == array.flags.f_contiguous


def test_bf16_comes_from_raw_files_and_from_f32(daemon: Daemon, job: str, tmp_path: Path) -> None:
    x = np.array([1.5, -3.0, 0.0], ml_dtypes.bfloat16)
    raw, plain = x.view("V2"), x.astype(np.float32)
    results = sum_files(daemon, job, tmp_path, [raw, plain], "--dtype", "bf16")
    assert results[0].dtype == np.dtype("V2")
    assert results[1].dtype == np.float32
    np.testing.assert_array_equal(results[0].view(ml_dtypes.bfloat16).astype(np.float32), results[1])
    np.testing.assert_array_equal(results[1], plain * 2)


def test_an_output_may_replace_its_input(daemon: Daemon, job: str, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones(5000, np.float32))
    flags = ["--input", str(file), "--output", str(file), "--op", "avg"]
    assert program.run(*rank_of(daemon, job, 0, 1, *flags)).returncode == 0
    np.testing.assert_array_equal(np.load(file), np.ones(5000, np.float32))


@pytest.mark.parametrize("protocol", ["switchml", "ring"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"])
def test_made_up_data_is_checked_and_measured(daemon: Daemon, job: str, dtype: str, protocol: str) -> None:
    flags = ["--elements", "100003", "--iters", "3", "--dtype", dtype, "--protocol", protocol, "--json"]
    for result in program.run_all(*(rank_of(daemon, job, number, 3, *flags) for number in range(3))):
        report = program.last_json(result)
        size = int(dtype.lstrip("bfiu")) // 8
        assert report["checked"] is True
        assert (report["world_size"], report["elements"], report["iters"]) == (3, 100_003, 3)
        assert (report["dtype"], report["protocol"]) == (dtype, protocol)
        assert report["ate_per_s"] == pytest.approx(100_003 / report["seconds"])
        assert report["goodput_gbps"] == pytest.approx(100_003 * size * 8 / report["seconds"] / 1e9)
        assert report["packets_sent"] > report["retransmissions"] >= 0
        assert report["in_network"] == (1.0 if protocol == "switchml" else 0.0)


@pytest.mark.parametrize("protocol", ["switchml", "ring"])
@pytest.mark.parametrize(
    ("op", "dtype"),
    [("avg", "f64"), ("avg", "i8"), ("min", "bf16"), ("max", "i64"), ("prod", "f16"), ("prod", "u8"),
     ("band", "i16"), ("bor", "u8"), ("bxor", "i32")],
)  # fmt: skip
def test_made_up_data_is_checked_under_every_operator(
    daemon: Daemon, job: str, op: str, dtype: str, protocol: str
) -> None:
    flags = ["--elements", "10007", "--dtype", dtype, "--op", op, "--protocol", protocol, "--json"]
    for result in program.run_all(*(rank_of(daemon, job, number, 3, *flags) for number in range(3))):
        report = program.last_json(result)
        assert (report["checked"], report["op"], report["dtype"]) == (True, op, dtype)


def test_fixed_point_is_chosen_by_an_option(daemon: Daemon, job: str) -> None:
    flags = ["--elements", "10007", "--option", "numbers=fixed", "--json"]
    for result in program.run_all(*(rank_of(daemon, job, number, 3, *flags) for number in range(3))):
        assert program.last_json(result)["checked"] is True


def test_what_a_protocol_cannot_do_is_refused_with_what_would_work() -> None:
    elements = [*ONE_RANK, "--elements", "3"]
    refused = program.run(*elements, "--op", "bxor")
    assert program.sentence(refused, code=2).endswith(
        "cannot do a bxor of 3 f32 elements: band, bor and bxor are for integers"
    )
    refused = program.run(*elements, "--op", "max", "--option", "numbers=fixed")
    assert "in fixed point: choose numbers=float" in program.sentence(refused, code=2)
    refused = program.run(*elements, "--dtype", "i8", "--protocol", "canary")
    assert "canary cannot do a sum of 3 i8 elements" in program.sentence(refused, code=2)


@pytest.mark.parametrize("protocol", ["switchml", "ring"])
@pytest.mark.parametrize(("command", "checking"), [("reduce", [2]), ("broadcast", [0, 1])])
def test_the_root_gets_the_sum_or_the_others_its_data(
    daemon: Daemon, job: str, command: str, checking: list[int], protocol: str
) -> None:
    flags = ["--elements", "100003", "--iters", "3", "--dtype", "f16", "--protocol", protocol, "--json", "--root", "2"]
    ranks = [["lab", command, *rank_of(daemon, job, number, 3, *flags)[1:]] for number in range(3)]
    reports = [program.last_json(result) for result in program.run_all(*ranks)]
    assert [report["rank"] for report in reports if report["checked"]] == checking
    assert {(report["collective"], report["root"], report.get("op")) for report in reports} == {
        (command, 2, "sum" if command == "reduce" else None)
    }


def test_a_root_that_the_job_has_not_and_an_output_of_nothing_are_refused(daemon: Daemon, job: str) -> None:
    words = rank_of(daemon, job, 0, 3, "--elements", "3")[1:]
    refused = program.run("lab", "broadcast", *words, "--root", "3")
    assert program.sentence(refused, code=2) == "--root 3 is not in 0 to 2 (--world-size 3)"
    refused = program.run("lab", "reduce", *words, "--root", "1", "--output", "x.npy")
    assert program.sentence(refused, code=2) == "--output is for rank 1 (--root): rank 0 gets no result to write"


def test_a_person_gets_a_table(daemon: Daemon, job: str) -> None:
    result = program.run(*rank_of(daemon, job, 0, 1, "--elements", "1000"))
    assert result.returncode == 0, result.stderr
    for word in ("goodput", "Gbit/s", "ATE/s", "right on this rank", "in network  100.0 %"):
        assert word in result.stdout
    assert result.stderr == ""


WRONG_FILES: dict[str, tuple[bytes, str]] = {
    "text": (b"hello", "is no .npy file"),
    "empty": (b"", "is no .npy file"),
    "cut off": (b"\x93NUMPY\x01\x00\x76\x00{'descr'", "header is cut off"),
}


@pytest.mark.parametrize(("content", "words"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_is_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "wrong.npy"
    file.write_bytes(content)
    sentence = program.sentence(program.run(*ONE_RANK, "--input", str(file)))
    assert words in sentence
    assert str(file) in sentence


def test_files_that_numpy_wrote_and_nobody_can_sum(tmp_path: Path) -> None:
    np.save(tmp_path / "complex.npy", np.ones(3, np.complex64))
    sentence = program.sentence(program.run(*ONE_RANK, "--input", str(tmp_path / "complex.npy")))
    assert "'<c8'" in sentence
    assert "f8, f4, f2, V2 (bf16), i8, i4, i2, i1 and u1 can be reduced" in sentence
    np.save(tmp_path / "integers.npy", np.ones(3, np.int32))
    flags = ["--input", str(tmp_path / "integers.npy"), "--dtype", "f32"]
    assert "holds i32 and --dtype asks for f32" in program.sentence(program.run(*ONE_RANK, *flags))
    sentence = program.sentence(program.run(*ONE_RANK, "--input", str(tmp_path / "absent.npy")))
    assert "cannot read" in sentence
    assert "absent.npy" in sentence
    flags = ["--elements", "5", "--output", str(tmp_path / "no" / "folder.npy")]
    assert "cannot write" in program.sentence(program.run(*ONE_RANK, *flags))


WRONG_CALLS = {
    "unknown command": ["fly"],
    "unknown flag": ["status", "--switch", "127.0.0.1", "--fast"],
    "no data": ONE_RANK,
    "two kinds of data": [*ONE_RANK, "--elements", "1", "--input", "x.npy"],
    "rank outside world size": [*ONE_RANK[:-3], "1", "--world-size", "1", "--elements", "1"],
    "no world size": [*ONE_RANK[:-1], "0", "--elements", "1"],
    "wrong type": [*ONE_RANK, "--elements", "1", "--dtype", "f128"],
    "wrong operator": [*ONE_RANK, "--elements", "1", "--op", "norm"],
    "wrong timeout": [*ONE_RANK, "--elements", "1", "--timeout", "0s"],
    "timeout without a unit": [*ONE_RANK, "--elements", "1", "--timeout", "30"],
    "wrong port": ["status", "--switch", "127.0.0.1:99999"],
    "wrong address": ["switch", "--listen", "everywhere"],
}


@pytest.mark.parametrize("words", WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_call_is_a_sentence_and_exit_code_2(words: list[str]) -> None:
    assert program.sentence(program.run(*words), code=2)


def test_no_command_teaches() -> None:
    result = program.run()
    assert result.returncode == 2
    assert "Examples:" in result.stderr


@pytest.mark.parametrize("command", ["switch", "allreduce", "status", "top", "doctor", "lab bench", "lab demo"])
def test_every_command_teaches(command: str) -> None:
    result = program.run(*command.split(), "--help")
    assert result.returncode == 0
    assert "Examples:" in result.stdout
    assert "--json" in result.stdout


def test_a_reader_that_goes_away_is_not_an_error(daemon: Daemon) -> None:
    command = f"'{program.PROGRAM}' status --switch {daemon.address} | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_a_test_that_fails_leaves_no_program_behind_and_no_other_ends() -> None:
    other = Daemon()
    left = Daemon()
    program.end_all_but({*program.running} - {left.process})
    assert left.process.returncode is not None
    assert left.process.stdout is not None
    assert left.process.stdout.closed
    assert other.stop().returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_switch_ends_cleanly_on(number: int) -> None:
    result = Daemon("--log", "warn").stop(number)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_port_in_use_is_a_sentence(daemon: Daemon) -> None:
    sentence = program.sentence(program.run("switch", "--listen", daemon.address), code=2)
    assert daemon.address in sentence
    assert "in use" in sentence


def test_a_switch_reads_its_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "switch.toml"
    file.write_text('listen = "127.0.0.1:1"\ncores = 3\nmemory = "8 MiB"\nhttp = "127.0.0.1:0"\n')
    daemon = Daemon("--config", str(file))
    assert daemon.ready["cores"] == 3
    assert daemon.ready["memory_mib"] == 8
    assert daemon.ready["http"].startswith("127.0.0.1:")
    assert daemon.address != "127.0.0.1:1"
    daemon.stop()
    file.write_text("speed = 11\n")
    sentence = program.sentence(program.run("switch", "--config", str(file)), code=2)
    assert "speed" in sentence
    assert str(file) in sentence


def test_status_shows_jobs_and_who_is_missing(daemon: Daemon, job: str) -> None:
    waiting = program.start(*rank_of(daemon, job, 1, 3, "--elements", "10"))
    try:
        entry = program.await_job(daemon, job, lambda entry: True)
        assert (entry["state"], entry["world_size"], entry["missing"]) == ("forming", 3, [0, 2])
        table = program.run("status", "--switch", daemon.address).stdout
        line = next(line for line in table.splitlines() if job in line)
        assert "0, 2" in line
    finally:
        waiting.kill()
        program.finish(waiting)


def test_status_of_no_switch_is_a_sentence() -> None:
    assert "127.0.0.1:9" in program.sentence(program.run("status", "--switch", "127.0.0.1:9"))


def test_top_shows_which_rank_the_others_wait_for(daemon: Daemon, job: str) -> None:
    ones = np.ones(10, np.float32)
    with ThreadPoolExecutor() as pool:
        joining = [pool.submit(rank.connect, number, 3, daemon.address, job) for number in range(3)]
        groups = [joined.result() for joined in joining]
        punctual = [pool.submit(groups[number].all_reduce, ones) for number in (0, 2)]
        program.await_job(daemon, job, lambda entry: entry["waiting_for"] == [1])
        for _ in range(100):
            seen = program.last_json(program.run("top", "--switch", daemon.address, "--once", "--json"))
            views = [view for view in seen["jobs"] if view["name"] == job and view["still_s"]]
            if views:
                break
            time.sleep(0.1)  # The switch takes a look a second, and says nothing before the second one.
        [view] = views
        assert view["waiting_for"] == [1]
        assert 0 < view["still_s"] <= view["watched_s"]
        assert len(view["goodput_gbps"]) == len(view["drops_per_s"]) >= 1
        assert view["stragglers"] == [{"rank": 1, "share": 1.0}]
        operation = view["operation"]
        assert (operation["name"], operation["number"], operation["elements"]) == ("allreduce", 1, 10)
        screen = program.run("top", "--switch", daemon.address, "--once").stdout
        row = next(line for line in screen.splitlines() if line.startswith(job))
        assert "1 (100 %)" in row
        assert "allreduce 1" in row
        # Ranks say how far they are twice a second.
        late = f"{job}: rank 1 has not begun allreduce 1, sum of 10 f32 elements; ranks 0, 2 have, "
        for command in ["top", "--once"], ["status"]:
            assert late in program.run(*command, "--switch", daemon.address).stdout
        assert (groups[1].all_reduce(ones) == 3).all()
        assert all((late.result() == 3).all() for late in punctual)
        for group in groups:
            pool.submit(group.close)


def test_top_and_status_say_whose_jobs_are_here_and_which_have_ended(daemon: Daemon, job: str) -> None:
    with rank.connect(0, 1, daemon.address, job):
        entry = program.await_job(daemon, job, lambda entry: entry["state"] == "running")
        assert entry["client"] == "127.0.0.1"
    [line] = [
        line
        for line in program.run("top", "--switch", daemon.address, "--once").stdout.splitlines()
        if line.startswith(f"{job} of 127.0.0.1 ended ")
    ]
    assert line.endswith("ago (left)")


def test_top_of_no_switch_and_an_interval_of_nothing_are_sentences() -> None:
    assert "127.0.0.1:9" in program.sentence(program.run("top", "--switch", "127.0.0.1:9"))
    refused = program.run("top", "--switch", "127.0.0.1:9", "--interval", "0s")
    assert refused.returncode == 2
    assert "from 250ms to 3600s" in refused.stderr


def test_metrics_and_jobs_are_served_at_both_addresses(daemon: Daemon, job: str) -> None:
    assert program.run(*rank_of(daemon, job, 0, 1, "--elements", "100000")).returncode == 0
    for address in (daemon.address, daemon.ready["http"]):
        for path in ("metrics", "metrics/jobs"):
            with urllib.request.urlopen(f"http://{address}/{path}") as answer:
                assert "# TYPE tributary_" in answer.read().decode()
        with urllib.request.urlopen(f"http://{address}/jobs") as answer:
            assert isinstance(json.load(answer), dict | list)


def test_doctor_checks_the_way_to_a_switch(daemon: Daemon) -> None:
    report = program.last_json(program.run("doctor", "--switch", daemon.address, "--json"))
    levels = {check["name"]: check["level"] for check in report["checks"]}
    assert levels["TCP"] == levels["switch"] == levels["smoke test"] == "ok"
    assert levels["ECN"] == levels["order"] == "ok"
    assert report["ok"] is True
    for check in report["checks"]:
        assert check["found"]
        assert (check["remedy"] is None) == (check["level"] == "ok")


def test_doctor_tries_a_switch_of_its_own() -> None:
    result = program.run("doctor")
    assert result.returncode == 0, result.stdout
    assert "two ranks summed" in result.stdout


def test_doctor_says_what_mends_an_unreachable_switch() -> None:
    result = program.run("doctor", "--switch", "127.0.0.1:9")
    assert "TCP" in program.sentence(result)
    assert "tributary switch --listen" in result.stdout
