"""The program ``tributary`` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tributary import _core

PROGRAM = str(Path(sys.executable).with_name("tributary"))

#: No settings of the person who runs the tests, and no width of a terminal: pytest's workers are told one.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("TRIBUTARY_") and name != "COLUMNS"
}


def _has_servers(protocol: str) -> bool:
    """Whether servers sum what the switch has no room for; jobs of these choose who serves where none is on offer."""
    try:
        _core.check_options(protocol, {"served_by": "every_rank"})
    except ValueError:
        return False
    return True


SERVED = [protocol for protocol in _core.protocols() if _has_servers(protocol)]


#: Programs that were started and not waited for.
running: set[subprocess.Popen[str]] = set()


def start(*words: str) -> subprocess.Popen[str]:
    """Start the program; its output is kept."""
    process = subprocess.Popen(
        [PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    running.add(process)
    return process


def end_all_but(before: set[subprocess.Popen[str]]) -> None:
    """End what a test has left that failed."""
    for process in running - before:
        with process:
            process.kill()
        running.discard(process)


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for the program's end."""
    out, err = process.communicate(timeout=60)
    running.discard(process)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return finish(start(*words))


def run_all(*commands: list[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run the program several times at once."""
    return [finish(process) for process in [start(*command) for command in commands]]


def last_json(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The object on the last line of the program's output."""
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(value, dict)
    return value


def sentence(result: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """The error of a program that failed as it should: one sentence and nothing else."""
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    assert result.stderr.startswith("tributary: error: "), result.stderr
    for noise in ("panicked", "Traceback", "RUST_BACKTRACE"):
        assert noise not in result.stderr
    return result.stderr.removeprefix("tributary: error: ").strip()


class Daemon:
    """A switch daemon."""

    def __init__(self, *flags: str, listen: str | None = "127.0.0.1:0") -> None:
        """Start it and wait until it is ready; in a fabric, which says where it listens, without ``listen``."""
        self.process = start("switch", *(["--listen", listen] if listen else []), "--json", *flags)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("{"):
            raise AssertionError(finish(self.process).stderr)
        self.ready: dict[str, Any] = json.loads(line)
        self.address: str = self.ready["listen"]

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        finish(self.process)

    def stop(self, number: int = signal.SIGTERM) -> subprocess.CompletedProcess[str]:
        """Ask it to end, and wait."""
        self.process.send_signal(number)
        return finish(self.process)


def await_job(daemon: Daemon, job: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask the switch until it tells of a job of which the condition holds."""
    for _ in range(200):
        status = last_json(run("status", "--switch", daemon.address, "--json"))
        for entry in status["jobs"]:
            if entry["name"] == job and condition(entry):
                return dict(entry)
        time.sleep(0.05)
    raise AssertionError(f"job {job} never came to this: {status}")
