"""Handles of operations under way: what all have in common, and :class:`NetworkWork`. ``host_work`` has the others."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from tributary.torch.callbacks import Callbacks, OrderedFuture, complete
from tributary.torch.health import Health
from tributary.torch.ledger import Ledger
from tributary.torch.process import ForkGuard
from tributary.torch.transit import Finish, StillRunningError, Transit, entitle, without_frames
from tributary.torch.untraced import untraced

#: What :meth:`GroupWork.wait` gets if there is no bound but the operation's own timeout.
NO_TIMEOUT = timedelta(0)
#: How long a thread of a group stays when it has nothing to do.
IDLE_S = 1.0


class Result(list[torch.Tensor]):
    """The tensors of an operation, for its future; and the rank from which a receive got them."""

    source_rank: int = -1


#: For each thread, the work whose future was asked for last.
_here = threading.local()


def take_last_work() -> GroupWork | None:
    """The work whose future this thread asked for last; forgets it."""
    work, _here.last = getattr(_here, "last", None), None
    return work


@untraced
class GroupWork(Work):
    """The common part of both kinds: one outcome, decided once, and futures that get it."""

    def __init__(
        self,
        title: str,
        tensors: Sequence[torch.Tensor],
        finish: Finish | None,
        callbacks: Callbacks,
        health: Health,
        ledger: Ledger | None,
    ) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._health = health
        self._ledger = ledger
        self._begun = time.monotonic()
        #: The work's name in messages: "all_reduce 12 of group default_pg".
        self.title = title
        self._home = ForkGuard()
        self._result = Result(tensors)
        self._finish = finish
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._handed: torch.futures.Future[Any] | None = None
        self._ordered: OrderedFuture | None = None

    def _conclude(self, error: BaseException | None) -> None:
        """Decide the outcome, unless another thread has decided it; write the result to the caller's tensors."""
        futures: list[torch.futures.Future[Any]] = []
        with self._lock:
            if not self._ended:
                if error is None and self._finish is not None:
                    try:
                        self._finish()
                    except Exception as failed:
                        error = failed
                if error is not None:
                    self._health.note(error, self.title)
                    entitle(error, self.title)
                if self._ledger is not None:
                    self._ledger.ended(self._begun, time.monotonic())
                self._error = None if error is None else without_frames(error)
                self._ended, self._finish = True, None
                futures = [future for future in (self._ordered, self._future) if future is not None]
        # Outside the lock: callbacks of the futures may call this work again.
        for future in futures:
            self._complete(future)
        if self._error is not None:
            raise without_frames(self._error)

    def _complete(self, future: torch.futures.Future[Any] | None) -> None:
        if future is not None:
            complete(future, self._result if self._error is None else self._error)

    def get_future(self) -> torch.futures.Future[Any]:
        """The future of the tensors that C++ knows."""
        _here.last = self
        with self._lock:
            late = self._ended and self._future is None
            if self._handed is None:
                self._future = torch.futures.Future(devices=self._devices())
                # PyTorch's `set_exception` works only for Python: C++ sees a value, and DDP takes it for gradients and
                # crashes. An error that a callback raises is an error for both.
                self._handed = self._future.then(_value)
            handed = self._handed
        if late:
            self._complete(self._future)
        return handed

    def ordered_future(self) -> OrderedFuture | None:
        """The future of the tensors that Python gets; None if the work does not report its end by itself."""
        with self._lock:
            late = self._ended and self._ordered is None
            if self._ordered is None:
                self._ordered = OrderedFuture(self._callbacks, self._devices(), self.finish_quietly)
            ordered = self._ordered
        if late:
            self._complete(ordered)
        return ordered

    def finish_quietly(self) -> None:
        """Bring the end about, if this thread can; an error is left for the caller."""

    def _devices(self) -> list[torch.device]:
        # A future of tensors on a GPU must name their devices.
        found = {tensor.device for tensor in self._result if tensor.device.type == "cuda"}
        return sorted(found, key=lambda device: device.index)

    def is_success(self) -> bool:
        """Whether the operation has ended successfully."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """The error of the operation, if it failed."""
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors of an operation that has ended."""
        return self._result

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait until the result is in the caller's tensors; raise the operation's error if it failed."""
        self._home.refuse_fork(self.title)
        begun = time.monotonic()
        try:
            self._await(timeout)
        finally:
            if self._ledger is not None:
                self._ledger.waited(time.monotonic() - begun)
        return True

    def _await(self, timeout: timedelta) -> None:
        """Bring the end about, and decide the outcome."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Like :meth:`wait`."""
        self.wait()


@untraced
class NetworkWork(GroupWork):
    """An operation in the network: its transit, and what remains to do with the transit's results."""

    def __init__(
        self,
        title: str,
        tensors: Sequence[torch.Tensor],
        transit: Transit,
        finish: Finish | None,
        completer: Completer,
        callbacks: Callbacks,
        health: Health,
        ledger: Ledger,
    ) -> None:
        super().__init__(title, tensors, finish, callbacks, health, ledger)
        #: None once the operation has ended: it holds the job's sockets, and a work with a future is a cycle.
        self._transit: Transit | None = transit
        self._completer = completer

    def _await(self, timeout: timedelta) -> None:
        error: Exception | None = None
        if (transit := self._transit) is not None:
            try:
                transit.wait(timeout)
            except StillRunningError:
                raise
            except Exception as failed:
                error = failed
        self._conclude(error)

    def _conclude(self, error: BaseException | None) -> None:
        try:
            super()._conclude(error)
        finally:
            self._transit = None

    def is_completed(self) -> bool:
        """Whether the operation has ended, successfully or not."""
        if (transit := self._transit) is not None and transit.is_done():
            self.finish_quietly()
        return self._ended

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors, which ends even if no thread waits."""
        future = super().get_future()
        if not self._ended:
            self._completer.complete_later(self)
        return future

    def finish_quietly(self) -> None:
        """Wait for the end; an error is left for the caller."""
        self._home.refuse_fork(self.title)
        try:
            self._await(NO_TIMEOUT)
        except Exception:
            if not self._ended:
                raise


class DoneWork(GroupWork):
    """A work that has ended successfully. Its own methods need no hiding: Dynamo finds nothing in them."""

    def __init__(self, title: str, callbacks: Callbacks, health: Health, tensors: Sequence[torch.Tensor] = ()) -> None:
        super().__init__(title, tensors, None, callbacks, health, None)
        self._ended = True

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Return at once, since nothing is left to wait for."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True


class Completer:
    """A thread that waits for operations whose callers do not: those with futures, and those with steps left to do."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[GroupWork | None] = queue.SimpleQueue()
        self._name = name
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def complete_later(self, work: GroupWork) -> None:
        """End the work as soon as its transfers have ended."""
        with self._lock:
            self._queue.put(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work.finish_quietly()
            del work

    def _next(self) -> GroupWork | None:
        """The next work; None if the thread is to end, because it is closed or has had nothing to do for a while."""
        try:
            return self._queue.get(timeout=IDLE_S)
        except queue.Empty:
            with self._lock:
                if self._queue.empty() and self._thread is threading.current_thread():
                    self._thread = None
                    return None
            return self._queue.get()

    def close(self) -> None:
        """End the thread; call it once no transfer can take long any more."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout=5.0)


def _value(future: torch.futures.Future[Any]) -> Any:
    try:
        return future.value()
    except Exception as error:
        error.__traceback__ = None
        failed = without_frames(error)
    # PyTorch keeps what is raised here, and with it this frame.
    del future
    raise failed
