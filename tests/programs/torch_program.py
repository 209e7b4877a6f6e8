"""Scripts in several processes, under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(*arguments: str, processes: int = 2, **variables: str) -> subprocess.Popen[str]:
    """Start a script in that many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=ROOT)


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for what was started; return what its processes said."""
    try:
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def torchrun(*arguments: str, processes: int = 2, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script in that many processes; return what they said."""
    return finish(start(*arguments, processes=processes, **variables))


def kill_in_the_middle(call: str, line: str) -> None:
    """Run a call of the tests' functions in a process, and kill that half a second after it has printed this line."""
    command = [sys.executable, "-c", call]
    with subprocess.Popen(command, cwd=ROOT / "tests/programs", stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == f"{line}\n"
        time.sleep(0.5)
        doomed.kill()
