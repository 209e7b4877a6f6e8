"""Many runs of one experiment: parameters times seeds."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tributary import _core
from tributary.errors import ConfigError, SimulationError
from tributary.sim import _source, _tables

if TYPE_CHECKING:
    import pandas as pd


class SweepFailure(NamedTuple):
    """A run that failed."""

    #: The value of each key of the sweep.
    values: dict[str, Any]
    #: The seed.
    seed: int
    #: The reason, in a sentence.
    reason: str


class SweepResult:
    """What the runs of a sweep found.

    Tables are structured arrays, as those of a `Result`. A key of the sweep, as ``job.0.trees``, is a field.
    """

    def __init__(self, core: _core.Sweep) -> None:
        #: The keys that varied.
        self.keys: list[str] = core.keys()
        #: What made it: the program's version, commit and hash of sources, and the hash of the file.
        self.origin: dict[str, Any] = json.loads(core.origin())
        self._columns: Mapping[str, _tables.Columns] = core.tables()
        self._finished = core.finished()

    @cached_property
    def summary(self) -> _tables.Table:
        """A record for each combination of values: means and ranges over its seeds, and why runs of it failed."""
        return _tables.structured(self._columns["summary"])

    @cached_property
    def runs(self) -> _tables.Table:
        """A record for each run; `failure` is empty where nothing is wrong."""
        return _tables.structured(self._columns["runs"])

    @cached_property
    def job_runs(self) -> _tables.Table:
        """A record for each job of each run."""
        return _tables.structured(self._columns["job_runs"])

    @cached_property
    def reports(self) -> list[dict[str, Any]]:
        """Each run's whole report, in the order of `runs`; empty for a run that its file does not allow."""
        return [json.loads(text)["report"] or {} for text in self._finished]

    @cached_property
    def failures(self) -> list[SweepFailure]:
        """The runs that failed, each with its reason."""
        runs = self.runs
        return [
            SweepFailure({key: run[key].item() for key in self.keys}, int(run["seed"]), str(run["failure"]))
            for run in runs[runs["failure"] != ""]
        ]

    def check(self) -> SweepResult:
        """Raise `SimulationError` with the first failure's reason if a run failed; else return the result."""
        if self.failures:
            raise SimulationError(f"{len(self.failures)} of {len(self)} runs failed; the first one, {self._first()}")
        return self

    def _first(self) -> str:
        values, seed, reason = self.failures[0]
        return f"with {', '.join(f'{key} = {value}' for key, value in (*values.items(), ('seed', seed)))}: {reason}"

    def frame(self, table: Literal["summary", "runs", "job_runs"] = "summary") -> pd.DataFrame:
        """Give one table as a pandas frame."""
        return _tables.frame(self._columns[table])

    def __len__(self) -> int:
        return len(self._finished)

    def __repr__(self) -> str:
        failed = f"{len(self.failures)} failed, the first one {self._first()}" if self.failures else "none failed"
        return f"<tributary.sim.SweepResult: {len(self)} runs over {', '.join(self.keys) or 'seeds'}, {failed}>"


def sweep(
    config: _source.Config,
    *,
    out: str | os.PathLike[str] | None = None,
    on: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> SweepResult:
    """Run every combination of the values in ``[sweep.over]`` with every seed, on all cores or on a cluster.

    All points are checked before the first one runs. The folder also gets ``summary.csv``, ``runs.csv`` and
    ``job_runs.csv``, as from ``tributary sim sweep``. Ctrl-C ends it with `KeyboardInterrupt`; what is finished is kept
    in `out`, and the same call goes on with the rest.

    Args:
        config: as for `run`, with a table ``sweep``.
        out: the folder that keeps finished runs; FILE.sweep for a file, and none that outlives the call for others.
        on: the address of a Dask scheduler, as "10.0.0.1:8786", whose workers run the points; needs
            `tributary-ina[dask]`.
        progress: called after each run with how many are finished, and how many there are. What it raises ends the
            sweep.

    Raises:
        ConfigError: this describes no sweep, or one of its points cannot be run.
        SimulationError: the folder cannot be written, or the cluster cannot do it.

    """
    source = _source.read(config)
    with ExitStack() as stack:
        if out is not None:
            folder = Path(out)
        elif source.path is not None:
            folder = source.path.with_suffix(".sweep")
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tributary-sweep-")))
        try:
            core = _core.Sweep(source.text, source.json, os.fspath(folder))
            core.check()
        except ConfigError as error:
            raise source.wrong(error) from None
        try:
            if on is None:
                core.run(progress)
            else:
                _run_on(core, on, progress)
        finally:
            core.write()
        return SweepResult(core)


def _run_on(core: _core.Sweep, address: str, progress: Callable[[int, int], object] | None) -> None:
    from tributary.sim import cluster

    left = core.open()
    finished = len(core) - len(left)
    for number, text in cluster.run_points(address, ((number, core.order(number)) for number in left)):
        core.keep(number, text)
        finished += 1
        if progress is not None:
            progress(finished, len(core))
