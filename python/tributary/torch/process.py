"""Which process a group belongs to: a fork has its memory and none of its threads."""

from __future__ import annotations

import os

from tributary.errors import TributaryError


class Home:
    """The process that something was made in."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether this process is the one, and not a fork of it."""
        return self._pid == os.getpid()

    def refuse_fork(self, what: str) -> None:
        """Raise in a fork, where the parent's locks may be held for ever by threads that are not there."""
        if not self.is_here():
            raise TributaryError(f"{what} was made before a fork; make a new process group in the new process")
