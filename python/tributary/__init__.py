"""Tributary sums tensors inside the network.

>>> import numpy as np, tributary
>>> with tributary.connect("10.0.0.1:17777", job="train", rank=0, world_size=4) as group:
...     total = group.all_reduce(np.ones(1_000_000, np.float32))
"""

from tributary import flare, panama, sim
from tributary._core import __version__
from tributary.errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    ConfigError,
    ConnectError,
    MismatchError,
    RankLostError,
    ServerLostError,
    SimulationError,
    SwitchLostError,
    TributaryError,
    UnsupportedError,
)
from tributary.group import Group, Handle, connect
from tributary.info import GroupInfo, GroupStats
from tributary.operators import Operator
from tributary.sparse import SparseHandle
from tributary.switch import Switch

__all__ = [
    "ClosedError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "ConfigError",
    "ConnectError",
    "Group",
    "GroupInfo",
    "GroupStats",
    "Handle",
    "MismatchError",
    "Operator",
    "RankLostError",
    "ServerLostError",
    "SimulationError",
    "SparseHandle",
    "Switch",
    "SwitchLostError",
    "TributaryError",
    "UnsupportedError",
    "__version__",
    "connect",
    "flare",
    "panama",
    "sim",
]
