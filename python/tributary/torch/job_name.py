"""The names of a group's jobs at the switch: what people call the job, and the group's own name."""

from __future__ import annotations

import os
import pwd
import re
import sys
from pathlib import Path

#: The most letters of a job's name.
MOST_LETTERS = 128

#: The most letters that people choose: the rest of the name tells the jobs of all groups apart.
MOST_CHOSEN = 64


def default_job() -> str:
    """The name of the program and its user: "train-alice"."""
    return f"{_program()}-{_user()}"


def _program() -> str:
    path = Path(sys.argv[0] if sys.argv else "")
    # `python -m package` runs the package's file __main__.py.
    stem = path.parent.name if path.stem == "__main__" else path.stem
    return stem if stem not in ("", "-c", "-m") else "python"


def _user() -> str:
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # A container may run under a number that has no name.
        return str(number)


def of_group(job: str, nonce: str, group: str) -> str:
    """The name of a group's job; `nonce` tells it from the jobs of other runs."""
    return f"{safe(job)[:MOST_CHOSEN]}-{nonce}-{safe(group)}"[:MOST_LETTERS]


def extended(job: str, suffix: str) -> str:
    """The name of another job of the same group."""
    ending = safe(suffix)
    return f"{job[: MOST_LETTERS - len(ending)]}{ending}"


def safe(name: str) -> str:
    """The name in letters that a job's name may have."""
    return re.sub(r"[^A-Za-z0-9_.:@+=-]", "_", name)
