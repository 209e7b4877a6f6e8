"""What this rank started last, as PyTorch's flight recorder has it: for people, and for `torchfrtrace`.

PyTorch records every operation of a group by itself (``TORCH_FR_BUFFER_SIZE``, 2,000 of them), whatever the backend.
What it cannot do for a backend in Python is to write the record where something fails: that is done here.
"""

from __future__ import annotations

import json
import os
from typing import Any

from torch._C._distributed_c10d import _dump_fr_trace_file, _dump_fr_trace_json

#: The name that PyTorch files operations under; that of the backend.
_RECORDER = "tributary"
#: PyTorch's switches for files in case of failure, the older one last.
_SWITCHES = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_YES = {"1", "y", "yes", "t", "true"}


def flight_record() -> dict[str, Any]:
    """The last operations that this process started, in all groups.

    ``entries`` has one for each, the oldest first: ``profiling_name``, ``process_group``, ``collective_seq_id``,
    ``input_sizes``, ``input_dtypes``, ``time_created_ns`` and more; ``pg_config`` has the groups. ``state`` is
    "scheduled" whether or not the operation has ended: PyTorch hears of ends from backends in C++ alone. Groups that
    can change their members are not recorded.
    """
    record: dict[str, Any] = json.loads(_dump_fr_trace_json(includeCollectives=True, backend=_RECORDER))
    record.setdefault("entries", [])
    return record


def write_flight_record(rank: int) -> None:
    """Write the record for ``torchfrtrace``, which wants one file of each rank in one folder.

    The file is ``$TORCH_FR_DUMP_TEMP_FILE`` with the rank behind it.
    """
    _dump_fr_trace_file(rank, backend=_RECORDER)


def writes_at_failure() -> bool:
    """Whether a failure is to be followed by a file."""
    value = next((os.environ[name] for name in _SWITCHES if os.environ.get(name)), "")
    return value.lower() in _YES
