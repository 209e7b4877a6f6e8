"""What the tests share: a switch daemon, processes for ranks, the program."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

import program
import tributary
from program import Daemon

#: Processes that stay up between tests, so that a test with eight ranks does not start eight interpreters.
WORKERS = 8

#: Seconds until a rank counts as hung. On a busy machine the first test of a process imports PyTorch for half a minute.
PATIENCE_S = 240

# Ranks of a test are on one host, and most tests are about the network: those of sums in memory ask for them.
os.environ["TRIBUTARY_LOCAL"] = "off"

#: In a process for ranks: where the ranks of a test wait for each other, by how many they are.
_gates: dict[int, Barrier] = {}


def _hold_gates(gates: dict[int, Barrier]) -> None:
    """Keep the gates that all processes for ranks share."""
    _gates.update(gates)


def _together(function: Callable[..., Any], rank: int, world_size: int, *args: Any) -> Any:
    """Call the function once all ranks are here, with its module and so PyTorch imported: groups wait for less long."""
    _gates[world_size].wait(PATIENCE_S)
    return function(rank, world_size, *args)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A switch with two threads that all tests share which do not break it."""
    daemon = Daemon("--cores", "2", "--http", "127.0.0.1:0")
    yield daemon
    daemon.stop()


class _Pool:
    """Processes for ranks that stay up until a test fails: what it left behind would fail those after it."""

    def __init__(self) -> None:
        self.is_spoilt = False
        self._executor: ProcessPoolExecutor | None = None

    def executor(self) -> ProcessPoolExecutor:
        if self.is_spoilt:
            self.stop()
        if self._executor is None:
            # They fork from a process that has imported PyTorch, if it is installed.
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["tributary.torch"])
            gates = {world_size: context.Barrier(world_size) for world_size in range(1, WORKERS + 1)}
            self._executor = ProcessPoolExecutor(
                WORKERS, mp_context=context, initializer=_hold_gates, initargs=(gates,)
            )
        return self._executor

    def stop(self) -> None:
        if self.is_spoilt:
            # A rank may hang.
            for process in multiprocessing.active_children():
                process.kill()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self.is_spoilt, self._executor = False, None


@pytest.fixture(scope="session")
def _pool() -> Iterator[_Pool]:
    """The processes for ranks of all tests."""
    pool = _Pool()
    yield pool
    pool.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that fails leaves nothing behind that would fail those after it: no program, and no rank."""
    before = set(program.running)
    try:
        return (yield)
    except (Exception, pytest.fail.Exception):
        program.end_all_but(before)
        pool = item.funcargs.get("_pool") if isinstance(item, pytest.Function) else None
        if isinstance(pool, _Pool):
            pool.is_spoilt = True
        raise


@pytest.fixture
def workers(_pool: _Pool) -> ProcessPoolExecutor:
    """Processes for ranks, none of which a test has left that failed."""
    return _pool.executor()


Ranks = Callable[..., list[Any]]


@pytest.fixture
def ranks(workers: ProcessPoolExecutor) -> Ranks:
    """Call ``function(rank, world_size, *args)`` once a rank, each in a process of its own; return what they return."""

    def call(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
        futures: list[Future[Any]] = [
            workers.submit(_together, function, rank, world_size, *args) for rank in range(world_size)
        ]
        # A rank that failed makes others fail after it: the cause is the one that does not complain of ranks.
        errors = [error for future in futures if (error := future.exception(timeout=PATIENCE_S)) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, tributary.CollectiveError)):
            raise error
        return [future.result() for future in futures]

    return call


_numbers = itertools.count()


@pytest.fixture
def job() -> str:
    """A job's name that nobody else has."""
    return f"test-{os.getpid()}-{next(_numbers)}"
