"""Several tests at a time: lanes, each a fork of this process with one test after the other.

A test mostly waits, for its ranks to meet and to end, so a lane leaves a core idle for most of the time.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from record import Case, Outcome

#: What a failure shows of what its ranks wrote.
SHOWN_BYTES = 20_000

Run = Callable[[Case], Outcome]


class _Lane:
    """A process, and the test that it is at."""

    def __init__(self, run: Run, folder: str) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(run, self.pipe, theirs, folder))
        self.process.start()
        theirs.close()
        self.case: Case | None = None

    def start(self, case: Case) -> None:
        """Begin a test."""
        self.case = case
        self.pipe.send(case)

    def result(self) -> Outcome:
        """What became of it."""
        assert self.case is not None
        case, self.case = self.case, None
        try:
            outcome: Outcome = self.pipe.recv()
        except EOFError:
            self.process.join()
            return Outcome(case, "FAILED", 0.0, f"its process ended with {self.process.exitcode}")
        return outcome

    def end(self) -> None:
        """Let the process go, whose pipe is closed, once it is through with its test."""
        self.process.join(10)
        self.process.terminate()
        self.process.join()


def _serve(run: Run, other_end: Connection, pipe: Connection, folder: str) -> None:
    """Run what the pipe brings, until it is closed. Whatever tests and their ranks write goes to a file."""
    other_end.close()
    tempfile.tempdir = os.environ["TEMP_DIR"] = folder
    written = Path(folder, "written")
    file = os.open(written, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    while True:
        try:
            case = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        os.ftruncate(file, 0)
        outcome = run(case)
        if outcome.outcome == "FAILED":
            outcome.detail += written.read_bytes()[-SHOWN_BYTES:].decode(errors="replace")
        pipe.send(outcome)


def run_all(cases: Sequence[Case], run: Run, count: int) -> Iterator[Outcome]:
    """Run all cases in this many lanes, in order; give the outcomes as they come."""
    waiting = list(reversed(cases))
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        lanes: list[_Lane] = []

        def fresh() -> _Lane:
            return _Lane(run, tempfile.mkdtemp(dir=folder))

        try:
            lanes += [fresh() for _ in range(min(count, len(cases)))]
            for lane in lanes:
                lane.start(waiting.pop())
            while busy := {lane.pipe: lane for lane in lanes if lane.case is not None}:
                for pipe in wait(list(busy)):
                    lane = busy[pipe]  # type: ignore[index]
                    outcome = lane.result()
                    if lane.process.exitcode is not None:
                        lanes.remove(lane)
                        lane.pipe.close()
                        lane = fresh()
                        lanes.append(lane)
                    if waiting:
                        lane.start(waiting.pop())
                    yield outcome
        finally:
            # Each lane has the ends of those before it, as a fork: the last one learns first that nothing more comes.
            for lane in lanes:
                lane.pipe.close()
            for lane in reversed(lanes):
                lane.end()
