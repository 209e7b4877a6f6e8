"""The simulator: protocols' own machines on simulated networks of any size.

>>> from tributary import sim
>>> result = sim.run("experiments/first.toml")
>>> result.jobs["goodput_gbps"], result.links["utilisation"].max()

`docs/simulator-reference.md` explains every key of an experiment, `docs/notebook.md` works through one.
"""

from tributary.sim._run import Progress, Result, run
from tributary.sim._source import Config
from tributary.sim._sweep import SweepFailure, SweepResult, sweep
from tributary.sim._trace import step_of_trace
from tributary.sim._traced import TracedStep

__all__ = [
    "Config",
    "Progress",
    "Result",
    "SweepFailure",
    "SweepResult",
    "TracedStep",
    "run",
    "step_of_trace",
    "sweep",
]
