"""The operations that this rank started last, in PyTorch's flight recorder: for people, and for `torchfrtrace`.

PyTorch 2.15 and newer record every operation of a group by themselves (``TORCH_FR_BUFFER_SIZE``, 2,000 of them),
whatever the backend. What they cannot do for a backend in Python is to write the record where something fails: that
is done here.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch._C import _distributed_c10d as _c10d

from tributary.errors import UnsupportedError

#: The name under which PyTorch files operations: the backend's.
_RECORDER = "tributary"
#: PyTorch's switches for writing files after failures, the older one last.
_SWITCHES = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_YES = {"1", "y", "yes", "t", "true"}


def flight_record() -> dict[str, Any]:
    """The last operations that this process started, in all groups.

    ``entries`` has one for each, the oldest first: ``profiling_name``, ``process_group``, ``collective_seq_id``,
    ``input_sizes``, ``input_dtypes``, ``time_created_ns`` and more; ``pg_config`` has the groups. ``state`` is
    "scheduled" whether or not the operation has ended: only backends in C++ report ends to PyTorch. Groups that
    can change their members are not recorded.
    """
    _refuse_old()
    record: dict[str, Any] = json.loads(_c10d._dump_fr_trace_json(includeCollectives=True, backend=_RECORDER))
    record.setdefault("entries", [])
    return record


def write_flight_record(rank: int) -> None:
    """Write the record for ``torchfrtrace``, which wants one file of each rank in one folder.

    The file is ``$TORCH_FR_DUMP_TEMP_FILE`` with the rank behind it.
    """
    _refuse_old()
    _c10d._dump_fr_trace_file(rank, backend=_RECORDER)


def writes_at_failure() -> bool:
    """Whether a file must be written after a failure, and can be."""
    value = next((os.environ[name] for name in _SWITCHES if os.environ.get(name)), "")
    return value.lower() in _YES and _records_all()


def _records_all() -> bool:
    """Whether this PyTorch has a recorder for each backend; before 2.15 only its own backends have one."""
    return hasattr(_c10d, "_dump_fr_trace_file")


def _refuse_old() -> None:
    if not _records_all():
        raise UnsupportedError(
            f"flight records need PyTorch 2.15 or newer, which record every backend; this is {torch.__version__}"
        )
