"""The health of a group, which ``get_error`` returns, and the hooks that are called at its first failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from torch._C._distributed_c10d import ErrorType

from tributary.errors import CollectiveTimeoutError, RankLostError
from tributary.torch.replan import LOSSES
from tributary.torch.transit import StillRunningError

log = logging.getLogger("tributary.torch")


class AbortHooks:
    """The hooks to call before a group gives up, by the ids under which they were registered."""

    def __init__(self) -> None:
        self._hooks: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def register(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Add a hook."""
        with self._lock:
            if hook_id in self._hooks:
                raise ValueError(f"an abort hook with the id {hook_id} is there; unregister it first")
            self._hooks[hook_id] = hook

    def unregister(self, hook_id: int) -> None:
        """Remove the hook with this id; no effect if there is none."""
        with self._lock:
            self._hooks.pop(hook_id, None)

    def call(self) -> None:
        """Call all hooks, in the order of their registration; errors that they raise are logged."""
        with self._lock:
            hooks = list(self._hooks.values())
        for hook in hooks:
            try:
                hook()
            except Exception:
                log.exception("an abort hook failed")


class Health:
    """The first error among the same members. Safe to use from several threads."""

    def __init__(self, hooks: AbortHooks) -> None:
        self._hooks = hooks
        self._lock = threading.Lock()
        self._error = ErrorType.SUCCESS
        #: The ranks that were lost.
        self.lost: frozenset[int] = frozenset()
        #: The first operation that failed because a switch or a parameter server was lost.
        self.lost_in: str | None = None

    @property
    def error(self) -> ErrorType:
        """``SUCCESS`` while there was no error."""
        return self._error

    def note(self, error: BaseException, title: str = "") -> None:
        """An operation failed; the program's have a title. A wait that ended before its operation does not count."""
        if isinstance(error, StillRunningError):
            return
        if isinstance(error, RankLostError):
            self.lost |= set(error.missing)
        if isinstance(error, LOSSES) and title and self.lost_in is None:
            self.lost_in = title
        # Gloo has no class for timeouts.
        timed_out = isinstance(error, CollectiveTimeoutError) or "timed out" in str(error).lower()
        self._fail(ErrorType.TIMEOUT if timed_out else ErrorType.COMM_ERROR)

    def note_abort(self) -> None:
        """The program aborted the group."""
        self._fail(ErrorType.COMM_ERROR)

    def _fail(self, error: ErrorType) -> None:
        with self._lock:
            is_first = self._error == ErrorType.SUCCESS
            if is_first:
                self._error = error
        if is_first:
            self._hooks.call()
