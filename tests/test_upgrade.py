"""A switch gets a new program (SIGUSR2) while ranks sum without a pause: no collective fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import program
import rank_upgrade
from program import Daemon

TOKEN = "0123456789abcdef-night"


def line(daemon: Daemon) -> dict[str, Any]:
    """The next event that a program of the switch prints: both have one stdout."""
    assert daemon.process.stdout is not None
    event: dict[str, Any] = json.loads(daemon.process.stdout.readline())
    return event


def events(daemon: Daemon, *wanted: str) -> dict[str, dict[str, Any]]:
    """The next events, which come in any order."""
    found = [line(daemon) for _ in wanted]
    assert sorted(event["event"] for event in found) == sorted(wanted), found
    return {event["event"]: event for event in found}


def until_more(folder: Path, sums: int) -> None:
    """Wait until each of two ranks has this many sums more."""

    def counts() -> list[int]:
        texts = [(folder / f"sums{number}") for number in range(2)]
        return [int(text.read_text() or 0) if text.exists() else 0 for text in texts]

    before, end = counts(), time.monotonic() + 120
    while any(now < then + sums for now, then in zip(counts(), before, strict=True)):
        assert time.monotonic() < end, "the ranks sum no more"
        time.sleep(0.02)


def jobs(address: str) -> tuple[list[str], list[str]]:
    """The jobs of the program that answers, and those of the earlier one."""
    status = program.last_json(program.run("status", "--switch", address, "--json"))
    return [entry["name"] for entry in status["jobs"]], status["switch"].get("earlier_jobs", [])


def test_a_new_program_takes_over_under_load_and_no_collective_fails(
    workers: ProcessPoolExecutor, tmp_path: Path, job: str
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[[operator]]\nname = "night"\ntoken = "{TOKEN}"\n')
    daemon = Daemon("--cores", "2", "--tokens", str(tokens))
    ranks = [
        workers.submit(rank_upgrade.sum_until, number, 2, daemon.address, job, str(tmp_path)) for number in range(2)
    ]
    until_more(tmp_path, 3)
    daemon.process.send_signal(signal.SIGUSR2)
    both = events(daemon, "listening", "handed_over")
    next_pid = both["handed_over"]["pid"]
    assert both["listening"]["pid"] == next_pid
    assert both["listening"]["listen"] == daemon.address
    until_more(tmp_path, 20)
    assert jobs(daemon.address) == ([], [job])
    for words in (["status"], ["top", "--once"]):
        shown = program.run(*words, "--switch", daemon.address).stdout
        assert f"the earlier program serves 1 job: {job}" in shown, shown
    other = ["allreduce", "--switch", daemon.address, "--job", f"{job}-new", "--world-size", "2", "--elements", "9999"]
    results = program.run_all(*([*other, "--rank", str(number)] for number in range(2)))
    assert [result.returncode for result in results] == [0, 0], results
    drain = subprocess.Popen(
        [program.PROGRAM, "drain", "--switch", daemon.address, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**program.ENVIRONMENT, "TRIBUTARY_TOKEN": TOKEN},
    )
    assert drain.stdout is not None
    assert json.loads(drain.stdout.readline()) == {"event": "draining", "jobs": [job]}
    until_more(tmp_path, 3)
    (tmp_path / "over").touch()
    counts = [future.result(timeout=120) for future in ranks]
    assert counts[0] == counts[1]
    assert line(daemon) == {"event": "stopped", "signal": None}
    # The pipe stays open, since the next program has it, too.
    assert daemon.process.wait(60) == 0
    assert program.finish(drain).returncode == 0
    os.kill(next_pid, signal.SIGTERM)
    rest = program.finish(daemon.process)
    assert json.loads(rest.stdout) == {"event": "stopped", "signal": "SIGTERM"}
    assert "ERROR" not in rest.stderr


def test_a_new_program_that_cannot_start_changes_nothing(tmp_path: Path, job: str) -> None:
    file = tmp_path / "switch.toml"
    file.write_text("max_jobs = 8\n")
    daemon = Daemon("--config", str(file))
    file.write_text("max_jobs = 'many'\n")
    daemon.process.send_signal(signal.SIGUSR2)
    assert str(file) in line(daemon)["error"], "the next program says why"
    event = line(daemon)
    assert event["event"] == "not_handed_over"
    assert "has not taken over" in event["sentence"]
    alone = ["allreduce", "--switch", daemon.address, "--job", job, "--world-size", "1", "--rank", "0"]
    assert program.run(*alone, "--elements", "9").returncode == 0
    result = daemon.stop()
    assert result.returncode == 0
    assert "switch not handed over" in result.stderr


def test_a_service_manager_learns_which_process_is_the_switch(tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    environment = {**program.ENVIRONMENT, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    command = [program.PROGRAM, "switch", "--listen", "127.0.0.1:0"]
    switch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    assert manager.recv(1000) == b"READY=1"
    switch.send_signal(signal.SIGUSR2)
    states = {manager.recv(1000).decode() for _ in range(2)}
    assert "READY=1" in states, "the next program"
    (main,) = [text.removeprefix("MAINPID=") for text in states if text.startswith("MAINPID=")]
    assert switch.wait(60) == 0, "it has no job"
    os.kill(int(main), signal.SIGTERM)
    assert manager.recv(1000) == b"STOPPING=1"
    manager.close()


def test_a_service_manager_learns_that_the_earlier_program_has_taken_the_switch_back(
    workers: ProcessPoolExecutor, tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    monkeypatch.setitem(program.ENVIRONMENT, "NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setitem(program.ENVIRONMENT, "WATCHDOG_USEC", "2000000")
    daemon = Daemon()
    ranks = [
        workers.submit(rank_upgrade.sum_until, number, 2, daemon.address, job, str(tmp_path)) for number in range(2)
    ]
    until_more(tmp_path, 3)
    daemon.process.send_signal(signal.SIGUSR2)
    next_pid = events(daemon, "listening", "handed_over")["handed_over"]["pid"]
    os.kill(next_pid, signal.SIGKILL)
    wanted = [f"MAINPID={next_pid}", f"MAINPID={daemon.process.pid}", "WATCHDOG=1"]
    while wanted:
        if manager.recv(1000).decode() == wanted[0]:
            del wanted[0]
    until_more(tmp_path, 3)
    (tmp_path / "over").touch()
    counts = [future.result(timeout=120) for future in ranks]
    assert counts[0] == counts[1]
    assert daemon.stop().returncode == 0
    manager.close()


def test_nobody_but_a_running_switch_lets_a_program_take_over() -> None:
    environment = {**program.ENVIRONMENT, "TRIBUTARY_TAKE_OVER": "1"}
    command = [program.PROGRAM, "switch", "--listen", "127.0.0.1:0"]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert "TRIBUTARY_TAKE_OVER" in program.sentence(result, code=2)
