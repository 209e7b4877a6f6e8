"""One experiment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tributary import _core
from tributary.errors import ConfigError, SimulationError
from tributary.sim import _source, _tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


#: The tables of a result.
TableName: TypeAlias = Literal[
    "jobs",
    "collectives",
    "flows",
    "links",
    "queues",
    "samples",
    "switch_samples",
    "job_samples",
    "switch_metrics",
    "cores",
    "spans",
    "pauses",
    "bottlenecks",
]


class Progress(NamedTuple):
    """The progress of a run."""

    #: Simulated seconds.
    seconds: float
    #: How many events there were.
    events: int
    #: Unfinished messages, flows and ranks of jobs.
    open: int
    #: How many there were at the beginning.
    total: int


class Result:
    """What a run found.

    The tables are structured arrays with a record for each row, whose fields `docs/simulator-reference.md` explains;
    `frame("links")` is the same as a pandas frame. Times are simulated seconds.
    """

    def __init__(self, core: _core.Report) -> None:
        self._core = core

    @cached_property
    def report(self) -> dict[str, Any]:
        """The object that ``tributary sim run --json`` prints."""
        report: dict[str, Any] = json.loads(self._core.json())
        return report

    @cached_property
    def failure(self) -> str | None:
        """Why the run is wrong, in a sentence; None if every sum is proven and everything finished."""
        return self._core.failure()

    def check(self) -> Result:
        """Raise `SimulationError` if a sum is not proven or something did not finish; else return the result."""
        if self.failure is not None:
            raise SimulationError(self.failure)
        return self

    @property
    def origin(self) -> dict[str, Any]:
        """What made it: the program's version, commit and hash of sources, and the hash of the file."""
        origin: dict[str, Any] = self.report["origin"]
        return origin

    @property
    def seed(self) -> int:
        """The seed that everything random followed from."""
        return int(self.report["seed"])

    @property
    def seconds(self) -> float:
        """Simulated time at the end."""
        return float(self.report["seconds"])

    @property
    def hops(self) -> int:
        """Packets that came out of links."""
        return int(self.report["hops"])

    @property
    def trace_hash(self) -> str:
        """The hash of every arrival and loss: equal for equal runs, on every machine."""
        return str(self.report["trace_hash"])

    @cached_property
    def jobs(self) -> _tables.Table:
        """A record for each job."""
        return self._table("jobs")

    @cached_property
    def collectives(self) -> _tables.Table:
        """A record for each collective of each job."""
        return self._table("collectives")

    @cached_property
    def flows(self) -> _tables.Table:
        """A record for each message or flow that finished."""
        return self._table("flows")

    @cached_property
    def links(self) -> _tables.Table:
        """A record for each direction of each link."""
        return self._table("links")

    @cached_property
    def queues(self) -> _tables.Table:
        """A record for the output queue before each of these links."""
        return self._table("queues")

    @cached_property
    def samples(self) -> _tables.Table:
        """A record for each link at each step of ``[report] sample``; none without it."""
        return self._table("samples")

    @cached_property
    def switch_samples(self) -> _tables.Table:
        """A record for each switch at each of these steps."""
        return self._table("switch_samples")

    @cached_property
    def job_samples(self) -> _tables.Table:
        """A record for each figure of each job and rank at each of these steps."""
        return self._table("job_samples")

    @cached_property
    def switch_metrics(self) -> _tables.Table:
        """A record for each figure that a protocol counts or measures in a switch, by its own name."""
        return self._table("switch_metrics")

    @cached_property
    def cores(self) -> _tables.Table:
        """A record for each switch whose programs ran on cores; none without ``[switches.cores]``."""
        return self._table("cores")

    @cached_property
    def spans(self) -> _tables.Table:
        """A record for each computation and collective of a rank in a training step."""
        return self._table("spans")

    @cached_property
    def pauses(self) -> _tables.Table:
        """A record for each link that PAUSE stopped; none without ``[report] pauses``."""
        return self._table("pauses")

    @cached_property
    def bottlenecks(self) -> _tables.Table:
        """A record for each place and rank that jobs waited for; none without ``[report] bottlenecks``."""
        return self._table("bottlenecks")

    def frame(self, table: TableName) -> pd.DataFrame:
        """Give one table as a pandas frame."""
        return _tables.frame(self._columns[table])

    def save(self, directory: str | os.PathLike[str], format: Literal["parquet", "csv"] = "parquet") -> None:
        """Write ``report.json`` and a file for each table, as ``tributary sim run --out`` does."""
        self._core.write(os.fspath(directory), format)

    def plot(self) -> Figure:
        """Draw goodput, completion times, links and queues, with samples also over time.

        Needs matplotlib: `tributary-ina[plots]`.
        """
        try:
            from tributary import plots
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("pictures need matplotlib: `pip install 'tributary-ina[plots]'`") from error
        title = f"{self.report['hosts']} hosts, {self.report['switches']} switches, seed {self.seed}"
        return plots.draw_figures(json.loads(self._core.figures()), title)

    @cached_property
    def _columns(self) -> Mapping[str, _tables.Columns]:
        return self._core.tables()

    def _table(self, name: str) -> _tables.Table:
        return _tables.structured(self._columns[name])

    def __str__(self) -> str:
        return self._core.text()

    def __repr__(self) -> str:
        state = "complete" if self.failure is None else f"failed: {self.failure}"
        return f"<tributary.sim.Result: {self.report['hosts']} hosts, {self.seconds:.6g} s simulated, {state}>"

    def _repr_html_(self) -> str:
        """The text that a notebook shows."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def run(
    config: _source.Config, *, seed: int | None = None, progress: Callable[[Progress], object] | None = None
) -> Result:
    """Run an experiment to its end.

    Other threads of Python go on meanwhile, and Ctrl-C ends it with `KeyboardInterrupt`.

    Args:
        config: a path to a file, its text, or the same as a dict, in which a key with the value None is left out.
        seed: replaces the file's.
        progress: called some times a second; what it raises ends the run.

    Raises:
        ConfigError: this describes no experiment; the sentence is that of the program.

    A result that is wrong or incomplete is returned, not raised: see `Result.failure` and `Result.check`.

    """
    source = _source.read(config)
    report = None if progress is None else lambda *state: progress(Progress(*state))
    try:
        return Result(_core.simulate(source.text, source.json, seed, report))
    except ConfigError as error:
        raise source.wrong(error) from None
