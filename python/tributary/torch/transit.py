"""The collectives of one operation in the network, and the wording of their errors."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from tributary._core import LocalPending, Pending
from tributary.errors import CollectiveTimeoutError, MismatchError

#: What remains to do once all results have come.
Finish = Callable[[], None]

#: A collective under way, in the network or in this host's memory.
Handle = Pending | LocalPending

#: A sentence to add to an error's; or what makes a better sentence of the error and its own.
Hint = str | Callable[[Any, str], str]

#: The hints for errors of these classes.
Hints = Mapping[type[Exception], Hint]

#: Asks all ranks what they have brought, and returns a sentence if they disagree and have all answered.
Everyones = Callable[[], str | None]


class Transit:
    """The collectives of one operation."""

    def __init__(
        self, title: str, pending: Sequence[Handle], timeout: float, hints: Hints, everyones: Everyones
    ) -> None:
        self._title, self._pending, self._timeout, self._hints = title, pending, timeout, hints
        self._everyones = everyones

    def is_done(self) -> bool:
        """Whether all have ended, successfully or not."""
        return all(pending.is_done() for pending in self._pending)

    def wait(self, patience: timedelta) -> None:
        """Wait for the end of all; raise the error of one that failed.

        Raises:
            StillRunningError: where the patience, if it is more than nothing, ends first.

        """
        deadline = time.monotonic() + patience.total_seconds() if patience > timedelta(0) else None
        try:
            arrived = self._await(deadline)
        except Exception as error:
            # A packet names two ranks that disagree, and leaves out which operations their sums are of.
            everyones = self._everyones() if isinstance(error, MismatchError) else None
            if everyones is not None:
                error.args = (everyones, *error.args[1:])
            else:
                self._add_hints(error)
            if isinstance(error, CollectiveTimeoutError):
                entitle(error, f"{self._title} timed out, after a timeout of {self._timeout:g} s")
            raise
        if not arrived:
            raise StillRunningError(
                f"{self._title} is still under way after {patience.total_seconds():g} s; it goes on until the timeout "
                "of its group, wait again"
            )

    def _add_hints(self, error: Exception) -> None:
        for kind, hint in self._hints.items():
            if isinstance(error, kind):
                sentence = str(error.args[0])
                better = f"{sentence} ({hint})" if isinstance(hint, str) else hint(error, sentence)
                error.args = (better, *error.args[1:])

    def _await(self, deadline: float | None) -> bool:
        for pending in self._pending:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not pending.wait(left):
                return False
        return True


class StillRunningError(CollectiveTimeoutError):
    """A wait that was shorter than its operation, which goes on."""


def entitle(error: BaseException, title: str) -> None:
    """Name the operation that failed in the error, unless the error names it."""
    if error.args and not str(error.args[0]).startswith(title):
        error.args = (f"{title}: {error.args[0]}", *error.args[1:])


def without_frames(error: BaseException) -> BaseException:
    """A copy without a traceback, since an error that was raised holds the frames that it came through.

    These hold works and futures, and PyTorch holds those in C++, where the garbage collector does not see the cycle if
    they hold the error in turn. An error of the caller's own class that cannot be copied is stripped itself.
    """
    try:
        copied = copy.copy(error)
    except Exception:
        copied = error
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copied.with_traceback(None)
