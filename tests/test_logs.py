"""The log of a switch as whoever runs it reads it: text or JSON, in storms too, and with a reader that stands still."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import program
from program import Daemon

#: What the processes of an operator log; workers have errors instead.
SOURCES = Path(__file__).parent.parent / "crates" / "net" / "src"
LOGS = Path(__file__).parent.parent / "docs" / "logs.md"
EVENT = re.compile(r"tracing::(?:info|warn|error)!\((?:[^;]*?)\"([^\"\\]+)\"\s*,?\s*\)\s*[;,}]", re.DOTALL)


def test_every_event_of_the_log_is_on_its_page() -> None:
    page = LOGS.read_text()
    files = [
        file for file in SOURCES.rglob("*.rs") if "group" not in {folder.name for folder in file.parents} | {file.stem}
    ]
    events = {event for file in files for event in EVENT.findall(file.read_text())}
    assert len(events) > 30, sorted(events)
    named = {event.split(":")[0] if "path " in event else event for event in events}
    missing = {event for event in named if f"`{event}`" not in page and not event.endswith("thread panicked")}
    assert not missing, f"docs/logs.md lacks {sorted(missing)}"


def sum_once(daemon: Daemon, job: str) -> None:
    """A job of one rank."""
    rank_flags = ["--switch", daemon.address, "--job", job, "--rank", "0", "--world-size", "1"]
    result = program.run("allreduce", *rank_flags, "--elements", "1000")
    assert result.returncode == 0, result.stderr


def knock(daemon: Daemon, job: str) -> None:
    """A join that is refused."""
    request = urllib.request.Request(f"http://{daemon.address}/jobs/{job}/join", data=b"{}", method="POST")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        error.close()


def ask_for_nothing(daemon: Daemon, path: str) -> None:
    """A request that fails."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"http://{daemon.address}/{path}", timeout=10)
    raised.value.close()


def log_of(daemon: Daemon) -> list[str]:
    """What it has written when it has ended."""
    result = daemon.stop()
    assert result.returncode == 0
    return result.stderr.splitlines()


def test_people_read_a_line_for_each_job_that_comes_and_goes(job: str) -> None:
    daemon = Daemon()
    sum_once(daemon, job)
    knock(daemon, f"{job}-b")
    log = log_of(daemon)
    for message in ("job formed", "job ended"):
        (line,) = [line for line in log if message in line]
        assert f"job={job} " in line
        assert " INFO " in line
    (line,) = [line for line in log if "join refused" in line]
    assert f'job="{job}-b"' in line
    assert 'code="bad_request"' in line
    assert "switch started" in log[0]
    assert "switch stopped" in log[-1]


def test_programs_read_objects(job: str) -> None:
    daemon = Daemon("--log-format", "json")
    sum_once(daemon, job)
    objects = [json.loads(line) for line in log_of(daemon)]
    assert all({"timestamp", "level", "message"} <= set(line) for line in objects)
    formed, ended = [line for line in objects if line.get("job") == job]
    assert (formed["message"], formed["level"], formed["world_size"]) == ("job formed", "INFO", 1)
    assert (ended["message"], ended["end"]) == ("job ended", "left")


def test_a_level_leaves_the_rest_out_and_a_wrong_one_is_a_sentence(job: str) -> None:
    daemon = Daemon("--log", "warn")
    sum_once(daemon, job)
    assert log_of(daemon) == []
    refused = program.run("switch", "--listen", "127.0.0.1:0", "--log", "chatty")
    assert "'chatty' is not a level of the log" in program.sentence(refused, code=2)
    environment = {**program.ENVIRONMENT, "TRIBUTARY_LOG": "chatty"}
    command = [program.PROGRAM, "reproduce", "list"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "'chatty' is not a level of the log" in program.sentence(result, code=2)


def test_a_storm_of_rejected_requests_is_cut_short_and_counted(job: str) -> None:
    knocks = 400
    daemon = Daemon("--log-format", "json")
    for number in range(knocks):
        knock(daemon, f"{job}-{number}")
    log = [json.loads(line) for line in log_of(daemon)]
    written = [line for line in log if line["message"] == "join refused"]
    left_out = sum(line["left_out"] for line in log if "left_out" in line)
    # The last ones may have been left out without another that says so.
    assert 100 <= len(written) < knocks
    assert len(written) + left_out <= knocks


def test_a_reader_that_stands_still_holds_no_job_up(job: str) -> None:
    # A pipe takes 64 KiB, nobody reads this one until the end, and each request makes a line of more than 100 bytes.
    daemon = Daemon("--log", "debug")
    for number in range(1_000):
        ask_for_nothing(daemon, f"{number}-of-a-long-row-of-requests-for-what-is-not-there")
    sum_once(daemon, job)
    lines = log_of(daemon)
    assert sum("of-a-long-row" in line for line in lines) == 1_000
    assert sum(len(line) for line in lines) > 1 << 16
