"""The process to which a group belongs: a fork has its memory and none of its threads."""

from __future__ import annotations

import os

from tributary.errors import TributaryError


class ForkGuard:
    """The process that something was made in."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether this process is that process, and not a fork of it."""
        return self._pid == os.getpid()

    def refuse_fork(self, what: str) -> None:
        """Raise an error in a fork, where locks of the parent may be held by threads that the fork lacks."""
        if not self.is_here():
            raise TributaryError(f"{what} was made before a fork; make a new process group in the new process")
