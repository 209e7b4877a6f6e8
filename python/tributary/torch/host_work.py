"""Handles of operations on the host path, and the order in which Gloo starts them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from tributary.torch.agreement import Agreement
from tributary.torch.callbacks import Callbacks, OrderedFuture
from tributary.torch.health import Health
from tributary.torch.ledger import Ledger
from tributary.torch.transit import Finish, StillRunningError
from tributary.torch.untraced import untraced
from tributary.torch.work import NO_TIMEOUT, Completer, GroupWork


class StartOrder:
    """The operations that Gloo has not started yet, since the ranks have not agreed on them.

    Gloo ends the process if a message is longer than its receiver expects, so it starts none on which ranks disagree.
    It numbers operations as they start, so all ranks must start them in one order, whichever threads wait for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[HostWork] = deque()

    def append(self, work: HostWork) -> None:
        """Add an operation, in the order of the program."""
        with self._lock:
            self._waiting.append(work)

    def start(self, last: HostWork | None, patience: timedelta) -> None:
        """Wait until all ranks have come to the operations up to this one, and start them; all there are if None."""
        with self._lock:
            works = list(self._waiting)
        if last is not None:
            works = works[: works.index(last) + 1] if last in works else []
        for work in works:
            work.agree(patience)
        with self._lock:
            for work in works:
                if self._waiting and self._waiting[0] is work:
                    self._waiting.popleft().begin()


@untraced
class HostWork(GroupWork):
    """An operation on the host path: Gloo's own work, under our name, and the ranks' agreement before it."""

    def __init__(
        self,
        title: str,
        tensors: Sequence[torch.Tensor],
        start: Callable[[], tuple[Any, Finish | None]],
        order: StartOrder,
        completer: Completer,
        callbacks: Callbacks,
        health: Health,
        ledger: Ledger,
        agreement: Agreement | None,
        give_up: Callable[[], None],
    ) -> None:
        """Start Gloo's operation, or have it started once the ranks have agreed on it."""
        super().__init__(title, tensors, None, callbacks, health, ledger)
        self._start = start
        self._order = order
        self._completer = completer
        self._agreement = agreement
        self._give_up = give_up
        #: Gloo's work, once there is one.
        self._inner: Any = None
        self._follows = False
        self._reports_its_end = True
        if agreement is None:
            self._inner, self._finish = start()
        else:
            order.append(self)

    def begin(self) -> None:
        """Start Gloo's operation, unless the ranks have disagreed on it."""
        if self._ended:
            return
        try:
            self._inner, self._finish = self._start()
        except Exception as error:
            with contextlib.suppress(Exception):  # It is raised where the operation is waited for.
                self._conclude(error)
            return
        with self._lock:
            follow = self._follows
        if follow:
            self._follow()

    def _await(self, timeout: timedelta) -> None:
        if not self._ended:
            self._order.start(self, timeout)
        if not self._ended:
            try:
                self._inner.wait(timeout)
            except RuntimeError as error:
                self._conclude(error)
            self._note_source()
        self._conclude(None)

    def agree(self, timeout: timedelta) -> None:
        """Wait for all ranks' descriptions; if they differ, the operation has failed."""
        if self._agreement is None or self._ended:
            return
        try:
            self._agreement.wait(timeout)
        except StillRunningError:
            raise
        except Exception as error:
            self._give_up()
            self._conclude(error)

    def finish_quietly(self) -> None:
        """Wait until Gloo's work has begun; Gloo reports its end."""
        with contextlib.suppress(Exception):
            self._order.start(self, NO_TIMEOUT)

    def is_completed(self) -> bool:
        """Whether the operation has ended. Gloo's sends and receives report their end only after a wait."""
        if self._inner is None and self._agreement is not None and self._agreement.is_done():
            self.finish_quietly()
        if not self._ended and self._inner is not None and self._inner.is_completed():
            try:
                self._await(NO_TIMEOUT)
            except Exception:
                if not self._ended:
                    raise
        return self._ended

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors."""
        with self._lock:
            follow = not self._ended and not self._follows
            self._follows = True
            has_begun = self._inner is not None
        if follow and has_begun:
            self._follow()
        elif follow:
            self._completer.complete_later(self)
        return super().get_future()

    def _follow(self) -> None:
        try:
            inner = self._inner.get_future()
        except RuntimeError:
            # Gloo's sends and receives have no future: ours ends when a thread has waited.
            self._reports_its_end = False
            return
        inner.add_done_callback(self._on_done)

    def ordered_future(self) -> OrderedFuture | None:
        """Like for all works. A callback that waits for a send would keep all other callbacks waiting."""
        return super().ordered_future() if self._reports_its_end else None

    def _on_done(self, inner: torch.futures.Future[Any]) -> None:
        # Gloo counts its work as under way until its future's callbacks have returned, so it cannot be waited for here.
        error: RuntimeError | None = None
        try:
            inner.value()
        except RuntimeError as failed:
            error = failed
        # The caller gets the error through our futures.
        with contextlib.suppress(Exception):
            self._conclude(error)

    def _source_rank(self) -> int:
        """The rank from which a receive from any rank got its tensors."""
        self.wait()
        return self._result.source_rank

    source_rank = _source_rank

    def _note_source(self) -> None:
        with contextlib.suppress(RuntimeError):  # Only a receive has one.
            self._result.source_rank = self._inner._source_rank()
