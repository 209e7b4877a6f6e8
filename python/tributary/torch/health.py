"""Whether a group still works, as ``get_error`` tells it, and who is called when it no longer does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from torch._C._distributed_c10d import ErrorType

from tributary.errors import CollectiveTimeout
from tributary.torch.transit import StillUnderWay

log = logging.getLogger("tributary.torch")


class AbortHooks:
    """What to call before a group gives up, by the ids under which it was registered."""

    def __init__(self) -> None:
        self._hooks: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def register(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Call this one, too."""
        with self._lock:
            if hook_id in self._hooks:
                raise ValueError(f"an abort hook with the id {hook_id} is there; unregister it first")
            self._hooks[hook_id] = hook

    def unregister(self, hook_id: int) -> None:
        """Call it no more; harmless where there is none of this id."""
        with self._lock:
            self._hooks.pop(hook_id, None)

    def call(self) -> None:
        """Call all, in the order of their registration; what one raises is logged."""
        with self._lock:
            hooks = list(self._hooks.values())
        for hook in hooks:
            try:
                hook()
            except Exception:
                log.exception("an abort hook failed")


class Health:
    """What went wrong first among the same members. Safe to use from several threads."""

    def __init__(self, hooks: AbortHooks) -> None:
        self._hooks = hooks
        self._lock = threading.Lock()
        self._error = ErrorType.SUCCESS

    @property
    def error(self) -> ErrorType:
        """``SUCCESS`` as long as nothing went wrong."""
        return self._error

    def note(self, error: BaseException) -> None:
        """An operation failed. A wait that ended before its operation is no failure."""
        if isinstance(error, StillUnderWay):
            return
        # Gloo has no class for it.
        timed_out = isinstance(error, CollectiveTimeout) or "timed out" in str(error).lower()
        self._turn(ErrorType.TIMEOUT if timed_out else ErrorType.COMM_ERROR)

    def note_abort(self) -> None:
        """The program gave up."""
        self._turn(ErrorType.COMM_ERROR)

    def _turn(self, error: ErrorType) -> None:
        with self._lock:
            is_first = self._error == ErrorType.SUCCESS
            if is_first:
                self._error = error
        if is_first:
            self._hooks.call()
